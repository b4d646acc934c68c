"""A job carries out its share by itself: started by hand here, with the variables that Slurm would set."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from milabench.events.attempts import attempts
from milabench.events.run_writer import create_run
from milabench.events.rundir import open_run
from milabench.execute.locks import hold_share, share_beat, this_orchestrator
from milabench.execute.retry_policy import RetryPolicy
from milabench.jobs.submission import planned_shares, submission_entry
from milabench.workflow.options import CollectingReporter, Extent, Session, Submission, SuiteOptions
from milabench.workflow.planning import describe_run
from milabench.workflow.run_records import stems, with_stems, write_manifest
from milabench.workflow.run_suite import RunSettings, prepare_runs
from tests.commands import Said, milabench_in

Verb = Callable[..., Said]
SUITE = """\
_defaults: {max_duration: 60, shell: true}
good: {inherits: _defaults, plan: {method: njobs, n: 1}, command: ["echo good"]}
bad: {inherits: _defaults, plan: {method: njobs, n: 1}, command: ["echo bad; exit 3"]}
"""


def variables(*nodes: str, job: str = "7", **more: str) -> dict[str, str]:
    """What Slurm sets in the batch step of a job, on the first of its nodes."""
    nodelist = ",".join(nodes) or socket.gethostname()
    return {
        "SLURM_JOB_ID": job,
        "SLURM_JOB_NODELIST": nodelist,
        "SLURM_JOB_CPUS_PER_NODE": f"1(x{max(1, len(nodes))})",
        "SLURMD_NODENAME": nodelist.partition(",")[0],
        **more,
    }


@pytest.fixture
def verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Verb:
    monkeypatch.setenv("MILABENCH_LOCK_DIR", str(tmp_path / "locks"))
    monkeypatch.setenv("HOME", str(tmp_path))
    import os

    return milabench_in(dict(os.environ))


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "suite.yaml"
    path.write_text(SUITE)
    return path


def planned(suite: Path, base: Path, **extent: Any) -> Path:
    """A run as its submission leaves it, less the jobs."""
    session = Session(CollectingReporter())
    options = SuiteOptions(config_file=suite, base=base)
    settings = RunSettings(as_default=False, retry=RetryPolicy(max_retries=1))
    prepared = prepare_runs(options, Extent(run_name="run", seed=1, **extent), settings, session)
    request = prepared.plans[0].planned
    shares = planned_shares(request, Submission())
    from dataclasses import replace

    description = describe_run(request)
    entry = submission_entry(shares, Submission(), "slurm", "marker", settings.retry)
    description = replace(description, manifest={**description.manifest, "submission": entry})
    files = stems(request.plan.steps)
    writer = create_run(base, "run", datetime.now())
    write_manifest(writer, with_stems(request.plan, files), request.request.context, description, files)
    writer.close()
    return writer.path


def share_with(path: Path, bench: str) -> str:
    return next(name for name, share in open_run(path).shares.items() if any(s.startswith(bench) for s in share.steps))


def test_it_journals_for_itself_and_needs_nobody(verb: Verb, suite: Path, tmp_path: Path) -> None:
    path = planned(suite, tmp_path / "base", repeat=2)
    before = (path / "journal.jsonl").read_bytes()
    share = share_with(path, "good")
    said = verb("job", "--run", str(path), "--share", share, **variables())
    assert said.code == 0, said.err
    assert (path / "journal.jsonl").read_bytes() == before
    run = open_run(path)
    assert run.shares[share].is_ended and not run.shares[share].unpassed
    assert run.shares[share].job is not None and run.shares[share].job.id == "7"
    entries = [json.loads(line) for line in (path / f"journal.{share}.jsonl").read_text().splitlines()]
    assert {entry["share"] for entry in entries} == {share}
    assert [entry["run"] for entry in entries if "run" in entry] == ["started", "ended"]
    assert [(path / f"{run.files[step]}.stdout").read_bytes() for step in run.shares[share].steps] == [b"good\n"] * 2
    assert not (path / share_beat(share)).exists()


def test_a_share_is_retried_as_the_run_was_asked_to_and_done_once(verb: Verb, suite: Path, tmp_path: Path) -> None:
    path = planned(suite, tmp_path / "base", repeat=1)
    share = share_with(path, "bad")
    assert verb("job", "--run", str(path), "--share", share, **variables()).code == 1
    assert [tried.outcome for tried in attempts(open_run(path).journal)["bad.0"]] == ["failed", "failed"]
    good = share_with(path, "good")
    for _ in range(2):
        assert verb("job", "--run", str(path), "--share", good, **variables()).code == 0
    assert len(attempts(open_run(path).journal)["good.0"]) == 1


def test_of_two_jobs_of_one_share_the_second_ends_with_a_line(verb: Verb, suite: Path, tmp_path: Path) -> None:
    path = planned(suite, tmp_path / "base", repeat=1)
    share = share_with(path, "good")
    with hold_share(path, share, this_orchestrator("first")):
        said = verb("job", "--run", str(path), "--share", share, **variables(job="8"))
    assert said.code == 5
    assert f"share {share} is carried out already" in said.err
    assert not (path / f"journal.{share}.jsonl").exists()


@pytest.mark.parametrize(
    ("environ", "share", "line"),
    [
        ({}, "s1", "inside of a job of slurm, and this is none"),
        (variables(), "s9", "has no share 's9'"),
        (variables("n[1-"), "s1", "SLURM_JOB_NODELIST"),
    ],
)
def test_what_cannot_be_a_share_of_this_job_is_refused(
    verb: Verb, suite: Path, tmp_path: Path, environ: dict[str, str], share: str, line: str
) -> None:
    path = planned(suite, tmp_path / "base", repeat=1)
    said = verb("job", "--run", str(path), "--share", share, **environ)
    assert said.code == 2
    assert line in said.err


def test_a_suite_that_changed_while_the_job_waited_fails_the_steps_with_the_reason(
    verb: Verb, suite: Path, tmp_path: Path
) -> None:
    path = planned(suite, tmp_path / "base", repeat=1)
    suite.write_text(SUITE.replace("echo good", "echo better"))
    share = share_with(path, "good")
    said = verb("job", "--run", str(path), "--share", share, **variables())
    assert said.code == 6
    assert "suite: good changed" in said.err
    tried = open_run(path).shares[share].attempts["good.0"]
    assert tried is not None and (tried.outcome, tried.why) == ("failed", "environment")
    assert "suite: good changed" in tried.detail
    # What the change does not concern is measured.
    assert verb("job", "--run", str(path), "--share", share_with(path, "bad"), **variables()).code == 1


def test_steps_that_were_planned_for_other_devices_fail_with_what_was_stated(
    verb: Verb, suite: Path, tmp_path: Path
) -> None:
    suite.write_text('each: {plan: {method: per_gpu}, max_duration: 60, shell: true, command: ["echo good"]}\n')
    system = tmp_path / "system.yaml"
    system.write_text("system: {arch: cpu, gpu: {count: 2}}\n")
    path = planned(suite, tmp_path / "base", repeat=1)
    manifest = json.loads((path / "manifest.json").read_text())
    # As stated for a node with two slots; here is one.
    manifest["submission"]["shares"]["s1"]["steps"].append("each.D1")
    manifest["system"]["nodes"][0]["devices"].append({"index": 1})
    manifest["files"]["each.D1"] = "each.D1"
    (path / "manifest.json").write_text(json.dumps(manifest) + "\n")
    said = verb("job", "--run", str(path), "--share", "s1", **variables())
    assert said.code == 4
    assert "each.D1: planned for local with D0 D1, but the job has" in said.err
    run = open_run(path)
    assert {tried and tried.why for tried in run.shares["s1"].attempts.values()} == {"environment"}
