"""Follows the jobs of a run to their ends, and gives each step of a job that died its end and the reason.

Whoever does so holds the run's lock. The jobs need nobody.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Final, Literal

from milabench.display.base import Display
from milabench.errors import RecordError, Unreachable
from milabench.events.run_writer import RunWriter
from milabench.events.rundir import Run, open_run
from milabench.events.shares import Share, ShareJob
from milabench.execute.heartbeat import last_beat_age_s
from milabench.execute.interrupts import interrupts
from milabench.execute.local_agent import new_marker
from milabench.execute.locks import hold_run, holder_of, share_beat, this_orchestrator
from milabench.following.run_view import LOOK_EVERY_S, JournalClock, RunView
from milabench.jobs.job_tracker import FIRST_INTERVAL_S, JobTracker
from milabench.jobs.share_job import ends_of
from milabench.jobs.submission import output_of, scheduler_of
from milabench.schedulers.scheduler import UNKNOWN_STATE, WHY_OF_RESULT, JobHandle, JobState, Scheduler
from milabench.workflow.files import writing
from milabench.workflow.options import Session

LIVE_S = 5.0  # for somebody who waits for the answer at a terminal

LOOK_ANYWAY_S = 30.0
REST = 50  # times as long as a look took nothing is read again: of thousands of jobs some end at every tick
ASKED = 2  # times, after which somebody who resumes a run hears that the scheduler does not answer

Until = Literal["ended", "known"]

_STRUCK: Final = ("time-limit", "preempted", "node-failed", "out-of-memory", "cancelled")
"""How jobs end that are asked to before: their steps, which then ended in order, have this as the reason."""


class JobWatch:
    """Asks the scheduler about jobs in a thread of its own, so that a scheduler that hangs delays nothing else."""

    def __init__(self, tracker: JobTracker) -> None:
        self.tracker = tracker
        self.ticks = 0
        self._is_over = False
        self._is_wanted = Event()
        self._thread = Thread(target=self._ask, name="job watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ask no more. A question that the scheduler has yet to answer is left to itself."""
        self._is_over = True
        self._is_wanted.set()

    def ask_now(self) -> None:
        """Ask at once and more often again: something is known to have happened."""
        self.tracker.interval_s = FIRST_INTERVAL_S
        self._is_wanted.set()

    def _ask(self) -> None:
        while not self._is_over:
            self._is_wanted.clear()
            self.tracker.tick()
            self.ticks += 1
            self._is_wanted.wait(self.tracker.interval_s)


def follow_jobs(
    path: Path, writer: RunWriter, scheduler: Scheduler, session: Session, *, until: Until = "ended"
) -> bool:
    """Show the output of a run's jobs, and harvest ended jobs, until all have ended. False when we were asked to leave before.

    `until="known"`: only until each job is known to wait, run or have ended. Raises Unreachable then, when the scheduler does
    not answer, RecordError when the journal cannot be written.
    """
    run, clock, requests = open_run(path), JournalClock(), list[None]()
    clock.reach(run.journal[0].get("t") if run.journal else None)
    jobs = open_jobs(run)
    beats = {handle.id: path / share_beat(share) for share, handle in jobs.items()}
    with (
        interrupts().routed_to(lambda: requests.append(None)),
        contextlib.closing(
            JobWatch(JobTracker(scheduler, list(jobs.values()), last_beat_s=lambda job: last_beat_age_s(beats[job.id])))
        ) as watch,
        contextlib.closing(
            session.reporter.open_display(clock=clock.now) if until == "ended" else Display()
        ) as display,
    ):
        harvest = Harvest(path, writer, watch.tracker, display)
        view = RunView(run, display, clock) if until == "ended" else None
        is_heard = False  # that the process of every share has ended
        ticks, look_at, rest_until = 0, 0.0, 0.0  # nothing is decided before the scheduler was asked
        while not requests:
            is_over, began = False, time.monotonic()
            # All journals are read for a look: where the scheduler tells no news, those of jobs may, some time.
            is_due = watch.ticks > ticks and began >= rest_until
            if is_due and (watch.tracker.changes() or began >= look_at):
                ticks, look_at = watch.ticks, began + LOOK_ANYWAY_S
                is_over = harvest.look(until)
                rest_until = time.monotonic() + REST * (time.monotonic() - began)
            if until == "known" and watch.ticks >= ASKED and (silent := harvest.silent):
                raise Unreachable(f"{path.name}: nothing is known of its jobs: {silent}. They go on by themselves")
            if view is not None:
                view.update()
                if (is_all := view.ended_shares >= jobs.keys()) and not is_heard:
                    watch.ask_now()
                is_heard = is_all
            if is_over:
                return True
            time.sleep(LOOK_EVERY_S)
    return False


