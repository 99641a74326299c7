"""Data sets in memory: arrays of one's own, some that need no network, and those of TFDS.

Everything is read on the host and without TensorFlow. The heavy imports happen inside ``load``.
"""

import dataclasses
import difflib
import json
import os
import shlex
from typing import Any

import numpy as np

from jaxlossy.errors import ConfigError


# Not comparable: the comparison of two arrays is an array, which has no truth value.
@dataclasses.dataclass(frozen=True, eq=False)
class Data:
    """A supervised data set on the host.

    Attributes:
      name: what results call it.
      train_x, test_x: float32 ``(examples, *shape)``; for images (height, width, channel). Of
        utterances int32 tokens, ``(examples, length)``, 0 behind the last one.
      train_y, test_y: ``(examples,)``; int32 class labels, or float32 targets of a regression. Of
        utterances int32 ``(examples, 1 + length)``: the class, here called the intent, then a
        label of each token, its slot, -1 behind the last one.
      num_classes: labels are below it; None for a regression.
      num_tokens, num_slots: tokens and slots are below it; None where there are none.
    """

    name: str
    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    num_classes: int | None
    num_tokens: int | None = None
    num_slots: int | None = None

    @property
    def train_labels(self) -> np.ndarray:
        """One label an example, by which shards can be skewed."""
        return self.train_y if self.train_y.ndim == 1 else self.train_y[:, 0]


def from_arrays(
    train: tuple[Any, Any],
    test: tuple[Any, Any],
    *,
    name: str = "arrays",
    num_classes: int | None = None,
) -> Data:
    """Makes a data set of arrays, in the number formats that training uses.

    Nothing is scaled. Arrays that have the right format already are not copied.

    Args:
      train, test: ``(x, y)`` with x ``(examples, *shape)``, finite numbers, and y ``(examples,)``,
        integers >= 0 for classes or finite floats for a regression.
      name: what results call the data set.
      num_classes: above every label; by default the largest label of both splits, plus one.

    Raises:
      ConfigError: arrays that do not fit together or hold something else, named field by field.

    >>> x, y = np.zeros((6, 4)), np.array([0, 1, 2, 0, 1, 2])
    >>> data = from_arrays((x[:4], y[:4]), (x[4:], y[4:]))
    >>> data.train_x.shape, data.train_x.dtype, data.train_y.dtype, data.num_classes
    ((4, 4), dtype('float32'), dtype('int32'), 3)
    >>> from_arrays((x, y[:5]), (x, y))
    Traceback (most recent call last):
    jaxlossy.errors.ConfigError: train_y.shape: (5,) is not allowed (allowed: (6,), one label for
    each example of train_x)
    """
    (train_x, train_y), (test_x, test_y) = (
        (_inputs(f"{split}_x", x), _labels(f"{split}_y", y))
        for split, (x, y) in (("train", train), ("test", test))
    )
    for split, x, y in (("train", train_x, train_y), ("test", test_x, test_y)):
        if y.shape != x.shape[:1]:
            allowed = f"{x.shape[:1]}, one label for each example of {split}_x"
            raise ConfigError(f"{split}_y.shape", y.shape, allowed)
    if test_x.shape[1:] != train_x.shape[1:]:
        allowed = f"{train_x.shape[1:]}, the shape of an example of train_x"
        raise ConfigError("test_x.shape[1:]", test_x.shape[1:], allowed)
    if test_y.dtype != train_y.dtype:
        raise ConfigError("test_y.dtype", str(test_y.dtype), f"{train_y.dtype}, as in train_y")

    if train_y.dtype == np.float32:
        if num_classes is not None:
            raise ConfigError("num_classes", num_classes, "None where the labels are floats")
        return Data(name, train_x, train_y, test_x, test_y, None)
    largest = int(max(train_y.max(), test_y.max()))
    if num_classes is None:
        num_classes = largest + 1
    elif num_classes <= largest:
        raise ConfigError("num_classes", num_classes, f"above {largest}, the largest label")
    return Data(name, train_x, train_y, test_x, test_y, num_classes)


