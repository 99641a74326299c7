"""A device whose memory runs out all the same: the sweep goes on with smaller batches."""

import gc
import itertools

import jax
import jax.numpy as jnp
import pytest
from test_sweep import assert_same, run, tight_budget

from jaxlossy import devices, results, tuning
from jaxlossy.devices import Live


@pytest.fixture(scope="module")
def whole():
    return run()


class _Unfetchable:
    """The result of a program that failed after its call had returned."""

    def __array__(self, *_, **__):
        raise _exhausted()


def _exhausted():
    return jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.\n...")


def limit_memory(monkeypatch, most, where, *, calls_before=0):
    """Lets programs of more than `most` configs fail, after that many calls that do not.

    Returns:
      The sizes of the programs compiled, each with the number of arrays that were alive.
    """
    gc.collect()  # what tests before left is not to go meanwhile
    compiled, calls = [], []
    original = devices.compile_over_configs

    def compile_over_configs(function, shared, state, items, **options):
        size = jax.tree.leaves(state)[0].shape[0]
        compiled.append((size, len(jax.live_arrays())))
        if where == "compile" and size > most:
            raise _exhausted()
        program = original(function, shared, state, items, **options)

        def call(*args):
            calls.append(size)
            state, report = program(*args)
            if size > most and len(calls) > calls_before:
                if where == "call":
                    raise _exhausted()
                report = jax.tree.map(lambda _: _Unfetchable(), report)
            return state, report

        return call

    monkeypatch.setattr(devices, "compile_over_configs", compile_over_configs)
    monkeypatch.setattr(devices, "peak_bytes", lambda compiled: 0)
    return compiled


@pytest.mark.parametrize("where", ["compile", "call", "fetch"])
def test_a_sweep_goes_on_with_smaller_batches(monkeypatch, capsys, where, whole):
    compiled = limit_memory(monkeypatch, 8, where)
    assert_same(run(verbose=True), whole)
    sizes, alive = zip(*compiled, strict=True)
    assert sizes[0] == 24
    assert sizes == tuple(sorted(sizes, reverse=True))  # first fewer are live, then in a batch
    assert sizes[-1] <= 8 < sizes[-2]
    assert set(alive) == {alive[0]}  # what the failed attempt held was released
    lines = [line for line in capsys.readouterr().out.splitlines() if "out of memory" in line]
    assert len(lines) == len(sizes) - 1
    assert f"out of memory; going on with batches of {sizes[-1]} configs" in lines[-1]


def test_what_is_done_is_not_done_again(monkeypatch, tmp_path, whole):
    """Two batches of four and half of the third are trained before the memory shrinks."""
    compiled = limit_memory(monkeypatch, 2, "fetch", calls_before=5)
    monkeypatch.setattr(tuning, "choose_live", lambda *_: Live(2, 4))
    filled, fill = [], results.fill

    def counting(ds, indices, *rest):
        filled.append(indices.tolist())
        fill(ds, indices, *rest)

    monkeypatch.setattr(results, "fill", counting)
    assert_same(run(workdir=tmp_path, memory_budget=tight_budget()), whole)
    sizes = [size for size, _ in compiled]
    assert sizes == [4] * (len(sizes) - 1) + [2]  # first fewer are live, then in a batch
    assert [len(indices) for indices in filled] == [4, 4] + [2] * 8
    assert [i for indices in filled for i in indices] == list(range(24))


def test_one_config_at_a_time_that_does_not_fit_is_one_clear_line(monkeypatch):
    limit_memory(monkeypatch, 0, "call")
    with pytest.raises(MemoryError) as error:
        run()
    assert str(error.value).startswith(
        "out of memory with one config at a time on each device: model 'mlp' with 53 parameters, "
        "4 workers and batch_size 4, about "
    )
    assert str(error.value).endswith("; RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.")
    assert error.value.__context__ is None  # whose frames would keep the device's memory


def test_memory_that_really_runs_out(monkeypatch):
    """A petabyte of intermediates, more than any address space has: nothing is ever allocated."""
    compiled = limit_memory(monkeypatch, 10**9, "nowhere")

    def apply(w, x):
        row = x[:1, :1] * jnp.arange(2.0**24, dtype=jnp.float32)[None]
        return x @ w + jnp.sort(row + jnp.sin(row).T, axis=0)[7].max()

    model = (lambda key, x: jax.random.normal(key, (6, 3)), apply)
    monkeypatch.setattr(tuning, "choose_live", lambda *_: Live(2, 4))
    with pytest.raises(MemoryError, match=r"^out of memory .* RESOURCE_EXHAUSTED: .*\d{16,} bytes"):
        run({"seed": range(4)}, model=model, memory_budget=2**60)
    assert compiled[0][0] == 4
    assert compiled[-1][0] == 2


def test_other_errors_of_the_device_are_not_taken_for_it(monkeypatch):
    def fail(*_, **__):
        raise jax.errors.JaxRuntimeError("INTERNAL: something else")

    monkeypatch.setattr(devices, "compile_over_configs", fail)
    with pytest.raises(jax.errors.JaxRuntimeError, match="something else"):
        run({"seed": (0,)})


def test_halved_plans_end_at_one_replica_of_one_config_a_device():
    cost = devices.Footprint(held=10, config=100, replica=50, shared=1000)
    plan = devices.plan_batches(24, 2, cost, budget=10**9, live=Live(6, 4))
    plans = []
    while plan is not None:
        plans.append(plan)
        plan = tuning.halve_plan(24, 2, cost, plan)
    assert plans[0].batch == 24
    assert (plans[-1].batch, plans[-1].live) == (2, Live(1, 1))
    sizes = [plan.estimated_bytes for plan in plans]
    assert all(a - sizes[-1] >= 2 * (b - sizes[-1]) for a, b in itertools.pairwise(sizes))
