"""ATIS from IOB files, and what is wrong with files that are refused."""

import numpy as np
import pytest

from jaxlossy import atis
from jaxlossy.data import load
from jaxlossy.errors import ConfigError
from jaxlossy.shards import make_shards

TRAIN = """\
BOS flights to boston EOS\tO O O B-toloc atis_flight
BOS fares to new york EOS\tO O O B-toloc I-toloc atis_airfare

BOS boston to são paulo EOS\tO B-fromloc O B-toloc I-toloc atis_flight#atis_airfare
"""
TEST = "BOS cheap fares to york EOS\tO O O O B-toloc atis_airfare\n"


def write(folder, train=TRAIN, test=TEST):
    (folder / atis.FOLDER).mkdir()
    for split, text in (("train", train), ("test", test)):
        if text is not None:
            path = folder / atis.FOLDER / atis.FILES[split]
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def test_files_become_numbers(tmp_path):
    data = load("atis", data_dir=write(tmp_path))
    words = ["<pad>", "<unk>", "boston", "fares", "flights", "new", "paulo", "são", "to", "york"]
    slots = ["B-fromloc", "B-toloc", "I-toloc", "O"]
    intents = ["atis_airfare", "atis_flight", "atis_flight#atis_airfare"]
    assert (data.num_tokens, data.num_slots, data.num_classes) == (10, 4, 3)
    assert data.train_x.dtype == data.train_y.dtype == np.int32
    assert (data.train_x.shape, data.test_y.shape) == ((3, 48), (1, 49))

    def named(x, y):
        count = int((x > 0).sum())
        assert (x[count:] == 0).all()
        assert (y[1 + count :] == -1).all()
        return [words[i] for i in x[:count]], [slots[i] for i in y[1 : 1 + count]], intents[y[0]]

    assert named(data.train_x[1], data.train_y[1]) == (
        ["fares", "to", "new", "york"],
        ["O", "O", "B-toloc", "I-toloc"],
        "atis_airfare",
    )
    assert named(data.train_x[2], data.train_y[2])[2] == "atis_flight#atis_airfare"
    assert named(data.test_x[0], data.test_y[0])[0] == ["<unk>", "fares", "to", "york"]
    again = load("atis", data_dir=tmp_path)  # from the prepared files
    np.testing.assert_array_equal(again.train_y, data.train_y)
    assert make_shards(data.train_labels, workers=3, dirichlet_alpha=0.1, seed=0).shape == (3, 1)


def test_what_is_too_long_is_cut_off():
    line = "BOS " + "to " * 60 + "EOS\t" + "O " * 61 + "atis_flight"
    fitted = atis._fit([3] * len(atis.parse(line, "here").words), padding=0)
    np.testing.assert_array_equal(fitted, [3] * 48)


TRAIN_FILE, TEST_FILE = "atis.train.w-intent.iob", "atis.test.w-intent.iob"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"test": None},
            f"data: '{TEST_FILE}' is not allowed (allowed: with the utterances in "
            f"{{folder}}/{TEST_FILE}, one a line; No such file or directory)",
        ),
        (
            {"train": TRAIN + "BOS to boston EOS\tO O atis_flight\n"},
            f"data: '{TRAIN_FILE}:5' is not allowed (allowed: as many labels as words with BOS and "
            "EOS, not 3 for 4)",
        ),
        (
            {"train": TRAIN.replace("york EOS\t", "york EOS ")},
            f"data: '{TRAIN_FILE}:2' is not allowed (allowed: words, a tab and labels; this line "
            "has 0 tabs)",
        ),
        (
            {"test": "to boston\tO B-toloc\n"},
            f"data: '{TEST_FILE}:1' is not allowed (allowed: BOS, at least one word, and EOS "
            "before the tab)",
        ),
        (
            {"test": TEST + TEST.replace("B-toloc", "B-stoploc") + TEST.replace("fare", "fear")},
            f"data: '{TEST_FILE}:2' is not allowed (allowed: labels that the training set has too, "
            "unlike B-stoploc; take out or change the lines with such labels, here lines 2, 3)",
        ),
        (
            {"test": TEST.replace("atis_airfare", "O")},  # a slot is no intent
            f"data: '{TEST_FILE}:1' is not allowed (allowed: labels that the training set has too, "
            "unlike O; take out or change the lines with such labels, here lines 1)",
        ),
        (
            {"train": TRAIN.encode("latin-1")},
            f"data: '{TRAIN_FILE}:4' is not allowed (allowed: UTF-8, which has no 0xe3 there)",
        ),
        (
            {"train": "\n"},
            f"data: '{TRAIN_FILE}' is not allowed (allowed: a file with at least one utterance)",
        ),
    ],
)
def test_a_bad_file_is_one_line_with_its_name_and_line(tmp_path, files, message):
    write(tmp_path, **files)
    with pytest.raises(ConfigError) as error:
        load("atis", data_dir=tmp_path)
    assert str(error.value) == message.format(folder=tmp_path / atis.FOLDER)
    assert not (tmp_path / "atis").exists()


def test_files_put_right_are_read_after_all(tmp_path):
    write(tmp_path, test=None)
    with pytest.raises(ConfigError):
        load("atis", data_dir=tmp_path)
    (tmp_path / atis.FOLDER / TEST_FILE).write_text(TEST)
    assert load("atis", data_dir=tmp_path).test_x.shape == (1, 48)