def load(name: str, *, data_dir: str | os.PathLike[str] | None = None) -> Data:
    """Reads a data set by name.

    Nothing is ever downloaded, since many machines that train have no network: a data set of TFDS
    has to be prepared beforehand, and the error says with which command. Integer pixels are divided
    by the largest value of their type, so that images lie in [0, 1]. Stored images are decoded one
    by one, some 6,000 small ones a second.

    Args:
      name: 'digits': scikit-learn's 8 x 8 digits, 1,437 to train and 360 to test on, stratified.
        'mnist1d': MNIST-1D, x ``(40, 1)``, 4,000 and 1,000 (Greydanus and Kobak, arXiv 2011.14439).
        'cifar10_like' and 'atis_like': made-up data of the form of CIFAR-10 and ATIS, to try things
        out. These are made on first use, within seconds, also by several processes at once.
        'atis': ATIS, once the IOB files of ``atis.FILES`` are in `atis_iob` in data_dir; they are
        read on first use, so delete `atis` beside it where they have changed. Any other name is a
        classification data set of TFDS with images of one size, as 'mnist', 'emnist/letters' or
        'cifar10:3.0.2'; without a split 'test' it is tested on 'validation'.
      data_dir: folder of prepared data sets; None for the default of TFDS, which is TFDS_DATA_DIR
        or ~/tensorflow_datasets.

    Raises:
      ConfigError: an unknown name, a data set that is not prepared, or one without fixed-size
        inputs, class labels or a test split; a bad file of ATIS, with the line.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     data = load("digits", data_dir=folder)
    >>> data.train_x.shape, data.test_y.shape, data.num_classes
    ((1437, 8, 8, 1), (360,), 10)
    """
    builder = _open(name, data_dir)
    x, y = _supervised_keys(name, builder.info)
    splits = sorted(builder.info.splits)
    test = "test" if "test" in splits else "validation"
    if not {"train", test} <= set(splits):
        allowed = f"a data set with the splits train and test; this one has {', '.join(splits)}"
        raise ConfigError("data", name, allowed)
    try:
        sources = [builder.as_data_source(split) for split in ("train", test)]
    except NotImplementedError as error:  # In another file format, which TensorFlow has to read.
        first = f"delete {builder.data_dir}, then "
        raise _not_prepared(name, data_dir, first) from error
    features = builder.info.features
    if "slots" in features:
        return _utterances(name, features, sources)
    train, test = (
        (_scaled(inputs), labels) for inputs, labels in (_read(s, x, y) for s in sources)
    )
    return from_arrays(train, test, name=name, num_classes=features[y].num_classes)


def _inputs(field: str, values: Any) -> np.ndarray:
    values = np.asarray(values)
    if values.ndim == 0:
        raise ConfigError(f"{field}.shape", values.shape, "(examples, *shape)")
    if len(values) == 0:
        raise ConfigError(f"len({field})", 0, "an integer >= 1")
    if not _is_number(values, np.integer, np.floating):
        raise ConfigError(f"{field}.dtype", str(values.dtype), "integers or floats")
    return _finite_float32(field, values)


def _labels(field: str, values: Any) -> np.ndarray:
    values = np.asarray(values)
    if _is_number(values, np.floating):
        return _finite_float32(field, values)
    if not _is_number(values, np.integer):
        allowed = "integers for classes, floats for a regression"
        raise ConfigError(f"{field}.dtype", str(values.dtype), allowed)
    largest = np.iinfo(np.int32).max
    wrong = (values < 0) | (values > largest)
    if wrong.any():
        raise ConfigError(field, values[wrong][0].item(), f"labels from 0 to {largest}")
    return values.astype(np.int32, copy=False)


def _is_number(values: np.ndarray, *kinds: type) -> bool:
    return any(np.issubdtype(values.dtype, kind) for kind in kinds)


