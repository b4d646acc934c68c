"""The pages of promises name tests that are there: what a run survives, and what is secure."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"\[(test_\w+)\]\((?:../)+((?:benchmate/)?tests/[\w/]+\.py)\)")


@pytest.mark.parametrize(("page", "after"), [("survives.md", ""), ("security.md", "## What is promised")])
def test_every_row_names_a_test_that_is_there(page: str, after: str) -> None:
    text = (ROOT / "docs" / "explanation" / page).read_text()
    promises = text.partition(after)[2] if after else text
    rows = [line for line in promises.splitlines() if line.startswith("| ")][1:]
    assert rows
    for row in rows:
        named = NAMED.findall(row)
        assert named, row
        for name, file in named:
            assert f"def {name}(" in (ROOT / file).read_text(), name
