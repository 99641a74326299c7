"""The study of more servers: which configs it is made of, and what follows from their numbers."""

import math

import numpy as np
import pytest
from made_up import load_config, made_up

from jaxlossy import theory
from jaxlossy.config import make_config
from jaxlossy.data import load
from jaxlossy.grid import expand
from jaxlossy.problem import make_problem
from jaxlossy.rps import influence

STUDY = influence.Study(servers=(2, 4, 8), workers=4, seeds=6)


def results(learning, disagreement, *, study=STUDY):
    """A sweep where loss adds `learning` to the test loss, and some noise to both."""
    rng = np.random.default_rng(0)

    def noisy(function):
        return lambda row: function(row) * (1 + 0.02 * rng.normal()) if row.drop_probability else 0

    loss, apart = noisy(learning), noisy(disagreement)
    return made_up(
        {"steps": 2, "eval_every": 2, "sweep": study.sweep()},
        test_loss=lambda row: 0.3 + 0.1 * math.sin(row.seed) + loss(row),
        disagreement=apart,
    )


def as_predicted(row):
    n = row.workers
    mixing = theory.coefficients("random", n, row.drop_probability)
    noise = (1 - 1 / n) / (1 - mixing.beta)
    return noise * mixing.alpha2, noise * mixing.beta


def table_of(ds):
    return influence.trends(ds, STUDY).set_index(["growth", "loss", "measure"])


def test_every_config_is_there_once_and_one_without_loss_for_each_number_of_workers():
    configs, swept = expand({"sweep": STUDY.sweep()})
    assert swept == ["workers", "servers", "loss_unit", "drop_probability", "seed"]
    assert len(set(configs)) == len(configs) == 6 * (3 + 3 * 2 + 2 + 2 + 3 - 0)
    without = [c for c in configs if c.drop_probability == 0]
    assert sorted({c.workers for c in without}) == [2, 4, 8]
    assert len(without) == 3 * 6


def test_shorter_messages_are_lost_less_often():
    points = STUDY.cell("servers", "packet")
    assert [point["servers"] for point in points] == [1, 2, 4]
    assert [point["drop_probability"] for point in points] == pytest.approx(
        [1 - (1 - 0.005) ** length for length in (64, 32, 16)]
    )
    assert {point["loss_unit"] for point in STUDY.cell("servers", "lone packet")} == {"packet"}


def test_the_config_has_as_many_packets_as_its_study_says():
    config = load_config("rps_servers")
    fields, study = config["get_config"]().to_dict(), config["get_study"]()
    fields.pop("sweep")
    layout = make_problem(make_config(fields), load("digits")).layout
    assert layout.num_packets == study.num_packets
    for point in (point for cell in study.cells().values() for point in cell):
        assert study.num_packets % point["servers"] == 0


def test_numbers_that_follow_the_theory_do_as_predicted():
    ds = results(lambda row: as_predicted(row)[0], lambda row: as_predicted(row)[1])
    points, trends = influence.influences(ds, STUDY), table_of(ds)
    assert np.allclose(points["mean"], points["predicted"], rtol=0.1)
    assert set(trends["verdict"]) == {"holds"}
    assert list(trends.index[trends["finding"] == "c"]) == [("together", "message", "learning")]
    assert np.allclose(trends["mean"], trends["predicted"], rtol=0.1)
    row = trends.loc["servers", "packet", "learning"]
    assert row["sentence"].startswith(
        "With S alone (N = 4) growing from 1 to 4, where a message is lost with any of its packets"
    )
    assert row["sentence"].endswith('"diminishes" holds.')


def test_an_influence_that_stays_does_not_diminish():
    trends = table_of(results(lambda row: 0.01, lambda row: 0.01 * row.servers**2))
    assert trends.loc["together", "message", "learning"]["verdict"] == "does not hold"
    assert trends.loc["servers", "message", "learning"]["verdict"] == "holds"
    assert trends.loc["servers", "message", "disagreement"]["verdict"] == "does not hold"


def test_no_influence_at_all_decides_nothing():
    ds = results(lambda row: 0.001 * math.sin(7 * row.seed + row.servers), lambda row: 0.01)
    row = table_of(ds).loc["together", "message", "learning"]
    assert row["verdict"] == "not decided"
    assert "not to be told from 6 seeds" in row["sentence"]
