"""Who of a group on several nodes is waited for."""

from __future__ import annotations

from milabench.execute.start_barrier import GroupBarrier, group_barrier
from milabench.plan.model import Step


def step(name: str, node: str, limit_s: float | None = 10.0, *, barrier: bool = True) -> Step:
    measure = {"barrier": True, "barrier_timeout_s": limit_s} if barrier else {}
    config = {"measure": measure}
    return Step(id=name, bench="b", phase="run", argv=("true",), group="g", node=node, config=config)


def test_steps_of_one_node_are_left_to_its_agent() -> None:
    assert group_barrier([step("a", "n0"), step("b", "n0")]) is None
    assert group_barrier([]) is None


def test_steps_without_a_barrier_wait_for_nobody() -> None:
    assert group_barrier([step("a", "n0", barrier=False), step("b", "n1", barrier=False)]) is None


def test_the_longest_limit_of_a_group_holds() -> None:
    found = group_barrier([step("a", "n0", 3.0), step("b", "n1", 7.0)])
    assert found == GroupBarrier(group="g", nodes={"a": "n0", "b": "n1"}, limit_s=7.0)


def test_a_group_starts_when_the_last_is_ready_and_stops_when_the_last_has_measured() -> None:
    group = GroupBarrier(group="g", nodes={"a": "n0", "b": "n1"})
    group.ready.add("a")
    assert (group.may_start, group.late) == (False, ["b"])
    group.ready.add("b")
    assert (group.may_start, group.may_stop) == (True, False)
    group.is_released = True
    group.measured.add("b")
    assert (group.may_start, group.may_stop) == (False, False)
    group.measured.add("a")
    assert group.may_stop
    group.is_stopped = True
    assert not group.may_stop


def test_who_has_ended_is_not_waited_for() -> None:
    group = GroupBarrier(group="g", nodes={"a": "n0", "b": "n1"}, ready={"a"}, ended={"b"})
    assert group.may_start
    group.is_released = True
    group.measured.add("a")
    assert group.may_stop
    group.ended.add("a")
    assert not group.may_stop
