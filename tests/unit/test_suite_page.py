"""The pages of the standard suite: what they say of licences, of names elsewhere and of the suite's health."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.commands import ROOT

PAGE: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / "suite_page.py"))


@pytest.mark.parametrize(
    "line",
    [
        "- **Licence**: MIT (TRL).",
        "- Licence: MIT (TRL)",
        "Licence: MIT (TRL).",
        "**Licence:** MIT (TRL)",
        "| Licence | MIT (TRL) |",
        "- License: MIT (TRL)",
    ],
)
def test_a_licence_is_read_from_the_readme_however_it_is_written(tmp_path: Path, line: str) -> None:
    (tmp_path / "README.md").write_text(
        f"# x\n\nWhat it does. The licence: none of this line.\n\n{line}\n- **Data**: y\n"
    )
    assert PAGE["licence"](tmp_path) == "MIT (TRL)"


def test_every_benchmark_is_in_the_table_once() -> None:
    page = (ROOT / "docs" / "suite.md").read_text()
    for name in PAGE["suite"]("device"):
        assert page.count(f"\n| `{name}` |") >= 1, name


def test_each_benchmark_has_a_sentence_of_its_own() -> None:
    page = (ROOT / "docs" / "suite.md").read_text().partition("## Programs and licences")[0]
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `")]
    names: dict[str, list[str]] = {}
    for name, what, *_ in rows:
        names.setdefault(what, []).append(name)
    assert len(rows) == len(PAGE["suite"]("device"))
    assert {what: several for what, several in names.items() if len(several) > 1} == {}


def test_each_of_the_54_names_has_a_counterpart_or_a_reason() -> None:
    assert len(set(PAGE["UPSTREAM"])) == 54
    page = PAGE["names_page"]()
    for name in (*PAGE["UPSTREAM"], *PAGE["TRAINING"], *PAGE["INFERENCE"]):
        assert f"| `{name}` |" in page
    assert PAGE["corresponding"]([("a", "x"), ("b", "x"), ("a", "y")]) == {"a": ["x", "y"], "b": ["x"]}


def test_what_fails_in_health_is_named_with_the_reason() -> None:
    benches = {
        "good": {"outcome": "passed", "why": ""},
        "bad": {"outcome": "failed", "why": "prepare failed: a|b"},
        "big": {"outcome": "skipped", "why": "requires gpu"},
    }
    found = {"date": "2026-11-22", "versions": {"torch": "2.13.0+cpu", "python": "3.11"}, "benchmarks": benches}
    text = "".join(PAGE["health_lines"](found))
    assert "on 2026-11-22 (python 3.11, torch 2.13.0+cpu): 1 passed, 1 failed, 1 skipped." in text
    assert "| `bad` | prepare failed: a\\|b |" in text
    assert "`good`" not in text


def test_a_name_that_is_nowhere_else_is_refused_not_dropped() -> None:
    PAGE["refuse_unknown"]({"resnet50": ["x"], "dlrm": ["y"]})
    with pytest.raises(ValueError, match=r"z: describe.upstream: milabench 1.3 has no benchmark 'clip'"):
        PAGE["refuse_unknown"]({"clip": ["z"]})


def test_benchmarks_of_one_definition_say_different_things() -> None:
    table = (ROOT / "docs" / "suite.md").read_text().partition("## Programs")[0]
    for names in (("pna", "schnet"), ("osu-bandwidth", "osu-latency")):
        told = {
            line.split(" | ")[1] for line in table.splitlines() for name in names if line.startswith(f"| `{name}` ")
        }
        assert len(told) == len(names)
