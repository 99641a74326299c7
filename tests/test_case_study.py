"""The case study: its claims on made-up numbers, and the shrunken study from end to end."""

import os
import re
import subprocess
import sys

import jax
import numpy as np
import pandas as pd
import pytest
from made_up import CONFIGS, load_config

from jaxlossy import ConfigError, load_traces
from jaxlossy.netsim import capacity, case_study, gains, report, round_robin, sentences, study_runs
from jaxlossy.netsim.case_study import Case, Run
from jaxlossy.packets import owners

ROOT = CONFIGS.parent
#: Programs that run for a few steps need not be fast.
FLAGS = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
QUICK = f"{os.environ.get('XLA_FLAGS', '')} {FLAGS}"


def make_study(form="shrink", **fields):
    config = load_config("colocated_web")["get_config"](form)
    return case_study.make_study({**config.to_dict(), **fields})


STUDY = make_study()


def lost_above(case, rate):
    lossless = case.learning in case_study.RELIABLE
    return 0.0 if lossless else {1500: 0.2, 15_000: 0.05, 150_000: 0.0}[case.threshold]


def product(case, rate):
    """Pacing gives 1.5, priority 1.4, no acknowledgments 1.05; in a FIFO 20% loss gives 1.2."""
    time = 10.0 * rate / 1000
    time /= 1.5 if case.learning != "reliable" else 1
    time /= 1.4 if case.priority else 1
    time /= 1.05 if case.learning not in case_study.RELIABLE else 1
    return time / (1 if case.priority else 1 + lost_above(case, rate))


def made_up(mean_ms=product, loss=lost_above, p99_ms=product):
    """Results that nobody simulated: functions of case and rate, with a little noise."""
    plan = case_study.runs(STUDY)
    ds = study_runs.empty(STUDY, plan)
    ds["completed"].values[:] = True
    rng = np.random.default_rng(0)
    for i, (seed, rate, case) in enumerate(plan):
        noise = (1 + 0.02 * seed) * (1 + 0.001 * rng.random())  # seeds differ, alike in all cases
        values = {"web_mean_ms": mean_ms(case, rate) * noise, "events": 1, "seconds": 1}
        values |= {"web_p99_ms": p99_ms(case, rate) * noise, "iteration_ms": 50}
        lost = np.nan if case.learning == "none" else loss(case, rate)
        values |= {"iteration_max_ms": 60, "learning_loss": lost, "learning_loss_max": lost}
        for name, value in values.items():
            ds[name].values[i] = value
    return ds


def row_of(table, **fields):
    chosen = np.logical_and.reduce([table[name] == value for name, value in fields.items()])
    (row,) = table[chosen].to_dict("records")
    return row


def test_claims_hold_or_not_as_the_numbers_say():
    claims = gains.claims(gains.results(made_up()))
    for priority, base, expected, verdict in [
        (False, "reliable", 1.5 * 1.05 * 1.095, "holds"),
        (False, "paced_reliable", 1.05 * 1.095, "does not hold"),
        (False, "no_preference", 1.095, "does not hold"),
        (True, "reliable", 1.5 * 1.05 * 1.4, "holds"),
        (True, "paced_reliable", 1.05 * 1.4, "holds"),
        (True, "no_preference", 1.4, "holds"),
    ]:
        row = row_of(claims, web="dctcp", learning="paced", priority=priority, web_rate=2000,
                     baseline=base, statistic="mean")  # fmt: skip
        assert row["mean"] == pytest.approx(expected, rel=5e-3)
        assert row["verdict"] == verdict
        assert (row["least_loss"], row["most_loss"]) == pytest.approx((0, 0.2))
        assert f"more than 1.2 times {verdict}." in sentences.claim(row)


def test_a_loss_that_is_not_reached_decides_nothing():
    r = gains.results(made_up(loss=lambda case, rate: lost_above(case, rate) / 4))
    claims = gains.claims(r)
    assert set(claims["verdict"]) == {"not decided"}
    assert "no seed-by-seed 10% loss is to be had: it is 0.0% to 5.0%" in sentences.claim(
        claims.to_dict("records")[0]
    )
    parts = gains.parts(r)
    row = row_of(parts, part="all", web_rate=500, priority=False, statistic="mean")
    assert "no threshold gives 10% loss" in sentences.parts(parts, row)


