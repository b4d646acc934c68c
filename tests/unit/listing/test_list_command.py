"""What `milabench list` says of each benchmark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from milabench.listing.list_command import WIDTH
from tests.commands import Said

Milabench = Callable[..., Said]


def table(lines: str) -> dict[str, list[str]]:
    """The rows of a table by their first cell."""
    rows = (line.split(" | ") for line in lines.partition("\n\n")[0].splitlines()[2:])
    return {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows}


def test_each_benchmark_has_a_sentence_of_its_own_with_minutes_and_disk_in_100_columns(milabench: Milabench) -> None:
    said = milabench("list", "--config", "standard", "--select", "machine")
    rows = table(said.out)
    assert len(rows) > 20 and len({sentence for sentence, *_ in rows.values()}) == len(rows)
    assert rows["checkpoint"] == ["checkpoint written and restored, compared", "3", "21.0 GB"]
    assert max(map(len, said.out.splitlines())) <= WIDTH
    assert "environments: site, torch (1.1 GB)" in said.out


def test_every_column_is_shown_where_that_is_asked_for(milabench: Milabench, tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_text("a: {command: ls, tags: [x], weight: 3}\nb: {command: ls, enabled: false}\n")
    listed = ("list", "--config", "suite.yaml", "--select", "a,b")
    assert table(milabench(*listed).out) == {"a": ["", "", "", "yes"], "b": ["", "", "", "no"]}
    assert table(milabench(*listed, "--wide").out)["a"][3:] == ["yes", "per_gpu", "3", "a", "x"]


@pytest.mark.parametrize("suite", ["standard", "ci"])
def test_each_benchmark_of_a_shipped_suite_has_one_line_that_no_other_shares(milabench: Milabench, suite: str) -> None:
    lines = milabench("list", "--config", suite).out.partition("\n\n")[0].splitlines()[2:]
    measures: list[str] = []
    for line in lines:
        name, text = (cell.strip() for cell in line.split(" | ")[:2])
        measures += [text] if name else [f"{measures.pop()} {text}"]
    assert all(measures)
    assert len(set(measures)) == len(measures)
