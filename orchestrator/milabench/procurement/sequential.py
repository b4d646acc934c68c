"""A test of failures that may end after any trial, with stated error rates: Wald's sequential probability ratio (1945).

The good system is H0: `alpha` is the probability of rejecting it, `beta` of accepting the bad one (H1). The
summed log-likelihood ratio rejects at or above A = ln((1 - beta) / alpha) and accepts at or below B = ln(beta / (1 - alpha)). By
the overshoot is ignored: errors are at most about the stated ones, and `exact` computes them. A plan that never ends is
none: what is undecided after `cap` trials stays so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from milabench.errors import UsageError

Ending = Literal["accept", "reject"]

_NEGLIGIBLE = 1e-15  # of the probability, left undecided, that a computation without a cap ends at
_MOST_TRIALS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Risks:
    """The two error rates, and where the plan ends whatever was seen."""

    alpha: float = 0.05
    beta: float = 0.10
    cap: float | None = None

    def __post_init__(self) -> None:
        """Raise UsageError unless both rates are above 0 and add up to less than 1."""
        if not (self.alpha > 0 and self.beta > 0 and self.alpha + self.beta < 1):
            raise UsageError(f"error rates {self.alpha:g} and {self.beta:g}: both above 0, and below 1 together")

    @property
    def upper(self) -> float:
        """A: the sum that rejects."""
        return math.log((1 - self.beta) / self.alpha)

    @property
    def lower(self) -> float:
        """B, below zero: the sum that accepts."""
        return math.log(self.beta / (1 - self.alpha))

    def ending(self, log_ratio: float) -> Ending | None:
        """Return the decision of a sum. Rounding of logarithms is ignored."""
        slack = 1e-12 * (self.upper - self.lower)
        return "reject" if log_ratio >= self.upper - slack else "accept" if log_ratio <= self.lower + slack else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SequentialDecision:
    """Where a sequence stands: `ending` after `used` of the trials, or None with the remaining need.

    `until_accepted` is how many more would accept if all passed, `until_rejected` how many would reject if all failed.
    Both are None where the cap comes first, and after the end. `is_at_cap`: it was reached without a decision.
    """

    ending: Ending | None
    used: int
    until_accepted: int | None = None
    until_rejected: int | None = None
    is_at_cap: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactRates:
    """The true rates of a plan for a true value: how often it ends how, the rest being undecided."""

    accept: float
    reject: float


@dataclass(frozen=True, kw_only=True)
class FailureTest:
    """Trials that pass or fail: a promised failure rate `good` against a `bad` rate."""

    good: float
    bad: float
    risks: Risks = Risks()

    def __post_init__(self) -> None:
        """Raise UsageError unless 0 < good < bad < 1."""
        if not 0 < self.good < self.bad < 1:
            raise UsageError(f"failure rates {self.good:g} (good) and {self.bad:g} (bad): 0 < good < bad < 1")

    @property
    def per_failure(self) -> float:
        """A failure's addition to the log-likelihood ratio: g1 = ln(p1 / p0)."""
        return math.log(self.bad / self.good)

    @property
    def per_pass(self) -> float:
        """A pass's subtraction from it: g2 = ln((1 - p0) / (1 - p1))."""
        return math.log1p(-self.good) - math.log1p(-self.bad)

    def log_ratio(self, trials: int, failures: int) -> float:
        """Return the sum after this number of trials."""
        return failures * self.per_failure - (trials - failures) * self.per_pass

    def decide(self, failed: Sequence[bool]) -> SequentialDecision:
        """Return where the trials in their order have come to. Those after the end do not count."""
        failures = 0
        for trials, is_failure in enumerate(failed, start=1):
            failures += is_failure
            ending = self.risks.ending(self.log_ratio(trials, failures))
            if ending is not None:
                return SequentialDecision(ending=ending, used=trials)
            if self.risks.cap is not None and trials >= self.risks.cap:
                return SequentialDecision(ending=None, used=trials, is_at_cap=True)
        trials, ratio = len(failed), self.log_ratio(len(failed), failures)
        cap = math.inf if self.risks.cap is None else self.risks.cap
        passes = math.ceil((ratio - self.risks.lower) / self.per_pass - 1e-9)
        fails = math.ceil((self.risks.upper - ratio) / self.per_failure - 1e-9)
        return SequentialDecision(
            ending=None,
            used=trials,
            until_accepted=passes if trials + passes <= cap else None,
            until_rejected=fails if trials + fails <= cap else None,
        )

    def exact(self, rate: float) -> ExactRates:
        """Return the true rates of the plan at a failure rate, by dynamic programming over the number of failures."""
        undecided: dict[int, float] = {0: 1.0}
        accept: list[float] = []
        reject: list[float] = []
        for trials in range(1, _MOST_TRIALS):
            after: dict[int, float] = {}
            for failures, probability in undecided.items():
                after[failures] = after.get(failures, 0.0) + probability * (1 - rate)
                after[failures + 1] = after.get(failures + 1, 0.0) + probability * rate
            is_last = self.risks.cap is not None and trials >= self.risks.cap
            undecided = {}
            for failures, probability in after.items():
                ending = self.risks.ending(self.log_ratio(trials, failures))
                if ending is None:
                    undecided[failures] = probability
                else:
                    (accept if ending == "accept" else reject).append(probability)
            if is_last or math.fsum(undecided.values()) < _NEGLIGIBLE:
                break
        return ExactRates(accept=math.fsum(accept), reject=math.fsum(reject))
