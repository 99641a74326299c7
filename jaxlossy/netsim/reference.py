"""Compares runs with Netbench's, flow by flow, port by port, to the nanosecond."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

from jaxlossy.errors import ConfigError
from jaxlossy.netsim.scenario import read
from jaxlossy.netsim.simulation import simulate

#: Another TCP (NewReno), which the reference has to show what does not depend on details.
_OTHER = {"newreno_dctcp": None, "dctcp": None}
_PORTS = (
    "accepted_packets",
    "accepted_bytes",
    "dropped_packets",
    "dropped_bytes",
    "dropped_acks",
    "ecn_marked_packets",
    "max_queue_bytes",
    "busy_ns",
)


def runs(reference: str | Path) -> Iterator[tuple[Path, str]]:
    """All runs of a directory of scenario folders that are to be exact."""
    folders = [path.parent for path in sorted(Path(reference).glob("*/edges.csv*"))]
    if not folders:
        raise ConfigError("reference", str(reference), "a directory of scenario folders")
    for folder in folders:
        names = (path.name for path in sorted(folder.glob("fct_*.csv*")))
        matches = (re.fullmatch(r"fct_(\w+)\.csv(\.gz)?", name) for name in names)
        yield from ((folder, m[1]) for m in matches if m and m[1] not in _OTHER)


def compare(folder: Path, run: str) -> dict[str, object]:
    """Simulates a run and counts what differs.

    Returns:
      scenario, run, flows, packets; the numbers of flows with another completion time or state, of
      ports with any other counter, and of lossy flows with any other count or time; seconds and
      events.
    """
    scenario, _ = read(folder, run, record=True)
    before = time.perf_counter()
    ds = simulate(scenario)
    seconds = time.perf_counter() - before
    expected = _table(folder, f"fct_{run}.csv").set_index("flow")
    ours = ds[["bytes_acked", "fct_ns", "completed"]].to_dataframe().loc[expected.index]
    flows_off = (ours.astype(int) != expected[ours.columns]).any(axis=1).sum()

    expected_ports = _table(folder, f"ports_{run}.csv").set_index(["from", "to"])
    ports = ds[["from", "to", *_PORTS]].to_dataframe().set_index(["from", "to"])
    ports = ports.query("accepted_packets > 0 or dropped_packets > 0")
    ports_off = _differing(ports, expected_ports)

    lossy, lossy_off = _lossy(ds), 0
    if len(lossy):
        lossy_off = _differing(lossy, _table(folder, f"lossy_{run}.csv").set_index("flow"))
    return {
        "scenario": folder.name,
        "run": run,
        "flows": len(expected),
        "flows_off": int(flows_off),
        "ports": len(expected_ports),
        "ports_off": ports_off,
        "lossy": len(lossy),
        "lossy_off": lossy_off,
        "dropped": int(ds["dropped_packets"].sum()),
        "events": ds.attrs["events"],
        "seconds": round(seconds, 3),
    }


def _differing(ours: pd.DataFrame, expected: pd.DataFrame) -> int:
    rows = ours.index.union(expected.index)
    differs = ours.reindex(rows) != expected.reindex(index=rows, columns=ours.columns)
    return int(differs.any(axis=1).sum())  # a row that one of them lacks differs


def _lossy(ds: xr.Dataset) -> pd.DataFrame:
    """What the reference has on lossy flows, from the arrivals of their packets."""
    packets = pd.DataFrame({"flow": ds["packet_flow"], "at": ds["arrival_ns"]})
    flows = np.unique(packets["flow"])
    counts = ds[["packets_sent", "packets_received", "first_arrival_ns", "last_arrival_ns"]]
    table = counts.to_dataframe().loc[flows]
    table["bytes_received"] = ds["bytes_acked"].to_series().loc[flows]
    arrived = packets.query("at >= 0").sort_values(["flow", "at"])
    rank = arrived.groupby("flow").cumcount() + 1
    sent = ds["packets"].to_series().loc[arrived["flow"]].to_numpy()
    for percent in (80, 90, 95):
        wanted = -(-percent * sent // 100)
        times = arrived[rank.to_numpy() == wanted].set_index("flow")["at"]
        table[f"t_{percent}pct_ns"] = times.reindex(flows, fill_value=-1)
    return table


def _table(folder: Path, name: str) -> pd.DataFrame:
    for file in (folder / name, folder / f"{name}.gz"):
        if file.is_file():
            return pd.read_csv(file, comment="#")
    raise ConfigError("reference", str(folder), f"a folder with {name} or {name}.gz")
