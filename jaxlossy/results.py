"""Results as an xarray Dataset, and the files of a workdir.

The Dataset has dims (config, step). Every config field is a coordinate on `config`, and so is
`completed`: False where an interrupted sweep has no numbers yet. Counters are cumulative.
"""

import dataclasses
import datetime
import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from jaxlossy.config import FIELDS, Config
from jaxlossy.errors import ConfigError
from jaxlossy.files import replacing, writable_directory
from jaxlossy.packets import PacketLayout

RESULTS, SUMMARY, FIGURES = "results.nc", "summary.csv", "figures"

#: Data variables and what they mean; all are Float[config step].
METRICS = {
    "train_loss": "mean batch loss of the workers since the last evaluation",
    "test_loss": "test loss of the mean model",
    "test_accuracy": "test accuracy of the mean model",
    "replica_test_loss": "mean test loss of the replicas",
    "replica_test_accuracy": "mean test accuracy of the replicas",
    "disagreement": "mean squared distance of the replicas to the mean model",
    "uplink_delivered": "fraction of uplink packets on the wire that arrived",
    "downlink_delivered": "fraction of downlink packets on the wire that arrived",
    "parameters_sent": "parameters put on the wire since the start, all machines",
    "bytes_sent": "bytes put on the wire since the start, all machines, headers included",
}
#: Those that only some data sets have.
MORE_METRICS = {
    "test_slot_accuracy": "share of an utterance's slots that the mean model gets right",
    "replica_test_slot_accuracy": "mean share of an utterance's slots that replicas get right",
}
CUMULATIVE = ("parameters_sent", "bytes_sent")


def empty(configs: Sequence[Config], attributes: Mapping[str, Any]) -> xr.Dataset:
    """A Dataset for these configs with no numbers yet.

    The step axis holds the evaluation steps of all configs together; where a config has none, its
    metrics stay NaN.
    """
    steps = sorted({s for c in configs for s in evaluation_steps(c)})
    shape = (len(configs), len(steps))
    variables = {
        name: (("config", "step"), np.full(shape, np.nan), {"long_name": text})
        for name, text in METRICS.items()
    }
    coordinates = {name: ("config", _column(configs, name)) for name in FIELDS}
    coordinates["completed"] = ("config", np.zeros(len(configs), bool))
    return xr.Dataset(variables, {**coordinates, "step": steps}, dict(attributes))


def evaluation_steps(config: Config) -> range:
    """The steps after which a config is evaluated."""
    return range(config.eval_every, config.steps + 1, config.eval_every)


def _column(configs: Sequence[Config], name: str) -> np.ndarray:
    values = [getattr(config, name) for config in configs]
    if isinstance(FIELDS[name].default, tuple):  # netCDF has no tuples
        values = [",".join(map(str, value)) for value in values]
    return np.asarray(values)


def fill(ds: xr.Dataset, indices: np.ndarray, config: Config, metrics: Mapping[str, np.ndarray]):
    """Writes the metrics (config, segment) of finished configs, of one group, into the Dataset."""
    columns = np.searchsorted(ds["step"].values, evaluation_steps(config))
    for name, values in metrics.items():
        if name not in ds:
            nothing = np.full_like(ds["test_loss"], np.nan)
            ds[name] = (("config", "step"), nothing, {"long_name": MORE_METRICS[name]})
        if name in CUMULATIVE:
            values = values.cumsum(axis=-1)
        ds[name].values[np.ix_(indices, columns)] = values  # those not there stay NaN
    ds["completed"].values[indices] = True


def final(ds: xr.Dataset) -> xr.Dataset:
    """The metrics after the last step of each config: dims (config,)."""
    return ds.sel(step=ds["steps"])


def identity(
    configs: Sequence[Config], given: Mapping[str, str], layouts: Sequence[PacketLayout]
) -> str:
    """A digest of what a sweep computes, to tell it from others.

    Args:
      configs: all of them.
      given: names of the objects passed from Python; what is inside a function of the user's is
        not compared.
      layouts: of the groups' models, so that models of other shapes are told apart.
    """
    fields = [dataclasses.asdict(config) for config in configs]
    models = [(str(layout.treedef), layout.shapes, str(layout.dtypes)) for layout in layouts]
    text = json.dumps([fields, dict(given), models], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def describe_machine(devices: Sequence[Any]) -> dict[str, str]:
    """Attributes that say what made the numbers."""
    packages = ("jaxlossy", "jax", "jaxlib", "flax", "optax", "numpy", "tensorflow-datasets")
    versions = {name: importlib.metadata.version(name) for name in packages}
    return {
        "versions": json.dumps({"python": platform.python_version(), **versions}),
        "device": f"{len(devices)} x {devices[0].device_kind} ({devices[0].platform})",
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def open_workdir(workdir: Any, digest: str) -> tuple[Path, xr.Dataset | None]:
    """The directory, and what an earlier run of this same sweep has left in it.

    Raises:
      ConfigError: not writable, or it holds another sweep.
    """
    directory = writable_directory("workdir", workdir)
    writable_directory("workdir", directory / FIGURES)
    if not (directory / RESULTS).exists():
        return directory, None
    earlier = load(directory)
    if earlier.attrs.get("identity") != digest:
        raise ConfigError(
            "workdir",
            str(workdir),
            "a new or empty directory, or one with this same sweep; this one holds another",
        )
    return directory, earlier


def save(ds: xr.Dataset, workdir: Path) -> None:
    """Writes results.nc and summary.csv, each atomically."""
    with replacing(workdir / RESULTS) as path:
        ds.to_netcdf(path, engine="h5netcdf")
    with replacing(workdir / SUMMARY) as path:
        final(ds).to_dataframe().to_csv(path)


def load(workdir: Any) -> xr.Dataset:
    """The results of a sweep.

    Args:
      workdir: the directory that the sweep was given.

    Raises:
      ConfigError: no results there, or a file that is none.
    """
    path = Path(workdir).expanduser() / RESULTS
    try:
        return xr.load_dataset(path, engine="h5netcdf")
    except FileNotFoundError:
        raise ConfigError("workdir", str(workdir), f"a directory with {RESULTS}") from None
    except (OSError, ValueError) as error:
        raise ConfigError("workdir", str(workdir), f"a readable {RESULTS}; {error}") from None
