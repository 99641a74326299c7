import json
import os
import random
import subprocess
import sys

import numpy as np
import pytest
import tensorflow_datasets as tfds
from PIL import Image

from jaxlossy import builders
from jaxlossy.data import from_arrays, load
from jaxlossy.errors import ConfigError


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


def assert_same(a, b):
    for field in ("train_x", "train_y", "test_x", "test_y"):
        np.testing.assert_array_equal(getattr(a, field), getattr(b, field))


# --- from_arrays


def test_from_arrays_converts():
    x, y = np.arange(12.0).reshape(6, 2), np.array([0, 1, 2, 0, 1, 4])
    data = from_arrays((x[:4], y[:4]), (x[4:], y[4:]), name="mine")
    assert (data.name, data.num_classes) == ("mine", 5)
    assert data.train_x.dtype == data.test_x.dtype == np.float32
    assert data.train_y.dtype == data.test_y.dtype == np.int32
    np.testing.assert_array_equal(data.train_x, x[:4])
    np.testing.assert_array_equal(data.test_y, [1, 4])


def test_from_arrays_takes_regressions_and_lists():
    data = from_arrays(([[1], [2]], [0.5, 1.5]), ([[3]], [2.5]))
    assert data.num_classes is None
    assert data.train_y.dtype == np.float32
    assert data.train_x.shape == (2, 1)


def test_from_arrays_does_not_copy_what_fits():
    x, y = np.zeros((3, 2), np.float32), np.zeros(3, np.int32)
    data = from_arrays((x, y), (x, y), num_classes=10)
    assert data.train_x is x
    assert data.test_y is y
    assert data.num_classes == 10


X, Y = np.zeros((3, 2)), np.array([0, 1, 2])


@pytest.mark.parametrize(
    ("train", "test", "num_classes", "message"),
    [
        (
            (X, Y[:2]),
            (X, Y),
            None,
            "train_y.shape: (2,) is not allowed (allowed: (3,), one label for each example of"
            " train_x)",
        ),
        (
            (X, Y),
            (X, np.eye(3, dtype=int)),
            None,
            "test_y.shape: (3, 3) is not allowed (allowed: (3,), one label for each example of"
            " test_x)",
        ),
        (
            (X, Y),
            (X[:0], Y[:0]),
            None,
            "len(test_x): 0 is not allowed (allowed: an integer >= 1)",
        ),
        (
            (1.0, Y),
            (X, Y),
            None,
            "train_x.shape: () is not allowed (allowed: (examples, *shape))",
        ),
        (
            (X, Y),
            (np.zeros((3, 5)), Y),
            None,
            "test_x.shape[1:]: (5,) is not allowed (allowed: (2,), the shape of an example of"
            " train_x)",
        ),
        (
            (np.array([[1.0], [np.nan], [np.inf]]), Y),
            (X, Y),
            None,
            "train_x: nan is not allowed (allowed: finite numbers of float32)",
        ),
        (
            (X, Y),
            (np.full((3, 2), 1e300), Y),
            None,
            "test_x: 1e+300 is not allowed (allowed: finite numbers of float32)",
        ),
        (
            (X, [0.5, -np.inf, 0.5]),
            (X, Y),
            None,
            "train_y: -inf is not allowed (allowed: finite numbers of float32)",
        ),
        (
            (X > 0, Y),
            (X, Y),
            None,
            "train_x.dtype: 'bool' is not allowed (allowed: integers or floats)",
        ),
        (
            (X, [0, -1, -2]),
            (X, Y),
            None,
            "train_y: -1 is not allowed (allowed: labels from 0 to 2147483647)",
        ),
        (
            (X, Y),
            (X, ["a", "b", "c"]),
            None,
            "test_y.dtype: '<U1' is not allowed (allowed: integers for classes, floats for a"
            " regression)",
        ),
        (
            (X, Y),
            (X, Y / 2),
            None,
            "test_y.dtype: 'float32' is not allowed (allowed: int32, as in train_y)",
        ),
        (
            (X, Y),
            (X, Y),
            2,
            "num_classes: 2 is not allowed (allowed: above 2, the largest label)",
        ),
        (
            (X, Y / 2),
            (X, Y / 2),
            2,
            "num_classes: 2 is not allowed (allowed: None where the labels are floats)",
        ),
    ],
)
def test_from_arrays_errors(train, test, num_classes, message):
    with pytest.raises(ConfigError) as error:
        from_arrays(train, test, num_classes=num_classes)
    assert str(error.value) == message


# --- the built-in data sets


