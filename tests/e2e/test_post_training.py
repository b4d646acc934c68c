"""The gates of benchmarks/trl let nothing pass that did not learn, or was not distributed as the suite says.

Environments are made in a base of the session, or taken from MILABENCH_TRUTH_BASE.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.commands import ROOT, milabench_in

# Each runs a training of ten seconds and more.
pytestmark = [pytest.mark.e2e, pytest.mark.long]

SUITE = ("--config", str(ROOT / "config" / "suite" / "language.yaml"), "--size", "tiny")
Run = Callable[[str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Run one benchmark of the suite with an override, and return what the report says of it."""
    folder = tmp_path_factory.mktemp("post-training")
    base = os.environ.get("MILABENCH_TRUTH_BASE", str(folder / "base"))
    kept = {key: value for key, value in os.environ.items() if not key.startswith("MILABENCH_")}
    milabench = milabench_in({**kept, "MILABENCH_BASE": base, "MILABENCH_LOCK_DIR": str(folder / "locks")})
    installed = milabench("install", *SUITE, "--select", "sft")
    assert installed.code == 0, installed.err

    def one(name: str, override: str) -> dict[str, Any]:
        run_name = f"gate-{name}-{os.getpid()}"
        chosen = (*SUITE, "--select", name, "--override", override)
        milabench("run", *chosen, "--profile", "quick", "--repeat", "1", "--run-name", run_name)
        (bench,) = json.loads(milabench("report", run_name, "--json").out)["benchmarks"]
        return bench

    yield one
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("name", ["sft", "dpo", "kto", "reward"])
def test_a_training_that_learns_nothing_is_not_valid(run: Run, name: str) -> None:
    bench = run(name, f"{name}.argv.--learning_rate=0.0")
    assert bench["outcome"] == "passed"
    assert bench["validity"] == "suspect"
    assert "validation" in bench["reasons"]


def test_processes_that_do_not_know_of_each_other_fail(run: Run) -> None:
    # Without it accelerate looks for accelerators, finds none and starts each process for itself.
    bench = run("sft-ddp", "sft-ddp.argv.--use_cpu='false'")
    assert bench["outcome"] == "failed"
    assert "of 2 ranks accelerate knows 1" in json.dumps(bench["failures"])
