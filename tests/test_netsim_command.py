"""scripts/netsim.py as a person runs it: a process of its own."""

import gzip
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from jaxlossy import ConfigError
from jaxlossy.netsim import scenario

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "tests" / "data" / "netbench"


def run(*flags):
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "netsim.py"), *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_scenario_folder(tmp_path):
    file = tmp_path / "new" / "fct.csv"
    folder = REFERENCE / "c_a2a_bg30"
    name = "lossy5g_fifo_thr30k_budget10"
    transport, discipline = name.split("_", 1)
    result = run(f"--scenario={folder}", f"--transport={transport}", f"--discipline={discipline}",
                 f"--csv={file}")  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "dropped" in result.stdout
    table = pd.read_csv(file)
    assert list(table.columns) == [
        "flow", "bytes_acked", "fct_ns", "completed", "packets_sent", "packets_received",
    ]  # fmt: skip
    expected = pd.read_csv(folder / f"fct_{name}.csv.gz")
    web = table[table["packets_sent"].isna()]
    assert (web[expected.columns].to_numpy() == expected.to_numpy()).all()
    lossy = pd.read_csv(folder / f"lossy_{name}.csv.gz")
    columns = ["flow", "packets_sent", "packets_received"]
    train = table[table["packets_sent"].notna()]
    assert (train[columns].to_numpy() == lossy[columns].to_numpy()).all()


def test_the_check_of_a_reference():
    result = run("--check", f"--reference={REFERENCE}", "--only=incast_n2")
    assert result.returncode == 0, result.stderr
    assert "2 of 2 runs are exact" in result.stdout


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ([], "error: scenario: None is not allowed"),
        (["--scenario=/nowhere"], "error: scenario: '/nowhere' is not allowed"),
        (["--check"], "error: reference: None is not allowed"),
        ([f"--scenario={REFERENCE / 's0_isolated'}", "--transport=x"], "error: run: 'x' is not"),
    ],
)
def test_wrong_flags_are_one_line(flags, line):
    result = run(*flags)
    assert result.returncode == 1
    assert result.stderr.startswith(line), result.stderr
    assert len(result.stderr.splitlines()) == 1


EDGES = "# a comment\nfrom,to\n0,1\n1,0\n"
HEADER = "flow,start_ns,src,dst,bytes,class,path_data,path_ack\n"


def folder(tmp_path, edges, flows):
    (tmp_path / "edges.csv").write_text(edges)
    (tmp_path / "flows.csv.gz").write_bytes(gzip.compress((HEADER + flows).encode()))
    return tmp_path


@pytest.mark.parametrize(
    ("edges", "flow", "line"),
    [
        (EDGES, "0,0,0,7,1,web,0-1,1-0", "flows.csv.gz line 2: dst: 7 is not allowed"),
        (EDGES, "0,0,0,1,1,web,0-2-1,1-0", "line 2: path_data: '0-2-1' is not allowed"),
        (EDGES + "1,2\n", "0,0,0,2,1,web,0-2,2-0", "links of edges.csv; 0,2 is none"),
        (EDGES, "0,0,1,1,1,web,1-0,0-1", "line 2: dst: 1 is not allowed"),
        (EDGES, "0,-5,0,1,1,web,0-1,1-0", "line 2: start_ns: '-5' is not allowed"),
        (EDGES, "0,0,0,1,2000000000000,web,0-1,1-0", "line 2: bytes: '2000000000000' is not"),
        (EDGES, "0,0,0,1,x,web,0-1,1-0", "line 2: bytes: 'x' is not allowed"),
        (EDGES, "0,0,0,1,1,web,0-1", "line 2: '0,0,0,1,1,web,0-1' is not allowed"),
        (EDGES, "0,0,0,1,1,web,0-1,1-0\n0,1,0,1,1,web,0-1,1-0", "line 3: flow: 0 is not allowed"),
        (EDGES + "0,0\n", "", "edges.csv line 5: to: 0 is not allowed"),
        (EDGES + "0,1\n", "", "edges.csv line 5: from,to: (0, 1) is not allowed"),
        ("from,to,rate_bps\n0,1,0\n", "", "edges.csv line 2: rate_bps: '0' is not allowed"),
        ("from,to\n0,4294967296\n", "", "edges.csv line 2: to: '4294967296' is not allowed"),
        ("a,b\n0,1\n", "", "edges.csv line 1: 'a,b' is not allowed"),
    ],
)
def test_wrong_files_are_refused_by_line(tmp_path, edges, flow, line):
    with pytest.raises(ConfigError) as error:
        scenario.read(folder(tmp_path, edges, flow), "simple_dctcp")
    assert line in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("transport", [*scenario.SHOWN, "reliable_dctcp", "simple_tcp_noecn"])
def test_every_transport_goes_with_every_discipline(transport):
    rules, ports = scenario.parse_run(transport)
    assert (ports.limit, ports.low_limit, ports.priority) == (150_000, None, False)
    for discipline in ("fifo90k", "fifo_thr30k", "fifo_thr1500_budget10", "prio_low30k"):
        both = scenario.parse_run(f"{transport}_{discipline}")
        expected = scenario.parse_discipline(discipline)
        assert both[0] == rules
        assert (both[1].limit, both[1].low_limit) == (expected.limit, expected.low_limit)
        assert (both[1].priority, both[1].budget) == (expected.priority, expected.budget)


def test_unsorted_flows_are_sorted_and_keep_their_numbers(tmp_path):
    rows = ["5,900,1,0,7,web,1-0,0-1", "2,100,0,1,8,train,0-1,1-0", "1,900,0,1,9,web,0-1,1-0"]
    given, numbers = scenario.read(folder(tmp_path, EDGES, "\n".join(rows)), "paced_prio_low30k")
    assert numbers.tolist() == [2, 1, 5]
    assert given.flows.size.tolist() == [8, 9, 7]
    assert given.discipline.priority
    assert given.transports["train"].low
    assert not given.transports["web"].low


def test_rates_and_delays_of_single_links(tmp_path):
    edges = "from,to,rate_bps,delay_ns\n0,1,1000000000,5\n1,0,2000000000,6\n"
    given, _ = scenario.read(folder(tmp_path, edges, "0,0,0,1,1,web,0-1,1-0"), "simple_dctcp")
    assert given.network.rate_bps.tolist() == [10**9, 2 * 10**9]
    assert given.network.delay_ns.tolist() == [5, 6]
