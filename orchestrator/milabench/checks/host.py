"""Was the host ours while the step measured: did others use its processors, or did it lack memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from milabench.checks.check import Check
from milabench.events.model import Verdict
from milabench.events.readings import PRESSURES, Readings, Span, growth
from milabench.events.values import finite_number

if TYPE_CHECKING:
    from milabench.analysis.measure import Measurement

# methodology.md, 1.5: of our processors' time, of our own use, and of the window.
MOST_FOREIGN = MOST_WAITED = MOST_LACKED = 0.02
# Of two readings and what is interpolated from them, chance decides.
LEAST_READINGS = 3
LONGEST_UNREAD_S = 5.0
"""A longer window or repeat without a reading had no monitor: the state of the host is unknown."""


class ContendedCheck(Check):
    """Warns when others used the step's processors, it waited for a processor because of them, or memory was short in the window.

    Foreign is the work on the processors that the step may use, less the work of the process trees of its group. Instances
    are not foreign to each other. What the step itself has waited counts as far as foreign work and steal explain it: a
    program with more threads than processors waits for itself.
    """

    name = "contended"
    doc = (
        "foreign work on our processors and steal, together above 2 % of their time. Our wait for a processor because of them "
        "above 2 % of our use. Time lost for lack of memory above 2 %. Less than three readings in the window: passes, "
        "not checked. A repeat without a window or a reading: by the agent's readings before and after it, as far as the "
        "kernel's ticks tell: `resolution`. Without these, none in a window or repeat of more than 5 s, less than three in the "
        "repeat of a command, or none in the last part of the window: `sensor-lost`"
    )
    severities = ("warn",)
    doubt = "sensor-lost"
    component = "others"
    remedy = "leave the monitor on, and give a short command more work"

    def verdict(self, measured: Measurement) -> Verdict:
        """Warn or pass. The numbers are means over the window: processors used by others, stolen, used and waited for by us."""
        readings = measured.readings
        times, processors = readings.host.get("processors", ((), ()))
        if not processors or not processors[-1]:
            return self._unjudged(measured, 0)
        # Without a window the number is of the whole step.
        window = readings.window or (min(times), max(times))
        count = sum(window[0] <= time <= window[1] for time in times)
        if count < LEAST_READINGS:
            return self._unjudged(measured, count)
        return self._judge(readings, window, processors[-1], count)

    def _judge(self, readings: Readings, window: Span, processors: float, count: int) -> Verdict:
        """Warn or pass by the `count` readings in the window."""
        names = ("busy_s", "ours_s", "cpu_s", "steal_s", "run_delay_s", "swap_bytes", *PRESSURES)
        used = {name: _per_second(readings, name, window) for name in names}
        busy, ours, own = used["busy_s"], used["ours_s"], used["cpu_s"]
        if busy is None or ours is None or own is None:
            return self.warning("the processors were not read in the whole window", {"readings": count})
        foreign, stolen = max(0.0, busy - ours), used["steal_s"] or 0.0
        share, delay, swapped = (foreign + stolen) / processors, used["run_delay_s"], used["swap_bytes"]
        waited = None if delay is None else min(delay, foreign + stolen)
        numbers: dict[str, Any] = {
            "readings": count,
            "processors": processors,
            "foreign": foreign,
            "stolen": stolen,
            "share": share,
            "own": own,
            "run_delay": delay,
            "waited": waited,
            # What others may have cost, as a share of the rate: a bound, for a program need not use all its processors.
            "slowed": max(share, (waited or 0.0) / max(1.0, own), used["memory"] or 0.0),
            "swapped_MiB": None if swapped is None else swapped * (window[1] - window[0]) / 2**20,
            "pressure": {name: used[name] for name in PRESSURES},
        }
        # Of a processor at least: a program that mostly sleeps waits for each wake-up, also where nobody else is.
        is_contended = share > MOST_FOREIGN or (waited or 0.0) > MOST_WAITED * max(1.0, own)
        if is_contended or (used["memory"] or 0.0) > MOST_LACKED:
            return self.warning(_message(numbers), numbers)
        return self.passed(numbers)

    def _unjudged(self, measured: Measurement, count: int) -> Verdict:
        """Pass with too few readings, but for a long window or repeat without any, and a repeat that nothing else checks."""
        window, end = measured.readings.window, measured.end
        # The number of a command is the time of its launch, or in its lines: nothing else judges it.
        is_whole_launch = measured.is_of_command and window is None
        launch_s = 0.0 if end is None else finite_number(end.wall_s) or 0.0
        seconds = launch_s if window is None else window[1] - window[0]
        if end is not None and (is_whole_launch or not count) and (verdict := self._by_agent(end.host)) is not None:
            return verdict
        if not count and (is_whole_launch or seconds > LONGEST_UNREAD_S):
            return self.warning("nobody read the processors", {"readings": 0})
        if is_whole_launch:
            readings = f"{count} reading{'s' if count > 1 else ''}"
            return self.warning(f"only {readings} of the processors: too few to check", {"readings": count})
        return self.passed({"readings": count})

    def _by_agent(self, host: Mapping[str, object]) -> Verdict | None:
        """Warn or pass by the agent's readings before and after the repeat, where it has them and nothing else ran with it."""
        names = ("processors", "seconds", "busy_s", "ours_s", "steal_s", "resolution_s")
        known = [number for name in names if (number := finite_number(host.get(name))) is not None]
        if len(known) < len(names) or min(known[:2]) <= 0:
            return None
        processors, seconds, busy, ours, stolen, resolution = known
        foreign, stolen = (max(0.0, each - resolution) / seconds for each in (busy - ours, stolen))
        numbers = {
            "readings": 2,
            "processors": processors,
            "foreign": foreign,
            "stolen": stolen,
            "share": (foreign + stolen) / processors,
            "resolution": resolution / seconds / processors,
            "slowed": (foreign + stolen) / processors,
            "run_delay": None,
            "waited": None,
            "swapped_MiB": None,
            "pressure": {"memory": None},
        }
        is_contended = (foreign + stolen) / processors > MOST_FOREIGN
        return self.warning(_message(numbers), numbers) if is_contended else self.passed(numbers)


def _per_second(readings: Readings, name: str, window: Span) -> float | None:
    """Return by how much a counter of the host grew in a second of the window. None where it was not read in all of it."""
    times, values = readings.host.get(name, ((), ()))
    grown = growth(times, values, window)
    return None if grown is None else max(0.0, grown) / (window[1] - window[0])


def _message(numbers: Mapping[str, Any]) -> str:
    parts = [
        f"others used {numbers['foreign']:.2f} of the {numbers['processors']:g} processors"
        + (f", {numbers['stolen']:.2f} were stolen" if numbers["stolen"] >= 0.005 else "")
        + f" ({numbers['share']:.1%})"
    ]
    if numbers["waited"] is not None:
        parts.append(
            f"the program waited for a processor {numbers['waited']:.0%} of the time and used {numbers['own']:.2f}"
        )
    if numbers["pressure"]["memory"]:
        parts.append(f"memory was short in {numbers['pressure']['memory']:.1%} of the time")
    if numbers["swapped_MiB"]:
        parts.append(f"{numbers['swapped_MiB']:.0f} MiB were swapped")
    return "; ".join(parts)
