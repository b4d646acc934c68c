"""What is written of a job that has ended, and when one is believed to have ended."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from milabench.events.attempts import Attempt
from milabench.events.shares import Share, ShareJob
from milabench.jobs import job_tracker as jobs
from milabench.jobs.follow_jobs import JobWatch, conclusion, harvested, phase_text
from milabench.jobs.job_tracker import JobTracker
from milabench.schedulers.scheduler import JobHandle, JobState
from tests.processes import until
from tests.slurm.fake_scheduler import FakeScheduler

JOB = ShareJob(id="12", stage="running", nodes=("n1",))


def share(**attempts: Attempt | None) -> Share:
    return Share(name="s1", steps=tuple(attempts), jobs=(JOB,), attempts=attempts)


def attempt(outcome: Any = None, number: int = 1, why: str = "") -> Attempt:
    return Attempt(step="a", number=number, outcome=outcome, entry={"why": why} if why else {})


def ends(result: Any, of: Share) -> dict[str, tuple[int, str]]:
    entries = harvested(of, JobState(phase="ended", result=result), "jobs/s1.out")
    return {entry["step"]: (entry["attempt"], entry["why"]) for entry in entries if "step" in entry}  # type: ignore[misc]


@pytest.mark.parametrize(
    ("result", "why"),
    [
        ("time-limit", "time-limit"),
        ("preempted", "preempted"),
        ("node-failed", "node-failed"),
        ("out-of-memory", "out-of-memory"),
        ("cancelled", "job-cancelled"),
        ("lost", "job-lost"),
        ("failed", "job-failed"),
        ("completed", "job-failed"),
    ],
)
def test_a_step_that_its_job_left_without_an_end_gets_one_of_its_own(result: str, why: str) -> None:
    of = share(passed=attempt("passed"), failed=attempt("failed", 2, "exit"), running=attempt(None, 3), waiting=None)
    assert ends(result, of) == {"running": (3, why), "waiting": (1, why)}


def test_a_step_that_ended_in_order_because_its_job_was_struck_has_that_as_its_reason() -> None:
    of = share(
        cancelled=attempt("cancelled"), signalled=attempt("failed", 2, "signal"), own=attempt("failed", 1, "exit")
    )
    assert ends("time-limit", of) == {"cancelled": (1, "time-limit"), "signalled": (2, "time-limit")}
    # Of a job that ended by itself, the step knows best.
    assert ends("failed", of) == {}


def test_the_detail_names_job_node_state_reason_and_where_its_output_is() -> None:
    end = JobState(
        phase="ended", result="failed", state="FAILED", reason="NonZeroExitCode", nodes=("n7",), exit_code=127
    )
    *steps, last = harvested(share(a=None), end, "jobs/s1.out")
    (step,) = steps
    assert step["detail"] == "job 12 on n7: FAILED, NonZeroExitCode, exit code 127. Its output is in jobs/s1.out"
    assert last == {
        "share": "s1",
        "job": "12",
        "job_state": "FAILED",
        "reason": "NonZeroExitCode",
        "hosts": ["n7"],
        "exit_code": 127,
        "state": "ended",
        "result": "failed",
    }


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (
            JobState(phase="pending", state="PENDING", reason="JobArrayTaskLimit"),
            "nobody knows it any more, last seen as PENDING, JobArrayTaskLimit",
        ),
        (JobState(phase="absent"), "nobody knows it any more"),
        (JobState(phase="unknown", reason="squeue timed out"), "nobody knows it any more: squeue timed out"),
    ],
)
def test_a_lost_job_did_not_end_in_the_state_in_which_it_was_last_seen(seen: JobState, words: str) -> None:
    waiting = ShareJob(id="110_3", stage="submitted")
    lost = conclusion(waiting, seen, is_lost=True)
    assert lost is not None
    of = Share(name="s1", steps=("a",), jobs=(waiting,), attempts={"a": None})
    step, _ = harvested(of, lost, "jobs/s1.out")
    assert (step["why"], step["detail"]) == ("job-lost", f"job 110_3: {words}. Its output is in jobs/s1.out")


@pytest.mark.parametrize("phase", ["pending", "running"])
def test_a_job_that_the_scheduler_knows_goes_on_whatever_else_is_said(phase: Any) -> None:
    ended = ShareJob(id="12", stage="ended")
    assert conclusion(ended, JobState(phase=phase), is_lost=False) is None


@pytest.mark.parametrize("phase", ["absent", "unknown"])
def test_of_a_job_that_nobody_knows_its_own_word_counts_and_silence_is_no_end(phase: Any) -> None:
    silent = JobState(phase=phase)
    assert conclusion(JOB, silent, is_lost=False) is None
    lost = conclusion(JOB, silent, is_lost=True)
    assert lost is not None
    assert lost.result == "lost"
    own = conclusion(ShareJob(id="12", stage="ended"), silent, is_lost=False)
    assert own is not None
    assert own.result == "completed"


def test_a_pending_job_says_why() -> None:
    assert phase_text(JobState(phase="pending", reason="Resources")) == "pending (Resources)"
    assert phase_text(JobState(phase="pending", reason="None")) == "pending"
    assert phase_text(JobState(phase="running", reason="None")) == "running"


def test_what_is_heard_from_the_jobs_is_asked_about_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "LONGEST_INTERVAL_S", 3600.0)  # only who is told asks again within this test
    scheduler = FakeScheduler()
    scheduler.states["7"] = JobState(phase="running")
    tracker = JobTracker(scheduler, [JobHandle(id="7", name="mb-m-s1")])
    tracker.interval_s = 3600.0
    with contextlib.closing(JobWatch(tracker)) as watch:
        until(lambda: watch.ticks == 1, "the first question")
        scheduler.states["7"] = JobState(phase="ended", result="completed")
        watch.ask_now()
        until(lambda: not tracker.unfinished, "the answer")
