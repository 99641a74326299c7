"""Figures are read back: the numbers drawn must be those computed here by plain loops."""

import itertools
import json

import numpy as np
import pytest
import xarray as xr
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from jaxlossy import figures, summaries

PROBABILITIES, SERVERS, SEEDS = (0.0, 0.1, 0.3), (1, 4, 16), (0, 1, 2, 3)
STEPS = np.array([5, 10, 15])
FIGURES = (figures.accuracy_against_loss, figures.heat_map, figures.curves)


def make_results(**axes):
    fields = {
        "drop_probability": [0.1],
        "servers": [4],
        "seed": [0],
        "workers": [16],
        "placement": ["random"],
        "aggregation": ["model_averaging"],
        "learning_rate": [0.1],
        "dirichlet_alpha": [np.inf],
    } | axes
    points = list(itertools.product(*fields.values()))
    coords = {
        name: ("config", np.array(values))
        for name, values in zip(fields, zip(*points, strict=True), strict=True)
    }
    random = np.random.default_rng(0)
    shape = (len(points), len(STEPS))
    data = {
        "train_loss": random.uniform(0.1, 3, shape),
        "test_loss": random.uniform(0.5, 3, shape),
        "test_accuracy": random.uniform(0.1, 1, shape),
        "disagreement": random.uniform(0.1, 1, shape) * coords["drop_probability"][1][:, None] ** 3,
    }
    return xr.Dataset(
        {name: (("config", "step"), values.astype(np.float32)) for name, values in data.items()},
        coords | {"step": STEPS},
        {"swept": json.dumps(list(axes))},
    )


def last(ds, name="test_accuracy", **fields):
    """The last values of the configs with these fields."""
    return [
        float(ds[name].values[config, -1])
        for config in range(ds.sizes["config"])
        if all(ds[field].values[config] == value for field, value in fields.items())
    ]


def set_last(ds, name, value, **fields):
    chosen = np.all([ds[field].values == v for field, v in fields.items()], axis=0)
    ds[name].values[chosen, -1] = value


def bands(axes):
    return [artist for artist in axes.collections if isinstance(artist, PolyCollection)]


def cell_texts(axes):
    return [text.get_text() for text in axes.texts]


def draw(figure):
    figure.savefig("/dev/null", format="png")  # most warnings of matplotlib come only now
    return figure


@pytest.fixture
def results():
    return make_results(drop_probability=PROBABILITIES, servers=SERVERS, seed=SEEDS)


def test_lines_are_means_over_seeds_in_order_of_drop_probability(results):
    shuffled = results.isel(config=np.random.default_rng(1).permutation(results.sizes["config"]))
    (axes,) = draw(figures.accuracy_against_loss(shuffled)).axes
    assert [line.get_label() for line in axes.lines] == ["1", "4", "16"]
    for servers, line in zip(SERVERS, axes.lines, strict=True):
        means = [np.mean(last(results, drop_probability=p, servers=servers)) for p in PROBABILITIES]
        np.testing.assert_allclose(line.get_xdata(), PROBABILITIES)
        np.testing.assert_allclose(line.get_ydata(), means, rtol=1e-6)


def test_band_is_the_10_to_90_percent_quantiles(results):
    (axes,) = figures.accuracy_against_loss(results).axes
    assert len(bands(axes)) == len(SERVERS)
    corners = bands(axes)[0].get_paths()[0].vertices
    for p in PROBABILITIES:
        low, high = np.quantile(last(results, drop_probability=p, servers=1), (0.1, 0.9))
        heights = corners[corners[:, 0] == p, 1]
        np.testing.assert_allclose((heights.min(), heights.max()), (low, high), rtol=1e-6)


def test_no_band_with_one_seed():
    ds = make_results(drop_probability=PROBABILITIES, servers=SERVERS)
    for figure in (figures.accuracy_against_loss(ds), figures.curves(ds)):
        assert not any(bands(axes) for axes in figure.axes)


