"""A run that jobs carried out, or still do: every command that reads runs reads it, wherever it stands."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from milabench.analysis.summary import summarise
from milabench.events.run_files import SUMMARY
from milabench.events.run_writer import RunWriter
from milabench.events.rundir import Run, open_run
from milabench.execute.locks import hold_share, share_beat, share_lock, this_orchestrator
from milabench.following.run_view import JournalClock, RunView
from milabench.following.status_command import handle_json, status_lines
from milabench.pages.details import Fineness
from milabench.pages.run import run_article
from milabench.report import brief, text
from milabench.schedulers.scheduler import JobState
from milabench.workflow.orphans import dead_orchestrators
from milabench.workflow.run_lookup import all_runs, run_handle
from milabench.workflow.summaries import summary_of
from tests.recorded_run import Recorded, RecordedShare, rates, record, record_shares
from tests.unit.following.test_run_view import RecordingDisplay

Milabench = Callable[..., Any]

PASSED = RecordedShare(steps=tuple(Recorded(tag=f"D{i}", devices=(i,), events=rates(98.0, 99.0)) for i in range(2)))
TIMED_OUT = RecordedShare(
    steps=(Recorded(bench="sft", tag="", outcome="failed", why="time-limit", events=rates(9.0)),),
    job="102",
    node="n2",
    result="time-limit",
    state="TIMEOUT",
    reason="TimeLimit",
)
WAITING = RecordedShare(steps=(Recorded(bench="late", tag="", outcome=None),), job="103", is_begun=False, result=None)
DIED = RecordedShare(
    steps=(Recorded(bench="sft", tag="", outcome=None, events=rates(9.0)),), job="102", result=None, is_over=False
)


def status(run: Run, **live: JobState) -> list[str]:
    return status_lines(run_handle(run), 100.0, live)


def test_status_shows_each_job_that_is_not_done_with_its_node_and_reason(tmp_path: Path) -> None:
    run = record_shares(tmp_path, PASSED, TIMED_OUT, WAITING, is_ended=False)
    lines = status(run)
    assert lines[0] == f"{run.name}: submitted; 3/4 steps done: 2 passed, 1 failed, 1 not done"
    assert lines[1:4] == [
        "jobs     3: 2 ended, 1 submitted",
        "         s2: job 102, ended on n2: time-limit (TIMEOUT, TimeLimit), 1/1 steps done",
        "         s3: job 103, submitted, 0/1 steps done",
    ]
    pending = JobState(phase="pending", state="PENDING", reason="Resources", witness="squeue")
    assert status(run, s3=pending)[3] == "         s3: job 103, pending: Resources, 0/1 steps done"
    running = JobState(phase="running", state="RUNNING", nodes=("n7",), witness="squeue")
    assert status(run, s3=running)[3] == "         s3: job 103, running on n7, 0/1 steps done"


def test_status_as_json_has_the_shares(tmp_path: Path, milabench: Milabench) -> None:
    run = record_shares(tmp_path, PASSED, TIMED_OUT)
    value = json.loads(milabench("status", str(run.path), "--json").out)
    assert [(share["share"], share["job"], share["stage"], share["nodes"]) for share in value["shares"]] == [
        ("s1", "101", "ended", ["n1"]),
        ("s2", "102", "ended", ["n2"]),
    ]
    assert "shares" not in handle_json(run_handle(open_run(_local(tmp_path).path)), 1.0, {})


def _local(base: Path) -> Run:
    return record(base, Recorded(events=rates(1.0)), name="local")


def test_a_job_that_lives_makes_its_run_an_active_one_without_an_orchestrator(
    tmp_path: Path, milabench: Milabench
) -> None:
    run = record_shares(tmp_path, PASSED, DIED, is_followed=False)
    assert run_handle(run).state == "cut off"
    assert "         s2: job 102, died on n1, 0/1 steps done" in status(run)
    with hold_share(run.path, "s2", this_orchestrator("marker")):
        handle = run_handle(run)
        assert (handle.state, [tried.step for tried in handle.running]) == ("running", ["sft"])
        assert "         s2: job 102, running on n1, 0/1 steps done" in status(run)
        assert any(line.startswith("running  sft for ") and line.endswith("(pid 8 on n1)") for line in status(run))
        refused = milabench("bundle", str(run.path), "-o", str(tmp_path / "run.zip"))
        assert (refused.code, "is still running (job 102)" in refused.err) == (6, True)
    assert run_handle(run).state == "cut off"


def test_a_job_on_another_host_lives_as_long_as_it_beats(tmp_path: Path) -> None:
    run = record_shares(tmp_path, PASSED, DIED, is_followed=False)
    elsewhere = {**this_orchestrator("marker").to_json(), "host": "n2"}
    (run.path / share_lock("s2")).write_text(json.dumps(elsewhere))
    beat = run.path / share_beat("s2")
    beat.touch()
    assert run_handle(run).state == "running"
    os.utime(beat, (0.0, 0.0))
    assert run_handle(run).state == "cut off"


def test_the_jobs_of_a_run_that_nobody_watched_decide_how_it_ended(tmp_path: Path) -> None:
    assert run_handle(record_shares(tmp_path, PASSED, is_followed=False)).state == "passed"
    failed = RecordedShare(steps=(Recorded(bench="sft", tag="", outcome="failed", why="exit"),), job="102")
    assert run_handle(record_shares(tmp_path, PASSED, failed, name="b", is_followed=False)).state == "failed"


def test_a_run_of_jobs_lists_with_the_others(tmp_path: Path) -> None:
    record_shares(tmp_path, PASSED, WAITING, is_ended=False)
    assert [(handle.state, handle.status.counts) for handle in all_runs(tmp_path)] == [
        ("submitted", {"passed": 2, "missing": 1})
    ]


@pytest.mark.parametrize("form", [brief, text])
def test_a_report_names_the_jobs_that_did_not_do_their_part_and_the_nodes(tmp_path: Path, form: Any) -> None:
    run = record_shares(tmp_path, PASSED, TIMED_OUT, WAITING, is_ended=False)
    page = form.render([summarise(run)])
    assert "n1, n2" in page
    assert "node1" not in page.partition("nodes")[2].splitlines()[0]
    lines = [line.strip() for line in page.splitlines()]
    section = lines[next(place for place, line in enumerate(lines) if line.startswith("jobs that have not")) + 1 :][:2]
    assert [" ".join(line.split()) for line in section] == [
        "job 102: time-limit (TIMEOUT, TimeLimit) on n2; 1 of 1 steps did not pass",
        "job 103: has not begun; 1 of 1 steps did not pass",
    ]


def test_the_html_report_names_them_too(tmp_path: Path) -> None:
    summary = summarise(record_shares(tmp_path, PASSED, TIMED_OUT))
    page, _ = run_article(summary, (), Fineness(steps=0, buckets=0), "k")
    assert "time-limit (TIMEOUT, TimeLimit) on n2" in str(page)


def test_a_job_whose_steps_failed_did_its_part_all_the_same(tmp_path: Path) -> None:
    step = Recorded(bench="sft", tag="", outcome="failed", why="exit", detail="boom")
    job = RecordedShare(steps=(step,), job="102", result="failed", state="FAILED", reason="NonZeroExitCode")
    page = brief.render([summarise(record_shares(tmp_path, PASSED, job))])
    assert "boom" in page
    assert "jobs that have not" not in page


def test_overhead_and_marks_are_those_of_the_orchestrators_and_the_jobs(tmp_path: Path) -> None:
    summary = summarise(record_shares(tmp_path, PASSED, TIMED_OUT))
    assert summary.overhead["wall_s"] == 3 * 150.0
    assert all("mixed" not in bench.doubts for bench in summary.benchmarks)


def test_the_summary_of_a_run_whose_jobs_go_on_is_not_kept(tmp_path: Path) -> None:
    run = record_shares(tmp_path, PASSED, DIED, is_followed=False)
    summary_of(run)
    assert not (run.path / SUMMARY).exists()
    job = RunWriter(run.path, share="s2", job="102")
    job.journal({"step": "sft", "attempt": 1, "state": "ended", "outcome": "passed"})
    job.journal({"run": "ended", "verdict": "passed"})
    ended = open_run(run.path)
    assert summary_of(ended).counts["passed"] == 3
    assert (run.path / SUMMARY).exists()
    # What a later job of a share writes makes it out of date.
    again = RunWriter(run.path, share="s2", job="201")
    again.journal({"step": "sft", "attempt": 2, "state": "ended", "outcome": "failed"})
    again.journal({"run": "ended", "verdict": "failed"})
    (_, later) = summary_of(open_run(run.path)).jobs
    assert later.job == "201"


def test_every_reader_takes_a_run_of_jobs(
    tmp_path: Path, milabench: Milabench, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = record_shares(tmp_path, PASSED, TIMED_OUT, WAITING, is_ended=False)
    (run.path / "jobs").mkdir()
    (run.path / "jobs" / "s1.sh").write_text("#!/bin/sh\n")
    (run.path / share_beat("s2")).touch()
    other = record_shares(tmp_path / "other", PASSED, TIMED_OUT)
    monkeypatch.chdir(tmp_path)
    for command in (
        f"report {run.path}",
        f"report {run.path} --full -f markdown",
        f"report {run.path} -f html -o page.html",
        f"report {run.path} --json",
        f"compare {run.path} {other.path} --why",
        f"bundle {run.path} -o run.zip",
        "verify run.zip",
        f"db add {run.path} --db o.db",
        "report --from-db --db o.db",
        f"export {run.path} --format prometheus -o o.prom",
        f"replay {run.path} --speed 0",
        f"logs digits.D0 --run {run.path}",
        f"logs late --run {run.path}",
        f"report --site site --base {tmp_path}",
        f"runs --base {tmp_path} --json",
    ):
        answer = milabench(*command.split())
        assert answer.code in ((3,) if command.startswith("logs late") else (0, 1)), (command, answer)
    assert milabench("gc", "--base", str(tmp_path), "--json").code == 0


def test_a_bundle_has_the_scripts_and_journals_of_the_jobs_and_neither_lock_nor_beat(
    tmp_path: Path, milabench: Milabench
) -> None:
    run = record_shares(tmp_path, PASSED, TIMED_OUT)
    (run.path / "jobs").mkdir()
    (run.path / "jobs" / "s1.sh").write_text("#!/bin/sh\n")
    (run.path / share_beat("s1")).touch()
    (run.path / share_lock("s1")).touch()
    assert milabench("bundle", str(run.path), "-o", str(tmp_path / "run.zip")).code == 0
    with zipfile.ZipFile(tmp_path / "run.zip") as archive:
        names = {Path(name).name for name in archive.namelist()}
    assert {"journal.s1.jsonl", "manifest.s2.json", "s1.sh"} <= names
    assert not names & {share_beat("s1"), share_lock("s1")}
    assert milabench("verify", str(tmp_path / "run.zip")).code == 0


def test_gc_keeps_a_run_whose_jobs_wait_or_run(tmp_path: Path, milabench: Milabench) -> None:
    run = record_shares(tmp_path, PASSED, WAITING, is_ended=False)
    kept = json.loads(milabench("gc", "--base", str(tmp_path), "--keep", "0", "--json").out)
    (item,) = [item for item in kept["items"] if item["kind"] == "runs"]
    assert (item["path"], item["kept"]) == (str(run.path), "it is active")


def test_a_dead_job_of_this_machine_is_swept_here_only_and_one_of_another_host_never(tmp_path: Path) -> None:
    run = record_shares(tmp_path, DIED, is_followed=False)
    assert dead_orchestrators(run) == []  # of n1
    dead = {**this_orchestrator("m").to_json(), "pid": 2**22 - 1, "pid_start": 1}
    address = {"name": "n2", "host": "n2"}
    RunWriter(run.path, share="s1", job="102").journal({"run": "started", **dead, "nodes": [address]})
    ((orchestrator, addresses),) = dead_orchestrators(open_run(run.path))
    assert (orchestrator.marker, addresses) == ("m", ())


def test_a_view_follows_all_journals_also_those_that_come_later(tmp_path: Path) -> None:
    run = record_shares(tmp_path, WAITING, is_followed=False)
    display = RecordingDisplay()
    view = RunView(run, display, JournalClock())
    view.update()
    assert [call[0] for call in display.since()] == ["plan"]
    job = RunWriter(run.path, share="s1", job="103")
    job.journal({"run": "started", "marker": "of the job"})
    job.journal({"step": "late", "attempt": 1, "state": "started"})
    view._look_at = 0.0
    view.update()
    assert display.since() == [("start", "late")]
    job.journal({"step": "late", "attempt": 1, "state": "ended", "outcome": "passed"})
    job.journal({"run": "ended", "verdict": "passed"})
    RunWriter(run.path).journal({"share": "s1", "state": "ended", "job": "103", "result": "completed"})
    view.update()  # at once, however many shares there are
    assert [call[:3] for call in display.since()] == [("end", "late", "passed")]
    assert view.ended == ""  # that was the job, not an orchestrator


def test_a_copy_of_a_run_of_jobs_keeps_its_summary(tmp_path: Path) -> None:
    run = record_shares(tmp_path, PASSED, TIMED_OUT)
    before = summary_of(run)
    shutil.copytree(run.path, tmp_path / "copy" / run.name)
    copied = open_run(tmp_path / "copy" / run.name)
    assert summary_of(copied).jobs == before.jobs


def test_a_comparison_says_that_its_sides_ran_on_different_nodes(tmp_path: Path, milabench: Milabench) -> None:
    first, same = (record_shares(tmp_path, PASSED, name=name).path for name in ("a", "b"))
    elsewhere = RecordedShare(steps=PASSED.steps, node="n7")
    other = record_shares(tmp_path, elsewhere, name="c").path
    answer = milabench("compare", str(first), str(other)).out
    assert "different nodes: a on n1, c on n7" in answer
    assert "different nodes" not in milabench("compare", str(first), str(same)).out


def test_a_submission_that_names_no_share_breaks_no_status(tmp_path: Path, milabench: Milabench) -> None:
    run = record_shares(tmp_path, PASSED, WAITING, is_ended=False)
    RunWriter(run.path).journal({"state": "submitting", "name": "mb-x-s1"})
    answer = milabench("status", str(run.path))
    assert (answer.code, "s2: job 103" in answer.out) == (0, True), answer
