"""The data sets that need no network, as builders of TensorFlow Datasets (TFDS).

They are written once, as ArrayRecord files, and from then on read like any other TFDS data set.
Their features are plain tensors, because TFDS encodes images with TensorFlow.
"""

import contextlib
import io
import os
import pathlib
import random
import tempfile
from collections.abc import Iterator

import numpy as np
import tensorflow_datasets as tfds

from jaxlossy.atis import Atis, AtisLike
from jaxlossy.files import writable_directory


class Digits(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """1,797 handwritten digits of 8 x 8 pixels, shipped with scikit-learn."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self) -> tfds.core.DatasetInfo:
        return _info(self, "image", (8, 8, 1), "https://archive.ics.uci.edu/dataset/80")

    def _split_generators(self, dl_manager):
        del dl_manager
        from sklearn.datasets import load_digits

        pixels, labels = map(np.asarray, load_digits(return_X_y=True))
        images = (pixels / 16).astype(np.float32).reshape(-1, 8, 8, 1)  # 17 grey levels, exact.
        # Every fifth example of each class is for testing: stratified, and the same whatever the
        # versions of scikit-learn and NumPy.
        in_test = np.zeros(len(labels), dtype=bool)
        in_test[np.argsort(labels, kind="stable")[::5]] = True
        return {
            "train": self._generate_examples(images[~in_test], labels[~in_test]),
            "test": self._generate_examples(images[in_test], labels[in_test]),
        }

    def _generate_examples(self, images, labels):
        return _examples("image", images, labels)


class Mnist1d(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """MNIST-1D: 5,000 synthetic digits drawn as curves of 40 points (arXiv 2011.14439)."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self) -> tfds.core.DatasetInfo:
        return _info(self, "signal", (40, 1), "https://github.com/greydanus/mnist1d")

    def _split_generators(self, dl_manager):
        del dl_manager
        from mnist1d.data import make_dataset

        data = make_dataset()
        return {
            "train": self._generate_examples(data["x"], data["y"]),
            "test": self._generate_examples(data["x_test"], data["y_test"]),
        }

    def _generate_examples(self, signals, labels):
        return _examples("signal", signals.astype(np.float32)[..., None], labels)


class Cifar10Like(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """Made-up images of CIFAR-10's shape: a smooth prototype of each of 10 classes, plus noise."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self) -> tfds.core.DatasetInfo:
        return _info(self, "image", (32, 32, 3), "https://www.cs.toronto.edu/~kriz/cifar.html")

    def _split_generators(self, dl_manager):
        del dl_manager
        rng = np.random.default_rng(0)
        prototypes = rng.normal(size=(10, 4, 4, 3)).repeat(8, axis=1).repeat(8, axis=2)

        def draw(count):
            labels = np.arange(count) % 10
            noise = rng.normal(size=(count, 32, 32, 3))
            images = 0.5 + 0.1 * prototypes[labels] + 0.2 * noise
            return self._generate_examples(np.clip(images, 0, 1), labels)

        return {"train": draw(1600), "test": draw(128)}

    def _generate_examples(self, images, labels):
        return _examples("image", images.astype(np.float32), labels)


BUILDERS = {
    "digits": Digits,
    "mnist1d": Mnist1d,
    "atis": Atis,
    "atis_like": AtisLike,
    "cifar10_like": Cifar10Like,
}


def prepare(name: str, data_dir: str | os.PathLike[str] | None) -> None:
    """Writes a data set of this module into ``data_dir``.

    Several processes may do so at once: each writes its own copy, and the first to finish moves it
    into place. (TFDS alone does not allow that: the second rename fails, and processes with equally
    seeded generators even pick the same temporary folder.)

    Args:
      name: a key of ``BUILDERS``.
      data_dir: folder of prepared data sets; None for the default of TFDS.

    Raises:
      ConfigError: a folder that is not writable, or no or bad files to make 'atis' of.
    """
    if data_dir is not None:
        data_dir = writable_directory("data_dir", data_dir)
    builder = BUILDERS[name](data_dir=data_dir)
    target = pathlib.Path(builder.data_dir)
    root = pathlib.Path(builder.data_dir_root)
    root.mkdir(parents=True, exist_ok=True)
    # Beside the target, because only within a file system is a rename atomic.
    with tempfile.TemporaryDirectory(prefix=f".{name}_", dir=root) as scratch:
        source = {"source": root} if name == "atis" else {}
        copy = BUILDERS[name](data_dir=scratch, **source)
        # TFDS reports a dozen lines of progress about a second's work, some of them on stdout.
        quiet = io.StringIO()
        with (
            _global_generators_kept(),
            contextlib.redirect_stdout(quiet),
            contextlib.redirect_stderr(quiet),
        ):
            copy.download_and_prepare(file_format="array_record")
        target.parent.mkdir(exist_ok=True)
        try:
            os.rename(copy.data_dir, target)
        except OSError:
            if not target.exists():
                raise


def _info(builder, x: str, shape: tuple[int, ...], homepage: str) -> tfds.core.DatasetInfo:
    return tfds.core.DatasetInfo(
        builder=builder,
        description=builder.__doc__,
        homepage=homepage,
        features=tfds.features.FeaturesDict(
            {
                x: tfds.features.Tensor(shape=shape, dtype=np.float32),
                "label": tfds.features.ClassLabel(num_classes=10),
            }
        ),
        supervised_keys=(x, "label"),
        # Both sources are in random order, and keeping it makes the files comparable with them.
        disable_shuffling=True,
    )


def _examples(x: str, values: np.ndarray, labels: np.ndarray) -> Iterator[tuple[int, dict]]:
    for key, (value, label) in enumerate(zip(values, labels, strict=True)):
        yield key, {x: value, "label": int(label)}


@contextlib.contextmanager
def _global_generators_kept() -> Iterator[None]:
    """Undoes what happens to the global random generators: mnist1d seeds them, TFDS draws."""
    python, legacy_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy_numpy)  # noqa: NPY002
