"""What Slurm refuses, and what is no Slurm at all: one line each, with Slurm's own reason, and nothing left behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import Said

Milabench = Callable[..., Said]
SUBMITTED = "sbatch: error: Batch job submission failed: "
COMMANDS = "/usr/bin:/bin"


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A suite of one command."""
    path = tmp_path / "hello.yaml"
    path.write_text("hello: {command: [echo, hello]}\n")
    return path


def put(folder: Path, name: str, lines: str) -> str:
    """Write a command of this name, and return the PATH that has it and no other Slurm."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    for needed in ("sh", "env", "python3", "cat"):
        if not (tools / needed).exists():
            (tools / needed).symlink_to(next(p for d in COMMANDS.split(":") if (p := Path(d, needed)).exists()))
    (tools / name).write_text(f"#!/bin/sh\n{lines}\n")
    (tools / name).chmod(0o755)
    return str(tools)


@pytest.mark.parametrize("more", [(), ("--submit",)])
def test_no_slurm_here_is_one_line(milabench: Milabench, suite: Path, tmp_path: Path, more: tuple[str, ...]) -> None:
    path = put(tmp_path, "nothing", "")
    said = milabench("run", "--config", str(suite), "--engine", "slurm", *more, PATH=path)
    line = "no sbatch on PATH: this is no login node of a Slurm cluster, or its module is not loaded"
    assert (said.code, [text for text in said.err.splitlines() if text.startswith("error: ")]) == (
        5,
        [f"error: {line}"],
    )


@pytest.mark.parametrize("more", [(), ("--submit",)])
def test_commands_of_slurm_without_a_cluster_are_no_slurm_either(
    milabench: Milabench, suite: Path, tmp_path: Path, more: tuple[str, ...]
) -> None:
    reason = (
        "sbatch: error: fetch_config: DNS SRV lookup failed\nsbatch: fatal: Could not establish a configuration source"
    )
    path = put(tmp_path, "sbatch", f"echo '{reason}' >&2; exit 1")
    said = milabench("run", "--config", str(suite), "--engine", "slurm", *more, PATH=path)
    assert said.code == 5, said
    assert "error: sbatch: this machine belongs to no Slurm cluster, or SLURM_CONF is wrong: fetch_config: " in said.err


@pytest.mark.e2e
@pytest.mark.long
@pytest.mark.parametrize("more", [(), ("--submit",)])
def test_what_is_waited_for_is_said_while_slurm_is_silent(
    milabench: Milabench, suite: Path, tmp_path: Path, more: tuple[str, ...]
) -> None:
    said = "sbatch: error: cannot stat file /nonexistent, retrying in 1sec up to 60sec"
    path = put(tmp_path, "sbatch", f"echo '{said}' >&2; sleep 8; echo 'sbatch: error: Invalid account' >&2; exit 1")
    put(tmp_path, "squeue", "exit 0")
    (tmp_path / "tools" / "sleep").symlink_to("/bin/sleep")
    ran = milabench("run", "--config", str(suite), "--engine", "slurm", *more, PATH=path)
    assert ran.code == 2, ran.err
    assert (
        "slurm: no answer of sbatch yet, waiting for it for up to 55 s more: cannot stat file /nonexistent" in ran.err
    )


@pytest.mark.parametrize("more", [(), ("--submit",)])
@pytest.mark.parametrize(
    "reason",
    [
        "Invalid partition name specified",
        "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
        "Requested time limit is invalid (missing or exceeds some limit)",
        "Pathname of a file, directory or other parameter too long",
        "Invalid account or account/partition combination specified",
        "Requested node configuration is not available",
    ],
)
def test_what_slurm_refuses_is_one_line_with_its_reason(
    milabench: Milabench, suite: Path, tmp_path: Path, reason: str, more: tuple[str, ...]
) -> None:
    path = put(tmp_path, "sbatch", f"echo {SUBMITTED!r}{json.dumps(reason)} >&2; exit 1")
    put(tmp_path, "squeue", "exit 0")
    said = milabench("run", "--config", str(suite), "--engine", "slurm", *more, PATH=path)
    [line] = [text for text in said.err.splitlines() if text.startswith("error: ")]
    assert said.code == 2, said
    assert reason in line and "Traceback" not in said.err
    # Nothing claims nodes that were not given.
    assert not list((tmp_path / "base").glob("allocations/*/*"))


@pytest.mark.parametrize(
    "variables",
    [
        {"SLURM_JOB_ID": "12"},
        {"SLURM_JOB_ID": "12", "SLURM_JOB_NODELIST": "n[1-"},
        {"SLURM_JOB_ID": "12", "SLURM_JOB_NODELIST": "n[9-1]"},
        {"SLURM_JOB_ID": "twelve", "SLURM_JOB_NODELIST": "n1"},
        {"SLURM_JOB_ID": "12", "SLURM_JOB_NODELIST": "n[1-999999999]"},
    ],
)
def test_variables_of_slurm_that_make_no_sense_are_one_line(
    milabench: Milabench, suite: Path, variables: dict[str, str]
) -> None:
    said = milabench("plan", "run", "--config", str(suite), **variables)
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1), said
    assert said.err.startswith("error: SLURM_JOB_"), said.err
    # They may be those of a step that has nothing to do with us.
    assert milabench("plan", "run", "--config", str(suite), "--engine", "local", **variables).code == 0


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ("nodelist=n[1-", "system.slurm.nodelist: 'n[1-': "),
        ("gpus_per_node=many", "system.slurm.gpus_per_node: 'many' is not a number of devices. Write 4, or a100:4"),
        ("job-name=mine", "system.slurm.extra: --job-name=mine: milabench sets --job-name itself"),
        ("extra=switches", "system.slurm.extra: expected an option such as --switches=1, got 'switches'"),
    ],
)
def test_an_option_that_cannot_be_meant_is_found_before_slurm_is_asked(
    milabench: Milabench, suite: Path, option: str, line: str
) -> None:
    words = ("--config", str(suite), "--engine", "slurm", "--arch", "cuda", "--slurm-arg", option)
    said = milabench("plan", "run", *words)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"error: {line}") and said.err.count("\n") == 1


def finding(milabench: Milabench, suite: Path, path: str) -> tuple[str, str]:
    found = json.loads(milabench("doctor", "--config", str(suite), "--json", PATH=path).out)["findings"]
    [slurm] = [each for each in found if each["what"] == "slurm"]
    return slurm["state"], slurm["says"]


def test_doctor_says_whether_slurm_is_here_and_what_it_has(milabench: Milabench, suite: Path, tmp_path: Path) -> None:
    path = put(tmp_path, "nothing", "")
    assert finding(milabench, suite, path) == (
        "note",
        "not found: --engine slurm needs the login node of a cluster",
    )
    rows = "gpu|4|1-00:00:00|gpu:a100:4\\ncpu|2|infinite|(null)\\n"
    put(tmp_path, "sinfo", f'case "$1" in --version) echo slurm-wlm 22.05.8 ;; *) printf "{rows}" ;; esac')
    assert finding(milabench, suite, path) == (
        "ok",
        "22.05.8; partitions: gpu (4 nodes with gpu:a100:4, at most 1-00:00:00), cpu (2 nodes)",
    )
    refuses = "slurm_load_partitions: Unable to contact slurm controller (connect failure)"
    put(tmp_path, "sinfo", f'case "$1" in --version) echo slurm 25.05.1 ;; *) echo "{refuses}" >&2; exit 1 ;; esac')
    assert finding(milabench, suite, path) == ("note", f"25.05.1 does not answer: {refuses}")
