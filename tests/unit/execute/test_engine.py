"""The engine on fake nodes: order, dependencies, interruption, what is recorded, and what happens when it cannot be."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from milabench.errors import Unreachable
from milabench.execute.agent_client import INTERRUPT_GRACE_S
from milabench.execute.api import (
    Emit,
    Ended,
    Frame,
    Notice,
    Outcome,
    Progress,
    Started,
    StepRequest,
    Waiting,
)
from milabench.execute.engine import Engine, ExecutionResult, ExecutionSettings
from milabench.execute.interrupts import InterruptRequested
from milabench.execute.retry_policy import RetryPolicy
from milabench.plan.model import Plan, Step
from tests.fake_node import FakeLocks, FakeNode


class Records:
    """A recorder in memory, which may fail."""

    def __init__(self, fails: Callable[[str, str], OSError | None] = lambda verb, name: None) -> None:
        self.entries: list[dict[str, Any]] = []
        self.files: dict[str, bytes] = {}
        self.finished: list[str] = []
        self._fails = fails

    def _may_fail(self, verb: str, name: str) -> None:
        error = self._fails(verb, name)
        if error is not None:
            raise error

    def journal(self, entry: Mapping[str, Any]) -> None:
        self._may_fail("journal", str(entry.get("step")))
        self.entries.append(dict(entry))

    def append(self, stem: str, payload: bytes) -> None:
        self._may_fail("append", stem)
        self.files[stem] = self.files.get(stem, b"") + payload

    def append_lines(self, stem: str, payload: bytes) -> None:
        self.append(stem, payload)

    def finish(self, stem: str) -> None:
        self._may_fail("finish", stem)
        self.finished.append(stem)


def step(name: str, *argv: str, group: str = "", after: tuple[str, ...] = (), node: str = "local") -> Step:
    return Step(id=name, bench=name, phase="run", argv=argv or ("true",), group=group, after=after, node=node)


def carry_out(
    *steps: Step,
    node: FakeNode | None = None,
    records: Records | None = None,
    settings: ExecutionSettings | None = None,
    on: Callable[[Progress, Engine], object] = lambda thing, engine: None,
) -> tuple[ExecutionResult, list[Progress]]:
    """Carries the steps out; `on` sees everything that is told, as it is told."""
    seen: list[Progress] = []

    async def run() -> ExecutionResult:
        def progress(thing: Progress) -> None:
            seen.append(thing)
            on(thing, engine)

        plan = Plan(phase="run", steps=steps)
        local = node or FakeNode()
        engine = Engine(plan, {local.name: local}, records or Records(), progress, settings or ExecutionSettings())
        return await asyncio.wait_for(engine.run(), 30)

    return asyncio.run(run()), seen


def outcomes(done: ExecutionResult) -> dict[str, str]:
    return {name: outcome.name for name, outcome in done.outcomes.items()}


def test_every_step_has_an_outcome() -> None:
    done, _ = carry_out(step("a"), step("b", "false"), step("c", "nope"))
    assert outcomes(done) == {"a": "passed", "b": "failed", "c": "failed"}
    assert not done.all_passed


def test_groups_run_one_after_the_other() -> None:
    node = FakeNode()
    carry_out(step("a", group="1"), step("b", group="2"), step("c", group="1"), node=node)
    assert sorted(node.started[:2]) == ["a", "c"]
    assert node.started[2] == "b"


def test_the_steps_of_a_group_run_together() -> None:
    node = FakeNode()

    def lose_both_when_both_run(thing: Progress, engine: Engine) -> None:
        if node.started == ["a", "b"]:
            asyncio.get_running_loop().call_soon(node.lose)

    done, _ = carry_out(
        step("a", "sleep", group="g"), step("b", "sleep", group="g"), node=node, on=lose_both_when_both_run
    )
    assert outcomes(done) == {"a": "failed", "b": "failed"}
    assert [order.group_size for order in node.orders] == [2, 2]


def test_a_step_after_one_that_did_not_pass_is_skipped_with_the_reason() -> None:
    done, _ = carry_out(step("a", "false"), step("b", after=("a",)), step("c", after=("b",)), step("d", after=("x",)))
    assert done.outcomes["b"] == Outcome("skipped", "a failed (exit: exited with code 1, with an empty stderr)")
    assert done.outcomes["c"].name == "skipped"
    assert done.outcomes["d"] == Outcome("skipped", "x was not run")


def test_a_step_after_one_that_passed_runs() -> None:
    done, _ = carry_out(step("a"), step("b", after=("a",)))
    assert outcomes(done) == {"a": "passed", "b": "passed"}
    assert done.all_passed


def test_a_step_on_an_unknown_node_fails() -> None:
    done, _ = carry_out(step("a", node="elsewhere"))
    assert outcomes(done) == {"a": "failed"}


def test_the_journal_tells_each_change_of_state() -> None:
    records = Records()
    carry_out(step("a"), step("b", "false"), records=records)
    assert [(entry.get("step"), entry.get("state"), entry.get("outcome")) for entry in records.entries] == [
        ("a", "started", None),
        ("a", "ended", "passed"),
        ("b", "started", None),
        ("b", "ended", "failed"),
        (None, None, None),
    ]
    assert records.entries[0]["pid"] == 1001
    assert records.entries[-1]["run"] == "ended"
    assert records.entries[-1]["verdict"] == "failed"
    assert records.entries[-1]["overhead"].keys() == {"control_cpu_s", "agent_cpu_s", "wall_s", "share"}


def test_records_go_to_the_file_of_their_step_behind_its_preamble() -> None:
    records = Records()
    settings = ExecutionSettings(preamble=lambda step: f"config of {step.id}\n".encode())
    carry_out(step("a", "echo", "hello"), records=records, settings=settings)
    first, *_, last = records.files["a"].splitlines()
    assert first == b"config of a"
    assert b'"event": "end"' in last
    assert b"hello" in records.files["a"]
    assert records.finished == ["a"]


def test_everything_is_told_as_it_happens() -> None:
    _, seen = carry_out(step("a", "echo", "hello"))
    assert [type(thing).__name__ for thing in seen] == ["Frame", "Started", "Frame", "Frame", "Ended"]


def test_an_interrupt_ends_what_runs_and_cancels_the_rest() -> None:
    node = FakeNode()

    def interrupt(thing: Progress, engine: Engine) -> None:
        if isinstance(thing, Started) and thing.step == "b":
            engine.interrupt()

    done, seen = carry_out(
        step("a", "sleep", group="g"), step("b", "sleep", group="g"), step("c"), node=node, on=interrupt
    )
    assert done.interrupted
    assert outcomes(done) == dict.fromkeys("abc", "cancelled")
    assert {grace for _, grace in node.ended} == {INTERRUPT_GRACE_S}
    assert [thing for thing in seen if isinstance(thing, Notice)]


async def lacking(checked: Step, attempt: int) -> str:
    return f"{checked.id} lacks what attempt {attempt} should hold" if checked.id == "a" else ""


def test_a_step_that_passed_and_lacks_data_has_failed() -> None:
    done, _ = carry_out(step("a"), step("b"), step("c", "false"), settings=ExecutionSettings(missing_data=lacking))
    assert done.outcomes["a"] == Outcome("failed", "a lacks what attempt 1 should hold", "no-data")
    assert (done.outcomes["b"].name, done.outcomes["c"].why) == ("passed", "exit")


def test_others_go_on_while_the_data_of_a_step_is_looked_at() -> None:
    async def run() -> None:
        b_has_ended = asyncio.Event()

        async def check(checked: Step, _: int) -> str:
            await (b_has_ended.wait() if checked.id == "a" else asyncio.sleep(0))
            return ""

        def progress(thing: Progress) -> None:
            if isinstance(thing, Ended) and thing.step == "b":
                b_has_ended.set()

        plan = Plan(phase="run", steps=(step("a", group="g"), step("b", group="g")))
        engine = Engine(plan, {"local": FakeNode()}, Records(), progress, ExecutionSettings(missing_data=check))
        assert (await asyncio.wait_for(engine.run(), 30)).all_passed

    asyncio.run(run())


def test_an_interrupt_ends_the_look_at_a_steps_data_and_cancels_the_step() -> None:
    async def run() -> ExecutionResult:
        async def check(_: Step, __: int) -> str:
            engine.interrupt()
            await asyncio.sleep(3600)
            return ""

        plan = Plan(phase="run", steps=(step("a"), step("b")))
        settings = ExecutionSettings(missing_data=check)
        engine = Engine(plan, {"local": FakeNode()}, Records(), lambda _: None, settings)
        return await asyncio.wait_for(engine.run(), 30)

    done = asyncio.run(run())
    assert outcomes(done) == {"a": "cancelled", "b": "cancelled"}
    assert done.is_cut


def test_an_interrupt_while_an_extension_is_decided_leaves_the_run_to_be_gone_on_with() -> None:
    def extend() -> Plan | None:
        raise InterruptRequested

    done, _ = carry_out(step("a"), settings=ExecutionSettings(extend_plan=extend))
    assert outcomes(done) == {"a": "passed"}
    assert (done.interrupted, done.is_cut) == (True, True)


def test_a_second_interrupt_kills() -> None:
    node = FakeNode()

    def interrupt(thing: Progress, engine: Engine) -> None:
        if isinstance(thing, Started):
            engine.interrupt()
            engine.interrupt()

    done, _ = carry_out(step("a", "sleep"), node=node, on=interrupt)
    assert outcomes(done) == {"a": "cancelled"}
    assert ("a", 0.0) in node.ended


def test_an_interrupt_between_the_order_and_the_start_is_not_forgotten() -> None:
    node = FakeNode()

    def interrupt(thing: Progress, engine: Engine) -> None:
        if isinstance(thing, Frame) and not node.started:  # the start record comes before the process
            engine.interrupt()

    done, _ = carry_out(step("a", "sleep"), node=node, on=interrupt)
    assert outcomes(done) == {"a": "cancelled"}


def test_a_lost_node_is_an_outcome() -> None:
    node = FakeNode()

    def lose(thing: Progress, engine: Engine) -> None:
        if node.started == ["a"]:
            asyncio.get_running_loop().call_soon(node.lose)

    done, _ = carry_out(step("a", "sleep"), step("b"), node=node, on=lose)
    assert done.outcomes["a"].why == "lost-node"
    assert outcomes(done)["b"] == "passed"


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/runs/x/a.data"), "no-space"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "no-space"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "/runs/x/a.data"), "environment"),
    ],
)
@pytest.mark.parametrize("verb", ["append", "finish", "journal"])
def test_a_step_that_cannot_be_recorded_fails_and_it_is_said_once(verb: str, error: OSError, why: str) -> None:
    records = Records(lambda called, name: error if called == verb and name in "ab" else None)
    done, seen = carry_out(step("a"), step("b", "echo"), step("c"), records=records)
    assert outcomes(done) == {"a": "failed", "b": "failed", "c": "passed"}
    assert done.outcomes["a"].why == why
    assert len([said for said in notices(seen) if said.startswith("cannot record: ")]) == 1


def test_the_records_of_an_attempt_are_bounded() -> None:
    # Of its command both the first record and the output have half a MiB each.
    long = step("a", "echo", "x" * (1 << 19))
    records = Records()
    done, _ = carry_out(replace(long, config={"max_records_mib": 1}), replace(long, id="b"), records=records)
    assert outcomes(done) == {"a": "failed", "b": "passed"}
    assert done.outcomes["a"].detail == "cannot record: more than 1 MiB of records and output (max_records_mib)"
    assert len(records.files["a"]) < 1 << 20 < len(records.files["b"])


def notices(seen: list[Progress]) -> list[str]:
    return [thing.text for thing in seen if isinstance(thing, Notice)]


def test_the_last_lines_of_a_step_are_shown_where_they_cannot_be_recorded() -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    records = Records(lambda verb, name: full if (verb, name) == ("append", "a") else None)
    words = "\n".join(f"line {number}" for number in range(9))
    _, seen = carry_out(step("a", "echo", words), step("b", "echo", "recorded"), records=records)
    assert notices(seen)[1:] == [f"a: not recorded: line {number}" for number in range(4, 9)]


def test_a_step_whose_records_are_lost_is_ended_at_once() -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    node = FakeNode()
    done, _ = carry_out(
        step("a", "sleep"), node=node, records=Records(lambda verb, _: full if verb == "append" else None)
    )
    assert outcomes(done) == {"a": "failed"}
    assert {name for name, _ in node.ended} == {"a"}


def test_a_step_whose_first_records_cannot_be_written_is_not_started() -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    node = FakeNode()
    settings = ExecutionSettings(preamble=lambda step: b"config\n")
    done, _ = carry_out(
        step("a"), node=node, settings=settings, records=Records(lambda verb, _: full if verb == "append" else None)
    )
    assert outcomes(done) == {"a": "failed"}
    assert node.started == []


def locked(wait: bool, on: Callable[[Progress, Engine], object] = lambda thing, engine: None) -> Any:
    locks = FakeLocks(holders={"cuda-1": "somebody's run"})

    def free(thing: Progress, engine: Engine) -> None:
        on(thing, engine)
        if isinstance(thing, Waiting) and on.__name__ == "<lambda>":
            locks.holders.clear()
            locks.changed.set()

    settings = ExecutionSettings(locks={"local": ["cuda-1"]}, retry=RetryPolicy(wait=wait))
    return carry_out(step("a"), node=FakeNode(locks=locks), settings=settings, on=free)


def test_a_device_that_is_held_stops_the_run_before_it_starts() -> None:
    with pytest.raises(Unreachable, match=r"device cuda-1 is held by run somebody's run .*--wait"):
        locked(wait=False)


def test_a_device_that_is_held_is_waited_for_when_told_to() -> None:
    done, seen = locked(wait=True)
    assert done.all_passed
    assert isinstance(seen[0], Waiting)


def test_an_interrupt_after_the_last_step_changes_nothing_of_what_is_recorded() -> None:
    records = Records()

    def interrupt(thing: Progress, engine: Engine) -> None:
        if isinstance(thing, Ended):
            engine.interrupt()

    done, _ = carry_out(step("a", "echo"), records=records, on=interrupt)
    assert (done.interrupted, done.is_cut, done.all_passed) == (True, False, True)
    assert records.entries[-1]["verdict"] == "passed"


@pytest.mark.parametrize(("program", "alone"), [("true", "passed"), ("false", "failed")])
def test_in_a_job_a_step_whose_end_an_interrupt_follows_at_once_is_cancelled(program: str, alone: str) -> None:
    in_job = ExecutionSettings(settle_s=0.3)

    def interrupting(when: str) -> Callable[[Progress, Engine], object]:
        def interrupt(thing: Progress, engine: Engine) -> None:
            if when == "after its end" and isinstance(thing, Started):
                asyncio.get_running_loop().call_later(
                    0.1, engine.interrupt
                )  # the step has ended, and is not believed yet
            if when == "later" and isinstance(thing, Ended) and thing.step == "a":
                engine.interrupt()

        return interrupt

    for when, outcome in {"after its end": "cancelled", "later": alone, "never": alone}.items():
        records = Records()
        done, _ = carry_out(step("a", program), step("b"), records=records, settings=in_job, on=interrupting(when))
        ended = [entry["outcome"] for entry in records.entries if entry.get("state") == "ended"]
        assert ended[0] == outcomes(done)["a"] == outcome, when
        assert done.is_cut == (when != "never")


def test_an_interrupt_while_waiting_for_a_device_cancels_everything() -> None:
    def interrupt(thing: Progress, engine: Engine) -> None:
        if isinstance(thing, Waiting):
            engine.interrupt()

    done, _ = locked(wait=True, on=interrupt)
    assert done.interrupted
    assert outcomes(done) == {"a": "cancelled"}


def test_ended_is_told_for_steps_that_were_never_started() -> None:
    _, seen = carry_out(step("a", "false"), step("b", after=("a",)))
    assert [thing.step for thing in seen if isinstance(thing, Ended)] == ["a", "b"]


class Moody(FakeNode):
    """A node on which `false` fails so often only."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self._failures = failures

    async def run(self, order: StepRequest, emit: Emit) -> Outcome:
        if order.step.argv == ("false",):
            self._failures -= 1
            if self._failures < 0:
                order = replace(order, step=replace(order.step, argv=("true",)))
        return await super().run(order, emit)


