"""A model's parameters as packets, which server owns which packet, and where the servers are.

Packets are fixed and a server owns a contiguous run of them, so the number of servers can be a
traced integer: changing it regroups nothing and compiles nothing.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxlossy.errors import ConfigError

#: Parameters that fit a 1,500-byte MTU: 1,460 bytes of payload, 4 bytes each.
MTU_PARAMETERS = 365
#: Bytes a parameter takes on the wire (float32), and a packet's IPv4 and TCP-sized header.
PARAMETER_BYTES, HEADER_BYTES = 4, 40
#: A model below this many full packets gets smaller ones, so that many servers own something.
MIN_PACKETS = 64


def default_packet_size(num_parameters: int) -> int:
    """Parameters in a packet: what an MTU carries, less for a model below 64 such packets.

    >>> default_packet_size(270_000), default_packet_size(4810)
    (365, 76)
    """
    return min(MTU_PARAMETERS, math.ceil(num_parameters / MIN_PACKETS))


@dataclasses.dataclass(frozen=True)
class PacketLayout:
    """How a pytree of parameters lies in packets: leaf after leaf, the last packet zero-padded.

    Attributes:
      size: L, parameters in a packet.
      treedef, shapes, dtypes: of the model's leaves, without a worker axis.
    """

    size: int
    treedef: Any
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[Any, ...]

    @property
    def num_parameters(self) -> int:
        """D, all parameters of the model."""
        return sum(math.prod(shape) for shape in self.shapes)

    @property
    def num_packets(self) -> int:
        """M, packets that carry the model."""
        return math.ceil(self.num_parameters / self.size)

    @property
    def last_size(self) -> int:
        """Parameters in the last packet."""
        return self.num_parameters - (self.num_packets - 1) * self.size

    def pack(self, tree: Any) -> Float[Array, "worker packet length"]:
        """Packets of a tree whose leaves have a leading worker axis."""
        leaves = self.treedef.flatten_up_to(tree)
        workers = leaves[0].shape[0]
        flat = [leaf.reshape(workers, -1).astype(jnp.float32) for leaf in leaves]
        padding = jnp.zeros((workers, self.size - self.last_size), jnp.float32)
        return jnp.concatenate([*flat, padding], axis=1).reshape(workers, -1, self.size)

    def pack_one(self, tree: Any) -> Float[Array, "packet length"]:
        """Packets of a tree without a worker axis."""
        return self.pack(jax.tree.map(lambda leaf: leaf[None], tree))[0]

    def unpack(self, packets: Float[Array, "worker packet length"]) -> Any:
        """The tree, with a leading worker axis; inverse of ``pack``."""
        workers = packets.shape[0]
        flat = packets.reshape(workers, -1)
        leaves, start = [], 0
        for shape, dtype in zip(self.shapes, self.dtypes, strict=True):
            end = start + math.prod(shape)
            leaves.append(flat[:, start:end].reshape(workers, *shape).astype(dtype))
            start = end
        return self.treedef.unflatten(leaves)


def packet_layout(params: Any, size: int | None = None) -> PacketLayout:
    """The layout of one replica.

    Args:
      params: pytree of floating arrays or their ``jax.ShapeDtypeStruct``, without a worker axis.
      size: parameters in a packet; None for ``default_packet_size``.

    Raises:
      ConfigError: no parameters, or one that is not a real floating number.

    >>> layout = packet_layout({"w": jnp.ones((3, 2)), "b": jnp.zeros(2)}, size=3)
    >>> layout.num_parameters, layout.num_packets, layout.last_size
    (8, 3, 2)
    """
    leaves, treedef = jax.tree.flatten(params)
    for leaf in leaves:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise ConfigError("model", f"parameters of {leaf.dtype}", "floating parameters")
    num_parameters = sum(math.prod(leaf.shape) for leaf in leaves)
    if num_parameters == 0:
        raise ConfigError("model", "no parameters", "at least one parameter")
    return PacketLayout(
        size=min(size or default_packet_size(num_parameters), num_parameters),
        treedef=treedef,
        shapes=tuple(leaf.shape for leaf in leaves),
        dtypes=tuple(leaf.dtype for leaf in leaves),
    )


def owners(num_packets: int, servers: Int[Array, ""] | int) -> Int[Array, " packet"]:
    """The server that owns each packet: contiguous runs, as equal as possible, longer ones first.

    Args:
      num_packets: M.
      servers: S, 1 to M; may be traced.

    >>> owners(7, 3)
    Array([0, 0, 0, 1, 1, 2, 2], dtype=int32)
    """
    packet = jnp.arange(num_packets, dtype=jnp.int32)
    servers = jnp.asarray(servers, jnp.int32)
    short, longer = num_packets // servers, num_packets % servers
    # Products stay below M, unlike packet * S // M, which overflows int32 in large models.
    in_longer = packet // (short + 1)
    in_short = longer + (packet - longer * (short + 1)) // jnp.maximum(short, 1)
    return jnp.where(packet < longer * (short + 1), in_longer, in_short)


class Assignment(NamedTuple):
    """Who serves what in one step.

    Attributes:
      server: the server that owns each packet.
      host: the worker that server runs on; -1 where servers are other machines.
      local: True where the server runs on that worker, so that nothing crosses the network.
    """

    server: Int[Array, " packet"]
    host: Int[Array, " packet"]
    local: Bool[Array, "worker packet"]


def assign(
    placement: str,
    *,
    num_packets: int,
    workers: int,
    servers: Int[Array, ""] | int,
    key: jax.Array,
) -> Assignment:
    """Places the servers for one step (Yu et al. 2019, section 3: the paper's is 'random').

    Args:
      placement: 'random': S workers, drawn afresh each step, serve one run of packets each;
        'fixed': the first S workers do, always; 'separate': other machines do.
      num_packets, workers, servers: M, N and S; S may be traced.
      key: for 'random'.
    """
    server = owners(num_packets, servers)
    worker = jnp.arange(workers, dtype=jnp.int32)
    if placement == "random":
        host = jax.random.permutation(key, worker)[server]
    elif placement == "fixed":
        host = server
    else:
        host = jnp.full_like(server, -1)
    return Assignment(server, host, host[None] == worker[:, None])


PLACEMENTS = ("random", "fixed", "separate")
