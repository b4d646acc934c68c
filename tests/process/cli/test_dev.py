"""`milabench dev`: the benchmark's environment, its folder, its exit code, and the command that `run` would use."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from .conftest import HERE, Said


def test_a_command_runs_in_the_benchmarks_folder_with_its_variables(
    milabench: Callable[..., Said], environ: dict[str, str]
) -> None:
    said = milabench(
        "dev", *HERE, "good", "--", "sh", "-c", "pwd; echo $MILABENCH_NAME; head -c 1 $MILABENCH_BENCH_CONFIG"
    )
    assert said.code == 0
    assert said.out.split() == [f"{environ['MILABENCH_BASE']}/data/good", "good", "{"]


def test_it_prints_the_command_that_run_would_use(milabench: Callable[..., Said]) -> None:
    said = milabench("dev", *HERE, "good", "--", "true")
    assert "tests/suite/odd/main.py good" in said.err


def test_its_exit_code_is_the_commands(milabench: Callable[..., Said]) -> None:
    assert milabench("dev", *HERE, "good", "--", "sh", "-c", "exit 9").code == 9


def test_a_command_ended_by_a_signal_gives_what_a_shell_gives(milabench: Callable[..., Said]) -> None:
    assert milabench("dev", *HERE, "good", "--", "sh", "-c", "kill -9 $$").code == 137


def test_without_a_command_it_is_the_users_shell(milabench: Callable[..., Said], tmp_path: Path) -> None:
    shell = tmp_path / "shell"
    shell.write_text("#!/bin/sh\necho this is mine\n")
    shell.chmod(0o755)
    said = milabench("dev", *HERE, "good", SHELL=str(shell))
    assert said.out == "this is mine\n"


def test_the_program_itself_can_be_run_by_hand(milabench: Callable[..., Said], root: Path) -> None:
    said = milabench("dev", *HERE, "good", "--", "python", str(root / "tests/suite/odd/main.py"), "good")
    assert said.code == 0
    assert "items/s" in said.err


def test_a_command_that_is_not_there(milabench: Callable[..., Said]) -> None:
    said = milabench("dev", *HERE, "good", "--", "no-such-command")
    assert said.code == 2
    assert "no-such-command: no such command" in said.err


def test_several_benchmarks_are_too_many(milabench: Callable[..., Said]) -> None:
    said = milabench("dev", *HERE, "fine", "--", "true")
    assert said.code == 2
    assert "good" in said.err


def test_the_venv_comes_first_on_the_path(milabench: Callable[..., Said]) -> None:
    said = milabench("dev", *HERE, "good", "--", "sh", "-c", "command -v python")
    assert Path(said.out.strip()).parent == Path(sys.prefix, "bin")