def test_digits(data_dir):
    from sklearn.datasets import load_digits

    data = load("digits", data_dir=data_dir)
    assert data.train_x.shape == (1437, 8, 8, 1)
    assert data.test_x.shape == (360, 8, 8, 1)
    assert data.train_x.dtype == np.float32
    assert data.train_y.dtype == np.int32
    assert data.num_classes == 10
    assert (data.train_x.min(), data.train_x.max()) == (0, 1)
    share = np.bincount(data.test_y) / np.bincount(np.concatenate([data.train_y, data.test_y]))
    np.testing.assert_allclose(share, 0.2, atol=0.01)

    # The two splits together are the source, each image with its label.
    def rows(x, y):
        return sorted((*image.ravel(), label) for image, label in zip(x, y, strict=True))

    source = load_digits()
    x = np.concatenate([data.train_x, data.test_x]) * 16
    y = np.concatenate([data.train_y, data.test_y])
    assert rows(x, y) == rows(source.images, source.target)


def test_mnist1d_is_the_package_s_and_global_generators_are_left_alone(data_dir, monkeypatch):
    import mnist1d.data

    original, made = mnist1d.data.make_dataset, []

    def make_dataset(*args):
        assert not args  # The package's own settings.
        made.append(original())
        return made[0]

    monkeypatch.setattr(mnist1d.data, "make_dataset", make_dataset)
    random.seed(7)
    np.random.seed(7)  # noqa: NPY002
    data = load("mnist1d", data_dir=data_dir)
    drawn = random.random(), np.random.random()  # noqa: NPY002
    random.seed(7)
    np.random.seed(7)  # noqa: NPY002
    assert drawn == (random.random(), np.random.random())  # noqa: NPY002

    (source,) = made
    np.testing.assert_array_equal(data.train_x, np.float32(source["x"])[..., None])
    np.testing.assert_array_equal(data.train_y, source["y"])
    np.testing.assert_array_equal(data.test_x, np.float32(source["x_test"])[..., None])
    np.testing.assert_array_equal(data.test_y, source["y_test"])
    assert data.train_x.shape == (4000, 40, 1)
    assert data.test_x.shape == (1000, 40, 1)
    assert data.num_classes == 10


def test_second_load_reads_the_files_of_the_first(data_dir, monkeypatch):
    first = load("digits", data_dir=data_dir)
    monkeypatch.setattr(builders, "BUILDERS", {"digits": None})
    assert_same(first, load("digits", data_dir=str(data_dir)))
    assert_same(first, load("digits:1.0.0", data_dir=data_dir))


def test_the_slower_of_two_preparations_leaves_the_files_of_the_faster(tmp_path, capfd):
    builders.prepare("digits", tmp_path / "new")
    before = load("digits", data_dir=tmp_path / "new")
    builders.prepare("digits", tmp_path / "new")  # As if the files had appeared meanwhile.
    assert_same(before, load("digits", data_dir=tmp_path / "new"))
    assert os.listdir(tmp_path / "new") == ["digits"]
    assert capfd.readouterr().out == ""


def test_processes_prepare_at_once_and_without_tensorflow(tmp_path):
    program = """
import random, sys
import jaxlossy.data
heavy = {"tensorflow_datasets", "sklearn", "mnist1d"} & set(sys.modules)
assert not heavy, heavy
random.seed(0)
data = jaxlossy.data.load("digits", data_dir=sys.argv[1])
assert "tensorflow" not in sys.modules
print(data.train_x.shape, data.test_y.sum())
"""
    command = [sys.executable, "-W", "error", "-c", program, str(tmp_path)]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert outputs[0][0] == outputs[1][0]
    assert outputs[0][0].startswith("(1437, 8, 8, 1)")
    assert os.listdir(tmp_path) == ["digits"]


# --- data sets of TFDS


def prepare_images(name, data_dir, *, splits=("train", "test"), features=None, keys=None):
    """Prepares a small stand-in with the features and the version of the real data set.

    TFDS encodes an array with TensorFlow, but takes an image of Pillow as it is.
    """

    class StandIn(tfds.builder_cls(name), skip_registration=True):
        def _info(self):
            info = super()._info()
            if features is None:
                return info
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features), supervised_keys=keys
            )

        def _split_generators(self, dl_manager):
            return {split: self._generate_examples(split) for split in splits}

        def _generate_examples(self, split):
            for index, image in enumerate(IMAGES[name][split]):
                example = {"image": Image.fromarray(image.squeeze()), "label": index % 10, "id": ""}
                yield index, {key: example[key] for key in self.info.features}

    StandIn.name = name
    StandIn(data_dir=data_dir).download_and_prepare(file_format="array_record")


