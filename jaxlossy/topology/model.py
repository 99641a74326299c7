"""The topology problem around a learning task, and its plans, as data.

Learning nodes (L-nodes) compute and exchange gradients with the L-nodes that they are linked to;
information nodes (I-nodes) supply samples every epoch. A plan says which nodes and links are active
and for how many epochs. Its cost, time and error are in ``evaluate.py``.

The model is that of Malandrino, Chiasserini, Molner, de la Oliva, "Network Support for
High-performance Distributed Machine Learning", IEEE/ACM Trans. Networking 31(1), 2023
(arXiv 2102.03394). All formulas and their symbols are our formulation of it, not the paper's.
"""

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from jaxlossy.errors import ConfigError, check_name
from jaxlossy.files import replacing

SHAPES = {
    "X0": "L", "work": "L", "strag": "L", "cL": "L", "cLL": "LL",
    "r": "I", "dmin": "I", "dexp": "I", "cI": "I", "cIL": "IL",
}  # fmt: skip
POSITIVE = ("alpha", "beta", "eps_max", "T_max")
NUMBERS = ("tg", "c0", "c1", "c2", *POSITIVE)
WORDS = {
    "L": "one number for each learning node",
    "LL": "a square matrix over learning nodes",
    "I": "one number for each information node",
    "IL": "a matrix of information nodes by learning nodes",
}


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Problem:
    """What may be activated, at what cost, and which error and time a plan has to meet.

    Names are those of the file format. Costs are per epoch, in any one unit of money; times are in
    seconds. The mean number of samples available over K epochs is X(K), see ``evaluate``.

    Attributes:
      X0: samples that an L-node holds from the start.
      work: seconds that an epoch takes a single L-node; n of them take ``work / n`` each.
      strag: mean of the exponential time that an L-node takes longer, seconds.
      cL: cost of an active L-node.
      cLL: cost of a link between two L-nodes, symmetric; inf where there can be none. The diagonal
        means nothing.
      r: samples that an I-node supplies an epoch.
      dmin: least delay of an I-node's samples, seconds.
      dexp: mean of the exponential delay on top, seconds.
      cI: cost of an active I-node.
      cIL: cost of the link from an I-node to an L-node; inf where there can be none.
      tg: seconds that exchanging gradients takes for each neighbour of the busiest L-node.
      c0, c1, c2: irreducible, estimation and optimisation error, in units of the error.
      alpha, beta: exponents of the optimisation and of the estimation error.
      eps_max: the error that a plan may have.
      T_max: the time that a plan may take, seconds.
      K_max: the epochs that a plan may take.

    Raises:
      ConfigError: a field is missing or unknown, has a wrong shape, or a value that is no finite
        number or below 0; link costs are not symmetric; links do not connect all L-nodes; an I-node
        has no link to any L-node.
    """

    X0: Float[np.ndarray, " L"]
    work: Float[np.ndarray, " L"]
    strag: Float[np.ndarray, " L"]
    cL: Float[np.ndarray, " L"]
    cLL: Float[np.ndarray, "L L"]
    r: Float[np.ndarray, " I"]
    dmin: Float[np.ndarray, " I"]
    dexp: Float[np.ndarray, " I"]
    cI: Float[np.ndarray, " I"]
    cIL: Float[np.ndarray, "I L"]
    tg: float
    c0: float
    c1: float
    c2: float
    alpha: float
    beta: float
    eps_max: float
    T_max: float
    K_max: int

    def __post_init__(self):
        sizes = {}
        for name, shape in SHAPES.items():
            value = _numbers(name, getattr(self, name), links=name in ("cLL", "cIL"))
            if name == "cIL" and not sizes["I"]:
                value = value.reshape(0, sizes["L"])  # a list of no rows does not know their length
            if value.ndim == len(shape):
                for letter, size in zip(shape, value.shape, strict=True):
                    sizes.setdefault(letter, size)
            if value.shape != tuple(sizes.get(letter) for letter in shape):
                known = ", ".join(f"{sizes[x]} {x}-nodes" for x in "LI" if x in sizes)
                raise ConfigError(name, f"shape {value.shape}", f"{WORDS[shape]}; {known}")
            if name == "X0" and not value.size:
                raise ConfigError(name, [], "at least one learning node")
            if name == "cLL":
                value = value.copy()
                np.fill_diagonal(value, 0.0)
            value.setflags(write=False)
            object.__setattr__(self, name, value)
        for name in NUMBERS:
            value = _numbers(name, getattr(self, name))
            if value.ndim or (name in POSITIVE and not value > 0):
                above = "a number > 0" if name in POSITIVE else "a number >= 0"
                raise ConfigError(name, getattr(self, name), above)
            object.__setattr__(self, name, float(value))
        epochs = self.K_max
        if isinstance(epochs, bool) or not isinstance(epochs, int | np.integer) or epochs < 1:
            raise ConfigError("K_max", epochs, "an integer >= 1")
        object.__setattr__(self, "K_max", int(epochs))
        _check_links(self)

    @property
    def learning(self) -> int:
        """How many L-nodes there are."""
        return len(self.X0)

    @property
    def information(self) -> int:
        """How many I-nodes there are."""
        return len(self.r)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "Problem":
        """A problem from the fields of a file; ``null`` is a link that can not be.

        Raises:
          ConfigError: as for the class.
        """
        if not isinstance(fields, Mapping):
            raise ConfigError("instance", fields, "an object with the fields of a problem")
        known = [field.name for field in dataclasses.fields(cls)]
        for name in fields:
            check_name("instance", name, known)
        for name in known:
            if name not in fields:
                raise ConfigError(name, "missing", WORDS.get(SHAPES.get(name, ""), "a number"))
        return cls(**fields)

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON has them."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: _plain(value) for name, value in fields.items()}


