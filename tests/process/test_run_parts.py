"""Tests that failed are run once more and counted; more than so many fail the build."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import ROOT

# Fails the first time.
FLAKY = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("n", range({count}))
def test_it(n):
    seen = Path(__file__).with_name(f"seen{{n}}")
    was_seen = seen.exists()
    seen.touch()
    assert was_seen or n < {sound}
"""


def run_parts(*words: object) -> tuple[int, str]:
    """The exit code and the last lines."""
    command = [sys.executable, ROOT / "tests" / "run_parts.py", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.fixture
def parts(tmp_path: Path) -> list[object]:
    """Two folders, with one and two tests that fail the first time."""
    words: list[object] = []
    for name, flaky in (("a", 1), ("b", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "test_flaky.py").write_text(FLAKY.format(count=flaky + 2, sound=2))
        words += [tmp_path / name, "-q -c /dev/null --rootdir=."]
    return words


@pytest.mark.e2e
@pytest.mark.long
def test_what_failed_over_all_parts_is_run_once_more_alone_and_counted(parts: list[object]) -> None:
    code, said = run_parts("--retries", 3, *parts)
    assert code == 0, said
    assert [line.rpartition("/")[2] for line in said.splitlines()[-4:]] == [
        "retried: 3",
        "test_flaky.py::test_it[2]",
        "test_flaky.py::test_it[2]",
        "test_flaky.py::test_it[3]",
    ]


@pytest.mark.e2e
@pytest.mark.long
def test_more_than_so_many_fail_the_build(parts: list[object]) -> None:
    code, said = run_parts("--retries", 2, *parts)
    assert code == 1
    assert "not retried: 2 failed, 1 before; at most 2 are retried\nretried: 1\n" in said


@pytest.mark.e2e
@pytest.mark.long
def test_without_retries_the_first_failure_counts_and_every_part_is_run(parts: list[object]) -> None:
    code, said = run_parts(*parts)
    assert code == 1
    assert "1 failed, 2 passed" in said
    assert "2 failed, 2 passed" in said


def test_what_fails_twice_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "test_bad.py").write_text("def test_it():\n    assert False\n")
    code, said = run_parts("--retries", 3, tmp_path, "-q -c /dev/null --rootdir=.")
    assert code == 1
    assert said.splitlines()[-2].startswith("retried: 1")


SKIPPED = """
import pytest

def test_one():
    pytest.skip("not installed: apt-get install slurmd slurm-client")

def test_two():
    pytest.skip("torch is not installed; another test brings it")

def test_three():
    pytest.skip("only root can mount")
"""


def test_the_last_line_says_what_was_not_tested_for_want_of_which_package(tmp_path: Path) -> None:
    words: list[object] = []
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "test_skipped.py").write_text(SKIPPED)
        words += [tmp_path / name, "-q -c /dev/null --rootdir=."]
    code, said = run_parts(*words)
    line = "not tested, not installed: slurmd slurm-client (2 tests); torch (2 tests)"
    assert (code, said.splitlines()[-1]) == (0, line)
