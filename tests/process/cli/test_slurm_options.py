"""The options of Slurm: what they set in the system, what they contradict, and that a run keeps them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from milabench.config.schema import SlurmConfig
from milabench.events.rundir import open_run
from milabench.workflow.context import read_suite_only
from milabench.workflow.options import SuiteOptions
from tests.commands import Said

Milabench = Callable[..., Said]


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A suite of one command, which fails: only then a run is resumed, and its report says how to rerun it."""
    path = tmp_path / "hello.yaml"
    path.write_text("hello:\n  command: ['false']\n")
    return path


def slurm_of(suite: Path, *words: str, system: str = "") -> SlurmConfig:
    file = suite.parent / "system.yaml"
    file.write_text(f"system:\n  slurm:\n    {system}\n" if system else "system: {}\n")
    options = SuiteOptions(config_file=suite, system_file=file, engine="slurm", slurm_args=words, environ={})
    return read_suite_only(options).system.slurm


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("time", "1:00:00"),
        ("time", "1-00:00:00"),
        ("time", "90"),
        ("gpus_per_node", "4"),
        ("gpus_per_node", "a100:4"),
        ("nodelist", "n[1-4],x07"),
        ("exclude", "n[01-02]"),
        ("account", "0123"),
    ],
)
def test_what_is_asked_of_slurm_comes_out_as_it_was_written(suite: Path, key: str, text: str) -> None:
    assert getattr(slurm_of(suite, system=f"{key}: {text}"), key) == text
    assert getattr(slurm_of(suite, f"{key}={text}"), key) == text


def test_an_argument_sets_a_key_however_it_is_spelled_and_wins_over_the_system_file(suite: Path) -> None:
    slurm = slurm_of(suite, "--gpus-per-node=2", "nodes=3", "exclusive=false", "time=5", system="time: 9")
    assert slurm == SlurmConfig(gpus_per_node="2", nodes=3, exclusive=False, time="5")


def test_other_arguments_are_added_to_the_extra_options(suite: Path) -> None:
    slurm = slurm_of(suite, "licenses=a:1", "extra=--mem=0", "mail-type=END", system="extra: [--switches=1]")
    assert slurm.extra == ("--switches=1", "--licenses=a:1", "--mem=0", "--mail-type=END")


def test_engine_wins_over_the_system_file(suite: Path, tmp_path: Path) -> None:
    system = tmp_path / "system.yaml"
    system.write_text("system: {engine: slurm}\n")
    options = SuiteOptions(config_file=suite, system_file=system, environ={})
    assert read_suite_only(options).system.engine == "slurm"
    assert read_suite_only(replace(options, engine="local")).system.engine == "local"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ("plan", "run", "--slurm-arg", "time"),
            "--slurm-arg 'time': not an option of Slurm. Write it as key=value, such as time=1:00:00",
        ),
        (
            ("run", "--slurm-arg", "a b=1"),
            "--slurm-arg 'a b=1': not an option of Slurm. Write it as key=value, such as time=1:00:00",
        ),
        (
            ("plan", "run", "--slurm-arg", "nodes=two"),
            "--slurm-arg 'nodes=two': system.slurm.nodes: expected a whole number, got 'two'",
        ),
        (("plan", "run", "--max-jobs", "2"), "--max-jobs goes with --submit"),
        (("run", "--array"), "--array goes with --submit"),
        (
            ("plan", "install", "--submit"),
            "--submit and --distribute go with `plan run`. Leave them out of `plan install`",
        ),
        (
            ("run", "--submit"),
            "--submit makes jobs of a batch scheduler. Add --engine slurm, or set engine in the system file",
        ),
        (
            ("plan", "run", "--distribute", "--engine", "local"),
            "--distribute makes jobs of Slurm. Add --engine slurm, or engine: slurm to the system file",
        ),
        (
            ("plan", "run", "--submit", "--engine", "slurm", "--precision", "1%"),
            "how often a benchmark runs has to be known before its jobs are submitted. Give --repeat, not a precision",
        ),
    ],
)
def test_what_cannot_be_meant_is_one_line(milabench: Milabench, suite: Path, words: tuple[str, ...], line: str) -> None:
    said = milabench(*words, "--config", str(suite))
    assert (said.code, said.out, said.err) == (2, "", f"error: {line}\n")


