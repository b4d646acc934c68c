"""How far a number may be off: the components of its uncertainty, and the interval that holds the undisturbed rate.

After the Guide to the Expression of Uncertainty in Measurement (JCGM 100:2008): each cause of an error has a size, and together
the sizes make a single interval at 95 %. Repeats scatter to both sides. Disturbances only slow a program down: the possible
cost reaches upwards alone, and is added as it is, because its sign is known. The rules, with the reason of each constant:
docs/explanation/methodology.md, 1.1. Coverage of the interval: `python tests/perf/verdicts.py`.

Sizes are differences of natural logarithms of rates until they are shown: small ones are shares, 0.01 is 1 %.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, NamedTuple

from milabench.analysis.intervals import LEAST_LAUNCHES, normal_quantile, t_quantile
from milabench.analysis.json_codec import OPTIONAL
from milabench.analysis.sample_statistics import mean, stdev
from milabench.analysis.stalls import Stalls
from milabench.events.stored_json import Number, Whole
from milabench.shown import counted

CONFIDENCE = 0.95
CONFIDENCE_OF_STOPPED = 0.975
"""Of Student's t where repeats are added until the number is precise enough: they end too early where they agree by chance."""
_STRETCHES = 20  # of a window: a disturbance that lasts for less of it than half a stretch hardly moves its mean
_LEAST_STEPS = 12  # in a window: stretches of two steps, of which the fastest third are two
_QUIET = 0.35  # of the stretches, the fastest, whose spread is the noise: disturbances of 60 % of a window leave so many alone
_FASTEST = 3  # of 20 stretches are the level without disturbances: one alone is fast by chance
_NOISE = 2.0  # times the noise's variance, up to which the stretches show nothing but noise
_REACH = 1.05  # a disturbance is known to 5 %: some of the fastest stretches have a part of it
_FEW, _MANY = 6.0, 14.0  # long steps of a window: so few are no property of the program, so many are
_UNSEEN = 0.055  # over n: n launches may miss a mode of share 1 - 0.05 ** (1 / n); by simulation with modes 3 % apart
_LEAST_FOR_UNSEEN = 5
_UNSEEN_IN_RATIO = 0.035  # the same for a verdict, which has a margin of 1 % besides: 0.02 has 9 % false ones
_ORDER = 0.05  # significance of a trend over launches, below which they are not taken as exchangeable
LOWERED_BY = {
    "others": "processor time that others used, or that we waited for: a bound",
    "throttling": "clocks lowered for heat or by the supply, how long and how far: a bound",
    "power limit": "clocks lowered by a limit below the default, how long and how far: a bound",
}
"""Effects that others or the board have on the rate, each a component, and how its size was got."""
_OTHER_EFFECTS = ("gaps", "observing", "clocks")
_LESS_WITH_MORE = ("launches", "order", "others", "unseen modes", "rare steps")  # components that more repeats lower
_LEAST_SIZE = 0.0005  # below which a component is not worth a line


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowProfile:
    """The signs of disturbances in a window: logarithms of the time an item took in each of its stretches, without long steps.

    `stalls` are the shares of the window's time that single long steps took beyond the others: those that are no property of the
    program, as far as their number tells.
    """

    stretches: tuple[float, ...]
    stalls: tuple[float, ...] = ()

    @property
    def stalled(self) -> float:
        """By how much the rate would be higher without the stalls."""
        return -math.log1p(-math.fsum(self.stalls))

    @property
    def slowed(self) -> float:
        """By how much the fastest stretches are faster than the mean of all, as far as that is more than noise."""
        n, ordered = len(self.stretches), sorted(self.stretches)
        quiet = max(2, round(_QUIET * n))
        # The expected distance of the first and the last of them in deviations (Blom 1958).
        span = normal_quantile((quiet - 0.375) / (n + 0.25)) - normal_quantile(0.625 / (n + 0.25))
        return _above_fastest(self.stretches, ((ordered[quiet - 1] - ordered[0]) / span) ** 2)


