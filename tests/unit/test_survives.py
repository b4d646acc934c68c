"""The pages of promises name tests that exist: the failures that a run survives, and what is secure."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"\[(test_\w+)\]\((?:../)+((?:benchmate/)?tests/[\w/]+\.py)\)")
CLASSES = yaml.safe_load((ROOT / "tests" / "failures.yaml").read_text())


@pytest.mark.parametrize("group", CLASSES, ids=[group["class"] for group in CLASSES])
def test_every_failure_names_tests_that_exist(group: dict[str, list[dict[str, list[str]]]]) -> None:
    assert group["outcome"]
    for row in group["failures"]:
        assert row["left"] and row["shown by"], row
        assert [test for test in row["shown by"] if not exists(*test.split("::"))] == []


def test_every_promise_of_security_names_a_test_that_exists() -> None:
    promises = (ROOT / "docs" / "explanation" / "security.md").read_text().partition("## What is promised")[2]
    rows = [line for line in promises.splitlines() if line.startswith("| ")][1:]
    assert rows
    for row in rows:
        named = NAMED.findall(row)
        assert named, row
        assert [name for name, file in named if not exists(file, name)] == []


def exists(file: str, name: str) -> bool:
    """Whether a file defines a test."""
    return f"def {name}(" in (ROOT / file).read_text()
