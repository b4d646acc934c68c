"""What is submitted for the shares of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from milabench.config.read import read_suite
from milabench.events.shares import Share
from milabench.jobs.submission import job_batches
from milabench.slurm.script import script_options


@pytest.mark.parametrize(
    ("nodelist", "nodes", "asks"),
    [
        ("n[1-4]", ("n2",), ["--nodes=1", "--nodelist=n2"]),
        ("n[1-4]", ("n1", "n2", "n3", "n4"), ["--nodes=4", "--nodelist=n1,n2,n3,n4"]),
        ("", ("node1", "node2"), ["--nodes=2"]),
        ("n7", ("node1", "node2"), ["--nodes=2", "--nodelist=n7"]),
    ],
    ids=["one of the named nodes", "all of them", "any two", "two, of which one is named"],
)
def test_a_share_asks_for_the_named_nodes_that_it_was_planned_for(
    nodelist: str, nodes: tuple[str, ...], asks: list[str], tmp_path: Path
) -> None:
    share = Share(name="s1", steps=("a.0",), nodes=nodes)
    (tmp_path / "suite.yaml").write_text(f"system: {{engine: slurm, slurm: {{nodelist: '{nodelist}'}}}}\n")
    system = read_suite([tmp_path / "suite.yaml"]).system
    (batch,) = job_batches([share], system, "m", Path("/b/runs/r"), None)
    options = script_options(batch.request.script)
    assert [word for word in options if word.startswith("--node")] == asks