def open_jobs(run: Run) -> dict[str, JobHandle]:
    """Return the last job of each share of a run, by share, but for those whose end the scheduler has told.

    A job is known to the scheduler by the name that its submission was journaled with.
    """
    names = {
        str(entry.get("share")): str(entry.get("name")) for entry in run.journal if entry.get("state") == "submitting"
    }
    return {
        share.name: JobHandle(id=share.job.id, name=names.get(share.name, ""))
        for share in run.shares.values()
        if share.job is not None and not (share.job.is_ended and share.job.result)
    }


def ask_about(run: Run, say: Callable[[str], object] = lambda _: None) -> tuple[Run, Mapping[str, JobState]]:
    """Ask the scheduler once about the jobs of a run that have not ended, and harvest them where nobody follows them.

    The record of a run must not depend on whether somebody watched. Return the run as it is then, and the scheduler's
    state of each job that goes on, by share. Nothing is written into a run that is held, or not ours to write. A
    scheduler that is silent is only reported (`say`), and a missing scheduler not even that.
    """
    jobs = open_jobs(run)
    if not jobs or shutil.which("squeue") is None:
        return run, {}
    try:
        tracker = JobTracker(scheduler_of(run, timeout_s=LIVE_S), list(jobs.values()))
        tracker.tick()
    except (RecordError, Unreachable):
        return run, {}
    live = {share: tracker.states[handle.id] for share, handle in jobs.items()}
    # The word of a job that it has ended does not say how: that waits for a scheduler that answers.
    if silent := [state.reason for state in live.values() if state.phase == "unknown"]:
        say(f"{run.name}: how its jobs are is not known now: {silent[0] or 'the scheduler does not answer'}")
    elif holder_of(run.path) is None and any(_has_end(run, share, state) for share, state in live.items()):
        with contextlib.suppress(RecordError, Unreachable, OSError):
            _harvest_once(run.path, tracker)
            run = open_run(run.path)
    still = open_jobs(run)
    return run, {share: state for share, state in live.items() if still.get(share) == jobs[share]}


def _harvest_once(path: Path, tracker: JobTracker) -> None:
    with hold_run(path, this_orchestrator(new_marker(path.name))), contextlib.closing(RunWriter(path)) as writer:
        Harvest(path, writer, tracker, Display()).look("ended")
        if all(share.is_ended for share in open_run(path).shares.values()):
            end_run(path, writer)


def _has_end(run: Run, share: str, state: JobState) -> bool:
    job = run.shares[share].job
    return job is not None and conclusion(job, state, is_lost=False) is not None


def end_run(path: Path, writer: RunWriter) -> bool:
    """Journal the end of a run all of whose jobs have ended. Return whether all its steps have passed."""
    shares = open_run(path).shares.values()
    outcomes = [tried and tried.outcome for share in shares for tried in share.attempts.values()]
    is_passed = all(outcome in ("passed", "skipped") for outcome in outcomes)
    with writing(path):
        writer.journal({"run": "ended", "verdict": "passed" if is_passed else "failed"})
    return is_passed


