"""Scenarios in folders, in the format and by the names of runs that Netbench's reference has.

A folder has ``edges.csv`` (from, to; if given, rate_bps and delay_ns) and ``flows.csv`` (flow,
start_ns, src, dst, bytes, class, path_data, path_ack; paths are nodes joined by ``-``), either of
them perhaps with ``.gz``. A run is the name of a transport and, after ``_``, that of a discipline.
"""

import csv
import gzip
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jaxlossy.errors import ConfigError
from jaxlossy.netsim import transports
from jaxlossy.netsim.flows import MAX_SIZE, MAX_TIME, Flows, Paths
from jaxlossy.netsim.network import MAX_INDEX, Network
from jaxlossy.netsim.ports import Discipline
from jaxlossy.netsim.simulation import Scenario
from jaxlossy.netsim.transports import Transport

#: The kind of traffic that names of runs speak about; all other is always reliable.
TRAINING = "train"
_RATE_BPS = {"d_star": 10**9}  # by the beginning of a folder's name; others have 10 Gbit/s
_DELAY_NS = 20


def read(folder: str | Path, run: str, *, record: bool = False) -> tuple[Scenario, np.ndarray]:
    """Reads a folder and sets up one of its runs.

    Args:
      folder: with edges.csv and flows.csv. Flows are numbered in the order of their start, whatever
        order the file has them in.
      run: its name, such as 'simple_dctcp_fifo150k' or 'lossy5g_fifo_thr30k_budget10'.
      record: whether to keep when every packet of lossy flows arrived.

    Returns:
      The scenario, and the number that the file gives to each of its flows.

    Raises:
      ConfigError: a run whose name is not understood, or the first error of a file, by its line.
    """
    folder = Path(folder)
    rate = next((r for name, r in _RATE_BPS.items() if folder.name.startswith(name)), 10**10)
    network = read_network(folder, rate)
    flows, numbers = read_flows(folder, network)
    rules, discipline = parse_run(run)
    by_traffic = {name: rules.get(name, rules[""]) for name in flows.names}
    lossy = tuple(name for name, rule in by_traffic.items() if rule and not rule.reliable)
    scenario = Scenario(network, flows, by_traffic, discipline, record=lossy if record else ())
    return scenario, numbers


def parse_run(run: str) -> tuple[dict[str, Transport | None], Discipline]:
    """What a run's name means: the transport of training and, under '', of all else; the ports.

    >>> rules, discipline = parse_run("lossy5g_fifo_thr30k_budget10")
    >>> rules["train"].gap_ns, discipline.low_limit, discipline.budget
    (36000, 30000, 0.1)
    """
    for pattern, make in _TRANSPORTS.items():
        match = re.fullmatch(f"(?:{pattern})(?:_((?:fifo|prio).*))?", run)
        if match:
            *parameters, discipline = match.groups()
            rules = make(*parameters)
            rules = rules if isinstance(rules, dict) else {"": rules}
            ports = parse_discipline(discipline or "fifo150k")
            if run.startswith("simple_tcp_noecn"):
                ports = Discipline(ports.limit, None, ports.low_limit, ports.priority, ports.budget)
            return rules, ports
    known = "TRANSPORT_DISCIPLINE, such as simple_dctcp_fifo150k or lossy5g_fifo_thr30k_budget10"
    raise ConfigError("run", run, f"{known}; transports: {', '.join(SHOWN)}")


def parse_discipline(name: str) -> Discipline:
    """What a discipline's name means; numbers are bytes, with k thousands of them.

    >>> parse_discipline("prio_low30k").priority
    True
    """
    number = r"([1-9]\d*)(k?)"
    if match := re.fullmatch(f"fifo{number}", name):
        return Discipline(_bytes(*match.groups()))
    if match := re.fullmatch(rf"fifo_thr{number}(?:_budget(\d\d?))?", name):
        budget = int(match[3]) / 100 if match[3] else None
        return Discipline(low_limit=_bytes(match[1], match[2]), budget=budget)
    if match := re.fullmatch(f"prio_low{number}", name):
        return Discipline(low_limit=_bytes(*match.groups()), priority=True)
    allowed = "fifoQ, fifo_thrT, fifo_thrT_budgetPP or prio_lowT; such as fifo150k, prio_low1500"
    raise ConfigError("discipline", name, allowed)