def test_in_an_allocation_jobs_are_those_of_slurm(milabench: Milabench, suite: Path, tmp_path: Path) -> None:
    inside = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]"}
    said = milabench("plan", "run", "--submit", "--config", str(suite), **inside)
    assert said.code == 0, said.err
    assert "#SBATCH" in said.out and "node1" in said.out
    # What was decided otherwise stays so.
    refused = milabench("plan", "run", "--submit", "--engine", "local", "--config", str(suite), **inside)
    assert refused.code == 2 and "--submit makes jobs of a batch scheduler" in refused.err


@pytest.mark.parametrize("option", ["--array", "--distribute"])
def test_the_pairs_of_an_ab_run_are_not_taken_apart(milabench: Milabench, suite: Path, option: str) -> None:
    said = milabench("plan", "run", "--engine", "slurm", "--submit", option, "--ab", str(suite), str(suite))
    assert said.code == 2 and said.err.startswith("error: --ab ") and said.err.endswith(f". Leave out {option}\n"), said


def test_a_run_keeps_its_engine_and_arguments_for_resume_and_rerun(
    milabench: Milabench, suite: Path, tmp_path: Path
) -> None:
    given = ("--engine", "local", "--slurm-arg", "time=1:00:00", "--slurm-arg", "licenses=a b")
    assert milabench("run", "--config", str(suite), "--repeat", "1", *given).code == 1
    [path] = (tmp_path / "base" / "runs").iterdir()
    options = open_run(path).manifest["options"]
    assert (options["engine"], options["slurm_args"]) == ("local", ["time=1:00:00", "licenses=a b"])
    said = milabench("resume")
    assert (said.code, "error:" in said.err) == (1, False), said.err
    text = milabench("report").out
    assert "--engine local" in text and "--slurm-arg time=1:00:00 --slurm-arg 'licenses=a b'" in text


def test_a_secret_among_the_arguments_is_in_no_record(milabench: Milabench, suite: Path, tmp_path: Path) -> None:
    secret = "hf_" + "abcdefghijklmnopqrstuvwxyz0123456789"
    given = ("--engine", "local", "--slurm-arg", f"export=HF_TOKEN={secret}")
    assert milabench("run", "--config", str(suite), "--repeat", "1", *given).code == 1
    files = [path for path in (tmp_path / "base").rglob("*") if path.is_file()]
    assert files and not [path for path in files if secret.encode() in path.read_bytes()]
    said = milabench("resume")
    assert said.code == 6 and "a secret was given by --slurm-arg" in said.err


def test_keys_of_slurm_are_completed(milabench: Milabench) -> None:
    words = {"COMP_WORDS": "milabench run --slurm-arg node", "COMP_CWORD": "3"}
    said = milabench(_MILABENCH_COMPLETE="bash_complete", **words)
    assert said.out.splitlines() == ["plain,nodes=", "plain,nodelist="]


@pytest.mark.parametrize("option", ["--override", "--slurm-arg"])
def test_a_secret_that_the_jobs_would_not_find_again_is_refused_before_any_is_submitted(
    milabench: Milabench, suite: Path, tmp_path: Path, option: str
) -> None:
    secret = "hf_" + "abcdefghijklmnopqrstuvwxyz0123456789"
    value = f"hello.env.TOKEN={secret}" if option == "--override" else f"export=HF_TOKEN={secret}"
    said = milabench("run", "--config", str(suite), "--engine", "slurm", "--submit", option, value)
    assert said.code == 2
    assert f"{option} " in said.err and "keep no secret" in said.err and secret not in said.err
    assert not list(tmp_path.rglob("manifest.json"))
