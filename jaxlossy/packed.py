"""Trees of all workers in packed form: some are taken out, and put back where they were."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlossy.chunks import View
from jaxlossy.devices import platform_dependent
from jaxlossy.kernels import copies
from jaxlossy.kernels.calls import call, like
from jaxlossy.packets import PacketLayout


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Packed(View):
    """A tree of every worker, its parameters or their gradients, one after the other on a row.

    To write a few workers' rows in place, on CPUs, XLA has to compute new numbers and write them in
    one operation, leaf by leaf, and must not see that the old ones come from there: it would copy
    all rows to be safe. Hence a kernel takes them out.
    """

    layout: PacketLayout = dataclasses.field(metadata={"static": True})
    rows: Float[Array, "worker number"]

    @classmethod
    def of(cls, layout: PacketLayout, packets: Float[Array, "worker packet length"]) -> "Packed":
        return cls(layout, packets.reshape(packets.shape[0], -1))

    @property
    def packets(self) -> Float[Array, "worker packet length"]:
        return self.rows.reshape(self.rows.shape[0], -1, self.layout.size)

    def take(self, start: Any, count: int) -> Any:
        layout = self.layout

        def unpack(rows, start):
            if count < len(rows):
                rows = jax.lax.dynamic_slice_in_dim(rows, start, count)
            return layout.unpack(rows.reshape(count, -1, layout.size))

        def split(rows, start):
            parts = [like(rows, count, math.prod(shape)) for shape in layout.shapes]
            parts = call(copies.split_rows, parts, rows, start)
            leaves = zip(parts, layout.shapes, strict=True)
            return layout.treedef.unflatten([leaf.reshape(count, *shape) for leaf, shape in leaves])

        cpu = split if self._has_kernel else unpack
        tree = platform_dependent(self.rows, start, cpu=cpu, default=unpack)
        return jax.tree.map(lambda leaf: leaf[0], tree) if count == 1 else tree

    def put(self, part: Any, start: Any, count: int) -> "Packed":
        layout = self.layout
        if count == 1:
            part = jax.tree.map(lambda leaf: leaf[None], part)

        def at_once(rows, part, start):
            new = layout.pack(part).reshape(count, -1)
            if count < len(rows):
                new = jax.lax.dynamic_update_slice_in_dim(rows, new, start, 0)
            return new

        def leaf_by_leaf(rows, part, start):
            column = 0
            for leaf in layout.treedef.flatten_up_to(part):
                new = leaf.reshape(count, -1)
                where = start, jnp.asarray(column, start.dtype)
                rows = jax.lax.dynamic_update_slice(rows, new, where)
                column += new.shape[1]
            return rows

        cpu = leaf_by_leaf if self._has_kernel and count < len(self.rows) else at_once
        rows = platform_dependent(self.rows, part, start, cpu=cpu, default=at_once)
        return dataclasses.replace(self, rows=rows)

    @property
    def _has_kernel(self) -> bool:
        return all(dtype == jnp.float32 for dtype in self.layout.dtypes)
