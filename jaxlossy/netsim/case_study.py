"""The case study of the RPS paper: a web service and learning traffic that share hosts.

Hosts are on a star. The web service exchanges messages of one size between all of them, reliably,
with Poisson arrivals. Learning exchanges a model twice an iteration, at fixed times (open loop:
also where the phase before has not finished). What varies is how learning is sent and how ports
treat it, a ``Case``; every case of a seed meets the same web messages.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

from jaxlossy import data
from jaxlossy.errors import ConfigError
from jaxlossy.grid import expand
from jaxlossy.netsim import learning, topologies, traffic, transports
from jaxlossy.netsim.flows import Flows
from jaxlossy.netsim.network import Network
from jaxlossy.netsim.ports import Discipline
from jaxlossy.netsim.simulation import Scenario
from jaxlossy.netsim.transports import Transport
from jaxlossy.problem import make_problem

MS = 1_000_000  # ns
WEB, TRAINING = "web", "train"
#: How learning is sent, and what the report calls it.
LEARNING = {
    "none": "no learning traffic",
    "reliable": "reliable",
    "paced_reliable": "paced reliable",
    "paced": "paced lossy",
    "burst": "burst lossy",
    "deadline": "paced lossy with a deadline",
    "bounded": "bounded loss",
    "bounded_controlled": "bounded loss with rate control",
}
RELIABLE = ("reliable", "paced_reliable")


class Case(NamedTuple):
    """How learning is sent, and what ports do with it.

    Attributes:
      web: how the web service sends: 'dctcp', or Netbench's 'simple_dctcp'; reliable learning too.
      learning: a key of `LEARNING`.
      priority: reliable packets have a queue of their own, served first, and all learning is of the
        lossy class, reliable learning too. Otherwise there is one FIFO.
      threshold: bytes that may be queued for a packet of the lossy class.
    """

    web: str
    learning: str
    priority: bool
    threshold: int


class Run(NamedTuple):
    """One simulation: a case under so many web messages a second, with one seed."""

    seed: int
    web_rate: float
    case: Case


@dataclasses.dataclass(frozen=True)
class Study:
    """What is simulated; `configs/colocated_web.py` has values.

    Attributes:
      hosts, link_bps, delay_ns: of the star.
      limit, mark_above: bytes; of every port's queue, and from where on it marks.
      message_bytes: payload of a web message.
      duration_ms: web messages arrive for so long.
      web_rates: web messages a second, of all hosts together: those of the curves over loss.
      more_web_rates: further ones, to find how many fit under a target.
      targets_ms: mean completion times of the web service.
      seeds: of web messages and jitter, 0 to seeds-1; at least 2.
      iterations, period_ms, compute_ms, gather_ms: of learning, as ``learning.open_loop``.
      learning_bps: of a host that sends to all others, paced.
      deadline_ms: after a phase's start.
      loss_bound: of bounded loss.
      fifo_thresholds, priority_thresholds: bytes, the degrees of prioritisation.
      few_fifo_thresholds, few_priority_thresholds: those that every rate and transport gets.
      training: a training config, whose workers, servers and parameters make the learning traffic;
        also what is trained on the recorded losses.
      playback: (learning, priority, threshold, web messages a second) of which losses are recorded.

    Raises:
      ConfigError: fewer than two seeds, no rates, a threshold that is not among the others.
    """

    hosts: int
    link_bps: int
    delay_ns: int
    limit: int
    mark_above: int
    message_bytes: int
    duration_ms: float
    web_rates: tuple[float, ...]
    more_web_rates: tuple[float, ...]
    targets_ms: tuple[float, ...]
    seeds: int
    iterations: int
    period_ms: float
    compute_ms: float
    gather_ms: float
    learning_bps: float
    deadline_ms: float
    loss_bound: float
    fifo_thresholds: tuple[int, ...]
    priority_thresholds: tuple[int, ...]
    few_fifo_thresholds: tuple[int, ...]
    few_priority_thresholds: tuple[int, ...]
    training: Any
    playback: tuple[tuple[str, bool, int, float], ...]

    def __post_init__(self):
        if self.seeds < 2:
            raise ConfigError("seeds", self.seeds, "at least 2, for there to be a spread")
        if not self.web_rates or min(self.web_rates) <= 0:
            raise ConfigError("web_rates", self.web_rates, "one rate > 0 or more")
        for name in ("fifo_thresholds", "priority_thresholds"):
            few, all_ = getattr(self, f"few_{name}"), getattr(self, name)
            if not few or not set(few) <= set(all_):
                raise ConfigError(f"few_{name}", few, f"some of {all_}")
        if self.limit not in self.few_fifo_thresholds:
            allowed = f"also {self.limit}, where there is no preference"
            raise ConfigError("few_fifo_thresholds", self.few_fifo_thresholds, allowed)
        if self.exchange.hosts > self.hosts:
            raise ConfigError("hosts", self.hosts, f"at least {self.exchange.hosts} machines")

    @functools.cached_property
    def exchange(self) -> learning.Exchange:
        """What an iteration of the training config sends."""
        config = expand(self.training)[0][0]
        return learning.exchange_of(config, make_problem(config, data.load(config.data)).layout)

    @property
    def gap_ns(self) -> int:
        """Between packets of a paced message; messages to all other hosts share the rate."""
        return transports.gap(self.learning_bps, flows=self.hosts - 1)


def make_study(config: Any) -> Study:
    """A study from a mapping of all fields, such as `configs/colocated_web.py` gives."""
    values = config.to_dict() if hasattr(config, "to_dict") else dict(config)
    fields = {field.name for field in dataclasses.fields(Study)}
    for name in sorted(fields ^ set(values)):
        raise ConfigError("config", f"{name!r}", f"exactly the fields {', '.join(sorted(fields))}")
    return Study(**values)


def cases(study: Study) -> list[Case]:
    """Those of the curves over loss."""
    fifo, priority = study.fifo_thresholds, study.priority_thresholds
    return sorted(
        {
            *few_cases(study),
            *(Case("dctcp", name, False, t) for name in ("paced", "burst") for t in fifo),
            *(Case("dctcp", name, True, t) for name in ("paced", "burst") for t in priority),
            *(
                Case("dctcp", name, is_priority, t)
                for name in ("deadline", "bounded", "bounded_controlled")
                for is_priority, thresholds in (
                    (False, study.few_fifo_thresholds),
                    (True, study.few_priority_thresholds),
                )
                for t in thresholds
            ),
            *(Case("simple_dctcp", name, False, study.limit) for name in ("none", "reliable")),
            *(Case("simple_dctcp", "paced", False, t) for t in fifo),
            *(Case("simple_dctcp", "paced", True, t) for t in priority),
        }
    )


def few_cases(study: Study) -> list[Case]:
    """Those of every rate: the baselines, and paced lossy traffic at a few thresholds."""
    return [
        Case("dctcp", "none", False, study.limit),
        *(Case("dctcp", name, p, study.limit) for name in RELIABLE for p in (False, True)),
        *(Case("dctcp", "paced", False, t) for t in study.few_fifo_thresholds),
        *(Case("dctcp", "paced", True, t) for t in study.few_priority_thresholds),
    ]


def runs(study: Study) -> list[Run]:
    """All runs, one seed after the other."""
    return [
        Run(seed, rate, case)
        for seed in range(study.seeds)
        for rates, chosen in (
            (study.web_rates, cases(study)),
            (study.more_web_rates, few_cases(study)),
        )
        for rate in rates
        for case in chosen
    ]


def learning_traffic(study: Study) -> learning.LearningTraffic:
    """What learning sends, whatever else happens."""
    return learning.open_loop(
        study.exchange,
        study.iterations,
        period_ns=round(study.period_ms * MS),
        compute_ns=round(study.compute_ms * MS),
        gather_ns=round(study.gather_ms * MS),
    )


def network_and_flows(study: Study, seed: int, web_rate: float) -> tuple[Network, Flows]:
    """What all cases of a seed and rate have in common."""
    network = topologies.star(study.hosts, rate_bps=study.link_bps, delay_ns=study.delay_ns)
    web = traffic.poisson(
        study.hosts, web_rate, round(study.duration_ms * MS), study.message_bytes, seed=seed
    )
    kinds = {WEB: web, TRAINING: learning_traffic(study).messages}
    return network, traffic.make_flows(network, kinds)


def scenario(study: Study, run: Run, given: tuple[Network, Flows], *, record: bool = False):
    """The simulation of a run.

    Args:
      run: which; its seed is also that of the jitter.
      given: from ``network_and_flows``.
      record: whether to keep what became of every packet of lossy learning.
    """
    case = run.case
    reliable = transports.dctcp if case.web == "dctcp" else transports.simple_dctcp
    discipline = Discipline(study.limit, study.mark_above, case.threshold, case.priority)
    return Scenario(
        *given,
        {WEB: reliable(), TRAINING: transport(study, run)},
        discipline,
        record=(TRAINING,) if record else (),
    )


def transport(study: Study, run: Run) -> Transport | None:
    """How learning is sent in a run; None: not at all."""
    case, gap, seed = run.case, study.gap_ns, run.seed
    if case.learning == "none":
        return None
    if case.learning in RELIABLE:
        if case.web != "dctcp":
            return transports.simple_dctcp()
        rule = transports.dctcp(gap_ns=gap if case.learning == "paced_reliable" else 0, seed=seed)
        return dataclasses.replace(rule, low=case.priority)
    if case.learning == "burst":
        return transports.round_robin(interval_ns=transports.gap(study.link_bps), hosts=study.hosts)
    if case.learning in ("bounded", "bounded_controlled"):
        control = case.learning == "bounded_controlled"
        return transports.bounded(
            loss=study.loss_bound, gap_ns=gap, seed=seed, rate_control=control
        )
    deadline = round(study.deadline_ms * MS) if case.learning == "deadline" else 0
    return transports.paced(gap_ns=gap, seed=seed, deadline_ns=deadline)
