"""What is rehearsed of a tender, and what a rehearsal comes to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from milabench.analysis.intervals import Interval, incomplete_beta
from milabench.analysis.two_samples import DEFAULT_MARGIN

VERDICTS, AWARD, COVERAGE = "verdicts", "award", "coverage of 95 % intervals"
GOOD, BAD, FLEET = "acceptance of a good system", "acceptance with bad nodes", "outliers"
WON, SHOWN, SHOWN_WRONG = (
    "the best offer has the highest score",
    "it is shown to be better than all others",
    ("another one is shown to be better than all others"),
)
RIGHT, WRONG, NONE = "right", "wrong", "none (INCONCLUSIVE)"
ANY_WRONG = "tenders with a wrong verdict"
LEAST = "least score: "
OF_BENCHMARKS, OF_SCORES, OF_RATIOS = "S of a benchmark", "score of an offer", "score over the first one's"
PASSED, FAILED, UNDECIDED = "PASS", "FAIL", "INCONCLUSIVE"
FOUND, BLAMED = "bad nodes that are found", "good nodes that are reported"


def share_interval(hits: int, trials: int, level: float = 0.95) -> Interval:
    """Return the exact interval of a probability that showed in so many of the trials (Clopper and Pearson 1934)."""
    tail = (1 - level) / 2
    # P(X >= hits) rises with the probability p and is I_p(hits, trials - hits + 1).
    low = 0.0 if hits == 0 else _where(lambda p: incomplete_beta(p, hits, trials - hits + 1), tail)
    high = 1.0 if hits == trials else _where(lambda p: incomplete_beta(p, hits + 1, trials - hits), 1 - tail)
    return low, high


def _where(rising: Callable[[float], float], wanted: float) -> float:
    """Return where between 0 and 1 a rising function reaches a value, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(52):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < wanted else (low, middle)
    return (low + high) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalPlan:
    """What is rehearsed. `ratios` are the true speeds of the offers over the reference, the same in every benchmark.

    `launches` are those of each benchmark, of offers and in the acceptance; `slowdown` is the share that a bad node is slower by.
    """

    ratios: tuple[float, ...]
    tenders: int = 200
    nodes: int = 64
    bad_nodes: int = 0
    slowdown: float = 0.1
    launches: int = 5
    seed: int = 1
    metric: str = ""
    margin: float = DEFAULT_MARGIN

    @property
    def names(self) -> tuple[str, ...]:
        """What the offers are called: A, B, ..., Z, then by number."""
        return tuple(chr(ord("A") + at) if at < 26 else str(at + 1) for at in range(len(self.ratios)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """How often something happened, of how many times it could; `stated` is the least or the most that the methods promise."""

    name: str
    hits: int
    trials: int
    stated: str = ""

    @property
    def share(self) -> float | None:
        """The share of the trials; None without any."""
        return self.hits / self.trials if self.trials else None

    @property
    def interval(self) -> Interval | None:
        """Its exact 95 % interval."""
        return share_interval(self.hits, self.trials) if self.trials else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsedOffer:
    """An offer of the rehearsal: its true speed over the reference, its true score, and how often it had the highest score."""

    name: str
    ratio: float
    score: float | None
    breaks_rule: bool
    won: Observed


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What a rehearsal came to; `notes` say what it stands on.

    `groups` are rates by what they tell about.
    """

    plan: RehearsalPlan
    offers: tuple[RehearsedOffer, ...]
    groups: Mapping[str, tuple[Observed, ...]]
    notes: tuple[str, ...] = ()

    def rate(self, group: str, name: str) -> Observed:
        """Return one of the rates."""
        return next(rate for rate in self.groups[group] if rate.name == name)
