"""The command that a report says to type next is typed, as it stands, for every command that prints one."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import Said

from .written import once

pytestmark = pytest.mark.turns(1)  # part of every `make test`

SUITE = r"""
profile: quick
_line: {plan: {method: njobs, n: 1}, shell: true, max_duration: 60, install_group: lines, weight: 1.0,
        metrics: {speed: {pattern: 'speed (\S+)', direction: higher, units: items/s}}}
"""
RUNS = 3  # from a first look on: default, then what that lacks


def written(folder: Path, **lines: str) -> Path:
    """A suite of shell lines in a folder with a space in its name."""
    place = folder / "my suites"
    place.mkdir()
    benches = "".join(f"{name}: {{inherits: _line, command: [{json.dumps(line)}]}}\n" for name, line in lines.items())
    (place / "suite.yaml").write_text(SUITE + benches)
    return place / "suite.yaml"


def next_words(report: str) -> list[str]:
    """The words of the command in the last line, after `milabench`."""
    line = report.rstrip("\n").splitlines()[-1]
    assert line.startswith("next: `milabench "), report
    return shlex.split(line.split("`")[1])[1:]


@pytest.mark.parametrize("verb", ["run", "ci"])
def test_the_next_commands_of_a_run_keep_base_suite_and_selection_and_work(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path, verb: str
) -> None:
    del environ["MILABENCH_BASE"]
    base, suite = tmp_path / "my base", written(tmp_path, a="echo speed 100", b="echo speed 50", c="exit 1")
    given = ("--use-current-env", "--base", str(base), "--config", str(suite), "--select", "a,b", "--exclude", "b")
    said = milabench(verb, *given, "--repeat", "1", *(("--reports", str(tmp_path / "reports")) if verb == "ci" else ()))
    assert said.code == 0, said.err
    words = next_words(said.out if verb == "ci" else milabench("report", "--base", str(base)).out)
    verbs = []
    for _ in range(RUNS):
        assert words[words.index("--base") + 1] == str(base)
        verbs.append(words[0])
        if words[0] != "run":
            break
        said = milabench(*words)
        assert said.code == 0, said.err
        shown = json.loads(milabench("report", "--base", str(base), "--json").out)
        assert [bench["bench"] for bench in shown["benchmarks"]] == ["a"]
        words = next_words(milabench("report", "--base", str(base)).out)
    assert verbs[0] == "run"  # with profile default; what follows hangs on the load of the machine
    if words[0] == "compare":
        words[words.index("OTHER")] = "latest~1"
    said = milabench(*words)
    assert said.code in (0, 1, 3), said.err


def test_what_did_not_pass_is_run_again_by_the_next_command(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    del environ["MILABENCH_BASE"]
    base = tmp_path / "my base"
    suite = written(tmp_path, a=f"{once(tmp_path, 'seen')}; echo speed 100")
    assert milabench("run", "--use-current-env", "--base", str(base), "--config", str(suite)).code == 1
    words = next_words(milabench("report", "--base", str(base)).out)
    assert words[0] == "resume"
    assert milabench(*words).code == 0


def test_commands_are_measured_again_by_the_next_command(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    del environ["MILABENCH_BASE"]
    said = milabench(
        "bench", "--base", str(tmp_path / "my base"), "--runs", "2", "--name", "x", "sleep 0.01", "sleep 0.02"
    )
    words = next_words(said.out)
    assert words[:3] == ["bench", "--runs", "3"]
    again = milabench(*words)
    assert again.code in (0, 1), again.err
    assert "6/6 done" in again.err or "6 of 6 steps passed" in again.err
