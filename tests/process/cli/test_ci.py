"""`milabench ci`, and the two jobs of build servers that call it, run here without a container."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import fork_server
from tests.ci_runner import Job, run_action, run_component
from tests.commands import ROOT, Said
from tests.pages import pages

pytestmark = pytest.mark.slow
SUITE = ROOT / "tests" / "suite" / "odd.yaml"
NONE_FAILED = "failure_rate: 0\n"
UNDECIDED = "benchmarks: {good: {minimum: 1e12 items/s}}\n"
RunJob = Callable[..., Job]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """What a job has checked out: a folder, with a space in its name."""
    folder = tmp_path / "a project"
    folder.mkdir()
    return folder


@pytest.fixture(params=[run_action, run_component], ids=["github", "gitlab"])
def job(request: pytest.FixtureRequest, workspace: Path, environ: dict[str, str], tmp_path: Path) -> RunJob:
    """Runs the job of either build server with the milabench that is tested, in its environment."""
    own = {name: value for name, value in environ.items() if name != "MILABENCH_BASE"}
    programs = tmp_path / "programs"
    programs.mkdir()
    fork_server.program(programs)
    places = (programs, Path(sys.executable).parent, os.environ["PATH"])
    own |= {"MILABENCH_USE_CURRENT_ENV": "1", "PATH": ":".join(map(str, places))}

    def run(**inputs: str) -> Job:
        given = {"package": "installed", "config": str(SUITE), "select": "good", **inputs}
        done: Job = request.param(workspace, own, **given)
        assert "Traceback" not in done.log
        return done

    return run


def failures(workspace: Path, name: str) -> int:
    return int(ET.parse(workspace / "milabench-reports" / name).getroot().get("failures", "-1"))


def test_a_job_measures_compares_and_leaves_reports(job: RunJob, workspace: Path) -> None:
    first = job()
    assert first.code == 0, first.log
    reports = workspace / "milabench-reports"
    assert {path.name for path in reports.iterdir()} == {"summary.md", "report.json", "report.md", "report.xml"}
    assert failures(workspace, "report.xml") == 0
    for stage in ("doctor", "install", "prepare", "run", "report"):
        assert f"== milabench {stage}" in first.log

    (reports / "report.json").rename(workspace / "main.json")
    second = job(baseline="main.json")
    assert second.code == 0, second.log
    assert failures(workspace, "comparison.xml") == 0
    assert (reports / "comparison.md").read_text().startswith("# ci compared with ci.")
    summary = (reports / "summary.md").read_text()
    assert summary.index("# ") == 0
    assert "good" in summary
    if second.outputs:
        assert second.outputs == {"exit-code": "0"}
        assert second.summary.endswith(summary)


def test_a_benchmark_that_fails_is_1(job: RunJob, workspace: Path) -> None:
    done = job(select="good,crash")
    assert done.code == 1, done.log
    assert failures(workspace, "report.xml") == 1
    assert done.outputs in ({}, {"exit-code": "1"})


def test_the_verdict_of_criteria_is_passed_on(job: RunJob, workspace: Path) -> None:
    (workspace / "fail.yaml").write_text(NONE_FAILED)
    (workspace / "open.yaml").write_text(UNDECIDED)
    failed = job(criteria="fail.yaml", select="good,crash")
    undecided = job(criteria="open.yaml")
    assert (failed.code, undecided.code) == (7, 8), failed.log + undecided.log
    assert undecided.outputs in ({}, {"exit-code": "8"})
    if undecided.outputs:
        assert "INCONCLUSIVE" in undecided.summary


@pytest.mark.parametrize("text", ["$(touch hacked)`touch hacked`", '"; touch hacked; "', "'; touch hacked; '${HOME}\\"])
def test_an_input_is_no_part_of_a_script(job: RunJob, workspace: Path, text: str) -> None:
    # A file of exactly this name is asked for, whatever stands in it.
    done = job(criteria=text)
    assert done.code == 2, done.log
    assert f"error: {text}: cannot be read: no such file or directory" in done.log
    assert not (workspace / "hacked").exists()


def test_what_a_benchmark_prints_is_no_command_to_a_runner(workspace: Path, environ: dict[str, str]) -> None:
    suite = workspace / "suite.yaml"
    suite.write_text(
        "profile: quick\n"
        "loud: {install_group: a, max_duration: 60, weight: 1.0, plan: {method: njobs, n: 1}, shell: true,\n"
        "       command: ['echo ::error::it is me; echo ::error::it is me >&2; exit 3']}\n"
    )
    own = {**environ, "MILABENCH_USE_CURRENT_ENV": "1", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = run_action(workspace, own, package="installed", config="suite.yaml")
    assert done.code == 1
    lines = done.log.splitlines()
    [begin] = [number for number, line in enumerate(lines) if line.startswith("::stop-commands::")]
    token = lines[begin].removeprefix("::stop-commands::")
    end = lines.index(f"::{token}::")
    commands = [number for number, line in enumerate(lines) if line.startswith("::")]
    assert all(begin <= number <= end for number in commands)
    assert len(token) >= 32


PROGRAM = "import random; print('speed', random.gauss({speed}, 0.1))\n"


def test_the_script_of_the_page_is_red_for_the_slow_commit_and_green_for_the_other(
    workspace: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    (script,) = [
        block.text
        for page in pages()
        if page.name.endswith("use-in-ci.md")
        for block in page.blocks
        if "worktree" in block.text
    ]
    programs = tmp_path / "programs"
    programs.mkdir()
    fork_server.program(programs)
    who = {f"GIT_{role}_{what}": "ci@localhost" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    own = {**environ, **who, "PATH": f"{programs}:{os.environ['PATH']}"}

    def sh(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, cwd=workspace, env=own, capture_output=True, text=True, check=False)

    def commit(speed: float, message: str) -> str:
        (workspace / "program.py").write_text(PROGRAM.format(speed=speed))
        sh("git", "add", "program.py")
        sh("git", "commit", "--quiet", "--allow-empty", "-m", message)
        return sh("git", "rev-parse", "HEAD").stdout.strip()

    sh("git", "init", "--quiet")
    base, slow, same = commit(100, "base"), commit(90, "ten percent slower"), commit(100, "as fast")
    (workspace / "gate.sh").write_text(script)
    red = sh("sh", "gate.sh", base, slow)
    assert (red.returncode, red.stdout.startswith("SLOWER: ")) == (1, True), red.stderr
    [case] = ET.parse(workspace / "gate.xml").getroot().findall(".//failure/..")
    assert case.get("classname", "").endswith(" A/B")
    green = sh("sh", "gate.sh", base, same)
    assert (green.returncode, "SLOWER" in green.stdout) == (0, False), green.stderr


def ci(milabench: Callable[..., Said], folder: Path, *more: str) -> Said:
    """`milabench ci` on one benchmark, in a folder of its own."""
    return milabench("ci", "--use-current-env", "--config", str(SUITE), "--select", "good", *more, cwd=folder)


def test_what_cannot_be_read_is_an_error_before_anything_is_measured(
    milabench: Callable[..., Said], workspace: Path, environ: dict[str, str]
) -> None:
    (workspace / "bad.json").write_text("{}")
    (workspace / "relative.yaml").write_text("benchmarks: {good: {minimum: 1 x reference}}\n")
    (workspace / "file").touch()
    expected = {
        ("--baseline", "nobody"): (3, "nobody"),
        ("--baseline", "bad.json"): (6, "bad.json: is no summary or report of a run"),
        ("--criteria", "none.yaml"): (2, "none.yaml: cannot be read"),
        ("--criteria", "relative.yaml"): (2, "name that run with --baseline"),
        ("--reports", "file/below"): (2, "is not a folder"),
        ("--ab", "a.yaml", "b.yaml"): (2, "--ab"),
    }
    for words, (code, text) in expected.items():
        said = ci(milabench, workspace, *words)
        assert (said.code, text in said.err) == (code, True), (words, said.err)
        assert said.err.count("\n") == 1
    assert not Path(environ["MILABENCH_BASE"], "runs").exists()


def test_reports_of_an_earlier_job_are_not_taken_for_this_one(milabench: Callable[..., Said], workspace: Path) -> None:
    reports = workspace / "milabench-reports"
    reports.mkdir()
    for name in ("report.xml", "acceptance.xml", "mine.txt"):
        (reports / name).write_text("old")
    said = ci(milabench, workspace, "--select", "nothing-of-this-name")
    assert said.code in (2, 3)
    assert [path.name for path in reports.iterdir()] == ["mine.txt"]


def test_a_baseline_among_the_reports_is_refused_and_kept(milabench: Callable[..., Said], workspace: Path) -> None:
    assert ci(milabench, workspace).code == 0
    said = ci(milabench, workspace, "--baseline", "milabench-reports/report.json")
    assert (said.code, "Copy it out of milabench-reports" in said.err) == (2, True)
    assert json.loads((workspace / "milabench-reports" / "report.json").read_text())["schema"] == 1


def test_the_latest_run_as_a_baseline_is_the_one_before(
    milabench: Callable[..., Said], workspace: Path, environ: dict[str, str]
) -> None:
    assert ci(milabench, workspace).code == 0
    [before] = Path(environ["MILABENCH_BASE"], "runs").glob("ci.*")
    said = ci(milabench, workspace, "--baseline", "latest")
    assert said.code == 0, said.err
    assert "is given more than once" not in said.err
    report = json.loads((workspace / "milabench-reports" / "report.json").read_text())
    assert report["run"] != before.name
    assert before.name in report["score"]["reference"]


def test_a_bundle_is_a_baseline_unless_it_was_modified(milabench: Callable[..., Said], workspace: Path) -> None:
    assert ci(milabench, workspace).code == 0
    assert milabench("bundle", "-o", str(workspace / "main.zip")).code == 0
    said = ci(milabench, workspace, "--baseline", "main.zip")
    assert said.code == 0, said.err
    assert (workspace / "milabench-reports" / "comparison.md").is_file()
    content = bytearray((workspace / "main.zip").read_bytes())
    content[200] ^= 1
    (workspace / "main.zip").write_bytes(bytes(content))
    said = ci(milabench, workspace, "--baseline", "main.zip")
    assert (said.code, said.err.startswith("error: main.zip")) == (6, True), said.err