def tries(records: Records) -> list[tuple[object, ...]]:
    """Step, attempt and outcome of every end in the journal."""
    return [
        (each["step"], each["attempt"], each["outcome"]) for each in records.entries if each.get("state") == "ended"
    ]


def test_what_fails_is_tried_again_with_its_group_and_every_attempt_has_a_file() -> None:
    records = Records()
    steps = (step("a", "false", group="g"), step("b", group="g"), step("c"))
    done, _ = carry_out(
        *steps, node=Moody(1), records=records, settings=ExecutionSettings(retry=RetryPolicy(max_retries=3))
    )
    assert outcomes(done) == {"a": "passed", "b": "passed", "c": "passed"}
    assert sorted(tries(records)[:2]) == [("a", 1, "failed"), ("b", 1, "passed")]
    assert sorted(tries(records)[2:]) == [("a", 2, "passed"), ("b", 2, "passed"), ("c", 1, "passed")]
    assert sorted(records.files) == ["a", "a~2", "b", "b~2", "c"]


def test_a_step_that_passed_once_has_passed() -> None:
    steps = (step("a", "false", group="g"), step("b", "true", group="g"))
    done, _ = carry_out(*steps, node=Moody(9), settings=ExecutionSettings(retry=RetryPolicy(max_retries=1)))
    assert outcomes(done) == {"a": "failed", "b": "passed"}