@dataclasses.dataclass(frozen=True)
class Plan:
    """Which nodes and links are active, for how many epochs, and what that gives.

    Nodes are numbered as in the problem.

    Attributes:
      learning_nodes: the active L-nodes.
      edges: links between them, each pair once.
      information_nodes: the active I-nodes.
      attached_to: the L-node that each active I-node supplies; None: its cheapest active one.
      epochs: K.
      cost, error, time: from ``evaluate``; time in seconds over all epochs.
    """

    learning_nodes: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]
    information_nodes: tuple[int, ...]
    epochs: int
    attached_to: tuple[int, ...] | None = None
    cost: float | None = None
    error: float | None = None
    time: float | None = None

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "Plan":
        """A plan from the fields of a file; ``attached_to`` may be missing.

        Raises:
          ConfigError: a field is missing or unknown.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        for name in fields:
            check_name("plan", name, known)
        for name in ("learning_nodes", "edges", "information_nodes", "epochs"):
            if name not in fields:
                raise ConfigError(f"plan.{name}", "missing", "part of every plan")
        given = dict(fields)
        for name in ("learning_nodes", "information_nodes", "attached_to"):
            if given.get(name) is not None:
                given[name] = tuple(int(node) for node in given[name])
        given["edges"] = tuple((int(a), int(b)) for a, b in given["edges"])
        return cls(**given)

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON has them."""
        return {
            name: [list(x) if isinstance(x, tuple) else x for x in value]
            if isinstance(value, tuple)
            else value
            for name, value in vars(self).items()
        }


class Instance(NamedTuple):
    """A named problem of a file.

    Attributes:
      name: its name.
      problem: the problem.
      plans: what algorithms reach on it, by their names; None where one found no plan.
    """

    name: str
    problem: Problem
    plans: dict[str, Plan | None]


def load(path: str | os.PathLike[str]) -> list[Instance]:
    """Reads a file of instances.

    Raises:
      ConfigError: there is no such file, it is no JSON in this format, or a problem in it is wrong;
        the line starts with the instance's name.
    """
    try:
        content = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError("instances", str(path), f"a readable JSON file; {reason}") from None
    entries = content.get("instances") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise ConfigError("instances", str(path), 'a JSON object with a list "instances"')
    return [_instance(index, entry) for index, entry in enumerate(entries)]


def save(path: str | os.PathLike[str], instances: list[Instance], *, about: str = "") -> None:
    """Writes instances to a file in the format that ``load`` reads."""
    entries = [
        {
            "name": name,
            "instance": problem.to_json(),
            **{key: plan and plan.to_json() for key, plan in plans.items()},
        }
        for name, problem, plans in instances
    ]
    with replacing(Path(path)) as file:
        file.write_text(json.dumps({"about": about, "instances": entries}, allow_nan=False))


def _instance(index: int, entry: Any) -> Instance:
    if not isinstance(entry, dict) or "instance" not in entry:
        raise ConfigError(f"instances[{index}]", entry, 'an object with "name" and "instance"')
    name = str(entry.get("name", index))
    try:
        problem = Problem.from_json(entry["instance"])
        plans: dict[str, Plan | None] = {
            key: None if value is None else Plan.from_json(value)
            for key, value in entry.items()
            if value is None or (isinstance(value, dict) and "learning_nodes" in value)
        }
    except ConfigError as error:
        raise ConfigError(f"{name}: {error.field}", error.value, error.allowed) from None
    return Instance(name, problem, plans)


def _numbers(name: str, value: Any, *, links: bool = False) -> np.ndarray:
    """The value as float64, all of it >= 0; links may be inf or None, which is the same."""
    allowed = "numbers >= 0" + (", inf or null where there can be no link" if links else "")
    try:
        array = np.asarray(value)
        if array.dtype == object and links:
            array = np.where(array == np.array(None), np.inf, array).astype(np.float64)
        if array.dtype.kind not in "iuf" and array.size:
            raise ValueError
        array = np.array(array, np.float64)
    except (TypeError, ValueError):
        raise ConfigError(name, value, allowed) from None
    wrong = np.isnan(array) | (array < 0) | (np.isinf(array) & (not links))
    if wrong.any():
        raise ConfigError(name, array[wrong].flat[0].item(), allowed)
    return array


def _check_links(problem: Problem) -> None:
    links = problem.cLL
    apart = ~np.isclose(links, links.T, rtol=1e-12, atol=0)
    if apart.any():
        a, b = np.argwhere(apart)[0]
        pair = f"{links[a, b]:g} from {a} to {b}, {links[b, a]:g} back"
        raise ConfigError("cLL", pair, "a symmetric matrix")
    reached = np.zeros(problem.learning, bool)
    reached[0] = True
    for _ in range(problem.learning):
        reached |= np.isfinite(links)[reached].any(axis=0)
    if not reached.all():
        lost = int(np.argmin(reached))
        raise ConfigError(
            "cLL", f"no path from 0 to {lost}", "links that connect all learning nodes"
        )
    alone = ~np.isfinite(problem.cIL).any(axis=1)
    if alone.any():
        node = int(np.argmax(alone))
        raise ConfigError(
            "cIL", f"no link from information node {node}", "a link to a learning node from each"
        )


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [_plain(x) for x in value.tolist()]
    if isinstance(value, list):
        return [_plain(x) for x in value]
    return None if isinstance(value, float) and math.isinf(value) else value
