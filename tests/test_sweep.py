import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from flax import nnx
from problems import SMALL, small_data

import jaxlossy
from jaxlossy import checkpoint, devices, memory, results, train, tuning
from jaxlossy.aggregation import Aggregation
from jaxlossy.channel import Channel, Delivered
from jaxlossy.config import FIELDS
from jaxlossy.errors import ConfigError
from jaxlossy.grid import make_groups
from jaxlossy.problem import as_examples, make_problem

GRID = {
    "drop_probability": (0.0, 0.3),
    "servers": (1, 3),
    "learning_rate": (0.1, 0.2),
    "seed": (0, 1, 2),
}
EXACT = ("uplink_delivered", "downlink_delivered", "parameters_sent", "bytes_sent")


def run(sweep=GRID, **options):
    """A small sweep, quiet; keywords that are config fields change it."""
    fields = {
        name: options.pop(name)
        for name, value in list(options.items())
        if name in FIELDS and isinstance(value, int | float | str)
    }
    options = {"data": small_data(), "verbose": False, **options}
    return jaxlossy.sweep({**SMALL, **fields, "sweep": sweep}, **options)


def footprint_of(**fields):
    config = jaxlossy.make_config({**SMALL, **fields})
    group = make_groups([config], data=small_data(), data_dir=None)[0]
    return memory.footprint(group.problem, config, group.examples, group.shards[0])


def tight_budget():
    """Bytes that let each of two devices take two configs at once, of the small problem."""
    one = footprint_of()
    live = devices.Live(2, 4)
    budget = one.total(live, 2)
    assert devices.plan_batches(15, 2, one, budget=budget, live=live).batch == 4
    return budget


@pytest.fixture(scope="module")
def grid_results():
    return run()


def assert_same(a, b, rtol=1e-5):
    """The same masks and counts exactly, the same losses to float32 accuracy."""
    for name in EXACT:
        np.testing.assert_array_equal(a[name], b[name])
    for name in ("train_loss", "test_loss", "replica_test_loss"):
        np.testing.assert_allclose(a[name], b[name], rtol=rtol)
    np.testing.assert_allclose(a["disagreement"], b["disagreement"], rtol=1e-3, atol=1e-9)


def test_every_config_of_the_grid_is_there_and_labelled(grid_results):
    ds = grid_results
    points = list(zip(*(ds[name].values.tolist() for name in GRID), strict=True))
    assert points == list(itertools.product(*GRID.values()))
    assert ds["step"].values.tolist() == [2, 4]
    assert bool(ds["completed"].all())
    assert not any(ds[name].isnull().any() for name in results.METRICS)
    assert set(ds["data"].values.tolist()) == {"small"}


def test_a_config_alone_equals_itself_in_the_sweep(grid_results):
    for index in (0, 7, 23):
        point = {name: grid_results[name].values[index].item() for name in GRID}
        config = jaxlossy.make_config({**SMALL, **point})
        data = small_data()
        problem = make_problem(config, data)
        group = make_groups([config], data=data, data_dir=None)[0]
        _, alone = train.run(problem, config, as_examples(data), group.shards[0])
        for name in results.CUMULATIVE:
            alone[name] = alone[name].cumsum()
        assert_same(grid_results.isel(config=index), alone)


def test_one_device_equals_two(grid_results):
    assert len(jax.local_devices()) == 2
    assert_same(run(devices=jax.local_devices()[:1]), grid_results)


def test_small_batches_equal_large_ones_and_the_ragged_last_one_compiles_nothing(monkeypatch):
    compiled = []
    original = devices.compile_over_configs

    def counting(*args, **kwargs):
        compiled.append(kwargs["live"])
        return original(*args, **kwargs)

    monkeypatch.setattr(devices, "compile_over_configs", counting)
    sweep = {"drop_probability": (0.0, 0.2, 0.4), "seed": tuple(range(5))}
    whole = run(sweep)  # 15 configs are a ragged last batch of 3 behind three of 4
    monkeypatch.setattr(tuning, "choose_live", lambda *_: devices.Live(2, 4))
    assert_same(run(sweep, memory_budget=tight_budget()), whole)
    assert len(compiled) == 2  # one for each of the two sweeps