def test_an_interrupt_ends_the_trying() -> None:
    def interrupt(thing: Progress, engine: Engine) -> None:
        if isinstance(thing, Ended):
            engine.interrupt()

    records = Records()
    carry_out(
        step("a", "false"), records=records, settings=ExecutionSettings(retry=RetryPolicy(max_retries=5)), on=interrupt
    )
    assert tries(records) == [("a", 1, "failed")]


def test_a_plan_goes_on_with_what_is_decided_at_its_end_under_the_same_locks() -> None:
    records = Records()
    beyond = [Plan(phase="run", steps=(step("b"), step("c", "false")))]
    node = FakeNode()
    settings = ExecutionSettings(extend_plan=lambda: beyond.pop() if beyond else None, locks={"local": ["cuda-1"]})
    done, _ = carry_out(step("a"), node=node, records=records, settings=settings)
    assert outcomes(done) == {"a": "passed", "b": "passed", "c": "failed"}
    assert [entry for entry in records.entries if "run" in entry] == records.entries[-1:]
    assert records.entries[-1]["verdict"] == "failed"


def test_what_was_interrupted_or_given_up_decides_nothing() -> None:
    def interrupt(thing: Progress, engine: Engine) -> None:
        if isinstance(thing, Ended):
            engine.interrupt()

    def more() -> Plan | None:
        raise AssertionError("asked")

    carry_out(step("a"), settings=ExecutionSettings(extend_plan=more), on=interrupt)
    carry_out(
        step("a", "false"), step("b"), settings=ExecutionSettings(extend_plan=more, retry=RetryPolicy(max_failures=1))
    )