IMAGES = {
    name: {
        split: np.random.default_rng(seed).integers(0, 256, (n, *shape), dtype=np.uint8)
        for split, n, seed in (("train", 30, 0), ("test", 20, 1), ("validation", 10, 2))
    }
    for name, shape in (("mnist", (28, 28, 1)), ("cifar10", (32, 32, 3)))
}


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_tfds_images(name, tmp_path):
    prepare_images(name, tmp_path)
    data = load(name, data_dir=tmp_path)
    assert (data.name, data.num_classes) == (name, 10)
    for split, x, y in (("train", data.train_x, data.train_y), ("test", data.test_x, data.test_y)):
        # TFDS shuffles the examples; the first pixel tells them apart.
        images = IMAGES[name][split]
        order = [int(np.abs(images / 255 - image).sum(axis=(1, 2, 3)).argmin()) for image in x]
        assert sorted(order) == list(range(len(images)))
        np.testing.assert_array_equal(x, images[order] / np.float32(255))
        np.testing.assert_array_equal(y, np.array(order) % 10)
        assert x.dtype == np.float32
        assert y.dtype == np.int32
    assert "tensorflow" not in sys.modules


def test_validation_stands_in_for_a_missing_test_split(tmp_path):
    prepare_images("mnist", tmp_path, splits=("train", "validation"))
    assert len(load("mnist", data_dir=tmp_path).test_x) == 10


def message_of_load(name, **arguments):
    with pytest.raises(ConfigError) as error:
        load(name, **arguments)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_missing_split(tmp_path):
    prepare_images("mnist", tmp_path, splits=("train",))
    assert message_of_load("mnist", data_dir=tmp_path) == (
        "data: 'mnist' is not allowed (allowed: a data set with the splits train and test;"
        " this one has train)"
    )


IMAGE, CLASS = tfds.features.Image(shape=(28, 28, 1)), tfds.features.ClassLabel(num_classes=10)


@pytest.mark.parametrize(
    ("features", "keys", "listing"),
    [
        ({"image": IMAGE, "id": tfds.features.Text()}, None, "id (), image (28, 28, 1)"),
        ({"image": IMAGE, "label": np.int64}, ("image", "label"), "image (28, 28, 1), label ()"),
        (
            {"image": tfds.features.Image(shape=(None, None, 1)), "label": CLASS},
            ("image", "label"),
            "image (None, None, 1), label ()",
        ),
    ],
)
def test_no_image_of_one_size_with_a_class(features, keys, listing, tmp_path):
    prepare_images("mnist", tmp_path, features=features, keys=keys)
    assert message_of_load("mnist", data_dir=tmp_path) == (
        "data: 'mnist' is not allowed (allowed: a data set of images of one size, each with a"
        f" class label; this one has {listing})"
    )


def test_not_prepared(tmp_path, monkeypatch):
    assert message_of_load("mnist", data_dir=tmp_path) == (
        "data: 'mnist' is not allowed (allowed: a data set prepared as ArrayRecord files; run"
        " `python -c 'import tensorflow_datasets as tfds;"
        f' tfds.builder("mnist", data_dir="{tmp_path}")'
        '.download_and_prepare(file_format="array_record")\'`,'
        " which needs a network and the packages tensorflow and importlib_resources)"
    )
    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path))
    assert message_of_load("emnist/letters") == (
        "data: 'emnist/letters' is not allowed (allowed: a data set prepared as ArrayRecord files;"
        " run `python -c 'import tensorflow_datasets as tfds;"
        ' tfds.builder("emnist/letters").download_and_prepare(file_format="array_record")\'`,'
        " which needs a network and the packages tensorflow and importlib_resources)"
    )


def test_prepared_in_a_format_that_needs_tensorflow(tmp_path):
    prepare_images("mnist", tmp_path)
    folder = tmp_path / "mnist" / "3.0.1"
    info = json.loads((folder / "dataset_info.json").read_text())
    (folder / "dataset_info.json").write_text(json.dumps(info | {"fileFormat": "tfrecord"}))
    assert message_of_load("mnist", data_dir=tmp_path) == (
        "data: 'mnist' is not allowed (allowed: a data set prepared as ArrayRecord files;"
        f" delete {folder}, then run `python -c 'import tensorflow_datasets as tfds;"
        f' tfds.builder("mnist", data_dir="{tmp_path}")'
        '.download_and_prepare(file_format="array_record")\'`,'
        " which needs a network and the packages tensorflow and importlib_resources)"
    )


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("mnits", "; did you mean 'mnist'?"),
        ("digit", "; did you mean 'digits'?"),
        ("mnist-1d", "; did you mean 'mnist1d'?"),
        ("", ""),
        (None, ""),
    ],
)
def test_unknown_name(name, hint, tmp_path):
    assert message_of_load(name, data_dir=tmp_path) == (
        f"data: {name!r} is not allowed (allowed: digits, mnist1d, atis, atis_like, cifar10_like,"
        f" or the name of a TFDS data set{hint})"
    )
