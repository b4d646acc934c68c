"""The pages say what the files say: copied code is the code, and links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*/README.md")])
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


@pytest.mark.parametrize("name", ["benchfile.py", "voirfile.py"])
def test_the_walk_through_shows_the_real_files(name: str) -> None:
    page = (ROOT / "docs" / "how-to" / "add-a-benchmark.md").read_text()
    assert (ROOT / "benchmarks" / "flax" / name).read_text().strip() in page


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_to_files(page: Path) -> None:
    broken = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert broken == []


def test_every_verb_is_in_the_readme() -> None:
    from milabench.cli.commands import COMMANDS

    page = (ROOT / "README.md").read_text()
    assert [verb for verb in COMMANDS if f"`{verb}" not in page and f"milabench {verb}" not in page] == []
