"""Metrics that a program only prints: patterns over its lines of output -> series of numbers -> a number each.

Lines come singly and only numbers are kept, so that a log may be of any length.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from milabench.analysis.sample_statistics import quantile, stdev, variation
from milabench.analysis.search_limits import CHARACTER_S, LINE_S, LOG_S, SearchTooLong, search_watch
from milabench.events.values import LARGEST_NUMBER, SMALLEST_NUMBER, as_mapping

Direction = Literal["higher", "lower", "none"]

# Digits with separators of thousands, a fraction, an exponent.
_UNSIGNED = r"(?:(?:\d{1,3}(?:[,_]\d{3})+(?!\d)|\d+)(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_NUMBER = re.compile(rf"[-+]?(?:{_UNSIGNED}|(?<![A-Za-z_])(?:nan|inf(?:inity)?)(?![A-Za-z_]))", re.IGNORECASE)
_WHOLE = re.compile(_UNSIGNED)
_PLAIN = re.compile(r"\d+(?:\.\d*)?")
_HELD_CHARACTERS = 1 << 16  # a line without an end is searched once it has so many
_LONGEST = 1 << 20  # characters that are searched at once; a longer line, which our agent never writes, is cut
_SEPARATORS = str.maketrans("", "", "_,")
_EXACT_DIGITS = 1200  # enough for a sum of any floats, from the largest's first digit to the smallest's last


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMetric:
    """A number to find: the first group of the pattern, or the whole match without groups. `reduce` is a key of REDUCTIONS.

    The result of the reduction is multiplied by `scale`.
    """

    name: str
    pattern: re.Pattern[str]
    reduce: str = "last"
    scale: float = 1.0
    units: str = ""
    direction: Direction = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSeries:
    """All numbers found for a metric, in order. `unread` matches held no number, or several.

    `failure` says why the search was given up. Empty when it was not.
    """

    metric: LogMetric
    values: Sequence[float]
    unread: int = 0
    failure: str = ""

    @property
    def value(self) -> float | None:
        """The number. None where nothing was found, or the result is not finite."""
        if self.failure or (not self.values and self.metric.reduce != "count"):
            return None
        reduced = REDUCTIONS[self.metric.reduce](self.values) * self.metric.scale
        return reduced if math.isfinite(reduced) else None

    @property
    def spread(self) -> float | None:
        """Coefficient of variation of the numbers. None below two of them, or where any is not finite."""
        return variation(self.values) if all(map(math.isfinite, self.values)) else None

    @property
    def problem(self) -> str:
        """The problem with it, in a line. Empty when there is none."""
        name, pattern = self.metric.name, self.metric.pattern.pattern
        if self.failure:
            return f"metric {name}: {pattern!r} {self.failure}"
        if not self.values and self.unread:
            return f"metric {name}: {pattern!r} matched, but around no single number. Put a group around the number"
        if self.value is None and not self.values:
            return f"metric {name}: no line of the output matched {pattern!r}"
        if self.value is None:
            return f"metric {name}: {self.metric.reduce} of {len(self.values)} values is not a finite number"
        return ""


def _sum(values: Sequence[float], among: int = 1) -> float:
    """Return the sum, divided by `among`, of the numbers as written: 829.012392 itself, not the nearest binary number.

    It is rounded once, at the end: up to 15 digits the shortest text of a float is its original text. nan
    where any of them is nan.
    """
    from decimal import Context, Decimal, localcontext  # only needed where logs are read

    if not all(map(math.isfinite, values)):
        return math.nan
    with localcontext(Context(prec=_EXACT_DIGITS)):
        return float(sum(map(Decimal, map(repr, values)), Decimal()) / among)


def _harmonic(values: Sequence[float]) -> float:
    """Return n over the sum of the inverses: the rate of equal amounts of work. nan where a value cannot be inverted."""
    if not all(SMALLEST_NUMBER <= value <= LARGEST_NUMBER for value in values):
        return math.nan
    return len(values) / math.fsum(1 / value for value in values)


def _deviation(values: Sequence[float]) -> float:
    return stdev(values) if len(values) > 1 and all(map(math.isfinite, values)) else math.nan


def _ordered(reduce: Callable[[Sequence[float]], float], values: Sequence[float]) -> float:
    """Return the result of a reduction by order. nan where any value is nan, which has no place in any order."""
    return math.nan if any(map(math.isnan, values)) else reduce(values)


REDUCTIONS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "last": lambda values: values[-1],
    "first": lambda values: values[0],
    "mean": lambda values: _sum(values, len(values)),
    "median": partial(_ordered, partial(quantile, q=0.5)),
    "min": partial(_ordered, min),
    "max": partial(_ordered, max),
    "std": _deviation,
    "sum": _sum,
    "count": lambda values: float(len(values)),
    **{f"p{percent}": partial(_ordered, partial(quantile, q=percent / 100)) for percent in (50, 90, 95, 99)},
    "harmonic": _harmonic,
}
"""Reductions of several numbers to one. Quantiles by linear interpolation (R7), the deviation of a sample."""


class LogFold:
    """Reads lines as they come.

    A line that comes in pieces, because it was written in pieces, is put together again. Of the updates of a progress bar
    that overwrite each other the last counts.

    A pattern that takes too long (see `search_limits`) is given up, and the others go on. Only in the main thread; `log_fold`
    is for any.
    """

    def __init__(self, metrics: Iterable[LogMetric]) -> None:
        self._metrics = tuple(metrics)
        self._sought = tuple(enumerate(self._metrics))
        self._held: dict[str | None, str] = {}
        self._ended: defaultdict[str | None, int] = defaultdict(int)  # lines, by pipe
        self._values: list[array[float]] = [array("d") for _ in self._metrics]
        self._unread = [0] * len(self._metrics)
        self._failures = [""] * len(self._metrics)
        self._watch = search_watch()
        self._characters = 0
        self._at = 0  # the metric that is looked for
        self._used_s = [0.0] * len(self._metrics)
        self._last_tick = 0, 0
        self._line_s = 0.0

    def observe(self, text: str, pipe: str | None = None) -> None:
        """Take the data of a pipe: a line, or a piece of a line that does not end."""
        held = self._held.pop(pipe, "") if self._held else ""
        # After a carriage return the next piece overwrites what was held, as on a terminal.
        if held and not held.endswith("\r"):
            text = held + text
        if text.endswith("\n"):
            self._look(text, pipe)
            self._ended[pipe] += 1
        elif len(text) > _HELD_CHARACTERS:
            self._look(text, pipe)
        else:
            self._held[pipe] = text

    def _look(self, line: str, pipe: str | None) -> None:
        """Look for every metric in a line. Each may be in it several times."""
        if len(line) > _LONGEST:
            for begin in range(0, len(line), _LONGEST):
                self._look(line[begin : begin + _LONGEST], pipe)
            return
        self._characters += len(line)
        watch = self._watch
        if not watch.is_ticking:
            watch.start()
        sought = iter(self._sought)
        while True:  # again when a metric is given up, for the others
            try:
                watch.searching = self._on_tick
                for index, metric in sought:
                    self._at = index
                    for match in metric.pattern.finditer(line):
                        value = _matched(match)
                        if value is None:
                            self._unread[index] += 1
                        else:
                            self._values[index].append(
                                math.copysign(math.inf, value) if abs(value) > LARGEST_NUMBER else value
                            )
                watch.searching = None  # here, where what a tick raises is still caught
                break
            except SearchTooLong as limit:
                self._give_up(str(limit), pipe)
            finally:
                watch.searching = None

    def _give_up(self, limit: str, pipe: str | None) -> None:
        """Search no more for the metric that was looked for."""
        self._sought = tuple(sought for sought in self._sought if sought[0] != self._at)
        where = f"line {self._ended[pipe] + 1}" + (f" of {pipe}" if pipe else "")
        self._failures[self._at] = f"took {limit} {where}. Write it without a repetition within or next to another"

    def _on_tick(self, used_s: float) -> None:
        """Take the CPU time of the search into account. Raises SearchTooLong."""
        index, last, self._last_tick = self._at, self._last_tick, (self._at, self._characters)
        self._used_s[index] += used_s
        self._line_s = self._line_s + used_s if last == self._last_tick else 0.0
        if self._line_s >= LINE_S:
            raise SearchTooLong(f"more than {LINE_S:g} s on")
        limit_s = LOG_S + CHARACTER_S * self._characters
        if self._used_s[index] > limit_s:
            raise SearchTooLong(f"more than {limit_s:.1f} s on the lines up to")

    def series(self) -> tuple[LogSeries, ...]:
        """Return a series for each metric, in their order. A last line without an end counts from now on."""
        while self._held:
            pipe, text = self._held.popitem()
            self._look(text, pipe)
        columns = zip(self._metrics, self._values, self._unread, self._failures, strict=True)
        return tuple(
            LogSeries(metric=metric, values=values, unread=unread, failure=failure)
            for metric, values, unread, failure in columns
        )


def number_in(text: str) -> float | None:
    """Return the single number that a text holds: 1,234.5, 1_000, .5, -3.2e-05, nan, inf. None when it holds none or several."""
    numbers = _NUMBER.findall(text)
    return float(numbers[0].translate(_SEPARATORS)) if len(numbers) == 1 else None


def _matched(match: re.Match[str]) -> float | None:
    """Return the number around which a pattern has a group.

    A group for digits and a point cuts the rest off 1.5e-03, -3.2, .5 and 1,234.5: where the pattern asks for nothing
    after it, the number goes on as far as it does in the line.
    """
    has_group = bool(match.re.groups)
    text = match.group(has_group) or ""
    begin, end = match.span(has_group)
    if not has_group or not _PLAIN.fullmatch(text):
        return number_in(text)
    if match.end() != end:
        return float(text)
    line = match.string
    if begin and line[begin - 1] == "." and "." not in text and not line[max(0, begin - 2) : begin - 1].isalnum():
        begin -= 1
    whole = _WHOLE.match(line, begin)
    if whole is None:
        return number_in(text)
    before, sign = line[max(0, begin - 2) : begin - 1], line[begin - 1 : begin]
    is_negative = sign == "-" and not (before.isalnum() or before in (")", "]", "_"))
    return float(("-" if is_negative else "") + whole.group().translate(_SEPARATORS))


def metrics_of(config: Mapping[str, object]) -> tuple[LogMetric, ...]:
    """Return the metrics that a benchmark's recorded configuration asks for. Unreadable parts are passed over."""
    declared = as_mapping(config.get("metrics"))
    metrics = (_metric(str(name), about) for name, about in declared.items() if isinstance(about, Mapping))
    return tuple(filter(None, metrics))


def _metric(name: str, about: Mapping[str, object]) -> LogMetric | None:
    direction, reduce, scale = about.get("direction"), str(about.get("reduce") or "last"), about.get("scale", 1.0)
    try:
        pattern = re.compile(str(about.get("pattern", "")))
    except (re.error, RecursionError, OverflowError):
        return None
    if reduce not in REDUCTIONS or not isinstance(scale, int | float):
        return None
    return LogMetric(
        name=name,
        pattern=pattern,
        reduce=reduce,
        scale=float(scale),
        units=str(about.get("units") or ""),
        direction=direction if direction in ("higher", "lower") else "none",
    )
