"""What is sent: flows, each with its own path through the network, there and back."""

import dataclasses

import numpy as np

from jaxlossy.errors import ConfigError

#: Bytes of a flow. The simulation remembers 13 bytes of each packet of the flows under way.
MAX_SIZE = 2**36
#: ns at which flows may start; sums of a few such times are still 64-bit integers.
MAX_TIME = 2**60


@dataclasses.dataclass(frozen=True)
class Paths:
    """The links that each flow's packets take, one flow after the other.

    Attributes:
      offsets: int64 (flow + 1,); flow f takes ``links[offsets[f] : offsets[f + 1]]``.
      links: int32 (total,), indices of links.
    """

    offsets: np.ndarray
    links: np.ndarray

    def __post_init__(self):
        offsets = np.asarray(self.offsets, np.int64)
        links = np.asarray(self.links, np.int32)
        if offsets.ndim != 1 or not len(offsets) or offsets[0] != 0 or offsets[-1] != len(links):
            raise ConfigError("offsets", offsets.tolist(), f"numbers from 0 to {len(links)}")
        object.__setattr__(self, "offsets", offsets)
        object.__setattr__(self, "links", links)


@dataclasses.dataclass(frozen=True)
class Flows:
    """Messages to be sent, one a flow.

    Attributes:
      start_ns: int64 (flow,), when the sender has the message.
      source, destination: int32 (flow,), nodes.
      size: int64 (flow,), bytes of payload.
      traffic: int8 (flow,), an index into ``names``: which kind of traffic a flow is.
      names: the kinds of traffic, such as ("web", "train").
      data_path, ack_path: the way of the data, and that of what the receiver sends back.

    Raises:
      ConfigError: arrays of other lengths than the flows', a flow to itself, a start that is
        negative or above `MAX_TIME`, a size that is negative or above `MAX_SIZE`, a kind of traffic
        without a name.
    """

    start_ns: np.ndarray
    source: np.ndarray
    destination: np.ndarray
    size: np.ndarray
    traffic: np.ndarray
    names: tuple[str, ...]
    data_path: Paths
    ack_path: Paths

    def __post_init__(self):
        count = len(self.start_ns)
        fields = {"start_ns": np.int64, "source": np.int32, "destination": np.int32}
        fields |= {"size": np.int64, "traffic": np.int8}
        for name, dtype in fields.items():
            array = np.asarray(getattr(self, name))
            if array.shape != (count,):
                raise ConfigError(name, array.shape, f"one number for each of {count} flows")
            object.__setattr__(self, name, array.astype(dtype))
        for name in ("data_path", "ack_path"):
            paths = len(getattr(self, name).offsets) - 1
            if paths != count:
                raise ConfigError(name, paths, f"one path for each of {count} flows")
        for flow in np.flatnonzero((self.start_ns < 0) | (self.start_ns > MAX_TIME))[:1]:
            allowed = f"an integer in [0, {MAX_TIME}]"
            raise ConfigError(f"start_ns[{flow}]", int(self.start_ns[flow]), allowed)
        for flow in np.flatnonzero(self.source == self.destination)[:1]:
            raise ConfigError(f"destination[{flow}]", int(self.source[flow]), "another node")
        for flow in np.flatnonzero((self.size < 0) | (self.size > MAX_SIZE))[:1]:
            allowed = f"an integer in [0, {MAX_SIZE}]"
            raise ConfigError(f"size[{flow}]", int(self.size[flow]), allowed)
        for flow in np.flatnonzero((self.traffic < 0) | (self.traffic >= len(self.names)))[:1]:
            allowed = f"an index into {self.names}"
            raise ConfigError(f"traffic[{flow}]", int(self.traffic[flow]), allowed)