def test_attempts_are_counted_from_those_that_were_made_before() -> None:
    records = Records()
    settings = ExecutionSettings(retry=RetryPolicy(attempts={"a": 2}, passed=frozenset(("b",))))
    done, _ = carry_out(step("a", after=("b",)), records=records, settings=settings)
    assert tries(records) == [("a", 3, "passed")]
    assert outcomes(done) == {"a": "passed"}


def test_after_so_many_failures_the_rest_is_cancelled_with_the_reason() -> None:
    steps = [step(name, "false") for name in "abcd"]
    done, _ = carry_out(*steps, settings=ExecutionSettings(retry=RetryPolicy(max_failures=2)))
    assert outcomes(done) == {"a": "failed", "b": "failed", "c": "cancelled", "d": "cancelled"}
    assert done.outcomes["d"] == Outcome("cancelled", "not started after 2 failures")
    assert not done.interrupted


def on_nodes(*steps: Step, limit_s: float = 60.0) -> tuple[ExecutionResult, dict[str, FakeNode], Records]:
    """Steps of one group that wait for each other, carried out on the two nodes n0 and n1."""
    nodes, records = {name: FakeNode(name) for name in ("n0", "n1")}, Records()
    measure = {"measure": {"barrier": True, "barrier_timeout_s": limit_s}}

    async def run() -> ExecutionResult:
        plan = Plan(phase="run", steps=tuple(replace(each, group="g", config=measure) for each in steps))
        engine = Engine(plan, nodes, records, lambda thing: None, ExecutionSettings())
        return await asyncio.wait_for(engine.run(), 30)

    return asyncio.run(run()), nodes, records


