"""What is known of jobs, by answers and times that are values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from milabench.jobs.job_tracker import LOST_S, OUTAGE_S, JobTracker
from milabench.schedulers.scheduler import JobHandle, JobState

A, B = JobHandle(id="1", name="mb-m-s1"), JobHandle(id="2_0", name="mb-m-s2")
PENDING = JobState(phase="pending", state="PENDING", reason="Priority")
RUNNING = JobState(phase="running", state="RUNNING", nodes=("n1",))
PASSED = JobState(phase="ended", result="completed", state="COMPLETED")
ABSENT = JobState(phase="absent")
SILENT = JobState(phase="unknown", reason="squeue did not answer within 20 s")


class Answers:
    """A scheduler that gives the answers of a list, the last of them for ever; a clock, and the ages of heartbeats."""

    def __init__(self, *answers: JobState) -> None:
        self.answers = list(answers)
        self.asked: list[list[str]] = []
        self.now = 1000.0
        self.beats: dict[str, float] = {}
        self.other = SILENT  # what another witness says
        self.confirmed: list[str] = []

    def observe(self, handles: Sequence[JobHandle], *, is_doubted: bool = False) -> Mapping[str, JobState]:
        if is_doubted:
            self.confirmed += [handle.id for handle in handles]
            return {handle.id: self.other for handle in handles}
        self.asked.append([handle.id for handle in handles])
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return {handle.id: answer for handle in handles}

    def tracker(self, *handles: JobHandle) -> JobTracker:
        def age(handle: JobHandle) -> float | None:
            return self.now - self.beats[handle.id] if handle.id in self.beats else None

        return JobTracker(self, handles, clock=lambda: self.now, last_beat_s=age)  # type: ignore[arg-type]

    def pass_time(self, tracker: JobTracker, seconds: float, every_s: float = 10.0) -> None:
        for _ in range(round(seconds / every_s)):
            self.now += every_s
            tracker.tick()


def test_all_unfinished_jobs_are_asked_for_at_once_and_ended_ones_never_again() -> None:
    answers = Answers(PENDING, RUNNING, PASSED)
    tracker = answers.tracker(A, B)
    for _ in range(5):
        tracker.tick()
    assert answers.asked == [["1", "2_0"]] * 3
    assert tracker.states == {"1": PASSED, "2_0": PASSED}
    assert tracker.unfinished == []


def test_changes_are_said_once() -> None:
    tracker = Answers(PENDING, PENDING, RUNNING, SILENT).tracker(A)
    said = []
    for _ in range(4):
        tracker.tick()
        said.append(tracker.changes())
    assert said == [[A], [], [A], []]


def test_the_interval_decays_to_ten_seconds() -> None:
    tracker = Answers(RUNNING).tracker(A)
    intervals = []
    for _ in range(8):
        intervals.append(tracker.interval_s)
        tracker.tick()
    assert intervals[0] == 1.0
    assert intervals == sorted(intervals)
    assert tracker.interval_s == 10.0


@pytest.mark.parametrize("silence", [SILENT, ABSENT])
def test_a_job_seen_running_is_running_while_nobody_answers_and_lost_after_the_budget(silence: JobState) -> None:
    answers = Answers(RUNNING, silence)
    tracker = answers.tracker(A)
    tracker.tick()
    answers.pass_time(tracker, LOST_S - 10)
    assert (tracker.states["1"], tracker.is_lost("1")) == (RUNNING, False)
    tracker.changes()
    answers.pass_time(tracker, 10)
    assert tracker.is_lost("1")
    assert tracker.states["1"].phase != "ended"
    assert tracker.changes() == [A]
    assert tracker.unfinished == []


def test_one_answer_begins_the_budget_again() -> None:
    answers = Answers(RUNNING, *[SILENT] * 8, RUNNING, *[ABSENT] * 8, RUNNING)
    tracker = answers.tracker(A)
    answers.pass_time(tracker, 190)
    assert not tracker.is_lost("1")


@pytest.mark.parametrize("silence", [SILENT, ABSENT])
def test_a_job_whose_share_beats_is_not_lost_whatever_the_scheduler_says(silence: JobState) -> None:
    answers = Answers(RUNNING, silence)
    tracker = answers.tracker(A, B)
    tracker.tick()
    for _ in range(100):
        answers.beats["1"] = answers.now
        answers.pass_time(tracker, 10)
    assert (tracker.is_lost("1"), tracker.is_lost("2_0")) == (False, True)
    answers.pass_time(tracker, LOST_S + 10)
    assert tracker.is_lost("1")


def test_a_queued_job_waits_for_a_controller_that_is_down() -> None:
    answers = Answers(PENDING, SILENT)
    tracker = answers.tracker(A)
    tracker.tick()
    answers.pass_time(tracker, OUTAGE_S - 10)
    assert (tracker.states["1"], tracker.is_lost("1")) == (PENDING, False)
    answers.pass_time(tracker, 10)
    assert tracker.is_lost("1")


def test_a_queued_job_that_the_scheduler_forgets_is_lost_after_the_budget() -> None:
    answers = Answers(PENDING, ABSENT)
    tracker = answers.tracker(A)
    tracker.tick()
    answers.pass_time(tracker, LOST_S)
    assert tracker.is_lost("1")


def test_a_job_is_not_lost_for_the_time_in_which_we_did_not_ask() -> None:
    answers = Answers(RUNNING, ABSENT, ABSENT, RUNNING)
    tracker = answers.tracker(A)
    tracker.tick()
    answers.now += 3600.0
    tracker.tick()
    tracker.tick()
    assert not tracker.is_lost("1")
    tracker.tick()
    assert tracker.states["1"] == RUNNING


def test_a_job_that_an_answer_leaves_out_is_unknown() -> None:
    class Nothing(Answers):
        def observe(self, handles: Sequence[JobHandle], *, is_doubted: bool = False) -> Mapping[str, JobState]:
            return {}

    tracker = Nothing(PENDING).tracker(A)
    tracker.tick()
    assert tracker.states["1"].phase == "unknown"


def test_the_end_of_a_job_that_does_not_beat_is_believed_at_once() -> None:
    answers = Answers(RUNNING, PASSED)
    answers.beats["1"] = answers.now - 60.0  # its process was killed; that of the other job has ended in order
    tracker = answers.tracker(A, B)
    tracker.tick()
    tracker.tick()
    assert tracker.unfinished == []
    assert answers.confirmed == []


def test_one_false_end_of_a_job_that_beats_is_not_believed() -> None:
    answers = Answers(RUNNING, PASSED, RUNNING)
    tracker = answers.tracker(A)
    answers.beats["1"] = answers.now
    answers.pass_time(tracker, 20)
    assert (tracker.states["1"], tracker.unfinished) == (RUNNING, [A])
    assert tracker.interval_s < 2.0  # it is asked for again soon
    answers.pass_time(tracker, 10)
    assert tracker.states["1"] == RUNNING


@pytest.mark.parametrize("other", [RUNNING, PENDING])
def test_a_job_that_beats_and_another_witness_knows_has_not_ended_whatever_the_first_says(other: JobState) -> None:
    answers = Answers(PASSED)
    answers.other = other
    tracker = answers.tracker(A)
    for _ in range(100):
        answers.beats["1"] = answers.now
        answers.pass_time(tracker, 10)
        assert tracker.states["1"].phase == "running"
    assert tracker.interval_s == 10.0
    answers.pass_time(tracker, 60)  # the beat has stopped
    assert tracker.states["1"] == PASSED


def test_an_end_that_another_witness_confirms_is_believed_when_it_is_said_again() -> None:
    killed = JobState(phase="ended", result="node-failed", state="NODE_FAIL")
    answers = Answers(RUNNING, killed)
    answers.other = killed
    tracker = answers.tracker(A)
    answers.beats["1"] = answers.now
    answers.pass_time(tracker, 2, every_s=1.0)
    assert (tracker.states["1"], answers.confirmed) == (RUNNING, [])
    answers.pass_time(tracker, 1, every_s=1.0)
    assert (tracker.states["1"], answers.confirmed) == (killed, ["1"])


def test_an_end_that_nobody_else_can_confirm_is_believed_in_the_end() -> None:
    answers = Answers(RUNNING, PASSED)
    tracker = answers.tracker(A)
    for _ in range(10):
        answers.beats["1"] = answers.now
        assert tracker.states["1"].phase != "ended"
        answers.pass_time(tracker, 10)
    assert tracker.states["1"] == RUNNING
    answers.pass_time(tracker, 10)
    assert tracker.states["1"] == PASSED
