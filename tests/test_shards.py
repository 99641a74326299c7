import math

import numpy as np
import pytest

from jaxlossy.errors import ConfigError
from jaxlossy.shards import make_shards

LABELS = np.random.default_rng(0).choice(4, size=4001, p=[0.1, 0.2, 0.3, 0.4])
PRIOR = np.bincount(LABELS) / len(LABELS)


def class_counts(shards, labels=LABELS):
    """``(workers, classes)``."""
    return np.stack([np.bincount(labels[shard], minlength=labels.max() + 1) for shard in shards])


def skew(shards):
    """Mean total-variation distance between a worker's classes and those of the data."""
    share = class_counts(shards) / shards.shape[1]
    return np.abs(share - PRIOR).sum(axis=1).mean() / 2


@pytest.mark.parametrize("alpha", [math.inf, 1e300, 100.0, 0.1, 1e-3, 1e-320])
@pytest.mark.parametrize("workers", [1, 7, 16, 4001])
def test_shards_are_disjoint_and_equally_long(workers, alpha):
    shards = make_shards(LABELS, workers=workers, dirichlet_alpha=alpha, seed=0)
    assert shards.dtype == np.int32
    assert shards.shape == (workers, 4001 // workers)
    assert len(np.unique(shards)) == shards.size
    assert shards.min() >= 0
    assert shards.max() < 4001


@pytest.mark.parametrize("alpha", [math.inf, 0.5])
def test_shards_depend_on_the_seed_alone(alpha):
    def make(seed):
        return make_shards(LABELS, workers=8, dirichlet_alpha=alpha, seed=seed)

    state = np.random.get_state()[1].copy()  # noqa: NPY002
    np.testing.assert_array_equal(make(3), make(3))
    assert (make(3) != make(4)).any()
    np.testing.assert_array_equal(state, np.random.get_state()[1])  # noqa: NPY002


def test_smaller_alpha_skews_more():
    skews = [
        skew(make_shards(LABELS, workers=8, dirichlet_alpha=alpha, seed=1))
        for alpha in (math.inf, 100.0, 10.0, 1.0, 0.1)
    ]
    assert skews == sorted(skews)
    assert skews[0] < 0.03
    assert skews[-1] > 0.4


def test_iid_shards_have_hypergeometric_class_counts():
    workers, n = 16, len(LABELS)
    counts = np.concatenate(
        [
            class_counts(make_shards(LABELS, workers=workers, dirichlet_alpha=math.inf, seed=seed))
            for seed in range(10)
        ]
    )
    length = n // workers
    variance = length * PRIOR * (1 - PRIOR) * (n - length) / (n - 1)
    z = (counts - length * PRIOR) / np.sqrt(variance)
    assert (z**2).mean() == pytest.approx(1, abs=0.15)


def test_class_shares_follow_the_dirichlet_distribution():
    labels = np.repeat([0, 1, 2], [400, 600, 1000])
    prior, length, alpha = np.array([0.2, 0.3, 0.5]), 100, 1.0
    # Every class holds more than one shard, so nothing is exhausted for the first worker.
    first = [
        make_shards(labels, workers=20, dirichlet_alpha=alpha, seed=seed)[:1] for seed in range(700)
    ]
    share = class_counts(np.concatenate(first), labels) / length
    dirichlet = 1 / (1 + alpha)
    variance = prior * (1 - prior) * (dirichlet + (1 - dirichlet) / length)
    np.testing.assert_allclose(share.mean(axis=0), prior, atol=0.05)
    np.testing.assert_allclose(share.var(axis=0), variance, rtol=0.15)


def test_exhausted_classes_are_made_up_from_the_others():
    labels = np.repeat([0, 1], [2, 98])
    shards = make_shards(labels, workers=2, dirichlet_alpha=1e-3, seed=0)
    assert shards.shape == (2, 50)
    assert len(np.unique(shards)) == 100


def test_shards_are_in_random_order():
    shards = make_shards(LABELS, workers=4, dirichlet_alpha=1.0, seed=0)
    position = np.arange(shards.shape[1])
    assert all(abs(np.corrcoef(position, LABELS[shard])[0, 1]) < 0.1 for shard in shards)


def test_labels_need_not_be_consecutive_and_may_be_floats_when_iid():
    assert make_shards([7, -3] * 5, workers=2, dirichlet_alpha=1.0, seed=0).shape == (2, 5)
    labels = np.linspace(0, 1, 10)
    assert make_shards(labels, workers=3, dirichlet_alpha=math.inf, seed=0).shape == (3, 3)


WORKERS = "is not allowed (allowed: an integer from 1 to 10, the number of examples)"
ALPHA = "is not allowed (allowed: a number > 0, or inf)"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"workers": 0}, f"workers: 0 {WORKERS}"),
        ({"workers": 11}, f"workers: 11 {WORKERS}"),
        ({"workers": 2.5}, f"workers: 2.5 {WORKERS}"),
        ({"dirichlet_alpha": 0.0}, f"dirichlet_alpha: 0.0 {ALPHA}"),
        ({"dirichlet_alpha": -math.inf}, f"dirichlet_alpha: -inf {ALPHA}"),
        ({"dirichlet_alpha": math.nan}, f"dirichlet_alpha: nan {ALPHA}"),
        ({"dirichlet_alpha": None}, f"dirichlet_alpha: None {ALPHA}"),
        (
            {"labels": np.linspace(0, 1, 10)},
            "dirichlet_alpha: 1.0 is not allowed (allowed: inf where the labels are not integers)",
        ),
        ({"seed": -1}, "seed: -1 is not allowed (allowed: an integer >= 0)"),
        (
            {"labels": np.zeros((5, 2), int)},
            "labels.shape: (5, 2) is not allowed (allowed: (examples,))",
        ),
    ],
)
def test_errors(change, message):
    arguments = {"labels": np.arange(10) % 2, "workers": 2, "dirichlet_alpha": 1.0, "seed": 0}
    arguments |= change
    with pytest.raises(ConfigError) as error:
        make_shards(arguments.pop("labels"), **arguments)
    assert str(error.value) == message
