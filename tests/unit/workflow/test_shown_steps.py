"""When the numbers of steps are read and shown: once, when nothing of their group runs any more."""

from __future__ import annotations

from dataclasses import dataclass, field

from milabench.analysis.measure import Measurement
from milabench.analysis.throughput import Throughput, Totals
from milabench.display.base import Display
from milabench.plan.model import Plan, Step
from milabench.workflow.shown_steps import ShownSteps


@dataclass
class Shown(Display):
    """What was shown at the end of steps."""

    lines: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def on_end(self, step: str, outcome: str, reason: str, number: str = "") -> None:
        self.lines.append(f"{step} {outcome} {number}".rstrip())
        self.reasons.append(reason)

    def on_message(self, text: str) -> None:
        self.lines.append(text)

    def since(self) -> list[str]:
        lines, self.lines = self.lines, []
        return lines


@dataclass
class Records:
    """A launch of items a second by attempt, as `{"a~2": 20.0}`, and what was read."""

    rates: dict[str, float | None]
    read: list[str] = field(default_factory=list)

    def measured(self, step: str, attempt: int) -> Measurement | None:
        name = f"{step}~{attempt}"
        self.read.append(name)
        rate = self.rates.get(name)
        if rate is None:
            return None
        totals = Totals(rank=0, items=rate, seconds=1.0, observations=1, steps=1, step_seconds=1.0)
        return Measurement(step=step, throughput=Throughput(value=rate, units="items/s", totals=(totals,)))


def shown(records: Records, *steps: Step) -> tuple[ShownSteps, Shown]:
    display = Shown()
    view = ShownSteps(display, records.measured)
    view.on_plan(Plan(phase="run", steps=steps))
    return view, display


def member(name: str, *, one_job: bool = False, group: str = "g") -> Step:
    return Step(id=name, bench="b", phase="run", argv=(), group=group, one_job=one_job)


def test_a_step_of_its_own_ends_with_its_number() -> None:
    view, display = shown(Records({"a~1": 20.0}), member("a"))
    view.on_start("a")
    view.on_end("a", "passed", "")
    assert display.since() == ["a passed 20.00 items/s"]


def test_instances_are_read_when_the_last_of_them_has_ended() -> None:
    records = Records({"a~1": 20.0, "b~1": 30.0})
    view, display = shown(records, member("a"), member("b"), member("c"), member("d", group=""))
    for step in "abc":
        view.on_start(step)
    view.on_end("a", "passed", "")
    view.on_end("c", "failed", "exit")
    assert (display.since(), records.read) == (["a passed", "c failed"], [])
    view.on_end("b", "passed", "")
    assert display.since() == ["b passed 30.00 items/s", "a: 20.00 items/s"]
    assert records.read == ["a~1", "b~1"]


def test_the_end_of_a_step_that_failed_names_its_machine() -> None:
    view, display = shown(Records({}), member("a.node1"), member("b", group=""))
    view.on_end("a.node1", "failed", "exit: no disk", node="node2")
    view.on_end("b", "failed", "exit", node="local")
    view.on_end("b", "passed", "", node="node2")
    assert display.reasons == ["on node2: exit: no disk", "exit", ""]


def test_a_job_has_one_number_of_all_its_steps() -> None:
    records = Records({"a~1": 20.0, "b~1": 30.0})
    view, display = shown(records, member("a", one_job=True), member("b", one_job=True))
    view.on_end("b", "passed", "")
    view.on_end("a", "passed", "")
    assert display.since() == ["b passed", "a passed", "a and 1 more: 50.00 items/s"]


def test_a_job_of_which_a_step_failed_has_none() -> None:
    view, display = shown(Records({"a~1": 20.0}), member("a", one_job=True), member("b", one_job=True))
    view.on_end("b", "failed", "exit")
    view.on_end("a", "passed", "")
    assert display.since() == ["b failed", "a passed"]


def test_a_group_that_is_tried_again_is_read_again_when_it_has_ended() -> None:
    records = Records({"a~1": 20.0, "a~2": 21.0, "b~2": 30.0})
    view, display = shown(records, member("a"), member("b"))
    for attempt, outcome in ((1, "failed"), (2, "passed")):
        view.on_start("a")
        view.on_start("b")
        view.on_end("a", "passed", "", attempt)
        view.on_end("b", outcome, "", attempt)
    assert display.since() == [
        *("a passed", "b failed", "a: 20.00 items/s"),
        *("a passed", "b passed 30.00 items/s", "a: 21.00 items/s"),
    ]
    assert records.read == ["a~1", "a~2", "b~2"]


def test_of_a_step_that_is_tried_again_alone_only_its_own_number_is_shown() -> None:
    records = Records({"a~1": 20.0, "b~2": 30.0})
    view, display = shown(records, member("a"), member("b"))
    view.on_end("a", "passed", "")
    view.on_end("b", "failed", "")
    display.since()
    view.on_start("b")
    view.on_end("b", "passed", "", 2)
    assert display.since() == ["b passed 30.00 items/s"]


def test_a_step_without_a_number_just_ends() -> None:
    view, display = shown(Records({"b~1": 0.0}), member("a"), member("b", group="h"))
    view.on_end("a", "passed", "")
    view.on_end("b", "passed", "")
    view.on_end("unplanned", "missing", "did not start")
    assert display.since() == ["a passed", "b passed", "unplanned missing"]
