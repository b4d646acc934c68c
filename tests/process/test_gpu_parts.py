"""`make gpu` as processes: what it keeps of programs that pass, miss a goal, crash, hang or are cut off."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.runner import Machine, Program, Results, run_part
from tests.processes import end_of, started, until

ROOT = Path(__file__).resolve().parents[2]
SIMULATED = Machine(0, {"devices": [], "torch": None, "python": "3.11", "driver": None})


def said(how: str, limit_s: float = 60, **more: Any) -> Program:
    return Program(how, f"a program that {how}", "tests.programs.gpu_said", limit_s, (how,), **more)


def lines_of(folder: Path, part: int = 1) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"part{part}.jsonl").read_text().splitlines()]


def test_each_program_has_a_line_with_its_outcome_reason_and_numbers(tmp_path: Path) -> None:
    programs = [said(how) for how in ("met", "missed", "skipped", "crashes", "silent")]
    failed = run_part(programs, Results(tmp_path, 1, SIMULATED), SIMULATED)
    head, *found = lines_of(tmp_path)
    assert failed == 3
    assert head["simulated"]
    assert [(one["program"], one["outcome"], one["reason"]) for one in found] == [
        ("met", "passed", ""),
        ("missed", "failed", "a ratio: 2 x, goal at most 1.1"),
        ("skipped", "skipped", "nothing is here"),
        ("crashes", "failed", "exit code 1"),
        ("silent", "failed", "said nothing"),
    ]
    ratio, time = found[0]["numbers"]
    assert (ratio["goal"], ratio["met"]) == ("at least 0.9 and at most 1.1", True)
    assert time["met"] is None  # no goal in seconds is judged on a simulation
    assert found[0]["not_shown"] == ["the rest"]
    assert "ValueError: not today" in (tmp_path / "part1.log").read_text()
    table = (tmp_path / "part1.md").read_text()
    assert "# Part 1: 1 passed, 3 failed, 1 skipped" in table
    assert "| `met` | a ratio | 1 x (1 of 1) | at least 0.9 and at most 1.1 | yes |" in table


def test_a_program_that_hangs_is_ended_with_its_children_and_keeps_what_it_said(tmp_path: Path) -> None:
    run_part([said("hangs", limit_s=2), said("met")], Results(tmp_path, 1, SIMULATED), SIMULATED)
    _, hung, met = lines_of(tmp_path)
    assert (hung["outcome"], hung["numbers"][0]["what"], met["outcome"]) == ("failed", "it begins", "passed")
    assert hung["reason"].startswith("was ended after")
    child = int((tmp_path / "part1.log").read_text().partition("child ")[2].split()[0])
    until(lambda: not Path("/proc", str(child)).exists() or "Z" in Path("/proc", str(child), "stat").read_text())


def test_what_does_not_fit_or_cannot_be_shown_is_skipped_with_the_reason(tmp_path: Path) -> None:
    one = Machine(1, {"devices": ["A"], "torch": "2.11", "driver": "580", "python": "3.12"})
    run_part([said("met", devices=2)], Results(tmp_path, 1, one), one)
    run_part([said("met", needs_accelerator="it has kernels")], Results(tmp_path, 2, SIMULATED), SIMULATED)
    run_part([said("met")], Results(tmp_path, 3, one), one, part_s=1)
    run_part([said("hangs")], Results(tmp_path, 4, one), one, part_s=6)
    reasons = [lines_of(tmp_path, part)[1]["reason"] for part in (1, 2, 3, 4)]
    assert reasons[0] == "needs 2 accelerators; here is 1"
    assert reasons[1] == "needs an accelerator: it has kernels"
    assert reasons[2].startswith("no time was left in this part")
    assert reasons[3].startswith("the time of this part was over after 6 s")
    assert [lines_of(tmp_path, part)[1]["outcome"] for part in (1, 2, 3, 4)] == ["skipped"] * 4


def test_a_part_that_is_cut_off_leaves_what_it_had(tmp_path: Path) -> None:
    code = (
        "from tests.process.test_gpu_parts import *; from tests.gpu.__main__ import end_at_term; end_at_term();"
        f"run_part([said('met'), said('hangs')], Results(Path({str(tmp_path)!r}), 1, SIMULATED), SIMULATED)"
    )
    with started([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        until(lambda: (tmp_path / "part1.jsonl").exists() and len(lines_of(tmp_path)) > 1)
        process.send_signal(signal.SIGTERM)
        assert end_of(process) == 128 + signal.SIGTERM
    assert [one.get("outcome") for one in lines_of(tmp_path)] == [None, "passed"]
    assert "1 passed, 0 failed" in (tmp_path / "part1.md").read_text()


@pytest.mark.slow
def test_the_instruments_meet_a_simulated_torch_as_torch_is(tmp_path: Path) -> None:
    """Forks, errors, captures, streams, another device and peaks of memory: part 1 without what takes long."""
    names = "identity,forked-workers,device-error,graphs,streams,other-device,memory"
    kept = {name: text for name, text in os.environ.items() if not name.startswith("MILABENCH_")}
    command = [sys.executable, "-m", "tests.gpu", "--part", "1", "--only", names, "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=kept, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{(tmp_path / 'part1.log').read_text()}"
    assert [one["outcome"] for one in lines_of(tmp_path)[1:]] == ["passed"] * 7
    assert all(one["numbers"] for one in lines_of(tmp_path)[1:])


def test_an_unknown_program_is_one_line_with_those_that_there_are() -> None:
    command = [sys.executable, "-m", "tests.gpu", "--part", "1", "--from", "identiti"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "part 1 has no program identiti; it has identity, " in done.stderr
