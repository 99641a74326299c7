"""Recorded traces: which packets a network delivered, iteration by iteration, link by link."""

import dataclasses
import functools
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import xarray as xr

from jaxlossy.errors import ConfigError, check_name
from jaxlossy.files import replacing

#: Placements under which a worker's packet takes the same link in every iteration. With 'random'
#: the recording would hold for the servers drawn then, and training draws others.
RECORDABLE = ("fixed", "separate")


@dataclasses.dataclass(frozen=True, eq=False)
class Trace:
    """What one network delivered.

    Attributes:
      up: uplink, bool (iteration, worker, packet), True where the worker's copy of the packet
        reached its server.
      down: downlink, bool (iteration, worker, packet), True where the server's reached the worker.
      servers: S; packets belong to servers as in training (``packets.owners``).
      placement: 'fixed' (what a machine sends to itself counts as delivered) or 'separate'.

    Raises:
      ConfigError: arrays that are not boolean or differ in shape, more servers than packets or, if
        fixed, than workers, another placement.

    >>> Trace(np.ones((2, 4, 8), bool), np.ones((2, 4, 8), bool), servers=4, placement="random")
    Traceback (most recent call last):
    jaxlossy.errors.ConfigError: placement: 'random' is not allowed (allowed: fixed, separate)
    """

    up: np.ndarray
    down: np.ndarray
    servers: int
    placement: str

    def __post_init__(self):
        check_name("placement", self.placement, RECORDABLE)
        up, down = np.asarray(self.up), np.asarray(self.down)
        for name, array in (("up", up), ("down", down)):
            if array.dtype != bool or array.ndim != 3 or not array.size:
                allowed = "booleans (iteration, worker, packet), at least one of each"
                raise ConfigError(name, (array.dtype.name, array.shape), allowed)
        if up.shape != down.shape:
            raise ConfigError("down", down.shape, f"{up.shape}, the shape of up")
        most = min(up.shape[1:]) if self.placement == "fixed" else up.shape[2]
        if not 1 <= self.servers <= most:
            allowed = f"an integer in [1, {most}] with placement={self.placement!r}"
            raise ConfigError("servers", self.servers, allowed)
        object.__setattr__(self, "up", up)
        object.__setattr__(self, "down", down)

    @property
    def workers(self) -> int:
        """N."""
        return self.up.shape[1]

    @property
    def num_packets(self) -> int:
        """M, packets that carry the model."""
        return self.up.shape[2]


def check_alike(traces: Sequence[Trace]) -> Trace:
    """Refuses no traces at all, and traces that can not stand for each other; gives the first."""
    if not traces:
        raise ConfigError("traces", traces, "at least one")
    first = traces[0]
    for trace in traces:
        kinds = [(*t.up.shape, t.servers, t.placement) for t in (trace, first)]
        if kinds[0] != kinds[1]:
            allowed = f"{kinds[1]} as the first: iterations, workers, packets, servers, placement"
            raise ConfigError("traces", kinds[0], allowed)
    return first


def pack(traces: Sequence[Trace]) -> np.ndarray:
    """All traces, eight packets a byte: uint8 (trace, iteration, direction, worker, byte)."""
    both = [np.stack([trace.up, trace.down], axis=1) for trace in traces]
    return np.packbits(np.stack(both), axis=-1)


def digest(traces: Sequence[Trace]) -> str:
    """A name for what is in the traces."""
    first = check_alike(traces)
    text = f"{first.up.shape} {first.servers} {first.placement}".encode()
    return hashlib.sha256(text + pack(traces).tobytes()).hexdigest()[:16]


def save_traces(path: str | os.PathLike[str], *traces: Trace) -> None:
    """Writes traces of one network's links to a netCDF file, whole or not at all.

    Args:
      path: of the file; its directory exists.
      traces: of equal shapes, servers and placement; `Config.trace_index` counts them from 0.

    Raises:
      ConfigError: as ``recorded``.
    """
    first = check_alike(traces)
    dims = ("trace", "iteration", "worker", "packet")
    ds = xr.Dataset(
        {name: (dims, np.stack([getattr(t, name) for t in traces])) for name in ("up", "down")},
        attrs={"servers": first.servers, "placement": first.placement},
    )
    with replacing(Path(path)) as temporary:
        ds.to_netcdf(
            temporary, engine="h5netcdf", encoding={name: {"zlib": True} for name in ("up", "down")}
        )


def load_traces(path: str | os.PathLike[str]) -> tuple[Trace, ...]:
    """The traces of a file that ``save_traces`` wrote.

    Raises:
      ConfigError: no such file, or one that holds no traces.
    """
    try:
        return _load(os.fspath(path), os.stat(path).st_mtime_ns)
    except ConfigError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = getattr(error, "strerror", None) or error
        allowed = f"a file that jaxlossy.save_traces wrote; {reason}"
        raise ConfigError("trace", str(path), allowed) from None


@functools.lru_cache(maxsize=4)  # a sweep asks once for every config
def _load(path: str, changed_ns: int) -> tuple[Trace, ...]:
    del changed_ns  # a file written anew is read anew
    ds = xr.load_dataset(path, engine="h5netcdf")
    servers, placement = int(ds.attrs["servers"]), str(ds.attrs["placement"])
    both = zip(ds["up"].values, ds["down"].values, strict=True)
    return tuple(Trace(up, down, servers, placement) for up, down in both)