def test_the_parts_of_a_speed_up_multiply():
    parts = gains.parts(gains.results(made_up()))
    for priority, expected in [
        (False, {"pacing": 1.5, "no acknowledgments": 1.05, "loss": 1.095}),
        (True, {"pacing": 1.5, "priority": 1.4, "no acknowledgments": 1.05, "loss": 1}),
    ]:
        rows = parts.query("priority == @priority and web_rate == 500 and statistic == 'mean'")
        found = rows.set_index("part")
        for name, factor in expected.items():
            assert found.loc[name, "mean"] == pytest.approx(factor, rel=5e-3)
        of_whole = found.loc[list(expected)]
        assert of_whole["mean"].prod() == pytest.approx(found.loc["all", "mean"], rel=1e-3)
        assert of_whole["share"].sum() == pytest.approx(1, abs=1e-3)
        text = sentences.parts(parts, row_of(rows, part="all"))
        assert "pacing alone gives a factor of 1.50" in text
        assert ("Priority without pacing" in text) == priority
    assert found.loc["priority without pacing", "mean"] == pytest.approx(1.4, rel=5e-3)


def test_a_curve_that_falls_is_found():
    def falling(case, rate):
        slower = case[:4] == ("dctcp", "paced", False, 1500) and rate == 2000
        return product(case, rate) * (1.3 if slower else 1)

    for mean_ms, falls in ((product, 0), (falling, 1)):
        ds = made_up(mean_ms)
        r = gains.results(ds)
        steps = gains.steps_of_curves(r)
        assert steps["falls"].sum() == falls
        texts = sentences.summary(
            {
                "claim": gains.claims(r),
                "part": gains.parts(r),
                "step of a curve": steps,
                "iteration": gains.iteration_gains(r),
                "bounded loss": gains.bounds(r),
            }
        )
        text = next(text for text in texts if text.startswith("Curves"))
        assert ("monotone" in text) == (falls == 0)
        assert ("from 15 to 1.5 kB" in text) == (falls == 1)


def test_what_fits_is_where_the_mean_crosses_the_target():
    rates = [1.0, 2.0, 4.0]
    assert capacity.crossing(rates, np.exp(rates), np.exp(3.2)) == pytest.approx(3.2)
    assert capacity.crossing(rates, np.array([3.0, 4.0, 5.0]), 2.0) == 1.0
    assert np.isnan(capacity.crossing(rates, np.array([3.0, 4.0, 5.0]), 6.0))
    steep = make_results(lambda case, rate: product(case, rate) / 7)  # 0.7 to 4.3 ms, reliably
    row = row_of(steep, target_ms=2.0, learning="paced", priority=False, threshold=150_000)
    reliable = row_of(steep, target_ms=2.0, learning="reliable", priority=False)
    assert 1000 < reliable["fits"] < 2000 < row["fits"] < 3000
    assert row["reliable_mean"] == pytest.approx(row["fits"] - reliable["fits"])
    assert f"{row['reliable_mean']:+.0f} against the {reliable['fits']:.0f} with reliable" in (
        sentences.capacity(row)
    )
    assert sentences.capacity(row_of(steep, target_ms=10.0, learning="none")) == ""


def make_results(mean_ms):
    return capacity.capacities(gains.results(made_up(mean_ms)))


def test_bounded_loss_is_held_against_paced_reliable_learning():
    def tail(case, rate):
        return product(case, rate) * (1.8 if case.learning == "bounded" else 1)

    bounds = gains.bounds(gains.results(made_up(p99_ms=tail)))
    alike = bounds.query("not priority and threshold == 150_000")
    assert set(alike.query("learning == 'bounded'")["verdict"]) == {"does not hold"}
    assert set(alike.query("learning == 'bounded_controlled'")["verdict"]) == {"holds"}
    assert "within 1.5 times does not hold." in sentences.bound(alike.to_dict("records")[0])


def test_runs_that_are_missing_are_not_judged():
    ds = made_up()
    ds["completed"].values[3] = False
    with pytest.raises(ValueError, match="1 runs are not completed"):
        gains.results(ds)


def test_the_config_is_the_paper_s_setting():
    study = make_study("full")
    assert (study.hosts, study.link_bps, study.message_bytes) == (16, 10**9, 100_000)
    assert set(study.web_rates) == {2000, 5000, 10_000}
    assert study.targets_ms == (2, 5, 10)
    assert study.seeds >= 10
    bits = 2 * 15 * study.exchange.num_packets * 1500 * 8
    assert bits / (study.period_ms / 1e3) == pytest.approx(2.4e9, rel=0.01)
    assert study.exchange.packets.tolist() == [42] * 16
    assert study.gap_ns == 600_000
    rules = {
        case: case_study.transport(study, Run(0, 2000, case)) for case in case_study.cases(study)
    }
    assert rules[Case("dctcp", "burst", False, 1500)] == round_robin(interval_ns=12_000, hosts=16)
    assert rules[Case("dctcp", "none", False, 150_000)] is None
    for case, rule in rules.items():
        if rule is not None:
            assert rule.reliable == (case.learning in case_study.RELIABLE)
            assert rule.low == (not rule.reliable or case.priority)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """The shrunken study, interrupted once."""
    directory = tmp_path_factory.mktemp("study")
    real, done = study_runs.measure, []

    def interrupted(study, run, ds):
        done.append(run)
        if len(done) == 50:
            raise KeyboardInterrupt
        return real(study, run, ds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study_runs, "measure", interrupted)
        with pytest.raises(KeyboardInterrupt):
            study_runs.run(STUDY, directory, verbose=False)
        half = study_runs.run(STUDY, directory, verbose=False)
    return directory, half, done


