"""Every algorithm by its name, and a table of what each reaches on many instances."""

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from jaxlossy.errors import ConfigError, check_name
from jaxlossy.topology import baselines, exhaustive
from jaxlossy.topology.climb import doubleclimb
from jaxlossy.topology.evaluate import Solution
from jaxlossy.topology.model import Instance, Problem

ALGORITHMS: dict[str, Callable[[Problem], Solution]] = {
    "refined": doubleclimb,
    "plain": functools.partial(doubleclimb, refine=False),
    "optimum": exhaustive.optimum,
    "milp": exhaustive.milp_optimum,
    "uniform": baselines.uniform,
    "genetic": baselines.genetic,
    "cheapest_first": baselines.cheapest_first,
    "random": baselines.random,
    "all_on": baselines.all_on,
}
COLUMNS = ["name", "algorithm", "cost", "error", "time", "epochs", "seconds"]


def solve(problem: Problem, algorithm: str = "refined") -> Solution:
    """A plan for the problem, or why there is none.

    Args:
      problem: the problem.
      algorithm: a name in ``ALGORITHMS``.

    Raises:
      ConfigError: no such algorithm; more nodes than ``optimum`` or ``milp`` take.

    >>> from jaxlossy.topology.instances import edge_network
    >>> problem, _ = edge_network(3, 4, seed=0)
    >>> solve(problem, "refined").plan.cost >= solve(problem, "optimum").plan.cost * (1 - 1e-9)
    True
    """
    check_name("algorithms", algorithm, ALGORITHMS)
    return ALGORITHMS[algorithm](problem)


def table(instances: Sequence[Instance], algorithms: Sequence[str]) -> Any:
    """What every algorithm reaches on every instance.

    Args:
      instances: the instances.
      algorithms: names in ``ALGORITHMS``.

    Returns:
      A data frame: name, algorithm, cost, error, time (seconds), epochs, seconds that solving took.
      Where there is no plan, cost, time and epochs are missing, and the error is the least that was
      reached at the deadline. Further columns: the numbers of active L-nodes, links and I-nodes,
      and the reason.

    Raises:
      ConfigError: as ``solve``; the line starts with the instance's name.
    """
    for algorithm in algorithms:
        check_name("algorithms", algorithm, ALGORITHMS)
    rows = []
    for name, problem, _ in instances:
        for algorithm in algorithms:
            start = time.perf_counter()
            try:
                found = solve(problem, algorithm)
            except ConfigError as error:
                field = f"{name}, {algorithm}: {error.field}"
                raise ConfigError(field, error.value, error.allowed) from None
            row = {"name": name, "algorithm": algorithm, "error": found.least_error}
            row |= {"seconds": time.perf_counter() - start, "reason": found.reason}
            if found.plan is not None:
                plan = found.plan
                row |= {"cost": plan.cost, "time": plan.time, "epochs": plan.epochs}
                row |= {
                    "learning": len(plan.learning_nodes),
                    "links": len(plan.edges),
                    "information": len(plan.information_nodes),
                }
            rows.append(row)
    counts = ["epochs", "learning", "links", "information"]
    frame = pd.DataFrame(rows, columns=[*COLUMNS, *counts[1:], "reason"])
    return frame.astype(dict.fromkeys(counts, "Int64"))
