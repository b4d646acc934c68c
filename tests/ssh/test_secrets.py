"""The same matrix with nodes: what their agents and a connection write, and what stands on their disks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands import milabench_in
from tests.secret_matrix import CONTROL, search, table
from tests.ssh.hosts import Hosts


@pytest.mark.e2e
def test_no_source_of_secrets_reaches_any_sink_of_a_node(
    hosts: Hosts,
    system: Callable[[dict[str, Any]], Path],
    environ: dict[str, str],
    tmp_path: Path,
) -> None:
    made = hosts.system()
    for number, entry in enumerate(made["system"]["nodes"]):  # type: ignore[index]
        entry["base"] = str(tmp_path / "nodes" / str(number))
    system(made)
    counts = search(milabench_in(environ, forks=False), tmp_path, tmp_path / "base", environ).counts()
    print("\n" + table(counts))
    assert counts.pop(CONTROL)["records"]
    assert {(source, sink): count for source, row in counts.items() for sink, count in row.items() if count} == {}
