"""No circle of modules, no function that only its author can follow, in either source tree."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.structure import CONTROL_PLANE, INSTRUMENTS, circles, complexity, import_graph, modules

MOST_COMPLEX = 20
TREES = [CONTROL_PLANE, INSTRUMENTS]
NAMES = [tree.name for tree in TREES]
# Why each of these is one function all the same.
EXCUSED = {
    "benchmate.loop_observer.iterate": "the loop between two steps of a benchmark, where a call costs time",
}


@pytest.mark.parametrize("tree", TREES, ids=NAMES)
def test_no_modules_import_each_other_in_a_circle(tree: Path) -> None:
    """Imports in functions and under TYPE_CHECKING count."""
    assert circles(import_graph(modules(tree))) == []


def test_a_circle_is_seen() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}
    assert circles(graph) == [("a", "b", "c")]


@pytest.mark.parametrize("tree", TREES, ids=NAMES)
def test_no_function_is_more_complex_than_can_be_followed(tree: Path) -> None:
    measured = {
        f"{name}.{function.name}": complexity(function)
        for name, module in modules(tree).items()
        for function in module.functions
    }
    over = {name: value for name, value in measured.items() if value > MOST_COMPLEX}
    assert over.keys() - EXCUSED.keys() == set()
    assert {name for name in EXCUSED if name in measured and name not in over} == set(), "these need no excuse any more"


def test_nothing_waits_by_what_loses_a_cancellation_on_an_old_python() -> None:
    """asyncio.wait_for of Python 3.11 drops one that comes as what it waits for ends: Ctrl-C was answered a minute later."""
    calls = {
        f"{module.name}:{node.lineno}"
        for module in modules(CONTROL_PLANE).values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and node.attr == "wait_for" and getattr(node.value, "id", "") == "asyncio"
    }
    assert calls == set()
