"""No secret, wherever it comes from, is anywhere in what is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import milabench_in
from tests.secret_matrix import CONTROL, search, table


@pytest.mark.slow
def test_no_source_of_secrets_reaches_any_sink(environ: dict[str, str], tmp_path: Path) -> None:
    """The matrix is printed; its last row is what stands under a plain name, and is found, also among what `ps` shows."""
    counts = search(milabench_in(environ, forks=False), tmp_path, tmp_path / "base", environ).counts()
    print("\n" + table(counts))
    control = counts.pop(CONTROL)
    assert {sink for sink, count in control.items() if not count} == set()
    assert {(source, sink): count for source, row in counts.items() for sink, count in row.items() if count} == {}
