"""Figures of the theory are read back: lines are exact, points are what was measured."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.container import ErrorbarContainer
from matplotlib.image import imread

from jaxlossy import theory
from jaxlossy.rps import predictions, theory_figures
from jaxlossy.rps.measure import coefficient_table


@pytest.fixture(scope="module")
def table():
    return coefficient_table(("random", "separate"), (1, 4), (1,), (0.0, 0.1, 0.3), trials=50)


def drawn(figure):
    figure.savefig("/dev/null", format="png")  # most warnings of matplotlib come only now
    return figure


def points(axes):
    bars = [c for c in axes.containers if isinstance(c, ErrorbarContainer)]
    return [bar.lines[0].get_xydata() for bar in bars]


def test_coefficients_against_workers(table):
    figure = drawn(theory_figures.coefficients_against_workers(table))
    kick, contraction, slow = figure.axes
    for axes, name in ((kick, "alpha2"), (contraction, "beta")):
        shown = np.concatenate(points(axes))
        inside = table[(table["drop_probability"] > 0) & (table["num_workers"] > 1)]
        np.testing.assert_allclose(shown[:, 0], 4)
        np.testing.assert_allclose(sorted(shown[:, 1]), sorted(inside[f"measured_{name}"]))
    lines = [line for line in slow.lines if len(line.get_xdata()) > 1]
    assert len(lines) == 4
    exact = theory.coefficients("random", 4, 0.1)
    (at_four,) = lines[0].get_ydata()[lines[0].get_xdata() == 4]
    assert at_four == pytest.approx(theory.slow_down(exact, 4))
    texts = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert texts == ["0.1", "0.3", "random servers", "separate servers"]


def test_nothing_to_draw_is_an_empty_figure(table):
    figure = drawn(theory_figures.coefficients_against_workers(table[table["num_workers"] == 1]))
    assert all(not points(axes) for axes in figure.axes)


BOUNDS = pd.DataFrame(
    {
        "workers": [4, 4, 16],
        "placement": ["random", "random", "separate"],
        "measured": [1.0, 2.0, 3.0],
        "predicted": [2.0, 5.0, 40.0],
    }
)
DISAGREEMENTS = pd.DataFrame(
    {
        "aggregation": ["gradient_averaging"] * 6 + ["model_averaging"] * 6,
        "dirichlet_alpha": [0.3, 0.3, 0.3, np.inf, np.inf, np.inf] * 2,
        "drop_probability": 0.1,
        "step": [0, 1, 2] * 4,
        "measured": np.arange(12.0),
        "predicted": np.arange(12.0) + 0.5,
    }
)
WEIGHTS = pd.DataFrame(
    {
        "placement": ["fixed", "fixed", "random", "random"],
        "learning_rate": 0.1,
        "drop_probability": [0.1, 0.2, 0.1, 0.2],
        "measured": [1.1, 1.2, 0.99, 1.01],
        "predicted": [1.11, 1.22, 1.0, 1.0],
        "error": 0.01,
    }
)


def test_gradient_bounds():
    (axes,) = drawn(theory_figures.gradient_bounds(BOUNDS)).axes
    shown = np.concatenate([scatter.get_offsets() for scatter in axes.collections])
    np.testing.assert_allclose(shown, [[2, 1], [5, 2], [40, 3]])
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), axes.lines[0].get_ydata())


def test_disagreements():
    figure = drawn(theory_figures.disagreements(DISAGREEMENTS))
    assert [axes.get_title() for axes in figure.axes] == [
        "model averaging, iid data",
        "gradient averaging, iid data",
        "model averaging, label skew, dirichlet alpha 0.3",
        "gradient averaging, label skew, dirichlet alpha 0.3",
    ]
    measured, predicted = figure.axes[3].lines
    np.testing.assert_array_equal(measured.get_ydata(), [0, 1, 2])
    np.testing.assert_array_equal(predicted.get_ydata(), [0.5, 1.5, 2.5])
    np.testing.assert_array_equal(figure.axes[0].lines[0].get_ydata(), [9, 10, 11])


def test_server_weights():
    (axes,) = drawn(theory_figures.server_weights(WEIGHTS)).axes
    np.testing.assert_allclose(points(axes)[0], [[0.1, 1.1], [0.2, 1.2]])
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [1.11, 1.22])


def test_save_all_writes_every_figure(table, tmp_path, monkeypatch):
    monkeypatch.setattr(predictions, "gradient_bounds", lambda: BOUNDS)
    monkeypatch.setattr(predictions, "disagreements", lambda: DISAGREEMENTS)
    monkeypatch.setattr(predictions, "server_weights", lambda: WEIGHTS)
    paths = theory_figures.save_all(table, tmp_path / "figures")
    assert sorted(path.name for path in paths) == [
        "coefficients.png",
        "disagreement.png",
        "gradient_bound.png",
        "server_weight.png",
    ]
    for path in paths:
        image = imread(path)
        assert image.shape[1] > 1000
        assert image.std() > 0.05
