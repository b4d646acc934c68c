"""The first commands of a new user, each answered with the one sentence that helps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import Said
from tests.recorded_run import Recorded, record

pytestmark = pytest.mark.turns(1)  # part of every `make test`

Milabench = Callable[..., Said]


def test_milabench_alone_says_where_to_begin(milabench: Milabench, tmp_path: Path) -> None:
    said = milabench(cwd=tmp_path)
    assert "New here? `milabench quickstart` measures a small suite" in said.out + said.err


def test_a_run_without_anything_names_what_installs_it_and_the_small_suite(
    milabench: Milabench, tmp_path: Path
) -> None:
    said = milabench("run", "--base", str(tmp_path), cwd=tmp_path)
    assert (said.code, said.out) == (4, "")
    (line,) = said.err.splitlines()
    assert line.startswith("error: not installed: ")
    assert f"Run `milabench install --base {tmp_path}`" in line
    assert line.endswith("standard.yaml, or for a first look `milabench quickstart`")


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("run", "--config", "nope"), 2, "nope: neither a file here nor a shipped suite. Shipped suites: "),
        (("report", "page.html"), 3, "no run is called 'page.html' below "),
        (("run", "digits"), 2, "Got unexpected extra argument (digits). Choose benchmarks with --select NAME"),
        (("bench", "echo 1; echo 2"), 2, "';' needs a shell. Run `milabench bench --shell 'echo 1; echo 2'`"),
    ],
)
def test_a_mistake_is_answered_in_one_line(
    milabench: Milabench, tmp_path: Path, words: tuple[str, ...], code: int, sentence: str
) -> None:
    said = milabench(*words, cwd=tmp_path)
    (line,) = said.err.splitlines()
    assert (said.code, said.out, sentence in line) == (code, "", True), said
    assert "report" not in words or line.endswith("To write that file, give -o page.html")


def test_logs_of_a_benchmark_with_several_repeats_says_which_step_it_shows(
    milabench: Milabench, tmp_path: Path
) -> None:
    run = record(tmp_path, *(Recorded(repeat=repeat, stderr=f"repeat {repeat}\n") for repeat in range(3)))
    said = milabench("logs", "digits", "--run", str(run.path))
    assert (said.code, said.out) == (0, "repeat 2\n")
    assert said.err == "digits.D0.R2, the last of 3 steps. Also digits.D0, digits.D0.R1\n"


def test_logs_of_a_step_without_output_says_so(milabench: Milabench, tmp_path: Path) -> None:
    run = record(tmp_path, Recorded())
    said = milabench("logs", "digits", "--run", str(run.path))
    assert (said.code, said.out, said.err) == (0, "", "digits: no output was recorded\n")
