"""Two sets of independent numbers: how far apart they are, how sure that is, and which of five verdicts it comes to.

See docs/explanation/methodology.md, 1.4. The verdicts allow for the number of claims made at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul
from typing import Literal

from milabench.analysis.intervals import Interval, normal_quantile, t_quantile, t_tail
from milabench.analysis.sample_statistics import mean, stdev
from milabench.analysis.uncertainty import NO_ALLOWANCE, Allowance

Verdict = Literal["FASTER", "SLOWER", "EQUIVALENT", "DIFFERENT-BUT-SMALL", "INCONCLUSIVE"]
# Differences below one per cent are never called faster or slower; docs/explanation/methodology.md, 1.0.
DEFAULT_MARGIN = 0.01
SIGNIFICANCE = 0.05
ROUNDING = 1e-12  # logarithms that differ by no more differ only by how their sums were rounded
_MOST_LOG = 700.0  # its exponential is about the largest float


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A difference with its standard error and the degrees of freedom that it stands on.

    `allowance` is a further possible error: disturbances that only one side shows.
    """

    d: float
    error: float
    freedom: float
    allowance: Allowance = NO_ALLOWANCE

    @classmethod
    def of_variances(
        cls, d: float, parts: Sequence[tuple[float, float]], allowance: Allowance = NO_ALLOWANCE
    ) -> Estimate:
        """Return a difference whose variance is the sum of these, each with its degrees of freedom. After Satterthwaite.

        A value known without a sample has infinitely many.
        """
        variance = math.fsum(part for part, _ in parts)
        spread = math.fsum(part**2 / degrees for part, degrees in parts)
        freedom = variance**2 / spread if spread else math.fsum(degrees for _, degrees in parts)
        return cls(d=d, error=math.sqrt(variance), freedom=freedom, allowance=allowance)

    def interval(self, level: float = 0.95) -> Interval:
        """Return d -+ t error, with the allowance on both sides."""
        half = t_quantile((1 + level) / 2, self.freedom) * self.error if self.error else 0.0
        return self.d - half - self.allowance.below, self.d + half + self.allowance.above

    def ratio_interval(self, level: float = 0.95) -> Interval:
        """Return the interval of exp d, the ratio whose logarithm this is."""
        # Two sessions have one degree of freedom: of extreme numbers such an interval is wider than a float.
        low, high = (math.exp(max(-_MOST_LOG, min(_MOST_LOG, bound))) for bound in self.interval(level))
        return low, high

    def detectable(self, margin: float, level: float = 0.95) -> float:
        """Return the relative difference beyond the margin by half of the interval: half of such samples would find it."""
        low, high = self.interval(level)
        return math.expm1(min(_MOST_LOG, math.log1p(margin) + (high - low) / 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMean:
    """The mean of the logarithms of a side, the variance of that mean, and the degrees of freedom that it stands on.

    `by_session` are the means of its sessions, None for a session without a repeat. `within` is the variance by the
    repeats alone, with its degrees of freedom. `allowance` is by how much disturbances may have moved the mean
    besides.
    """

    mean: float
    variance: float
    freedom: float
    by_session: tuple[float | None, ...] = ()
    within: tuple[float, float] = (0.0, 0.0)
    allowance: Allowance = NO_ALLOWANCE

    @property
    def disturbed(self) -> float:
        """The allowance as a deviation, for means over benchmarks: it reaches the allowance in 95 of 100 cases."""
        return max(self.allowance) / normal_quantile(0.975)


def log_mean_of(sessions: Sequence[Sequence[float]]) -> LogMean:
    """Return the mean of the sessions' means, of the logarithms of repeats. Raises ValueError below two repeats.

    Of several sessions their means are the sample: the repeats of a session do not show the spread between sessions.
    Three sessions may lie closer together by chance than their repeats allow. Then the repeats are the sample, around
    the means of the sessions. A session without a repeat is none.
    """
    known = [session for session in sessions if session]
    by_session = tuple(mean(session) if session else None for session in sessions)
    if len(known) == 1:
        (launches,) = known
        within = stdev(launches) ** 2 / len(launches), len(launches) - 1
        return LogMean(mean=mean(launches), variance=within[0], freedom=within[1], by_session=by_session, within=within)
    k, means = len(known), list(map(mean, known))
    freedom = sum(map(len, known)) - k
    squares = math.fsum((value - centre) ** 2 for s, centre in zip(known, means, strict=True) for value in s)
    within = (squares / freedom * math.fsum(1 / len(s) for s in known) / k**2 if freedom else 0.0), freedom
    variance, freedom_of_mean = _variance_of_sessions(means, [within])
    return LogMean(mean=mean(means), variance=variance, freedom=freedom_of_mean, by_session=by_session, within=within)


def weighted_variances(levels: Sequence[LogMean], shares: Sequence[float]) -> list[tuple[float, float]]:
    """Return the variance of the weighted mean over a system's benchmarks, as independent parts with their degrees of freedom.

    Repeats of two benchmarks are independent. Sessions are not: a session may affect all benchmarks equally, so that
    the means of the sessions over the benchmarks are the sample. Where a session lacks a benchmark, the errors of the benchmarks
    add up as they are, which is the most that they can.
    """
    if all(len(level.by_session) <= 1 for level in levels):
        return [(share**2 * level.variance, level.freedom) for share, level in zip(shares, levels, strict=True)]
    sessions = [
        [mean for mean in of_all if mean is not None]
        for of_all in zip(*(level.by_session for level in levels), strict=True)
    ]
    if min(map(len, sessions)) < len(levels):
        error = math.fsum(share * math.sqrt(level.variance) for share, level in zip(shares, levels, strict=True))
        return [(error**2, min(level.freedom for level in levels))]
    means = [math.fsum(map(mul, shares, of_all)) for of_all in sessions]
    within = [(share**2 * level.within[0], level.within[1]) for share, level in zip(shares, levels, strict=True)]
    return [_variance_of_sessions(means, within)]


def _variance_of_sessions(means: Sequence[float], within: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the variance of the mean of sessions, not below that by the repeats alone, and its degrees of freedom."""
    between, least = stdev(means) ** 2 / len(means), [(variance, freedom) for variance, freedom in within if freedom]
    by_launches = Estimate.of_variances(0.0, least)
    if between >= by_launches.error**2:
        return between, len(means) - 1
    return by_launches.error**2, len(means) - 1 + by_launches.freedom


def difference(a: LogMean, b: LogMean) -> Estimate:
    """Return the mean of b less the mean of a, with unequal variances and degrees of freedom after Satterthwaite."""
    variances = [(side.variance, side.freedom) for side in (a, b)]
    return Estimate.of_variances(b.mean - a.mean, variances, b.allowance.over(a.allowance))


def welch(a: Sequence[float], b: Sequence[float]) -> Estimate:
    """Return the mean of b less the mean of a, after Welch. Raises ValueError when a side has fewer than two values."""
    return difference(log_mean_of([a]), log_mean_of([b]))


def paired_difference(a: Sequence[float], b: Sequence[float]) -> Estimate:
    """Return the mean of the differences b - a of pairs. Raises ValueError below two pairs."""
    differences = [after - before for before, after in zip(a, b, strict=True)]
    return Estimate(
        d=mean(differences), error=stdev(differences) / math.sqrt(len(differences)), freedom=len(differences) - 1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The result of a claim in a family.

    `p_holm` is the p of the difference being within the margin, `p_equal_holm` of its being beyond it, both corrected for the
    family. `family` is how many claims are tested together.
    """

    verdict: Verdict
    p_holm: float
    p_equal_holm: float
    estimate: Estimate
    margin: float
    family: int

    @property
    def detectable(self) -> float:
        """The relative difference that would be found in half of cases, were it alone among its family."""
        return self.estimate.detectable(self.margin, 1 - SIGNIFICANCE / self.family)


def judge_family(estimates: Sequence[Estimate | None], margins: Sequence[float]) -> list[Judgement | None]:
    """Return the verdict on each logarithm of a ratio, all of them forming a family of claims (Holm's correction).

    Where there is no estimate there is no claim: it has no verdict, and makes the others' no stricter.
    """
    claims = [(e, margin) for e, margin in zip(estimates, margins, strict=True) if e is not None]
    tails = [_tails_beside(e, math.log1p(margin)) for e, margin in claims]
    # A difference beyond the margin is claimed of either sign; 0.05 is reached where the 95 % interval lies wholly beyond it,
    # and of the other tail, for equivalence, where the 90 % interval lies wholly within it.
    p_difference = [min(1.0, 2 * beyond) for beyond, _ in tails]
    p_equal = holm([within for _, within in tails])
    judged = iter(
        Judgement(
            verdict=_verdict(e, p_holm, p_equal_holm),
            p_holm=p_holm,
            p_equal_holm=p_equal_holm,
            estimate=e,
            margin=margin,
            family=len(claims),
        )
        for (e, margin), p_holm, p_equal_holm in zip(claims, holm(p_difference), p_equal, strict=True)
    )
    return [None if e is None else next(judged) for e in estimates]


def _tails_beside(e: Estimate, margin: float) -> tuple[float, float]:
    """Return the p-values of the difference being within a margin, and beyond it, the allowance always against the claim."""
    towards, away = e.allowance if e.d > 0 else reversed(e.allowance)
    beyond, within = tails_of(abs(e.d) - towards - margin, e.error, e.freedom)
    return beyond, within if not (towards or away) else tails_of(abs(e.d) + away - margin, e.error, e.freedom)[1]


def _verdict(e: Estimate, p_difference: float, p_equivalence: float) -> Verdict:
    """Return the verdict on a log ratio. The p-values are already corrected for their family.

    FASTER and SLOWER: beyond the margin. EQUIVALENT: within it by two one-sided tests (Schuirmann 1987), and
    DIFFERENT-BUT-SMALL when the ordinary 95 % interval leaves out 0 as well.
    """
    if p_difference <= SIGNIFICANCE:
        return "FASTER" if e.d > 0 else "SLOWER"
    if p_equivalence <= SIGNIFICANCE:
        is_zero_possible = 2 * tail(abs(e.d), e.error, e.freedom) > SIGNIFICANCE
        return "EQUIVALENT" if is_zero_possible else "DIFFERENT-BUT-SMALL"
    return "INCONCLUSIVE"


def tail(distance: float, error: float, freedom: float) -> float:
    """P(T > distance / error) of logarithms. Without any spread the side of 1 is certain."""
    return tails_of(distance, error, freedom)[0]


def tails_of(distance: float, error: float, freedom: float) -> tuple[float, float]:
    """P(T > z) and P(T > -z) for z = distance / error, as `tail`, from a single evaluation."""
    if error <= ROUNDING:
        above = 0.0 if distance > ROUNDING else 0.5 if distance >= -ROUNDING else 1.0
        return above, 1 - above
    z = distance / error
    far = t_tail(abs(z), freedom)
    return (far, 1 - far) if z >= 0 else (1 - far, far)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values such that claiming all those at or below 5 % makes any false claim in at most 5 % (Holm 1979)."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected, highest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = highest
    return corrected
