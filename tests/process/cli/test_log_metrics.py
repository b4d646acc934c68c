"""A command that knows nothing of us is measured by what it prints."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

LOG = (
    ("0", ("829.012392", "844.157227", "835.582445"), "0.248027", "69.030488", "0.296484"),
    ("1", ("797.687061", "821.444257", "810.339386"), "0.351983", "61.266612", "0.393930"),
)
NUMBER = r"(\d+\.\d+|\d+)"


def text() -> str:
    """The log of the few-task driver's page."""
    lines = []
    for epoch, speeds, training, cost, validation in LOG:
        lines += [f"Epoch[{epoch}] Speed: {speed} samples/sec accuracy=0.1" for speed in speeds]
        lines += [f"[Epoch {epoch}] training: accuracy={training}", f"[Epoch {epoch}] time cost: {cost}"]
        lines += [f"[Epoch {epoch}] validation: accuracy={validation}"]
    return "\n".join(lines) + "\n"


@pytest.fixture
def suite(tmp_path: Path) -> tuple[str, ...]:
    """A suite of one command that prints the log, and of one whose pattern matches nothing."""
    (tmp_path / "train.log").write_text(text())
    found = {
        "speed": {
            "pattern": f"Speed: {NUMBER} samples/sec",
            "reduce": "mean",
            "units": "items/s",
            "direction": "higher",
        },
        "training_acc": {"pattern": f"training: accuracy={NUMBER}"},
        "validation_acc": {"pattern": f"validation: accuracy={NUMBER}", "reduce": "last", "direction": "higher"},
        "total_training_time": {"pattern": f"time cost: {NUMBER}", "reduce": "sum", "units": "s", "direction": "lower"},
    }
    line = {"install_group": "lines", "max_duration": 60, "plan": {"method": "njobs", "n": 1}, "weight": 1.0}
    benches: dict[str, Any] = {
        "profile": "quick",
        "driven": {**line, "command": ["cat", str(tmp_path / "train.log")], "metrics": found},
        "silent": {**line, "command": ["true"], "metrics": {"speed": found["speed"]}},
    }
    file = tmp_path / "suite.yaml"
    file.write_text(json.dumps(benches))  # JSON is YAML
    return ("--use-current-env", "--config", str(file))


def report(milabench: Callable[..., Any]) -> dict[str, Any]:
    return {bench["bench"]: bench for bench in json.loads(milabench("report", "--json").out)["benchmarks"]}


def test_the_numbers_of_a_log_are_the_commands_and_the_same_twice(
    milabench: Callable[..., Any], suite: tuple[str, ...]
) -> None:
    for _ in range(2):
        assert milabench("run", *suite, "--select", "driven").code == 0
        bench = report(milabench)["driven"]
        assert (bench["perf"], bench["units"], bench["direction"]) == (823.037128, "items/s", "higher")
        assert {one["metric"]: one["value"] for one in bench["metrics"] if one["metric"] != "rate"} == {
            "speed": 823.037128,
            "training_acc": 0.351983,
            "validation_acc": 0.39393,
            "total_training_time": 130.2971,
        }


def test_a_log_in_which_nothing_matches_has_no_number_and_says_so(
    milabench: Callable[..., Any], suite: tuple[str, ...]
) -> None:
    milabench("run", *suite, "--select", "silent")
    assert report(milabench)["silent"]["perf"] is None
    assert (
        f"metric speed: no line of the output matched 'Speed: {NUMBER}".replace("\\", "\\\\") in milabench("report").out
    )


def test_a_folder_that_a_suite_misspells_is_not_made(milabench: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "suite.yaml"
    file.write_text("lost: {command: [pwd], cwd: nowhere, timed: true}\n")
    assert milabench("run", "--config", str(file), "--repeat", "1").code == 1
    shown = " ".join(milabench("report").out.split())
    assert f"cannot start in {tmp_path / 'nowhere'}: there is no such folder" in shown
    assert not (tmp_path / "nowhere").exists()