def test_a_group_is_traced_once_whatever_is_in_it(monkeypatch):
    """As many traces of the model for 30 different configs in 8 batches as for 2 in one."""

    def count_traces(configs):
        traces = []

        def apply(params, x):
            traces.append(x.shape)
            return x @ params

        rng = np.random.default_rng(1)
        points = [
            {
                "drop_probability": rng.random(),
                "downlink_drop_probability": rng.random(),
                "servers": int(rng.integers(1, 4)),
                "learning_rate": rng.random() + 0.1,
                "dirichlet_alpha": [np.inf, 0.5][i % 2],
                "seed": i,
            }
            for i in range(configs)
        ]
        model = (lambda key, x: jax.random.normal(key, (6, 3)), apply)
        run(points, model=model, memory_budget=tight_budget())
        return len(traces)

    monkeypatch.setattr(tuning, "choose_live", lambda *_: devices.Live(2, 4))
    assert count_traces(2) == count_traces(30)


def test_static_axes_make_groups_and_one_table():
    ds = run({"placement": ("random", "separate"), "steps": (2, 4), "seed": (0, 1)})
    assert ds.sizes == {"config": 8, "step": 2}
    short = ds["steps"] == 2
    assert bool(ds["test_loss"].sel(step=4)[short].isnull().all())
    assert not results.final(ds)["test_loss"].isnull().any()
    alone = run({"seed": (0, 1)}, placement="separate")
    chosen = (ds["placement"] == "separate") & ~short
    assert_same(ds.isel(config=np.flatnonzero(chosen)), alone)


def test_dirichlet_shards_and_their_seed_are_traced():
    ds = run({"dirichlet_alpha": (np.inf, 0.1), "shard_seed": (0, 1)})
    assert len(set(ds["train_loss"].values[:, 0].tolist())) == 4


def test_results_survive_the_disk(tmp_path, grid_results):
    ds = run(workdir=tmp_path)
    back = jaxlossy.load(tmp_path)
    assert back.identical(ds)
    assert_same(back, grid_results)
    for name, field in FIELDS.items():
        if name not in ("data", "features"):
            value = back[name].values[0]
            assert isinstance(value.item(), type(field.default) if field.default else object)
    rows = (tmp_path / "summary.csv").read_text().splitlines()
    assert len(rows) == 1 + 24
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {
        "accuracy_against_loss.png",
        "heat_map.png",
        "loss_and_disagreement.png",
    }
    assert {"versions", "device", "config", "compile_seconds", "train_seconds"} <= set(back.attrs)
    assert not list(tmp_path.rglob(".*"))  # no temporary files left


def test_an_interrupted_sweep_goes_on_where_it_was(tmp_path, monkeypatch, grid_results):
    monkeypatch.setattr(tuning, "choose_live", lambda *_: devices.Live(2, 4))
    options = {"workdir": tmp_path, "memory_budget": tight_budget()}
    save, saved = results.save, []

    def interrupted(ds, workdir):
        save(ds, workdir)
        saved.append(int(ds["completed"].sum()))
        if len(saved) == 3:  # the first one is before training
            raise KeyboardInterrupt

    monkeypatch.setattr(results, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(**options)
    assert 0 < saved[-1] < 24
    partial = jaxlossy.load(tmp_path)
    assert int(partial["completed"].sum()) == saved[-1]
    trained = []
    monkeypatch.setattr(results, "save", save)
    fill = results.fill

    def counting(ds, indices, *rest):
        trained.extend(indices)
        fill(ds, indices, *rest)

    monkeypatch.setattr(results, "fill", counting)
    ds = run(**options)
    assert len(trained) == 24 - saved[-1]
    assert_same(ds, grid_results)
    again = run(**options)  # nothing left to do
    assert len(trained) == 24 - saved[-1]
    assert again.identical(jaxlossy.load(tmp_path))


def test_a_batch_goes_on_from_its_checkpoint(tmp_path, monkeypatch, grid_results):
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)  # one before every segment but the first
    options = {"workdir": tmp_path, "steps": 8}
    whole = run(steps=8)
    monkeypatch.setattr(results, "fill", _interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(**options)
    monkeypatch.undo()
    assert (tmp_path / "checkpoint.npz").exists()
    updates, update = [], train.metrics
    monkeypatch.setattr(train, "metrics", lambda *args: (updates.append(1), update(*args))[1])
    assert_same(run(**options), whole)
    assert len(updates) == 1  # of four segments, three were in the checkpoint
    assert not (tmp_path / "checkpoint.npz").exists()


def test_a_checkpoint_of_another_batch_is_not_used(tmp_path):
    path, state = tmp_path / "checkpoint.npz", {"x": jnp.arange(3.0)}
    checkpoint.save(path, "a", np.array([4, 5, 6]), state, [{"loss": np.ones(3)}])
    found = checkpoint.load(path, "a", np.array([4, 5, 6]), state)
    assert found is not None
    np.testing.assert_array_equal(found[0]["x"], state["x"])
    assert checkpoint.load(path, "a", np.array([4, 5, 7]), state) is None
    assert checkpoint.load(path, "a", np.array([4, 5, 6]), {"x": jnp.arange(4.0)}) is None
    assert checkpoint.load(path, "b", np.array([4, 5, 6]), state) is None
    path.write_bytes(b"half a file")
    assert checkpoint.load(path, "a", np.array([4, 5, 6]), state) is None
    assert checkpoint.load(tmp_path / "none.npz", "a", np.array([4]), state) is None


def _interrupt(*_):
    raise KeyboardInterrupt


def test_another_sweep_in_the_workdir_is_refused_and_left_alone(tmp_path):
    run({"seed": (0,)}, workdir=tmp_path)
    before = (tmp_path / "results.nc").read_bytes()
    with pytest.raises(ConfigError, match=r"^workdir: .* this one holds another\)$"):
        run({"seed": (1,)}, workdir=tmp_path)
    assert (tmp_path / "results.nc").read_bytes() == before


def test_another_sweep_is_refused_before_the_first_batch_has_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "fill", _interrupt)
    with pytest.raises(KeyboardInterrupt):
        run({"seed": (0,)}, workdir=tmp_path)
    with pytest.raises(ConfigError, match="this one holds another"):
        run({"seed": (1,)}, workdir=tmp_path)


