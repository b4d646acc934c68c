"""docs/explanation/survives.md names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"\[(test_\w+)\]\((?:../)+(tests/[\w/]+\.py)\)")


def test_every_row_names_a_test_that_is_there() -> None:
    page = (ROOT / "docs" / "explanation" / "survives.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ")][1:]
    assert rows
    for row in rows:
        named = NAMED.findall(row)
        assert named, row
        for name, file in named:
            assert f"def {name}(" in (ROOT / file).read_text(), name