def test_heat_map_is_the_means_and_blank_where_the_sweep_has_no_config(results):
    missing = (results["drop_probability"] == 0.3) & (results["servers"] == 16)
    results = results.isel(config=~missing.values)
    axes = draw(figures.heat_map(results)).axes[0]
    cells = axes.images[0].get_array().filled(np.nan)
    expected = [
        [
            np.mean(values) if (values := last(results, drop_probability=p, servers=s)) else np.nan
            for p in PROBABILITIES
        ]
        for s in SERVERS
    ]
    np.testing.assert_allclose(cells, expected, rtol=1e-6)
    assert np.isnan(cells[-1, -1])
    assert len(cell_texts(axes)) == len(PROBABILITIES) * len(SERVERS) - 1
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["1", "4", "16"]


def test_curves_are_means_over_all_configs_of_a_drop_probability(results):
    train, test, disagreement = draw(figures.curves(results)).axes
    for axes, name in ((train, "train_loss"), (test, "test_loss"), (disagreement, "disagreement")):
        for p, line in zip(PROBABILITIES, axes.lines, strict=True):
            chosen = results[name].values[results["drop_probability"].values == p]
            np.testing.assert_array_equal(line.get_xdata(), STEPS)
            np.testing.assert_allclose(line.get_ydata(), chosen.mean(0), rtol=1e-5)
        assert len(bands(axes)) == len(PROBABILITIES)
    # the exact zeros without loss have a place on the axis
    assert disagreement.get_yscale() == "symlog"
    assert disagreement.get_ylim()[0] < 0


def test_one_panel_per_combination_of_the_other_swept_fields():
    rules, rates = ("gradient_averaging", "model_averaging"), (0.1, 0.2)
    axes = {"drop_probability": PROBABILITIES, "aggregation": rules, "learning_rate": rates}
    for ds in (make_results(**axes), make_results(**axes).drop_attrs()):
        figure = draw(figures.accuracy_against_loss(ds))
        assert len(figure.axes) == 4
        for axis, (rule, rate) in zip(figure.axes, itertools.product(rules, rates), strict=True):
            assert axis.get_title() == f"aggregation = {rule}, learning rate = {rate}"
            expected = last(ds, aggregation=rule, learning_rate=rate)
            np.testing.assert_allclose(axis.lines[0].get_ydata(), expected, rtol=1e-6)
        assert len([axis for axis in figures.heat_map(ds).axes if axis.images]) == 4
        rows = figures.curves(ds)
        assert len(rows.axes) == 6
        assert "mean over learning rate" in rows.get_suptitle()


def test_panels_beyond_the_limit_are_announced():
    ds = make_results(drop_probability=PROBABILITIES, learning_rate=np.arange(1, 9) / 10)
    figure = draw(figures.accuracy_against_loss(ds))
    assert len(figure.axes) == summaries.MAX_PANELS == 6
    assert "first 6 of 8 combinations" in figure.get_suptitle()


def test_a_field_swept_along_with_an_axis_makes_no_panels(results):
    results = results.assign_coords(workers=results["servers"] * 2)
    results.attrs["swept"] = json.dumps(["drop_probability", "servers", "seed", "workers"])
    figure = figures.accuracy_against_loss(results)
    assert len(figure.axes) == 1
    assert "2 or 8 or 32 workers" in figure.get_suptitle()
    assert "workers swept along" in figure.get_suptitle().replace("\n", " ")


def test_drop_probability_of_one_direction_can_be_the_axis():
    ds = make_results(uplink_drop_probability=PROBABILITIES)
    figure = figures.accuracy_against_loss(ds)
    assert figure.get_supxlabel() == "uplink drop probability"
    np.testing.assert_allclose(figure.axes[0].lines[0].get_xdata(), PROBABILITIES)