def _finite_float32(field: str, values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # What float32 cannot hold becomes inf, which is refused.
        converted = values.astype(np.float32, copy=False)
    wrong = ~np.isfinite(converted)
    if wrong.any():
        raise ConfigError(field, values[wrong][0].item(), "finite numbers of float32")
    return converted


def _open(name: str, data_dir: str | os.PathLike[str] | None) -> Any:
    """The TFDS builder of a data set that is prepared."""
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core.read_only_builder import builder_from_files

    from jaxlossy import builders

    try:
        # From the prepared files alone, because the code of TFDS that made them may need
        # TensorFlow, or have moved on to another version.
        return builder_from_files(name, data_dir=data_dir)
    except (ValueError, TypeError) as error:  # Not found, or nothing like a name.
        if name not in builders.BUILDERS:
            known = tfds.list_builders(with_community_datasets=False)  # Communities need a network.
            if str(name).split("/")[0].split(":")[0] in known:
                raise _not_prepared(name, data_dir) from error
            near = difflib.get_close_matches(str(name), [*builders.BUILDERS, *known], n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            allowed = f"{', '.join(builders.BUILDERS)}, or the name of a TFDS data set{hint}"
            raise ConfigError("data", name, allowed) from error
    builders.prepare(name, data_dir)
    return builder_from_files(name, data_dir=data_dir)


def _not_prepared(
    name: str, data_dir: str | os.PathLike[str] | None, first: str = ""
) -> ConfigError:
    """The error that says how to prepare a data set."""
    # Not `tfds build`, which imports Apache Beam and more before it does anything.
    place = "" if data_dir is None else f", data_dir={json.dumps(os.fspath(data_dir))}"
    code = (
        f"import tensorflow_datasets as tfds; tfds.builder({json.dumps(name)}{place})"
        '.download_and_prepare(file_format="array_record")'
    )
    allowed = (
        f"a data set prepared as ArrayRecord files; {first}run `python -c {shlex.quote(code)}`, "
        "which needs a network and the packages tensorflow and importlib_resources"
    )
    return ConfigError("data", name, allowed)


def _supervised_keys(name: str, info: Any) -> tuple[str, str]:
    """The names of the input and of the label in the examples of TFDS."""
    features, keys = info.features, info.supervised_keys
    if keys is not None and len(keys) == 2 and all(isinstance(key, str) for key in keys):
        x, y = (features[key] for key in keys)
        fixed = isinstance(x.shape, tuple) and len(x.shape) > 0 and None not in x.shape
        if fixed and hasattr(y, "num_classes"):
            return keys
    listing = ", ".join(f"{key} {feature.shape}" for key, feature in sorted(features.items()))
    allowed = f"a data set of images of one size, each with a class label; this one has {listing}"
    raise ConfigError("data", name, allowed)


def _read(source: Any, *keys: str) -> list[np.ndarray]:
    """These features of all examples of a TFDS data source."""
    features = source.dataset_info.features
    arrays = [np.empty((len(source), *features[k].shape), features[k].np_dtype) for k in keys]
    # Records come much faster in batches; a batch of decoded examples takes little memory.
    for start in range(0, len(source), 1024):
        batch = range(start, min(start + 1024, len(source)))
        for row, example in zip(batch, source.__getitems__(batch), strict=True):
            for array, key in zip(arrays, keys, strict=True):
                array[row] = example[key]
    return arrays


def _scaled(inputs: np.ndarray) -> np.ndarray:
    if np.issubdtype(inputs.dtype, np.integer):
        return np.divide(inputs, np.iinfo(str(inputs.dtype)).max, dtype=np.float32)
    return inputs


def _utterances(name: str, features: Any, sources: list[Any]) -> Data:
    arrays = []
    for source in sources:
        tokens, intents, slots = _read(source, "tokens", "intent", "slots")
        labels = np.concatenate([intents[:, None], slots], axis=1)
        arrays += [tokens.astype(np.int32), labels.astype(np.int32)]
    counts = (features[key].num_classes for key in ("intent", "tokens", "slots"))
    return Data(name, *arrays, *counts)
