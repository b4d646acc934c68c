"""What changed between two plans."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from milabench.plan.diff import diff_text, is_plan, plan_diff
from milabench.plan.model import Plan, SkippedBench, Step

A = Step(id="a", bench="a", phase="run", argv=("run", "--batch-size", "8", "--lr", "1"), env={"X": "1", "Y": "2"})
B = replace(A, id="b", bench="b")


def plan(*steps: Step, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(Plan(phase="run", steps=steps, **more).to_json()))
    return found


def text(old: dict[str, Any], new: dict[str, Any]) -> str:
    return diff_text(plan_diff(old, new))


def test_a_plan_does_not_differ_from_itself() -> None:
    assert text(plan(A, B), plan(A, B)) == "no difference\n"
    assert plan_diff(plan(A), plan(A)).to_json()["equal"] is True


def test_each_change_is_told_once_with_what_it_was_and_is() -> None:
    changed = replace(
        A, argv=("run", "--batch-size", "16", "--lr", "1", "--more"), env={"X": "1", "Z": "3"}, timeout_s=5
    )
    assert text(plan(A), plan(changed)).splitlines() == [
        "steps: 1 changed",
        "  ~ a",
        "      argv: --batch-size 8 -> 16",
        "      argv: (nothing) -> --more",
        "      env.Y: 2 -> (not set)",
        "      env.Z: (not set) -> 3",
        "      timeout_s: (not set) -> 5",
    ]


def test_what_differs_least_comes_first_and_like_changes_are_told_together() -> None:
    c, d = replace(A, id="c"), replace(A, id="d")
    far = replace(A, cwd="/x", timeout_s=3, venv="/v")
    new = [far, *(replace(step, cwd="/y") for step in (B, c)), d]
    assert text(plan(A, B, c, d), plan(*new)).splitlines()[:4] == [
        "steps: 3 changed",
        "  ~ b, c",
        "      cwd: '' -> /y",
        "  ~ a",
    ]


def test_added_removed_and_skipped_are_named() -> None:
    old = plan(A, skipped=(SkippedBench(bench="s", why="not fetched"),))
    new = plan(B, skipped=(SkippedBench(bench="s", why="needs 4 machines"), SkippedBench(bench="t", why="x")))
    assert text(old, new).splitlines() == [
        "steps: 1 added, 1 removed",
        "  + b",
        "  - a",
        "skipped: 1 added, 1 changed",
        "  ~ s",
        "      why: 'not fetched' -> 'needs 4 machines'",
        "  + t",
    ]


def test_another_order_is_a_difference() -> None:
    assert text(plan(A, B), plan(B, A)) == "steps: in another order\n"


def test_of_the_system_what_changes_by_itself_is_left_out() -> None:
    def node(memory: int, **details: object) -> dict[str, object]:
        return {"arch": "cpu", "nodes": [{"name": "here", "memory_MiB": memory, "details": details}]}

    assert text(plan(A, system=node(8, time=1.0)), plan(A, system=node(8, time=2.0))) == "no difference\n"
    assert text(plan(A, system=node(8)), plan(A, system=node(16))) == "system.here.memory_MiB: 8 -> 16\n"


def test_the_system_is_compared_too() -> None:
    assert text(plan(A, system={"arch": "cpu"}), plan(A, system={"arch": "cuda"})) == "system.arch: cpu -> cuda\n"


def test_install_plans_are_compared_by_their_environments() -> None:
    old = {"phase": "install", "venvs": [{"group": "g", "digest": "1", "variant": "cpu"}], "sources": [], "skipped": []}
    new = {**old, "venvs": [{"group": "g", "digest": "2", "variant": "cuda"}], "sources": [{"folder": "f"}]}
    assert text(old, new).splitlines() == [
        "venvs: 1 changed",
        "  ~ g",
        "      variant: cpu -> cuda",
        "sources: 1 added",
        "  + f",
    ]


@pytest.mark.parametrize("value", [3, [], {}, {"steps": 3}, {"steps": [{"bench": "a"}]}, {"steps": [3]}])
def test_other_json_is_no_plan(value: object) -> None:
    assert not is_plan(value)