def test_a_model_of_other_shapes_is_another_sweep(tmp_path):
    run({"seed": (0,)}, workdir=tmp_path, model=nn.Sequential([nn.Dense(4), nn.Dense(3)]))
    with pytest.raises(ConfigError, match="this one holds another"):
        run({"seed": (0,)}, workdir=tmp_path, model=nn.Sequential([nn.Dense(5), nn.Dense(3)]))


@pytest.mark.parametrize("budget", [0, -1, float("nan")])
def test_a_memory_budget_is_positive(budget):
    with pytest.raises(ConfigError, match=r"^memory_budget: "):
        run(memory_budget=budget)


@pytest.mark.parametrize("workdir", ["", 3, "nul\0"])
def test_a_workdir_is_a_path(workdir):
    with pytest.raises(ConfigError, match=r"^workdir: "):
        run(workdir=workdir)


def test_figures_that_could_not_be_written_are_refused_before_training(tmp_path):
    (tmp_path / "figures").write_text("in the way")
    with pytest.raises(ConfigError, match=r"^workdir: .*figures' is not allowed"):
        run(workdir=tmp_path)


def test_data_of_ones_own_comes_from_from_arrays():
    with pytest.raises(ConfigError, match=r"^data: .*jaxlossy\.from_arrays"):
        run(data=(np.zeros((4, 2)), np.zeros(4, int)))


