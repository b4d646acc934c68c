"""Was anything measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from milabench.analysis.series import CompactSeries, Series
from milabench.checks.check import Check
from milabench.events.doubts import Doubt
from milabench.events.model import Verdict

if TYPE_CHECKING:
    from milabench.analysis.measure import Measurement


class RateCheck(Check):
    """Fails without one usable observation or metric, and warns about unusable ones."""

    name = "rate"
    doc = "usable observations (`nonfinite`)"
    severities = ("fail", "warn")

    def verdict(self, measured: Measurement) -> Verdict:
        """Fail, warn or pass, with how many observations there were. The requests of a sweep are no observations."""
        count = sum(map(_with_a_rate, measured.series))
        total = sum(len(series.lasted) for series in measured.series)
        total += measured.unusable if measured.serving is None else 0
        numbers: dict[str, Any] = {"count": count, "unusable": total - count, "metrics": measured.reports}
        # The number of a command is its time, or in its lines: whether they hold what was asked for decides how the step ended.
        if not count and not measured.reports and not measured.is_of_command:
            unusable = f": {total} observations have no usable rate" if total else ""
            return self.failure(f"nothing was measured{unusable}", numbers)
        if total > count:
            return self.warning(f"{total - count} of {total} observations have no usable rate", numbers)
        return self.passed(numbers)

    def doubt_for(self, verdict: Verdict) -> str | None:
        """Return `nonfinite` for observations that are no numbers, as the analysis does."""
        return Doubt.NONFINITE if verdict.numbers.get("unusable") else super().doubt_for(verdict)


def _with_a_rate(series: Series) -> int:
    """Return how many observations have a rate above zero. Plain ones all have."""
    return len(series.lasted) if isinstance(series, CompactSeries) else sum(rate > 0 for rate in series.rates)
