"""Wrong input: one clear line with what, where and the way out, and the documented exit code."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import Said

from .conftest import HERE

pytestmark = pytest.mark.turns(1)  # part of every `make test`


def only_line(said: Said) -> str:
    (line,) = [line for line in said.err.splitlines() if line.startswith("error: ")]
    return line


def test_an_unknown_benchmark_names_the_nearest(milabench: Callable[..., Said]) -> None:
    said = milabench("run", *HERE, "--select", "godo")
    assert said.code == 3
    assert "good" in only_line(said)


def test_a_missing_suite_file(milabench: Callable[..., Said], tmp_path: Path) -> None:
    said = milabench("run", "--config", str(tmp_path / "none.yaml"))
    assert said.code == 2
    assert "none.yaml" in only_line(said)


def test_broken_yaml_has_file_line_and_column(milabench: Callable[..., Said], tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("good:\n  argv: [a\n")
    said = milabench("run", "--config", str(tmp_path / "broken.yaml"))
    assert said.code == 2
    assert "broken.yaml:" in only_line(said)


def test_an_unknown_key_is_told_the_near_one(milabench: Callable[..., Said], tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_text("good:\n  definition: .\n  max_duratoin: 3\n")
    said = milabench("list", "--config", str(tmp_path / "suite.yaml"))
    assert said.code == 2
    assert "suite.yaml:3:3: good" in only_line(said)
    assert "Did you mean 'max_duration'?" in only_line(said)


def test_a_definition_without_a_benchfile(milabench: Callable[..., Said], tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_text("good: {definition: nowhere}\n")
    said = milabench("run", "--config", str(tmp_path / "suite.yaml"))
    assert said.code == 2
    assert "nowhere" in only_line(said)


def test_run_before_install_says_which_command_to_give(milabench: Callable[..., Said]) -> None:
    said = milabench("run", *HERE[1:], "--select", "good")
    assert said.code == 4
    assert "Run `milabench install --config" in only_line(said)


def test_a_prepare_that_fails_is_named_shows_its_log_and_the_others_go_on(milabench: Callable[..., Said]) -> None:
    said = milabench("prepare", *HERE, "--select", "unprepared,good")
    assert said.code == 4
    assert only_line(said).startswith("error: unprepared: prepare failed: exit")
    assert "this data set cannot be had" in said.err
    again = milabench("prepare", *HERE, "--select", "good")
    assert "nothing to do" in again.err


def test_a_base_that_cannot_be_written(milabench: Callable[..., Said], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = milabench("prepare", *HERE, "--select", "good", "--base", str(tmp_path / "file" / "base"))
    assert said.code in (4, 6)
    assert str(tmp_path / "file") in only_line(said)


def test_an_unknown_verb_names_the_nearest(milabench: Callable[..., Said]) -> None:
    said = milabench("reprot")
    assert said.code == 2
    assert "Did you mean report" in only_line(said)


def test_report_without_any_run(milabench: Callable[..., Said]) -> None:
    said = milabench("report")
    assert said.code == 3
    assert "milabench run" in only_line(said)


def test_an_unknown_option_is_a_usage_error(milabench: Callable[..., Said]) -> None:
    said = milabench("run", "--slect", "good")
    assert said.code == 2
    assert "--select" in only_line(said)


def test_a_profile_that_is_none(milabench: Callable[..., Said]) -> None:
    said = milabench("run", *HERE, "--profile", "fast")
    assert said.code == 2
    assert "quick" in only_line(said)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_no_space_on_the_disk_is_one_line(milabench: Callable[..., Said], tmp_path: Path) -> None:
    import subprocess

    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(small)], check=False)
    if mounted.returncode != 0:
        pytest.skip("mounting is not permitted here")
    try:
        (small / "filler").write_bytes(b"x" * 60_000)
        said = milabench("prepare", *HERE, "--select", "good", "--base", str(small))
        assert said.code in (4, 6)
        assert "space" in said.err
    finally:
        subprocess.run(["umount", str(small)], check=True)