def test_title_counts_configs_seeds_and_workers(results):
    for draw_one in FIGURES:
        assert "36 configs; 4 seeds; 16 workers" in draw_one(results).get_suptitle()


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_diverged_configs_are_left_out_and_counted(results, value):
    accuracy = np.nan if np.isnan(value) else 0.1
    for fields in ({"drop_probability": 0.3, "servers": 1}, {"drop_probability": 0.1, "seed": 2}):
        for name in ("train_loss", "test_loss"):
            set_last(results, name, value, **fields)
        set_last(results, "test_accuracy", accuracy, **fields)

    lines, cells, losses = (draw(draw_one(results)) for draw_one in FIGURES)
    survivors = [
        last(results, drop_probability=0.1, servers=1, seed=seed)[0] for seed in SEEDS if seed != 2
    ]
    np.testing.assert_allclose(lines.axes[0].lines[0].get_ydata()[1], np.mean(survivors), rtol=1e-6)
    assert np.isnan(lines.axes[0].lines[0].get_ydata()[2])
    assert "diverged" in cell_texts(cells.axes[0])
    assert sum("3 of 4" in text for text in cell_texts(cells.axes[0])) == len(SERVERS)
    labels = [line.get_label() for line in losses.axes[0].lines]
    assert labels == ["0", "0.1 (3 of 12 diverged)", "0.3 (4 of 12 diverged)"]
    assert losses.axes[0].get_ylim()[1] < 100
    for figure in (lines, cells, losses):
        assert "7 diverged configs left out" in figure.get_suptitle().replace("\n", " ")


@pytest.mark.parametrize("draw_one", FIGURES)
def test_all_configs_diverged(results, draw_one):
    draw(draw_one(results * np.nan))


def test_test_loss_takes_the_place_of_accuracy_in_regression(results):
    results["test_accuracy"] *= np.nan
    results["test_loss"] *= 10.0 ** -(results["servers"] % 5)  # decades: a logarithmic axis
    lines, cells = draw(figures.accuracy_against_loss(results)), draw(figures.heat_map(results))
    expected = np.mean(last(results, "test_loss", drop_probability=0.0, servers=4))
    np.testing.assert_allclose(lines.axes[0].lines[1].get_ydata()[0], expected, rtol=1e-6)
    np.testing.assert_allclose(cells.axes[0].images[0].get_array()[1, 0], expected, rtol=1e-6)
    assert lines.get_supylabel() == "test loss of the mean model"
    assert lines.axes[0].get_yscale() == "log"


def test_each_config_ends_at_its_own_last_step(results):
    results = results.assign_coords(steps=10 + 5 * (results["servers"] > 1))
    results = results.where(results["step"] <= results["steps"])
    line = figures.accuracy_against_loss(results).axes[0].lines[0]
    expected = np.mean(last(results.sel(step=[5, 10]), drop_probability=0.0, servers=1))
    np.testing.assert_allclose(line.get_ydata()[0], expected, rtol=1e-6)


@pytest.mark.parametrize("axis", ["drop_probability", "servers", "seed", None])
@pytest.mark.parametrize("draw_one", FIGURES)
def test_one_axis_or_none(axis, draw_one):
    values = {"drop_probability": PROBABILITIES, "servers": SERVERS, "seed": SEEDS}
    ds = make_results(**({axis: values[axis]} if axis else {}))
    assert isinstance(draw(draw_one(ds)), Figure)
    draw(draw_one(ds.isel(step=[-1])))


@pytest.mark.parametrize(
    ("axes", "names"),
    [
        ({"drop_probability": PROBABILITIES}, ["accuracy_against_loss", "heat_map"]),
        ({"servers": SERVERS}, ["heat_map"]),
        ({"seed": SEEDS}, []),
    ],
)
def test_save_all_writes_the_figures_that_mean_something(tmp_path, axes, names):
    directory = tmp_path / "new" / "directory"
    paths = figures.save_all(make_results(**axes), directory)
    assert [path.stem for path in paths] == [*names, "loss_and_disagreement"]
    assert sorted(directory.iterdir()) == sorted(paths)  # and no temporary file is left
    assert all(path.read_bytes().startswith(b"\x89PNG\r\n") for path in paths)


def test_a_failed_save_leaves_the_old_figure(tmp_path, results, monkeypatch):
    def fail(self, path, **_):
        path.write_bytes(b"half")
        raise OSError("disk full")

    (path, *_) = figures.save_all(results, tmp_path)
    before = path.read_bytes()
    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(OSError, match="disk full"):
        figures.save_all(results, tmp_path)
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 3


def test_a_figure_shows_itself_in_a_notebook_without_pyplot(results):
    formatters = pytest.importorskip("IPython.core.formatters")
    shown, _ = formatters.DisplayFormatter().format(figures.heat_map(results))
    assert shown["image/png"].startswith(b"\x89PNG")
