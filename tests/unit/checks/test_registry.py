"""The registry of checks, their reason words, and the page that is generated from both."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import milabench.checks
from milabench.checks.check import Check, StepContext
from milabench.checks.devices import UsageCheck
from milabench.checks.registry import CHECKS, NAMES, checks_for
from milabench.events.doubts import Doubt
from milabench.events.model import Verdict
from tests.structure import CONTROL_PLANE, INSTRUMENTS, modules

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "reference" / "checks.md"


def test_every_module_with_a_check_is_registered() -> None:
    folder = Path(str(milabench.checks.__file__)).parent
    defined = {
        name for file in folder.glob("*.py") for name in re.findall(r"^class (\w+)\(Check\)", file.read_text(), re.M)
    }
    assert defined == {check.__name__ for check in CHECKS}
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize("check", CHECKS, ids=NAMES)
def test_a_check_says_what_it_looks_at_and_what_its_verdict_may_be(check: type[Check]) -> None:
    assert check.doc
    assert check.severities in (("fail",), ("warn",), ("fail", "warn"))


@pytest.mark.parametrize(
    ("name", "severity", "reason"),
    [
        ("throttle", "fail", "throttled"),
        ("power", "warn", "power-limited"),
        ("foreign", "fail", "foreign-process"),
        ("sensor", "warn", "sensor-lost"),
        ("energy", "warn", "energy"),
        ("usage", "fail", "validation"),
        ("usage", "warn", "validation"),
        ("placement", "warn", "validation"),
        ("loss", "warn", "validation"),
        ("contended", "warn", "sensor-lost"),
        ("throttle", "pass", None),
    ],
)
def test_verdicts_become_reasons(name: str, severity: Any, reason: str | None) -> None:
    (check,) = checks_for(StepContext(step="s"), [name], {"usage": {}})
    assert check.doubt_for(Verdict(step="s", check=name, verdict=severity, numbers={"share": 1.0})) == reason


@pytest.mark.parametrize("check", CHECKS, ids=NAMES)
def test_a_warning_marks_the_number_or_the_page_says_why_not(check: type[Check]) -> None:
    fold = check(StepContext(step="s"))
    doubt = fold.doubt_for(Verdict(step="s", check=check.name, verdict="warn", numbers={"share": 1.0}))
    row = next(line for line in PAGE.read_text().splitlines() if line.startswith(f"| `{check.name}` |"))
    marks = row.split(" | ")[4]
    if "warn" not in check.severities:
        assert marks == "has none"
    elif check.unmarked:
        assert (doubt, marks) == (None, f"no: {check.unmarked}")
    else:
        assert (doubt, marks) == (check.doubt, "yes")


def test_a_check_may_say_why_its_warning_is_only_shown() -> None:
    class Shown(UsageCheck):
        unmarked = "it is only a hint"

    said = {severity: Verdict(step="s", check="usage", verdict=severity, numbers={}) for severity in ("warn", "fail")}  # type: ignore[arg-type]
    fold = Shown(StepContext(step="s"))
    assert [fold.doubt_for(said[severity]) for severity in ("warn", "fail")] == [None, "validation"]


def members(node: ast.AST) -> Iterator[str]:
    """The string constants that are elements of a display; not those that are compared, looked up or passed to a call."""
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        yield from (part.value for part in node.elts if isinstance(part, ast.Constant) and isinstance(part.value, str))
    if not isinstance(node, ast.Compare | ast.Subscript | ast.Call | ast.Dict):
        for child in ast.iter_child_nodes(node):
            yield from members(child)


def emitted_words() -> Iterator[str]:
    """The words that code puts into something called reasons or doubts."""
    for package in (CONTROL_PLANE, INSTRUMENTS):
        for module in modules(package).values():
            for node in ast.walk(module.tree):
                match node:
                    case ast.Assign(targets=[ast.Name(id="reasons" | "doubts")], value=value):
                        yield from members(value)
                    case ast.AugAssign(target=ast.Name(id="reasons" | "doubts"), value=value):
                        yield from members(value)
                    case ast.keyword(arg="reasons" | "doubts", value=value):
                        yield from members(value)
                    case ast.Call(
                        func=ast.Attribute(value=ast.Name(id="reasons" | "doubts")),
                        args=[ast.Constant(value=str(word))],
                    ):
                        yield word
                    case _:
                        pass


def test_every_doubt_is_raised_by_something() -> None:
    named = {
        node.attr
        for module in modules(CONTROL_PLANE).values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "Doubt"
    }
    # Instruments and agents have the words alone.
    words = {
        node.value
        for module in (*modules(INSTRUMENTS).values(), *modules(CONTROL_PLANE / "execute" / "agent").values())
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant)
    }
    assert {doubt for doubt in Doubt if doubt.name not in named and doubt not in words} == set()


def test_every_doubt_is_on_the_page_with_what_to_do() -> None:
    words = {*emitted_words(), *Doubt}
    assert {"abort-at-exit", "cut-off", "contended"} <= words
    page = PAGE.read_text()
    missing = {word for word in words | {check.doubt for check in CHECKS} if f"| `{word}` |" not in page}
    assert missing == set()