def _bytes(number: str, thousands: str) -> int:
    return int(number) * (1000 if thousands else 1)


def _with_web(training: Transport | None) -> dict[str, Transport | None]:
    return {"": transports.simple_dctcp(), TRAINING: training}


_GAP_NS = 600_000  # of a flow's packets in the case study: 300 Mbit/s a host

_TRANSPORTS: dict[str, Any] = {
    "simple_dctcp|reliable_dctcp": transports.simple_dctcp,
    "simple_tcp(?:_noecn)?": transports.simple_tcp,
    "dctcp": transports.dctcp,
    "web_alone": lambda: _with_web(None),
    r"lossy(\d+)g": lambda rate: _with_web(
        transports.round_robin(interval_ns=12_000 // int(rate), hosts=16)
    ),
    "paced": lambda: _with_web(transports.paced(gap_ns=_GAP_NS, seed=7)),
    "burst": lambda: _with_web(transports.round_robin(interval_ns=12_000, hosts=16)),
    "paced_dctcp": lambda: _with_web(transports.dctcp(gap_ns=_GAP_NS, seed=7)),
    r"bounded(\d\d?)(_controlled)?": lambda percent, controlled: _with_web(
        transports.bounded(
            loss=int(percent) / 100, gap_ns=_GAP_NS, seed=7, rate_control=bool(controlled)
        )
    ),
}
#: A name of every transport.
SHOWN = (
    "simple_dctcp", "simple_tcp", "dctcp", "web_alone", "lossy5g", "paced", "burst", "paced_dctcp",
    "bounded10", "bounded10_controlled",
)  # fmt: skip


def read_network(folder: Path, rate_bps: int) -> Network:
    """The links of edges.csv; those without a rate or delay of their own get the given or 20 ns."""
    links, rates, delays = [], [], []
    seen: dict[tuple[int, int], str] = {}
    for line, row in _rows(folder, "edges.csv", ("from", "to")):
        begin, end = _node(line, row, "from"), _node(line, row, "to")
        if begin == end:
            raise ConfigError(f"{line}: to", end, "another node than from")
        if (begin, end) in seen:
            raise ConfigError(f"{line}: from,to", (begin, end), f"once; see {seen[begin, end]}")
        seen[begin, end] = line
        links.append((begin, end))
        rates.append(_integer(line, row, "rate_bps", 1, 2**50, rate_bps))
        delays.append(_integer(line, row, "delay_ns", 0, 2**40, _DELAY_NS))
    if not links:
        raise ConfigError(str(_find(folder, "edges.csv")), "no links", "one link or more")
    array = np.array(links, np.int32)
    return Network(int(array.max()) + 1, array, np.array(rates), np.array(delays))


def read_flows(folder: Path, network: Network) -> tuple[Flows, np.ndarray]:
    """The flows of flows.csv in the order of their start, and their numbers in the file."""
    index = {link: i for i, link in enumerate(map(tuple, network.links.tolist()))}
    nodes = set(network.links.ravel().tolist())
    required = ("flow", "start_ns", "src", "dst", "bytes", "class", "path_data", "path_ack")
    rows, seen = [], {}
    for line, row in _rows(folder, "flows.csv", required):
        number = _integer(line, row, "flow", 0, MAX_TIME)
        if number in seen:
            raise ConfigError(f"{line}: flow", number, f"each number once; see {seen[number]}")
        seen[number] = line
        start = _integer(line, row, "start_ns", 0, MAX_TIME)
        source, destination = (_node(line, row, name, nodes) for name in ("src", "dst"))
        if source == destination:
            raise ConfigError(f"{line}: dst", destination, "another node than src")
        size = _integer(line, row, "bytes", 0, MAX_SIZE)
        data = _path(line, row, "path_data", source, destination, index, nodes)
        ack = _path(line, row, "path_ack", destination, source, index, nodes)
        rows.append((start, number, source, destination, size, row["class"], data, ack))
    rows.sort(key=lambda row: row[:2])
    names = tuple(dict.fromkeys(row[5] for row in rows))
    if len(names) > 127:
        raise ConfigError(str(_find(folder, "flows.csv")), f"{len(names)} classes", "at most 127")
    columns = np.array([row[:5] for row in rows], np.int64).reshape(-1, 5)
    start, number, source, destination, size = columns.T
    traffic = np.array([names.index(row[5]) for row in rows], np.int8)
    data, ack = (_joined([row[i] for row in rows]) for i in (6, 7))
    return Flows(start, source, destination, size, traffic, names, data, ack), number


def _joined(paths: list[list[int]]) -> Paths:
    offsets = np.cumsum([0, *map(len, paths)])
    return Paths(offsets, np.array([link for path in paths for link in path], np.int32))


def _find(folder: Path, name: str) -> Path:
    for file in (folder / name, folder / f"{name}.gz"):
        if file.is_file():
            return file
    raise ConfigError("scenario", str(folder), f"a folder with {name} or {name}.gz")


def _rows(folder: Path, name: str, columns: tuple[str, ...]) -> Iterator[tuple[str, dict]]:
    """Each row with the name of its file and line."""
    file = _find(folder, name)
    header = None
    try:
        with gzip.open(file, "rt") if file.suffix == ".gz" else file.open() as lines:
            for number, text in enumerate(lines, start=1):
                if not text.strip() or text.startswith("#"):
                    continue
                line, values = f"{file} line {number}", next(csv.reader([text]))
                if header is None:
                    header = values
                    for column in columns:
                        if column not in header:
                            raise ConfigError(line, text.strip(), f"columns with {column!r}")
                elif len(values) != len(header):
                    raise ConfigError(line, text.strip(), f"{len(header)} values")
                else:
                    yield line, dict(zip(header, values, strict=True))
    except (UnicodeDecodeError, csv.Error, OSError, EOFError) as error:
        raise ConfigError(str(file), str(error), "a CSV file") from None


def _integer(
    line: str, row: dict, name: str, least: int, most: int, default: int | None = None
) -> int:
    if default is not None and name not in row:
        return default
    try:
        value = int(row[name])
    except ValueError:
        value = None
    if value is None or not least <= value <= most:
        raise ConfigError(f"{line}: {name}", row[name], f"an integer in [{least}, {most}]")
    return value


def _node(line: str, row: dict, name: str, known: set[int] | None = None) -> int:
    node = _integer(line, row, name, 0, MAX_INDEX - 1)
    if known is not None and node not in known:
        raise ConfigError(f"{line}: {name}", node, "a node of edges.csv")
    return node


def _path(
    line: str,
    row: dict,
    name: str,
    begin: int,
    end: int,
    index: dict[tuple[int, int], int],
    known: set[int],
) -> list[int]:
    """The links of a path that is given by its nodes."""
    field, text = f"{line}: {name}", row[name]
    nodes = [int(node) if node.isdecimal() else -1 for node in text.split("-")]
    for node in nodes:
        if node not in known:
            raise ConfigError(field, text, "nodes of edges.csv, joined by -")
    if len(nodes) < 2 or nodes[0] != begin or nodes[-1] != end:
        raise ConfigError(field, text, f"a path from {begin} to {end}")
    for link in itertools.pairwise(nodes):
        if link not in index:
            raise ConfigError(field, text, f"links of edges.csv; {link[0]},{link[1]} is none")
    return [index[link] for link in itertools.pairwise(nodes)]
