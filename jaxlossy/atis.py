"""ATIS, what people ask about flights: intents and slots, from the usual IOB text files.

A line is an utterance, ``BOS words ... EOS``, a tab, and as many labels: ``O``, a slot for every
word, and in the place of ``EOS`` the intent. The data set can not be downloaded by itself, so the
files are to be put beside the prepared data sets; the first use writes them as ArrayRecord files
like those of any other data set.
"""

import os
import pathlib
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow_datasets as tfds

from jaxlossy.errors import ConfigError

#: Where the files are, below the directory of prepared data sets, and what they are called.
FOLDER = "atis_iob"
FILES = {"train": "atis.train.w-intent.iob", "test": "atis.test.w-intent.iob"}
#: Tokens of an utterance; what is longer is cut off.
LENGTH = 48
#: Token 0 pads, and 1 stands for every word that the training set does not have.
PADDING, UNKNOWN = "<pad>", "<unk>"


class Utterance(NamedTuple):
    """A line of a file: where it is, its words, a slot for each, and the intent."""

    where: str
    words: tuple[str, ...]
    slots: tuple[str, ...]
    intent: str


class Corpus(NamedTuple):
    """Both splits, and the names that numbers stand for, as the training set has them.

    Attributes:
      splits: 'train' and 'test' to utterances.
      tokens: padding, the unknown word, then the training set's words in alphabetical order.
      slots, intents: in alphabetical order.
    """

    splits: dict[str, list[Utterance]]
    tokens: list[str]
    slots: list[str]
    intents: list[str]


def parse(line: str, where: str) -> Utterance:
    """An utterance from its line.

    Args:
      line: without the line break.
      where: file and line, for the error.

    Raises:
      ConfigError: not of that form.

    >>> parse("BOS to boston EOS\\tO O B-toloc.city_name atis_flight", "train:1")[1:]
    (('to', 'boston'), ('O', 'B-toloc.city_name'), 'atis_flight')
    >>> parse("BOS to boston EOS\\tO O atis_flight", "train:1")
    Traceback (most recent call last):
    jaxlossy.errors.ConfigError: data: 'train:1' is not allowed (allowed: as many labels as words
    with BOS and EOS, not 3 for 4)
    """
    columns = line.split("\t")
    if len(columns) != 2:
        allowed = f"words, a tab and labels; this line has {len(columns) - 1} tabs"
        raise ConfigError("data", where, allowed)
    words, labels = (tuple(column.split()) for column in columns)
    if len(words) < 3 or (words[0], words[-1]) != ("BOS", "EOS"):
        raise ConfigError("data", where, "BOS, at least one word, and EOS before the tab")
    if len(words) != len(labels):
        allowed = f"as many labels as words with BOS and EOS, not {len(labels)} for {len(words)}"
        raise ConfigError("data", where, allowed)
    return Utterance(where, words[1:-1], labels[1:-1], labels[-1])