def test_an_interrupted_study_goes_on(simulated, capsys):
    directory, ds, done = simulated
    assert ds["completed"].all()
    count = len(case_study.runs(STUDY))
    assert len(done) == count + 1  # only the run that was interrupted itself is simulated again
    again = study_runs.run(STUDY, directory)
    assert ds.identical(again)
    assert f"{count} runs, 0 of them to be simulated" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="this one holds another"):
        study_runs.run(make_study(seeds=4), directory, verbose=False)


def test_what_is_simulated_is_plausible(simulated):
    r = gains.results(simulated[1])
    for (case, rate), runs in r.by_case.items():
        messages = r.get(gains.baseline(r, case.web, "none"), rate, "web_messages")
        np.testing.assert_array_equal(runs["web_messages"], messages)
        if case.learning.startswith("bounded"):
            assert runs["learning_loss_max"].max() <= STUDY.loss_bound
        elif case.learning in case_study.RELIABLE:
            assert runs["learning_loss_max"].max() == 0
        elif case.learning == "deadline":
            longest = 2 * STUDY.deadline_ms + STUDY.compute_ms
            assert runs["iteration_max_ms"].max() <= longest
    bounds = gains.bounds(r)
    assert bounds["largest_loss"].max() > 0.1
    alone, paced = (
        r.get(Case("dctcp", name, False, STUDY.limit), 3000, "web_mean_ms").mean()
        for name in ("none", "paced")
    )
    assert alone < paced


def test_the_report_is_whole(simulated):
    directory, ds, _ = simulated
    numbers = report.write(ds, directory)
    assert_report(directory)
    assert "accuracy" not in set(numbers["quantity"])


def assert_report(directory):
    text = (directory / "report.md").read_text()
    numbers = pd.read_csv(directory / "numbers.csv")
    assert numbers["seeds"].drop(numbers.index[numbers["quantity"] == "capacity"]).eq(3).all()
    figures = re.findall(r"!\[.*\]\((.*)\)", text)
    assert sorted(figures) == sorted(f"figures/{f.name}" for f in (directory / "figures").iterdir())
    for figure in figures:
        assert (directory / figure).read_bytes()[:4] == b"\x89PNG"
    for base in sentences.BASELINE.values():
        assert f"Against {base}, " in text
    return text, numbers


def test_the_script_goes_from_the_network_to_accuracy(tmp_path):
    workdir = tmp_path / "web"
    result = subprocess.run(
        [
            sys.executable,
            str(ROOT / "scripts" / "netsim.py"),
            f"--config={CONFIGS / 'colocated_web.py'}:shrink",
            f"--workdir={workdir}",
            f"--compilation_cache_dir={jax.config.jax_compilation_cache_dir}",
        ],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "XLA_FLAGS": QUICK},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    text, numbers = assert_report(workdir)
    assert "Uplink: " in text
    short = text.split("## In short")[1].split("##")[0]
    assert short.strip() in result.stdout
    rows = numbers[numbers["quantity"] == "accuracy"].set_index("channel")
    assert set(rows.index) == {"none", "recorded", "independent", "bursts"}
    (trace,) = load_traces(workdir / "trace_0.nc")
    steps = STUDY.training["steps"]
    server = owners(trace.num_packets, trace.servers)
    crosses = np.arange(trace.workers)[:, None] != np.asarray(server)[None, :]
    played = np.stack([trace.up[:steps], trace.down[:steps]])
    # What training counted as lost is what the network had lost, on the links it crossed.
    assert rows.loc["recorded", "lost"] == pytest.approx(1 - played[..., crosses].mean(), rel=1e-5)
    assert rows.loc["none", "lost"] == 0
    assert rows.loc["independent", "lost"] > 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"seeds": 1}, "seeds: 1 is not allowed"),
        ({"web_rates": ()}, "web_rates: "),
        ({"few_fifo_thresholds": (77,)}, "few_fifo_thresholds: "),
        ({"few_fifo_thresholds": (1500,)}, "also 150000"),
        ({"hosts": 3}, "hosts: 3 is not allowed"),
        ({"what": 3}, "config: "),
    ],
)
def test_wrong_studies_are_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        make_study(**fields)
