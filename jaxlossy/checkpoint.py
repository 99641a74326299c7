"""The batch that is being trained, on disk, so that a long one survives an interruption too."""

import zipfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxlossy.files import replacing

#: Seconds of training that an interruption may cost, about.
INTERVAL = 60.0


def save(
    path: Path, identity: str, places: np.ndarray, state: Any, rows: list[dict[str, np.ndarray]]
) -> None:
    """Writes a batch between two segments, atomically.

    Args:
      path: an .npz file.
      identity: of the sweep.
      places: which configs the batch holds, in its order.
      state: pytree of arrays of numbers, on the device or not.
      rows: the metrics of each segment so far.
    """
    arrays: dict[str, Any] = {"identity": identity, "places": places, "segments": len(rows)}
    arrays |= {f"state_{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
    arrays |= {f"metric_{name}": np.stack([row[name] for row in rows]) for name in rows[0]}
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)


def load(
    path: Path, identity: str, places: np.ndarray, shapes: Any
) -> tuple[Any, list[dict[str, np.ndarray]]] | None:
    """The state and the metrics so far, if the file holds this very batch; else None.

    Args:
      path: as given to ``save``; need not exist, or be readable.
      identity, places: of the batch about to be trained.
      shapes: pytree of the state's ``jax.ShapeDtypeStruct``.
    """
    if not zipfile.is_zipfile(path):
        return None
    wanted, treedef = jax.tree.flatten(shapes)
    with np.load(path) as file:
        if file["identity"] != identity or not np.array_equal(file["places"], places):
            return None  # another sweep, or batches cut for other devices or another memory budget
        leaves = [file[name] for name in file.files if name.startswith("state_")]
        if [(leaf.shape, leaf.dtype) for leaf in leaves] != [(w.shape, w.dtype) for w in wanted]:
            return None
        metrics = {n.removeprefix("metric_"): file[n] for n in file.files if n.startswith("metric")}
        rows = [{n: values[i] for n, values in metrics.items()} for i in range(file["segments"])]
    return treedef.unflatten(leaves), rows