def read(path: pathlib.Path) -> list[Utterance]:
    """All utterances of a file; empty lines count for nothing.

    Raises:
      ConfigError: no such file, one that is not UTF-8, a line of another form, no line at all.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        allowed = f"with the utterances in {path}, one a line; {error.strerror}"
        raise ConfigError("data", path.name, allowed) from None
    utterances = []
    for number, line in enumerate(lines, start=1):
        where = f"{path.name}:{number}"
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            byte = f"0x{line[error.start]:02x}"
            raise ConfigError("data", where, f"UTF-8, which has no {byte} there") from None
        if text.strip():
            utterances.append(parse(text, where))
    if not utterances:
        raise ConfigError("data", path.name, "a file with at least one utterance")
    return utterances


def make_corpus(train: list[Utterance], test: list[Utterance]) -> Corpus:
    """Both splits with the names of the training set.

    Raises:
      ConfigError: a slot or an intent of the test set that the training set does not have.
    """
    slots = sorted({slot for utterance in train for slot in utterance.slots})
    intents = sorted({utterance.intent for utterance in train})
    strange = []
    for utterance in test:
        labels = (set(utterance.slots) - set(slots)) | ({utterance.intent} - set(intents))
        if labels:
            strange.append((utterance, sorted(labels)))
    if strange:
        places = ", ".join(utterance.where.rpartition(":")[2] for utterance, _ in strange)
        allowed = (
            f"labels that the training set has too, unlike {', '.join(strange[0][1])}; take out or "
            f"change the lines with such labels, here lines {places}"
        )
        raise ConfigError("data", strange[0][0].where, allowed)
    words = {word for utterance in train for word in utterance.words}
    tokens = [PADDING, UNKNOWN, *sorted(words - {PADDING, UNKNOWN})]
    return Corpus({"train": train, "test": test}, tokens, slots, intents)


class _Utterances(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """A corpus as numbers."""

    VERSION = tfds.core.Version("1.0.0")

    def corpus(self) -> Corpus:
        raise NotImplementedError

    def _info(self) -> tfds.core.DatasetInfo:
        self._corpus = corpus = self.corpus()

        def sequence(names):
            label = tfds.features.ClassLabel(names=names)
            return tfds.features.Sequence(label, length=LENGTH)

        return tfds.core.DatasetInfo(
            builder=self,
            description=self.__doc__,
            features=tfds.features.FeaturesDict(
                {
                    "tokens": sequence(corpus.tokens),
                    "slots": sequence(corpus.slots),
                    "intent": tfds.features.ClassLabel(names=corpus.intents),
                }
            ),
            supervised_keys=("tokens", "intent"),
            disable_shuffling=True,  # files in the order of their lines
        )

    def _split_generators(self, dl_manager):
        del dl_manager
        splits = self._corpus.splits
        return {name: self._generate_examples(found) for name, found in splits.items()}

    def _generate_examples(self, utterances: list[Utterance]) -> Iterator[tuple[int, dict]]:
        # A word that is spelt like the padding is an unknown one.
        tokens = {word: n for n, word in enumerate(self._corpus.tokens) if word != PADDING}
        slots = {slot: number for number, slot in enumerate(self._corpus.slots)}
        for key, utterance in enumerate(utterances):
            words = [tokens.get(word, 1) for word in utterance.words]
            yield (
                key,
                {
                    "tokens": _fit(words, padding=0),
                    "slots": _fit([slots[slot] for slot in utterance.slots], padding=-1),
                    "intent": utterance.intent,
                },
            )


def _fit(numbers: Sequence[int], *, padding: int) -> np.ndarray:
    fitted = np.full(LENGTH, padding, np.int64)
    fitted[: len(numbers)] = numbers[:LENGTH]
    return fitted


class Atis(_Utterances, skip_registration=True):
    """Air Travel Information System: utterances with an intent and a slot for every word.

    Hemphill, Godfrey and Doddington 1990.
    """

    def __init__(self, *, source: str | os.PathLike[str] | None = None, **kwargs):
        """Takes the directory that has ``FOLDER``; None: the one of prepared data sets."""
        self._source = source
        super().__init__(**kwargs)

    def corpus(self) -> Corpus:
        folder = pathlib.Path(self._source or self.data_dir_root) / FOLDER
        return make_corpus(*(read(folder / FILES[split]) for split in ("train", "test")))


#: Intent to templates; a name in braces is a slot, filled from ``FILLINGS``.
TEMPLATES = {
    "atis_flight": (
        "show me flights from {fromloc} to {toloc} on {day}",
        "i want to fly from {fromloc} to {toloc} with {airline}",
        "is there a flight to {toloc} {day}",
    ),
    "atis_airfare": (
        "what is the fare from {fromloc} to {toloc}",
        "how much is a {airline} ticket to {toloc} on {day}",
    ),
    "atis_ground_service": (
        "what ground transportation is there in {city}",
        "how do i get from the airport to downtown {city}",
    ),
    "atis_airline": (
        "which airlines fly from {fromloc} to {toloc}",
        "what airline is {airline}",
    ),
}
_CITIES = ["boston", "denver", "atlanta", "dallas", "san francisco", "new york", "st. louis"]
FILLINGS = {
    **dict.fromkeys(("fromloc", "toloc", "city"), _CITIES),
    "day": ["monday", "tuesday", "friday", "the fourth of july", "tomorrow"],
    "airline": ["delta", "american airlines", "united", "twa", "us air"],
}


class AtisLike(_Utterances, skip_registration=True):
    """Made-up utterances of a few templates: 1,600 to train on and 400 to test on."""

    def corpus(self) -> Corpus:
        lines = made_up(2000, random.Random(0))
        utterances = [parse(line, f"made up:{n}") for n, line in enumerate(lines, start=1)]
        return make_corpus(utterances[:1600], utterances[1600:])


def made_up(count: int, rng: random.Random) -> Iterator[str]:
    """Lines as ATIS has them, of random templates and fillings."""
    for _ in range(count):
        intent = rng.choice(sorted(TEMPLATES))
        words, slots = ["BOS"], ["O"]
        for word in rng.choice(TEMPLATES[intent]).split():
            slot = word.strip("{}")
            filling = rng.choice(FILLINGS[slot]).split() if slot != word else [word]
            words += filling
            inside = [f"B-{slot}"] + [f"I-{slot}"] * (len(filling) - 1)
            slots += inside if slot != word else ["O"]
        yield " ".join([*words, "EOS"]) + "\t" + " ".join([*slots, intent])