def window_profile(cycles: Sequence[float], items: Sequence[float] | None, standing: Stalls) -> WindowProfile | None:
    """Return the profile of a window from the times of its steps, the `items` of each where they differ, and its stalls.

    None for a window that is too short. A rhythm, such as a checkpoint, is the program's: its time is spread evenly.
    """
    n, rest = len(cycles), list(map(float, cycles))
    if n < _LEAST_STEPS:
        return None
    total, excess = math.fsum(cycles), [event.excess for event in standing.events]
    disturbing = 1 - _share_of_program(excess)
    for share, events in ((disturbing, standing.events), (1.0, standing.regular)):
        for event in events:
            for index in range(event.start, event.stop):
                rest[index] -= share * event.excess / (event.stop - event.start)
    count = min(_STRETCHES, n // 2)
    bounds = list(pairwise(n * index // count for index in range(count + 1)))
    done = [float(stop - start) if items is None else math.fsum(items[start:stop]) for start, stop in bounds]
    times = [math.fsum(rest[start:stop]) for start, stop in bounds]
    if min(*done, *times) <= 0:
        return None
    return WindowProfile(
        stretches=tuple(math.log(time / number) for time, number in zip(times, done, strict=True)),
        stalls=tuple(disturbing * each / total for each in excess if disturbing),
    )


def _share_of_program(excess: Sequence[float]) -> float:
    """Return how far long steps are a property of the program, 0 to 1, from their number and equality."""
    squares = math.fsum(each * each for each in excess)
    effective = math.fsum(excess) ** 2 / squares if squares else _FEW
    return min(1.0, max(0.0, (effective - _FEW) / (_MANY - _FEW)))


def _above_fastest(stretches: Sequence[float], noise: float) -> float:
    """Return how far the mean time of stretches is above the fastest of them, less the part that their `noise` explains.

    The factor is the garrote of Breiman (1995), squared: a soft threshold, and no verdict.
    """
    variance = stdev(stretches) ** 2
    if variance <= _NOISE * noise:
        return 0.0
    fastest = sorted(stretches)[: max(1, round(len(stretches) * _FASTEST / _STRETCHES))]
    above = math.log(mean([math.exp(each) for each in stretches])) - mean(fastest)
    return above * (1 - (_NOISE * noise / variance) ** 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLaunch:
    """A repeat: the logarithm of its rate, and the profiles of the windows of its instances, none where there are no steps.

    `effects` are sizes measured outside the windows: the shares of the rate that `others`, `throttling` and `power limit`
    took at most, `observing`, `gaps` and `clocks`.
    """

    rate: float
    profiles: tuple[WindowProfile, ...] = ()
    effects: Mapping[str, float] = field(default_factory=dict)

    @property
    def stalled(self) -> float:
        """By how much its rate would be higher without stalls."""
        return mean([profile.stalled for profile in self.profiles]) if self.profiles else 0.0

    @property
    def slowed(self) -> float:
        """By how much its rate would be higher without slow stretches."""
        return mean([profile.slowed for profile in self.profiles]) if self.profiles else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """A cause of uncertainty: its name, its size as a share of the number (None: not known), and how it was obtained.

    `repeat` is the repeat that shows it most, where it is about a single repeat. Of a single long step, `step` is
    its number in the repeat, from 1 on, and `seconds` by how much it was longer than the others.
    """

    name: str
    size: Number | None
    how: str
    repeat: Annotated[Whole | None, OPTIONAL] = None
    step: Annotated[Whole | None, OPTIONAL] = None
    seconds: Annotated[Number | None, OPTIONAL] = None

    @property
    def title(self) -> str:
        """Its name as people call it."""
        return {"launches": "repeats", "others": "other programs"}.get(self.name, self.name)

    @property
    def where(self) -> str:
        """`3 s at step 512 of repeat 2`, `most in repeat 2`. Empty where it is about no single repeat."""
        if self.step is not None and self.seconds is not None:
            return f"{self.seconds:.2g} s at step {self.step} of repeat {self.repeat}"
        if self.repeat is None:
            return ""
        return f"repeat {self.repeat} furthest off" if self.name == "launches" else f"most in repeat {self.repeat}"


class Allowance(NamedTuple):
    """By how much an interval reaches further down and up than the scatter of repeats makes it, as logarithms."""

    below: float = 0.0
    above: float = 0.0

    def over(self, base: Allowance) -> Allowance:
        """Return the component of the ratio of two numbers: one-sided parts of both, such as a slow beginning, cancel."""
        floor, base_floor = min(self), min(base)
        both, up = math.hypot(floor, base_floor), (self.above - floor) - (base.above - base_floor)
        down = (self.below - floor) - (base.below - base_floor)
        return Allowance(both + max(0.0, down) + max(0.0, -up), both + max(0.0, up) + max(0.0, -down))

    @property
    def one_sided(self) -> Allowance:
        """Its one-sided part."""
        return Allowance(self.below - min(self), self.above - min(self))


NO_ALLOWANCE = Allowance()


def launches_for(distance: float) -> int:
    """Return the number of repeats from which on modes that they did not meet are no further off than a distance above 0."""
    return math.ceil(min(1e9, _UNSEEN / distance))


def least_error(launches: int) -> float:
    """Return the standard error of the mean of `launches` below which it counts as luck: modes that they missed."""
    return _UNSEEN_IN_RATIO / max(_LEAST_FOR_UNSEEN, launches) / 2


def widening(confidence: float, launches: int) -> float:
    """Return how many times as wide as at 95 % Student's interval is: of repeats that stopped when they were precise."""
    ends = [t_quantile((1 + level) / 2, max(1, launches - 1)) for level in (confidence, CONFIDENCE)]
    return ends[0] / ends[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncertainty:
    """The uncertainty of a number: half-width of its interval as a share of the number, at a confidence, and its components.

    The confidence is of Student's t: 97.5 % where repeats were added until they were precise, for 95 % then.
    `low` and `high` are the ends of the interval in the number's units. All are None where fewer than three repeats tell
    nothing of how much repeats differ. `asked` is the requested maximum, None without a request. The components are in
    order of their size. `lasting` is the part of the half-width that more repeats do not lower, None for nothing.
    """

    expanded: Number | None
    confidence: Number = CONFIDENCE
    low: Number | None = None
    high: Number | None = None
    asked: Number | None = None
    components: tuple[Component, ...] = ()
    lasting: Annotated[Number | None, OPTIONAL] = None

    @property
    def is_enough(self) -> bool:
        """Whether the number is as precise as was asked for."""
        return self.asked is None or (self.expanded is not None and self.expanded <= self.asked)

    @property
    def is_lasting(self) -> bool:
        """Whether the number is not as precise as was asked for, and more repeats cannot make it so."""
        return bool(self.components) and not self.is_enough and (self.lasting or 0.0) >= (self.asked or 0.0)

    @property
    def cause(self) -> Component:
        """The component to do something about: the largest, but not what more repeats lower where they cannot help."""
        known = (each for each in self.components if each.name not in _LESS_WITH_MORE or not self.is_lasting)
        return next(known, self.components[0])

    def beyond_launches(self, value: float) -> Allowance:
        """Return by how much, as logarithms, its interval reaches further than the scatter of the repeats of the number."""
        if self.low is None or self.high is None:
            return NO_ALLOWANCE
        sizes = [each.size for each in self.components if each.name == "launches"]
        scatter = math.log1p(max(0.0, sizes[0] or 0.0)) if sizes else 0.0
        return Allowance(
            max(0.0, math.log(value / self.low) - scatter), max(0.0, math.log(self.high / value) - scatter)
        )

    @property
    def half_width(self) -> str:
        """`± 4.1 %`, and `± ?` where it is not known."""
        return "± ?" if self.expanded is None else f"± {_percent(self.expanded)}"

    @property
    def words(self) -> str:
        """`± 38 % between repeats; 5 % asked`: the uncertainty, its largest component, and the request."""
        asked = "" if self.asked is None else f"; {_percent(self.asked)} asked"
        first = self.components[0] if self.components else None
        if first is None:
            return f"{self.half_width}{asked}"
        by = "between" if first.name == "launches" else "by"
        why = f", {first.how}" if first.size is None else f" {by} {first.title}"
        why += f", {first.where}" if first.where else ""
        return f"{self.half_width}{why}{asked}"


def _percent(fraction: float) -> str:
    """Return `38 %`, `4.1 %`, `0.25 %`."""
    return f"{100 * fraction:.{0 if fraction >= 0.995 else 2}{'f' if fraction >= 0.995 else 'g'}} %"


def uncertainty_of(
    value: float,
    launches: Sequence[MeasuredLaunch],
    *,
    is_lower_better: bool = False,
    confidence: float = CONFIDENCE,
) -> Uncertainty:
    """Return the uncertainty of the geometric mean of repeats, `value`. `confidence` is the confidence of Student's t."""
    n = len(launches)
    if n < LEAST_LAUNCHES:
        how = f"unknown with {counted(n, 'repeat')}, at least {LEAST_LAUNCHES} are needed"
        return Uncertainty(expanded=None, components=(Component(name="launches", size=None, how=how),))
    rates = [launch.rate for launch in launches]
    corrected = [launch.rate + launch.stalled + launch.slowed for launch in launches]
    t = t_quantile((1 + confidence) / 2, n - 1)
    scatter = t * min(stdev(rates), stdev(corrected)) / math.sqrt(n)
    stalled, slowed = mean([launch.stalled for launch in launches]), mean([launch.slowed for launch in launches])
    pattern, (trend, trend_error) = _common(launches)
    slowing = max(0.0, trend)
    shares = [share for launch in launches for profile in launch.profiles for share in profile.stalls]
    chance = 2 * _share_of_program(shares) * math.hypot(*shares) / n if shares else 0.0
    effects = {name: [each.effects.get(name, 0.0) for each in launches] for name in (*LOWERED_BY, *_OTHER_EFFECTS)}
    taken = {name: -math.log1p(-min(0.9, mean(effects[name]))) for name in LOWERED_BY}
    gaps, observing, clocks = (mean(effects[name]) for name in _OTHER_EFFECTS)
    order, unseen = _order(rates), _UNSEEN / max(_LEAST_FOR_UNSEEN, n)
    drift = math.hypot(trend, trend_error)
    shift = _REACH * max(slowed + stalled, pattern + stalled, drift + stalled, sum(taken.values()), gaps)
    below = max(math.hypot(scatter, chance, clocks) + slowing + order, unseen)
    above = max(math.hypot(scatter, clocks) + shift + observing + order, unseen)
    sizes = {
        "launches": (scatter, f"Student's t of the scatter of {n} fresh processes"),
        "order": (order, "repeats got faster or slower in sequence"),
        "stalls": (stalled, "single steps far longer than the others"),
        "slow stretches": (slowed, "parts of the windows slower than the fastest"),
        "pattern": (pattern, "parts that are slower in the windows of all repeats"),
        "drift": (drift, "second half of the windows against the first"),
        "rare steps": (chance, "long steps that come by chance"),
        **{name: (taken[name], how) for name, how in LOWERED_BY.items()},
        "gaps": (gaps, "time between steps that no declared pause explains"),
        "observing": (observing, "time that recording took, measured"),
        "clocks": (clocks, "difference of the device's clock and the host's"),
        "unseen modes": (unseen, f"modes of 3 % that {n} repeats may have missed"),
    }
    components = [
        Component(name=name, size=math.expm1(size), how=how)
        for name, (size, how) in sizes.items()
        if size >= _LEAST_SIZE or name == "launches"
    ]
    ends, always = (below, above), _lasting(launches, pattern, (trend, trend_error), effects)
    if is_lower_better:
        ends, always = ends[::-1], always[::-1]
    low, high = value * math.exp(-ends[0]), value * math.exp(ends[1])
    lasting = (math.exp(always[1]) - math.exp(-always[0])) / 2
    return Uncertainty(
        expanded=(high - low) / (2 * value),
        confidence=confidence,
        low=low,
        high=high,
        components=tuple(sorted(components, key=lambda component: -(component.size or 0.0))),
        lasting=lasting if lasting >= _LEAST_SIZE else None,
    )


def _sure(sizes: Sequence[float]) -> float:
    """Return the mean of a component over repeats less its standard error: the rest may be chance, which more repeats show."""
    return mean(sizes) - stdev(sizes) / math.sqrt(len(sizes))


def _lasting(
    launches: Sequence[MeasuredLaunch],
    pattern: float,
    trend: tuple[float, float],
    effects: Mapping[str, Sequence[float]],
) -> tuple[float, float]:
    """Return how far the part of the interval reaches down and up that more repeats do not lower."""
    sure_loss = _sure([launch.slowed + launch.stalled for launch in launches])
    sure_trend = max(0.0, abs(trend[0]) - trend[1])
    taken = sum(-math.log1p(-min(0.9, _sure(effects[name]))) for name in LOWERED_BY if name != "others")
    shift = _REACH * max(sure_loss, pattern, sure_trend, taken, _sure(effects["gaps"]))
    clocks, observing = mean(effects["clocks"]), mean(effects["observing"])
    return clocks + max(0.0, min(trend[0], sure_trend)), clocks + shift + observing


def _common(launches: Sequence[MeasuredLaunch]) -> tuple[float, tuple[float, float]]:
    """Return the effects that all windows share, invisible in their scatter: a pattern, and a trend with its standard error.

    The trend is in always: whether it is noise is not asked. A program that slows down in all windows may go on to, or may have
    been as fast as it began, so that it reaches both ways.
    """
    profiles = [profile for launch in launches for profile in launch.profiles]
    if not profiles or not all(launch.profiles for launch in launches):
        return 0.0, (0.0, 0.0)
    count = min(len(profile.stretches) for profile in profiles)
    rows = [[each - mean(profile.stretches) for each in profile.stretches[:count]] for profile in profiles]
    columns = list(zip(*rows, strict=True))
    noise = mean([stdev(column) ** 2 for column in columns]) / len(rows)
    trends = [mean(row[-(count // 2) :]) - mean(row[: count // 2]) for row in rows]
    trend = (mean(trends), stdev(trends) / math.sqrt(len(rows)))
    return _above_fastest([mean(column) for column in columns], noise), trend


def _order(rates: Sequence[float]) -> float:
    """Return half the rise of a line through the repeats in order, where Mann and Kendall's test finds a trend."""
    n = len(rates)
    pairs = [(j - i, rates[j] - rates[i]) for j in range(n) for i in range(j)]
    concordance = sum((rise > 0) - (rise < 0) for _, rise in pairs)
    z = max(0, abs(concordance) - 1) / math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    if math.erfc(z / math.sqrt(2)) >= _ORDER:
        return 0.0
    middle = (n - 1) / 2
    squares = math.fsum((index - middle) ** 2 for index in range(n))
    slope = math.fsum((index - middle) * rate for index, rate in enumerate(rates)) / squares
    return abs(slope) * middle
