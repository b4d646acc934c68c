"""`milabench stacks`, and what reports and archives have of a step that hung."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

from tests.commands import Said

from .test_detached import detached, waiting
from .written import runs, suite

HANGS = "echo last words; exec sleep 3600"


def test_a_running_step_is_looked_at_and_goes_on(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    here = suite(tmp_path, long=waiting(tmp_path))
    with detached(milabench, environ, "run", *here, "--detach"):
        said = milabench("stacks", "long")
        while "no process" in said.out:  # it is about to begin
            said = milabench("stacks", "long")
        assert said.code == 0, said.err
        assert said.out.startswith("sh (pid ")
        (shown,) = json.loads(milabench("stacks", "long", "--json").out)["steps"]
        assert shown["step"] == "long.0"
        assert "sh" in [process["name"] for process in shown["evidence"]["processes"]]
        assert "stacks   milabench stacks long.0" in milabench("status").out
        (tmp_path / "go").touch()
        assert "passed" in milabench("resume").err
    assert milabench("report").code == 0


def test_reports_and_archives_have_the_finding_and_the_evidence_of_a_hang(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    here = suite(tmp_path, mute=HANGS)
    assert milabench("run", *here, "--override", "mute.max_silence=1").code == 1
    finding = "silent: neither output nor a record for 1 s; sleep (pid "
    for words in ([], ["-f", "junit"], ["-f", "html"], ["-f", "markdown"]):
        assert finding in milabench("report", *words).out
    (bench,) = json.loads(milabench("report", "--json").out)["benchmarks"]
    assert bench["failures"][0]["detail"].startswith(finding.partition(": ")[2])
    said = milabench("stacks", "mute")
    assert said.out.startswith("sleep (pid ")
    (run,) = runs(environ["MILABENCH_BASE"])
    assert milabench("bundle", "-o", str(tmp_path / "run.zip")).code == 0
    with zipfile.ZipFile(tmp_path / "run.zip") as archive:
        assert any(name.endswith(f"{run.name}/mute.0.stacks.json") for name in archive.namelist())


def test_a_step_that_passed_has_no_evidence(milabench: Callable[..., Said], tmp_path: Path) -> None:
    assert milabench("run", *suite(tmp_path, sound="echo fine")).code == 0
    said = milabench("stacks", "sound")
    assert (said.code, "does not run, and has left no evidence of a hang" in said.err) == (3, True)


def test_without_the_feature_a_silent_step_is_ended_at_once(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    here = suite(tmp_path, mute=HANGS)
    environ["MILABENCH_WITHOUT"] = "hangs"
    assert milabench("run", *here, "--override", "mute.max_silence=1").code == 1
    assert "silent: neither output nor a record for 1 s\n" in milabench("report").out
    (run,) = runs(environ["MILABENCH_BASE"])
    assert not list(run.glob("*.stacks.json"))