def test_steps_on_two_nodes_measure_from_the_time_that_both_are_ready_to_the_time_that_both_have_measured() -> None:
    done, nodes, records = on_nodes(step("a", "sleep", node="n0"), step("b", "sleep", node="n1"))
    assert done.all_passed
    assert [node.released for node in nodes.values()] == [["g"], ["g"]]
    assert all(order.is_spread for node in nodes.values() for order in node.orders)
    (released,) = [entry for entry in records.entries if entry.get("state") == "released"]
    assert released["group"] == "g"
    assert released["within_s"] >= 0
    assert set(released["clocks"]) == {"n0", "n1"}


def test_who_ends_early_on_another_node_is_not_waited_for() -> None:
    done, nodes, _ = on_nodes(step("a", "sleep", node="n0"), step("b", "false", node="n1"))
    assert outcomes(done) == {"a": "passed", "b": "failed"}
    assert nodes["n0"].released == ["g"]


def test_who_is_late_on_another_node_fails_the_group_by_its_name() -> None:
    done, nodes, _ = on_nodes(step("a", "sleep", node="n0"), step("b", "sleep", "late", node="n1"), limit_s=0.01)
    details = {name: outcome.detail for name, outcome in done.outcomes.items()}
    assert details == {
        "a": "waited at the start barrier for b, which was not ready within 0.01 s",
        "b": "not ready within 0.01 s of the first of its group",
    }
    assert [node.released for node in nodes.values()] == [[], []]


def test_steps_of_one_node_are_released_by_their_agent() -> None:
    node = FakeNode()
    carry_out(step("a", group="g"), step("b", group="g"), node=node)
    assert node.released == []
    assert not any(order.is_spread for order in node.orders)
