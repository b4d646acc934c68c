"""Batch sizes found by running, saved, and used again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.commands import ROOT, Said

SIZED = ("--use-current-env", "--config", str(ROOT / "tests" / "suite" / "sized.yaml"))
QUIET = ("--display", "none", "--wait")
Milabench = Callable[..., Said]


def test_the_largest_size_that_fits_is_found_by_running_and_saved(milabench: Milabench, tmp_path: Path) -> None:
    file = tmp_path / "scaling" / "device.yaml"
    said = milabench("size", "sized", *SIZED, *QUIET, "--min", "40", "--save", str(file), "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found["largest"] == 50
    fits = {each["batch_size"]: each["fits"] for each in found["tried"]}
    assert (fits[40], fits[80], fits[50], fits[51]) == (True, False, True, False)
    observed = yaml.safe_load(file.read_text())["sized"]
    assert {each["batch_size"] for each in observed} == {size for size, fit in fits.items() if fit}
    assert all(each["rate"] > 0 and each["memory"] > 0 for each in observed)
    assert milabench("report").code == 3  # these are no runs to report on


def test_a_bound_ends_the_search(milabench: Milabench) -> None:
    said = milabench("size", "sized", *SIZED, *QUIET, "--max", "16")
    assert (said.code, said.out) == (0, "sized: the largest batch size that fits is 16 (--max)\n")


def test_nothing_that_fits_is_a_failure(milabench: Milabench) -> None:
    said = milabench("size", "tiny", *SIZED, *QUIET)
    assert said.code == 1
    assert said.err.splitlines()[-1] == "error: tiny: not even a batch size of 1 fits"


def test_another_failure_ends_the_search_and_says_why(milabench: Milabench) -> None:
    said = milabench("size", "broken", *SIZED, *QUIET)
    assert said.code == 1
    assert "failed with batch size 8: exit: ValueError: a negative limit" in said.err


@pytest.mark.parametrize(
    ("argv", "code", "what"),
    [
        (("fixed",), 2, "Write it as auto_batch(N)"),
        (("sizde",), 3, "Did you mean 'sized'"),
        (("sized,tiny",), 2, "selects sized, tiny"),
        (("sized", "--min", "9", "--max", "8"), 2, "--max 8 is less than --min 9"),
    ],
)
def test_what_cannot_be_sized_is_told(milabench: Milabench, argv: tuple[str, ...], code: int, what: str) -> None:
    said = milabench("size", *argv, *SIZED, *QUIET)
    assert said.code == code
    assert what in said.err


def test_a_run_adds_what_it_observed_to_what_is_there(milabench: Milabench, tmp_path: Path) -> None:
    file = tmp_path / "seen.yaml"
    file.write_text("# mine\nother: [{batch_size: 1, memory: 2 GiB}]\n")
    for size in ("20", "40"):
        said = milabench(
            "run", *SIZED, *QUIET, "--select", "sized,fixed", "--sizer-save", str(file), MILABENCH_SIZER_BATCH_SIZE=size
        )
        assert said.code == 0, said.err
    assert file.read_text().startswith("# mine\n")
    seen = yaml.safe_load(file.read_text())
    assert seen["other"] == [{"batch_size": 1, "memory": "2 GiB"}]
    assert [each["batch_size"] for each in seen["sized"]] == [20, 40]
    assert list(seen) == ["other", "sized"]
    assert list(tmp_path.glob(".seen*")) == []


def test_the_system_may_name_the_file_that_its_runs_fill_and_that_sizes_the_next_ones(
    milabench: Milabench, tmp_path: Path
) -> None:
    file = tmp_path / "seen.yaml"
    system = tmp_path / "system.yaml"
    system.write_text(f"system: {{options: {{sizer: {{auto: 1, save: {file}, config: {file}}}}}}}")
    said = milabench("run", *SIZED, *QUIET, "--select", "sized", "--system", str(system))
    assert said.code == 0, said.err
    assert [each["batch_size"] for each in yaml.safe_load(file.read_text())["sized"]] == [8]
    other = milabench("plan", "run", *SIZED, "-s", "system.options.sizer.save=x", "--system", str(system))
    assert (other.code, other.err) == (0, other.err)
    file.unlink()
    refused = milabench("plan", "run", *SIZED, "-s", "system.options.sizer.save=x", "--system", str(system))
    assert (refused.code, "seen.yaml: no such file" in refused.err) == (2, True)


def planned(milabench: Milabench, *argv: str, **environ: str) -> tuple[str, str]:
    said = milabench("plan", "run", *SIZED, "--select", "sized", "--json", *argv, **environ)
    assert said.code == 0, said.err
    return json.loads(said.out)["steps"][0]["argv"][3], said.err


def test_observations_choose_the_size_for_the_memory_of_the_device(milabench: Milabench, tmp_path: Path) -> None:
    file = tmp_path / "seen.yaml"
    file.write_text("sized: [{batch_size: 10, memory: 200, rate: 9}, {batch_size: 20, memory: 300, rate: 5}]")
    system = tmp_path / "system.yaml"
    system.write_text(f"system: {{gpu: {{capacity: 1000 MiB}}, options: {{sizer: {{auto: 1, config: {file}}}}}}}")
    here = ("--system", str(system))
    assert planned(milabench, *here) == ("90", "")
    assert planned(milabench, *here, MILABENCH_SIZER_MULT="2") == ("180", "")
    mult = ("--override", "system.options.sizer.mult=3")
    assert planned(milabench, *here, *mult, MILABENCH_SIZER_MULT="2") == ("270", "")
    assert planned(milabench, *here, MILABENCH_SIZER_CAPACITY="2000 MiB", MILABENCH_SIZER_POWER="2") == ("128", "")
    assert planned(milabench, *here, MILABENCH_SIZER_OPTIMIZED="1") == ("10", "")


def test_a_benchmark_without_observations_keeps_its_size_with_a_warning(milabench: Milabench) -> None:
    size, said = planned(milabench, MILABENCH_SIZER_AUTO="1")
    assert size == "8"
    assert said.startswith("warning: sized: keeps its own batch size: config/scaling/")


def test_which_of_file_environment_and_option_won_can_be_explained(milabench: Milabench) -> None:
    said = milabench("config", "explain", "system.options.sizer.mult", *SIZED[1:], MILABENCH_SIZER_MULT="2")
    assert said.out.splitlines() == ["system.options.sizer.mult = 2", "  set at MILABENCH_SIZER_MULT"]


def test_a_slip_in_an_option_of_the_sizer_is_told(milabench: Milabench) -> None:
    said = milabench("plan", "run", *SIZED, "--override", "system.options.sizer.mutl=2", MILABENCH_SIZER_AUTO="x")
    assert said.code == 2
    assert "Did you mean 'mult'?" in said.err
    assert "MILABENCH_SIZER_AUTO: system.options.sizer.auto: expected 0 or 1, got 'x'" in said.err


def test_a_file_of_observations_that_cannot_be_written_is_one_line(milabench: Milabench, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = milabench("run", *SIZED, *QUIET, "--select", "sized", "--sizer-save", str(tmp_path / "file" / "seen.yaml"))
    assert said.code in (2, 6)
    assert "seen.yaml" in said.err


def test_sizing_needs_no_terminal_library() -> None:
    program = (
        "import sys, milabench.batch_size.size_command; "
        "print([m for m in ('rich', 'asyncssh', 'yaml') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
