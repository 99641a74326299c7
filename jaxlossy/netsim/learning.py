"""Training as network traffic: iterations of compute, reduce-scatter and all-gather.

What an iteration sends is an ``Exchange``; when it does, a ``LearningTraffic`` of many iterations,
whose messages the network carries like any others.

A packet of the model is a packet of the network: its payload is what the network puts into one,
whatever number of parameters the config has it carry. With `packet_size` = payload / 4 (345 for
1,380 bytes) the traffic is exactly the model's; with a smaller one, a small model stands for one
that is so many times larger and has as many packets.
"""

import dataclasses
from typing import Any

import numpy as np

from jaxlossy.config import Config
from jaxlossy.errors import ConfigError, check_name
from jaxlossy.netsim.traffic import Messages
from jaxlossy.packets import PLACEMENTS, PacketLayout, owners

#: Bytes of payload in a full packet of the network.
PAYLOAD = 1380
#: The two phases of an iteration, worker to server and back.
REDUCE_SCATTER, ALL_GATHER = 0, 1

# Keep the streams of this module apart from any other use of the same seed.
_PLACEMENT, _COMPUTE = 0x91AC, 0xC0DE


@dataclasses.dataclass(frozen=True)
class Exchange:
    """What one iteration sends: every worker its copy to every server, and back.

    Attributes:
      placement: where the servers are, as in ``packets.assign``. Workers are hosts 0 to N-1, and so
        are the servers, except with 'separate': there they are hosts N to N+S-1.
      workers: N.
      message_bytes: payload of each server's part of the model, int64 (server,).
      payload: bytes in a full packet.

    Raises:
      ConfigError: an unknown placement, no workers, no bytes, more servers than workers unless
        they are separate.

    >>> exchange = Exchange("fixed", 4, [3000, 3000])
    >>> exchange.packets.tolist(), exchange.num_packets, exchange.hosts
    ([3, 3], 6, 4)
    """

    placement: str
    workers: int
    message_bytes: Any
    payload: int = PAYLOAD

    def __post_init__(self):
        check_name("placement", self.placement, PLACEMENTS)
        size = np.asarray(self.message_bytes, np.int64)
        if self.workers < 1:
            raise ConfigError("workers", self.workers, "an integer >= 1")
        if self.payload < 1:
            raise ConfigError("payload", self.payload, "an integer >= 1")
        if size.ndim != 1 or not size.size or (size < 1).any():
            raise ConfigError("message_bytes", self.message_bytes, "integers >= 1, one a server")
        if self.placement != "separate" and size.size > self.workers:
            allowed = f"at most {self.workers} servers with placement={self.placement!r}"
            raise ConfigError("message_bytes", f"{size.size} servers", allowed)
        object.__setattr__(self, "message_bytes", size)

    @property
    def servers(self) -> int:
        """S."""
        return self.message_bytes.size

    @property
    def packets(self) -> np.ndarray:
        """Packets of each server's part, int64 (server,)."""
        return -(-self.message_bytes // self.payload)

    @property
    def num_packets(self) -> int:
        """M, packets that carry the model."""
        return int(self.packets.sum())

    @property
    def hosts(self) -> int:
        """Machines with a worker or a server."""
        return self.workers + (self.servers if self.placement == "separate" else 0)


def exchange_of(config: Config, layout: PacketLayout, *, payload: int = PAYLOAD) -> Exchange:
    """What an iteration of a training config sends.

    Args:
      config: gives workers, servers and placement.
      layout: the model's packets (``packets.packet_layout``); its last one is shorter.
      payload: bytes in a full packet.

    >>> from jaxlossy.packets import packet_layout
    >>> layout = packet_layout({"w": np.zeros((100, 10), np.float32)}, size=345)
    >>> exchange_of(Config(workers=4, servers=2), layout).message_bytes
    array([2760, 1240])
    """
    server = np.asarray(owners(layout.num_packets, config.servers))
    size = np.bincount(server) * payload
    size[-1] -= payload - -(-payload * layout.last_size // layout.size)
    return Exchange(config.placement, config.workers, size, payload)


@dataclasses.dataclass(frozen=True)
class LearningTraffic:
    """Iterations of an exchange, in order of time. The arrays have one entry a message.

    Attributes:
      exchange: what every iteration sends.
      messages: those that cross the network.
      iteration, worker, server: whose part of which worker's copy it is, int32.
      phase: `REDUCE_SCATTER` or `ALL_GATHER`, int8.
      phase_start_ns: int64 (iteration, phase): when the iteration begins to compute, and when its
        first server may send.
    """

    exchange: Exchange
    messages: Messages
    iteration: np.ndarray
    phase: np.ndarray
    worker: np.ndarray
    server: np.ndarray
    phase_start_ns: np.ndarray

    @property
    def first_packet(self) -> np.ndarray:
        """Where a message's packets begin among those of the model, int64."""
        packets = self.exchange.packets
        return (packets.cumsum() - packets)[self.server]

    @property
    def packets(self) -> np.ndarray:
        """Packets of each message, int64."""
        return self.exchange.packets[self.server]


def learning_traffic(
    exchange: Exchange, start_ns: Any, scatter_ns: Any, gather_ns: Any, *, seed: int = 0
) -> LearningTraffic:
    """Iterations at given times, such as those that a simulation of the ones before has found.

    A machine sends its messages of a phase all at once, in a turn that starts behind itself:
    machine i of n first to i+1, then to i+2, ..., (i+j) mod n. What it has to tell itself does not
    cross the network.

    Args:
      exchange: what each sends.
      start_ns: when it begins, (iteration,).
      scatter_ns: when each worker has computed and sends, (iteration, worker).
      gather_ns: when each server sends, (iteration, server).
      seed: of the servers' places with placement 'random', drawn for every iteration.

    Raises:
      ConfigError: times of another shape, or that run backwards.
    """
    start = np.asarray(start_ns, np.int64)
    scatter, gather = np.asarray(scatter_ns, np.int64), np.asarray(gather_ns, np.int64)
    workers, servers = exchange.workers, exchange.servers
    for name, times, count in (("scatter_ns", scatter, workers), ("gather_ns", gather, servers)):
        if times.shape != (len(start), count):
            raise ConfigError(name, times.shape, f"one time each, {(len(start), count)}")
        if (times < start[:, None]).any():
            raise ConfigError(name, int((times - start[:, None]).min()), "none before start_ns")
    host = _server_hosts(exchange, len(start), seed)
    iteration, worker, server = (
        axis.ravel().astype(np.int32) for axis in np.indices((len(start), workers, servers))
    )
    server_host = host[iteration, server]
    # Machines take turns among those of the other side, which are all machines if servers are
    # workers.
    place = server if exchange.placement == "separate" else server_host
    there = servers if exchange.placement == "separate" else workers
    columns = [
        np.concatenate(both)
        for both in (
            (scatter[iteration, worker], gather[iteration, server]),
            (iteration, iteration),
            [np.full(iteration.size, phase, np.int8) for phase in (REDUCE_SCATTER, ALL_GATHER)],
            (worker, server_host),
            ((place - worker - 1) % there, (worker - place - 1) % workers),
            (server_host, worker),
            (worker, worker),
            (server, server),
        )
    ]
    crosses = columns[3] != columns[5]
    columns = [column[crosses] for column in columns]
    order = np.lexsort(columns[4::-1])  # by time, iteration, phase, sender, turn
    sent, iteration, phase, sender, _, receiver, worker, server = (c[order] for c in columns)
    return LearningTraffic(
        exchange=exchange,
        messages=Messages(sent, sender, receiver, exchange.message_bytes[server]),
        iteration=iteration,
        phase=phase,
        worker=worker,
        server=server,
        phase_start_ns=np.stack([start, gather.min(axis=1)], axis=1),
    )


def _server_hosts(exchange: Exchange, iterations: int, seed: int) -> np.ndarray:
    """The host that every server runs on, int32 (iteration, server)."""
    number = np.arange(exchange.servers, dtype=np.int32)
    if exchange.placement == "random":
        workers = np.tile(np.arange(exchange.workers, dtype=np.int32), (iterations, 1))
        rng = np.random.default_rng((seed, _PLACEMENT))
        return rng.permuted(workers, axis=1)[:, : exchange.servers]
    first = exchange.workers if exchange.placement == "separate" else 0
    return np.tile(first + number, (iterations, 1))


def open_loop(
    exchange: Exchange,
    iterations: int,
    *,
    period_ns: int,
    compute_ns: Any,
    gather_ns: int,
    seed: int = 0,
) -> LearningTraffic:
    """Iterations whose phases begin at fixed times, whatever becomes of their packets.

    Args:
      exchange: what each sends.
      iterations: how many, one every `period_ns`.
      compute_ns: after the beginning of an iteration, reduce-scatter starts: one number, or one for
        each, (iteration, worker), such as ``compute_times`` draws.
      gather_ns: after the beginning of an iteration, all-gather starts.
      seed: as in ``learning_traffic``.

    >>> traffic = open_loop(Exchange("fixed", 3, [1380] * 3), 2, period_ns=100, compute_ns=10,
    ...                     gather_ns=60)
    >>> traffic.messages.start_ns[::6].tolist(), traffic.messages.destination[:6].tolist()
    ([10, 60, 110, 160], [1, 2, 2, 0, 0, 1])
    """
    start = np.arange(iterations, dtype=np.int64) * period_ns
    compute = np.broadcast_to(compute_ns, (iterations, exchange.workers))
    gather = np.repeat(start[:, None] + gather_ns, exchange.servers, axis=1)
    return learning_traffic(exchange, start, start[:, None] + compute, gather, seed=seed)


def compute_times(
    mean_ns: float, spread: float, iterations: int, workers: int, *, seed: int
) -> np.ndarray:
    """How long every worker computes in every iteration: independent, log-normal.

    Args:
      mean_ns: on average.
      spread: standard deviation over the mean, >= 0.

    Returns:
      int64 (iteration, worker).

    >>> compute_times(1e7, 0.1, 1000, 16, seed=0).std().round(-4)
    np.float64(1000000.0)
    """
    if not (mean_ns > 0 and spread >= 0):
        raise ConfigError("mean_ns, spread", (mean_ns, spread), "numbers > 0 and >= 0")
    variance = np.log1p(spread**2)
    rng = np.random.default_rng((seed, _COMPUTE))
    normal = rng.standard_normal((iterations, workers))
    drawn = mean_ns * np.exp(np.sqrt(variance) * normal - variance / 2)
    return np.rint(drawn).astype(np.int64)