class Harvest:
    """Writes the scheduler's states of a run's jobs to its journal, and ends the steps of those that are gone."""

    def __init__(self, path: Path, writer: RunWriter, tracker: JobTracker, display: Display) -> None:
        self._path = path
        self._writer = writer
        self._tracker = tracker
        self._display = display
        self._said: dict[str, tuple[str, str]] = {}
        self._shown = ""

    @property
    def silent(self) -> str:
        """Why nothing at all is known of a job. Empty where something is known of each."""
        why = [state.reason for state in self._tracker.states.values() if state.phase == "unknown"]
        return (why[0] or "the scheduler does not answer") if why else ""

    def look(self, until: Until) -> bool:
        """Harvest ended jobs. Return whether there is nothing left to wait for."""
        run, open_phases = open_run(self._path), Counter[str]()
        is_over = True
        entries: list[dict[str, object]] = []
        for name, handle in open_jobs(run).items():
            share = run.shares[name]
            job = share.job
            assert job is not None
            state = self._tracker.states.get(handle.id, UNKNOWN_STATE)
            end = conclusion(job, state, self._tracker.is_lost(handle.id))
            if end is not None:
                entries += harvested(share, end, output_of(run, share.name))
                continue
            open_phases[phase_text(state)] += 1
            is_over = is_over and until == "known" and state.phase in ("pending", "running")
            if state.phase in ("pending", "running") and self._said.get(handle.id) != (state.phase, state.reason):
                self._said[handle.id] = (state.phase, state.reason)
                entries.append({**_of_job(share.name, handle.id, state), "state": state.phase})
        if entries:
            with writing(self._path):
                # After what the job wrote, whose clock may be ahead of ours.
                latest = max((float(entry.get("t") or 0.0) for entry in run.journal[-1:]), default=0.0)
                now = max(time.time(), latest)
                self._writer.journal_all({"t": now, **entry} for entry in entries)
        if (text := "; ".join(f"{count} {phase}" for phase, count in sorted(open_phases.items()))) != self._shown:
            self._shown = text
            if text:
                self._display.on_message(f"jobs: {text}")
        return is_over


def phase_text(state: JobState) -> str:
    """Return the phase of a job, for a person: of a pending job with its reason."""
    waits = state.phase == "pending" and state.reason not in ("", "None")
    return f"pending ({state.reason})" if waits else state.phase


def conclusion(job: ShareJob, state: JobState, is_lost: bool) -> JobState | None:
    """Return the state in which a job ended, with its result. None while it goes on, or nobody can say.

    Its own word counts where the scheduler has none. A job that the scheduler has forgotten, and of which nothing is heard, is
    lost.
    """
    if state.phase == "ended":
        return replace(state, result=state.result or "completed")
    if job.is_ended and state.phase in ("absent", "unknown"):
        return replace(state, phase="ended", result="completed", witness="journal")
    return replace(state, phase="ended", result="lost") if is_lost else None


def harvested(share: Share, state: JobState, output: str) -> Iterator[dict[str, object]]:
    """Yield the entries that end a share: the entries of steps without end, then of its job, whose `output` is named.

    Steps that a job left undone which ended by itself are `job-failed`.
    """
    job = share.job
    assert job is not None
    nodes = state.nodes or job.nodes
    what = ", ".join(dict.fromkeys(word for word in (state.state, state.reason) if word not in ("", "None")))
    if state.result == "lost":
        seen = "" if not what else f", last seen as {what}" if state.state else f": {what}"
        what = f"nobody knows it any more{seen}"
    what = what or "has ended"
    where = f" on {', '.join(nodes)}" if nodes else ""
    exit_code = f", exit code {state.exit_code}" if state.exit_code else ""
    struck = [
        step
        for step, tried in share.attempts.items()
        if tried is not None
        and state.result in _STRUCK
        # Asked to end, by a signal that its steps may have got too.
        and (tried.outcome == "cancelled" or (tried.outcome == "failed" and tried.why in ("signal", "lost-node")))
    ]
    detail = f"job {job.id}{where}: {what}{exit_code}. Its output is in {output}"
    why = WHY_OF_RESULT.get(state.result, "job-failed")
    yield from ends_of(share, (*share.unended, *struck), why, detail)
    yield {**_of_job(share.name, job.id, state), "state": "ended", "result": state.result}


def _of_job(share: str, job: str, state: JobState) -> dict[str, object]:
    words = {
        "job_state": state.state,
        "reason": "" if state.reason == "None" else state.reason,
        "witness": state.witness,
        "hosts": list(state.nodes),
        "exit_code": state.exit_code,
    }
    return {"share": share, "job": job, **{key: value for key, value in words.items() if value not in ("", [], None)}}
