"""What the pages show is what the program takes."""

from __future__ import annotations

import re
from pathlib import Path

from milabench.acceptance.criteria import BenchCriteria, FileKeys, parse_criteria
from milabench.config.kinds import keys_of
from milabench.history.rows import TABLES


def test_the_criteria_file_of_the_page_can_be_read_and_shows_every_key(root: Path) -> None:
    page = (root / "docs" / "reference" / "criteria.md").read_text()
    how_to = (root / "docs" / "how-to" / "accept-a-system.md").read_text()
    shown = re.findall(r"```yaml\n(.*?)```", how_to, re.DOTALL)[0]
    found = parse_criteria(shown.encode(), "accept.yaml")
    assert [one.name for one in found.benchmarks] == ["resnet50", "llama", "loader", "chat", "flops"]
    keys = [*keys_of(FileKeys).keys, *keys_of(BenchCriteria).keys]
    assert [key for key in keys if f"{key}:" not in shown and f"`{key}`" not in page] == []


def test_the_page_has_every_column_of_the_store(root: Path) -> None:
    page = (root / "docs" / "reference" / "results-store.md").read_text()
    for table, columns in TABLES.items():
        [line] = [line for line in page.splitlines() if line.startswith(f"| `{table}`")]
        assert re.findall(r"`(\w+)`", line.rsplit("|", 2)[1]) == list(columns), table
