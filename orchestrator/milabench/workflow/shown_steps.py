"""Shows steps with their numbers on a display, in the same way for the run itself, its followers and its replay."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from milabench.display.base import Display
from milabench.events.attempts import LONE_NODES
from milabench.events.values import SMALLEST_NUMBER
from milabench.plan.model import Plan, Step
from milabench.shown import grouped

if TYPE_CHECKING:
    from milabench.analysis.measure import Measurement
    from milabench.analysis.rate_so_far import RateSoFar


class ShownSteps:
    """Passes the progress of steps to a display: the rate so far while a step runs, and at last the numbers of the records.

    `measured` returns the numbers of an attempt at a step, None where unknown. It is called for the steps that passed
    when the whole group has ended: before that it would disturb those that still measure.
    """

    def __init__(self, display: Display, measured: Callable[[str, int], Measurement | None]) -> None:
        self._display = display
        self._measured = measured
        self._groups: dict[str, tuple[Step, ...]] = {}
        self._rates: dict[str, RateSoFar] = {}
        self._ended: dict[str, tuple[str, int]] = {}
        self._unread: set[str] = set()

    def on_plan(self, plan: Plan) -> None:
        """Show a plan, also after an extension."""
        self._groups |= {step.id: group for group in plan.groups() for step in group}
        self._display.on_plan(plan)

    def on_start(self, step: str) -> None:
        """Show that an attempt at a step was started."""
        self._rates.pop(step, None)
        self._ended.pop(step, None)
        self._display.on_start(step)

    def on_sums(self, step: str, *observed: Mapping[str, Any]) -> None:
        """Show the sum of some observations and those before them. See `RateSoFar`."""
        if step not in self._rates:
            # Here: the readers of records are not needed to start the first step, and by now they have been imported.
            from milabench.analysis.rate_so_far import RateSoFar

            self._rates[step] = RateSoFar()
        for sums in observed:
            self._rates[step].add(sums)
        if shown := self._rates[step].shown():
            self._display.on_progress(step, shown)

    def on_end(self, step: str, outcome: str, reason: str, attempt: int = 1, node: str = "") -> None:
        """Show that an attempt at a step has ended, started or not, and the numbers of its group when that is over."""
        if reason and node not in LONE_NODES:
            reason = f"on {node}: {reason}"
        self._rates.pop(step, None)
        self._ended[step] = outcome, attempt
        self._unread.add(step)
        group = self._groups.get(step, ())
        numbers = self._numbers(group) if all(member.id in self._ended for member in group) else {}
        self._display.on_end(step, outcome, reason, numbers.pop(step, ""))
        for launch, number in numbers.items():
            self._display.on_message(f"{launch}: {number}")

    def _numbers(self, group: Sequence[Step]) -> dict[str, str]:
        """Return the number of each repeat of a group that was not shown yet: of a job as a whole, of any other step its own."""
        launches = grouped(("" if member.one_job else member.id, member) for member in group)
        texts = {}
        for members in launches.values():
            unread = self._unread.intersection(member.id for member in members)
            self._unread -= unread
            if unread and (number := self._number(members)):
                others = len(members) - 1
                texts[members[0].id + (f" and {others} more" if others else "")] = number
        return texts

    def _number(self, members: Sequence[Step]) -> str:
        found = []
        for member in members:
            outcome, attempt = self._ended[member.id]
            measured = self._measured(member.id, attempt) if outcome == "passed" else None
            if measured is not None:
                found.append(replace(measured, series=()))  # of millions of observations only the totals are needed
        if len(found) < len(members):
            return ""
        from milabench.analysis.bench_summary import job_throughput
        from milabench.report.labels import format_number

        throughput = job_throughput(found)
        if throughput is None or throughput.value < SMALLEST_NUMBER:
            return ""
        return f"{format_number(throughput.value)} {throughput.units}".rstrip()
