"""The parts of `make gpu`: with a simulated accelerator where there is none, and on a real one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.commands import ROOT
from tests.gpu.parts import PARTS
from tests.gpu.runner import PART_S, probe

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(PART_S + 60)]
TRIED = {2: "busy,elsewhere,throttle", 3: "quickstart-flops,quickstart-digits,launch", 4: "flops,convnext-bf16"}
"""Of a part's programs, those that are tried without an accelerator. The checks and benchmarks of the others are run by other
tests: tests/unit/checks, tests/process/cli/test_size.py, the quickstart's at size tiny.
"""


def run(part: int, folder: Path, *words: str) -> tuple[int, dict[str, Any], list[dict[str, Any]]]:
    """Run a part; return its exit code, its machine and its programs."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("MILABENCH_")}
    env = {**kept, "MILABENCH_LOCK_DIR": str(folder / "locks")}
    command = [sys.executable, "-m", "tests.gpu", "--part", str(part), "--out", str(folder), *words]
    done = subprocess.run(command, cwd=ROOT, env=env, check=False)
    head, *programs = (json.loads(line) for line in (folder / f"part{part}.jsonl").read_text().splitlines())
    return done.returncode, head, programs


@pytest.mark.parametrize(
    ("part", "only"),
    [*((part, TRIED.get(part, "")) for part in sorted(PARTS)), pytest.param(2, "", marks=pytest.mark.long)],
)
def test_without_an_accelerator_a_part_shows_what_a_simulated_one_can(part: int, only: str, tmp_path: Path) -> None:
    if not probe().is_simulated:
        pytest.skip("there is an accelerator: the test below runs the part on it")
    code, head, programs = run(part, tmp_path, *(["--only", only] if only else []))
    failed = {found["program"]: found["reason"] for found in programs if found["outcome"] == "failed"}
    assert (code, failed) == (0, {}), (tmp_path / f"part{part}.log").read_text()
    assert head["simulated"]
    assert all(found["reason"] for found in programs if found["outcome"] == "skipped")
    if part < 3:
        assert any(found["not_shown"] for found in programs)


@pytest.mark.gpu
@pytest.mark.parametrize("part", sorted(PARTS))
def test_on_an_accelerator_a_part_has_no_failure(part: int, tmp_path: Path) -> None:
    if probe().is_simulated:
        pytest.skip("torch sees no accelerator of CUDA here")
    code, _, programs = run(part, tmp_path)
    failed = {found["program"]: found["reason"] for found in programs if found["outcome"] == "failed"}
    assert (code, failed) == (0, {}), (tmp_path / f"part{part}.log").read_text()