def test_outputs_that_are_not_one_number_a_class_have_no_accuracy():
    """One logit for two classes: argmax over it would be class 0, whatever it says."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    data = jaxlossy.from_arrays((x[:40], (x[:40, 0] > 0) * 1), (x[40:], (x[40:, 0] > 0) * 1))
    ds = run(
        {"seed": (0, 1)},
        data=data,
        model=nn.Dense(1),
        loss=lambda outputs, labels: optax.sigmoid_binary_cross_entropy(outputs[:, 0], labels),
        packet_size=1,
    )
    assert bool(ds["test_accuracy"].isnull().all())
    assert not bool(ds["test_loss"].isnull().any())


def test_a_workdir_that_can_not_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"^workdir: .*file/sub' is not .*Not a directory\)$"):
        run(workdir=tmp_path / "file" / "sub")


def test_load_says_what_it_misses(tmp_path):
    with pytest.raises(ConfigError, match=r"a directory with results\.nc"):
        jaxlossy.load(tmp_path)
    (tmp_path / "results.nc").write_text("not netCDF")
    with pytest.raises(ConfigError, match=r"a readable results\.nc"):
        jaxlossy.load(tmp_path)


def _linen():
    return nn.Sequential([nn.Dense(4), nn.relu, nn.Dense(3)])


class _Net(nnx.Module):
    def __init__(self, rngs):
        self.inner = nnx.Linear(6, 4, rngs=rngs)
        self.outer = nnx.Linear(4, 3, rngs=rngs)

    def __call__(self, x):
        return self.outer(nnx.relu(self.inner(x)))


@pytest.mark.parametrize("model", [_linen(), _Net, lambda rngs: _Net(rngs)])
def test_flax_models_of_both_kinds_train(model):
    ds = run({"seed": (0, 1)}, model=model, steps=40, eval_every=20)
    assert results.final(ds)["test_accuracy"].min() > 0.6
    assert len(set(ds["test_loss"].values[:, -1].tolist())) == 2  # seeds draw their own weights


def test_regression_with_a_loss_and_optimizer_of_ones_own():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 3))
    y = x @ [1.0, -2.0, 0.5]
    data = jaxlossy.from_arrays((x[:64], y[:64]), (x[64:], y[64:]))
    model = (lambda key, x: jnp.zeros(x.shape[1]), lambda w, x: x @ w)
    ds = run(
        {"drop_probability": (0.0, 0.2)},
        data=data,
        model=model,
        loss=lambda outputs, labels: (outputs - labels) ** 2,
        optimizer=optax.rmsprop,
        steps=100,
        packet_size=1,
        servers=2,
        learning_rate=0.05,
    )
    assert results.final(ds)["test_loss"].max() < 1e-2
    assert bool(ds["test_accuracy"].isnull().all())
    assert "test loss" in jaxlossy.table(ds)


def test_a_channel_and_an_aggregation_of_ones_own():
    """A channel that remembers (every other step all is lost) and a rule that counts its calls."""

    def alternating(config):
        def sample(state, assignment, *, key):
            arrives = jnp.full(assignment.local.shape, state % 2 == 0)
            return Delivered(arrives, arrives), state + 1

        return Channel(lambda assignment, *, key: jnp.zeros((), jnp.int32), sample)

    def halving(config):
        def apply(count, packets, delivered):
            return packets / 2, count + 1

        return Aggregation("model", lambda packets: jnp.zeros((), jnp.int32), apply)

    ds = run({"seed": (0, 1)}, channel=alternating, eval_every=1)
    np.testing.assert_array_equal(ds["uplink_delivered"], [[1.0, 0.0, 1.0, 0.0]] * 2)
    assert set(ds["channel"].values.tolist()) == {"alternating"}
    shrunk = run({"seed": (0, 1)}, aggregation=halving, learning_rate=1e-6, steps=20)
    assert results.final(shrunk)["test_loss"].values == pytest.approx(np.log(3), rel=1e-3)


def test_objects_and_axes_exclude_each_other():
    with pytest.raises(ConfigError, match=r"^sweep.model: '_Net' is not allowed"):
        run({"model": ("mlp", "logistic")}, model=_Net)


def test_the_footprint_covers_the_state_and_grows_with_it():
    plain, momentum = footprint_of(), footprint_of(optimizer="momentum")
    wide = footprint_of(features=(500,))
    replicas = 4 * 4 * 8 * 7
    assert replicas < plain.held < 2 * replicas
    assert momentum.held >= plain.held + 4 * 4 * 53  # parameters, without padding
    assert wide.held > 50 * plain.held
    everyone = devices.Live(1, 4)
    assert wide.working(everyone) > 50 * plain.working(everyone)
    assert plain.working(everyone) < 4 * plain.working(devices.Live(1, 1))


@pytest.mark.parametrize("num_configs", [1, 7, 240, 1001])
@pytest.mark.parametrize("num_devices", [1, 2, 8])
@pytest.mark.parametrize("budget", [0, 400, 10_000, 10**9])
@pytest.mark.parametrize("live", [devices.Live(1000, 4), devices.Live(16, 4), devices.Live(1, 1)])
def test_plans_cover_all_configs_within_the_budget(num_configs, num_devices, budget, live):
    cost = devices.Footprint(held=10, config=10, replica=5, shared=100)
    plan = devices.plan_batches(num_configs, num_devices, cost, budget=budget, live=live)
    assert plan.batch * plan.num_batches >= num_configs
    assert plan.batch * (plan.num_batches - 1) < num_configs
    assert plan.batch % (num_devices * plan.live.configs) == 0
    assert plan.live.workers == live.workers
    if budget >= 140:
        assert plan.estimated_bytes <= budget
    else:
        assert plan.batch == num_devices  # the least there is
    padding = plan.batch * plan.num_batches - num_configs
    assert padding < plan.batch or plan.num_batches == 1


def test_configs_from_python_need_no_flags():
    config = jaxlossy.default_config()
    config.update({**SMALL, "steps": 2})
    config.sweep.seed = (0, 1)
    ds = jaxlossy.sweep(config, data=small_data(), verbose=False)
    single = jaxlossy.Config(**{**SMALL, "steps": 2, "seed": 1})
    alone = jaxlossy.sweep(single, data=small_data(), verbose=False)
    assert_same(ds.isel(config=[1]), alone)
    assert dataclasses.asdict(single)["drop_probability"] == 0.0
