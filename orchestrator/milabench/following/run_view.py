"""Shows a run from its journal and records alone: a run that another process executes, here or elsewhere, or a recorded run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

from milabench.analysis.measure import Measurement, measure
from milabench.analysis.rate_so_far import sums_of
from milabench.analysis.run_status import run_status
from milabench.analysis.step_results import planned_steps
from milabench.display.base import Display
from milabench.errors import DONE, INTERRUPTED, STEPS_FAILED, RecordError
from milabench.events.attempts import attempts, last_word
from milabench.events.model import End, Line, Start
from milabench.events.run_files import JOURNAL, journal_name
from milabench.events.rundir import Run, open_run
from milabench.events.shares import merge_journals
from milabench.events.stored_run import parse_entry
from milabench.events.values import as_mapping, whole
from milabench.events.wire import encode
from milabench.execute.detach import LOG
from milabench.execute.interrupts import interrupts
from milabench.execute.locks import Orchestrator, holder_of
from milabench.following.appended import Appended
from milabench.following.recorded_events import replay
from milabench.plan.model import Plan, SkippedBench, Step
from milabench.workflow.options import Reporter, Session
from milabench.workflow.run_suite import CHANGE_THE_EXIT_CODE, report_result
from milabench.workflow.shown_steps import ShownSteps
from milabench.workflow.summaries import summary_of

LOOK_EVERY_S = 0.3
LOOK_AT_A_SHARE_S = 0.005  # two thousand of them every 10 s; opening one takes some hundredth of it
_PIECE = 1 << 24  # bytes of a step's records that are read at once

Ending = Literal["ended", "died", "left"]
"""Why a view ended: the orchestrator ended or died, or we were asked to end and it goes on."""


def attach_to_run(run: Run, orchestrator: Orchestrator, session: Session) -> int | None:
    """Show a run to its end: return the exit code of `milabench run`. None when its orchestrator died before that.

    Ctrl-C ends only the view, not the run.
    """
    ending = follow(run.path, orchestrator, session.reporter)
    if ending == "left":
        host = "" if orchestrator.is_local else f" on {orchestrator.host}"
        session.info(
            f"resume: {run.name} is still running. `milabench resume` shows it again, `milabench cancel`{host} ends it"
        )
        return INTERRUPTED
    if ending == "died":
        session.info(f"resume: {run.name}: {orchestrator} died before the run's end. See {run.path / LOG}")
        return None
    ended = open_run(run.path)
    status = run_status(ended)
    report_result(summary_of(ended), run.path, session)
    if status.verdict == "interrupted":
        return INTERRUPTED
    is_whole = bool(status.counts) and not any(name in status.counts for name in CHANGE_THE_EXIT_CODE)
    return DONE if is_whole and status.verdict == "passed" else STEPS_FAILED


def follow(path: Path, orchestrator: Orchestrator, reporter: Reporter) -> Ending:
    """Show a run until this orchestrator has ended or died, or we are interrupted."""
    requests: list[None] = []
    run, clock = open_run(path), JournalClock()
    clock.reach(run.journal[0].get("t") if run.journal else None)
    with (
        interrupts().routed_to(lambda: requests.append(None)),
        contextlib.closing(reporter.open_display(clock=clock.now)) as display,
    ):
        view = RunView(run, display, clock)
        while not requests:
            holder = holder_of(path)  # before reading: all that it wrote until then is read
            view.update()
            if view.ended == orchestrator.marker:
                return "ended"
            if holder is None or holder.marker != orchestrator.marker:
                return "died"
            time.sleep(LOOK_EVERY_S)
    return "left"


class JournalClock:
    """The shown time, in unix seconds: of the journal's entry being shown, else the present. It never goes back."""

    def __init__(self) -> None:
        self._latest = 0.0
        self._is_past = False

    def reach(self, t: object) -> None:
        """Show the time of an entry, if it has a time."""
        self._is_past = True
        if isinstance(t, int | float):
            self._latest = max(self._latest, t)

    def go_on(self) -> None:
        """Show the present time again."""
        self._is_past = False

    def now(self) -> float:
        """Return the time that is shown."""
        if not self._is_past:
            self._latest = max(self._latest, time.time())
        return self._latest


class RunView:
    """Passes new entries since the last update to a display. `ended` is the marker of the last orchestrator to end.

    `ended_shares` are those whose process said that it has ended.
    """

    def __init__(self, run: Run, display: Display, clock: JournalClock) -> None:
        self.ended = ""
        self.ended_shares: set[str] = set()
        self._run = run
        self._display = display
        self._shown = ShownSteps(display, self._measured)
        self._clock = clock
        self._marker = ""
        self._journal = Appended(run.path / JOURNAL)
        self._of_shares = {share: Appended(run.path / journal_name(share)) for share in run.shares}
        self._look_at = 0.0
        self._records: dict[str, Appended] = {}
        self._is_current = False
        self._shown.on_plan(plan_of(run))

    def update(self) -> None:
        """Show new entries, and the progress of the running steps."""
        for entry in self._new_entries():
            self._clock.reach(entry.get("t"))
            self._show(entry)
        self._clock.go_on()
        self._is_current = True
        for step in self._records:
            self._show_progress(step)
        self._display.tick()

    def _new_entries(self) -> tuple[Mapping[str, object], ...]:
        """Return the new entries of the journals, merged.

        Thousands of journals are read less often, the journals of ended jobs at once.
        """
        own = _entries_of(self._journal)
        now = time.monotonic()
        ended = {entry.get("share") for entry in own if entry.get("state") == "ended" and "step" not in entry}
        looked_at = [share for share in self._of_shares if share in ended]
        if now >= self._look_at:
            self._look_at = now + LOOK_AT_A_SHARE_S * len(self._of_shares)
            looked_at = list(self._of_shares)
        return merge_journals(own, (_entries_of(self._of_shares[share]) for share in looked_at))

    def _show(self, entry: Mapping[str, object]) -> None:
        match entry:
            case {"run": "ended", "share": str(share)}:
                self.ended_shares.add(share)
            case {"run": _, "share": share}:
                self.ended_shares.discard(str(share))
            case {"run": "started"}:
                self._marker = str(entry.get("marker"))
            case {"run": "ended"}:
                self.ended = self._marker
            case {"step": str(step), "state": "planned"} if step not in self._run.files:  # beyond a pilot
                self._run = open_run(self._run.path)
                self._shown.on_plan(replace(plan_of(self._run), skipped=()))
            case {"step": str(step), "state": "started"}:
                self._shown.on_start(step)
                self._records[step] = Appended(self._run.path / f"{self._run.stem(step, _attempt(entry))}.data")
            case {"step": str(step), "state": "ended", "outcome": str(outcome)}:
                if self._is_current and step in self._records:
                    self._show_progress(step)
                self._records.pop(step, None)
                reason = ": ".join(str(part) for part in (entry.get("why"), entry.get("detail")) if part)
                self._shown.on_end(step, outcome, reason, _attempt(entry), str(entry.get("node") or ""))
            case _:
                pass

    def _show_progress(self, step: str) -> None:
        """Show the progress of a step, if there is something new. For a step that was already running, the whole file is read."""
        from milabench.events.batch_decoder import decode_lines

        observed = []
        while lines := self._records[step].lines(_PIECE):
            observed += [sums for event in decode_lines(b"\n".join(lines), step) if (sums := sums_of(event))]
        if observed:
            self._shown.on_sums(step, *observed)

    def _measured(self, step: str, attempt: int) -> Measurement | None:
        # What ended before we came would be read all at once, beside a measurement: `milabench report` has those numbers.
        return measured_attempt(self._run, step, attempt) if self._is_current else None


def _entries_of(journal: Appended) -> list[Mapping[str, object]]:
    entries = []
    for line in journal.lines():
        with contextlib.suppress(ValueError):  # truncated by a crash; the entry after it says where the run was resumed
            entries.append(parse_entry(line))
    return entries


def _attempt(entry: Mapping[str, object]) -> int:
    return max(1, whole(entry.get("attempt"), 1))


def measured_attempt(run: Run, step: str, attempt: int) -> Measurement | None:
    """Return the numbers of an attempt at a step. None where its records cannot be read, which a view ignores."""
    try:
        return measure(step, run.batches(step, attempt))
    except RecordError:
        return None


def replay_run(run: Run, reporter: Reporter, *, speed: float = 10.0, is_verbose: bool = False) -> None:
    """Show a run from its records. `speed` is the playback speed, 0 for no delay."""
    clock = ReplayClock(speed)
    with contextlib.closing(reporter.open_display(is_verbose=is_verbose, clock=clock.now)) as display:
        play(run, display, clock.reach)


class ReplayClock:
    """The clock of a replay, at the times of the records. It runs at `speed` times the recorded speed."""

    def __init__(self, speed: float, sleep: Callable[[float], object] = time.sleep) -> None:
        self._speed = speed
        self._sleep = sleep
        self._first = self._now = 0.0

    def now(self) -> float:
        """Return the time that is shown, in seconds since the first record."""
        return self._now - self._first

    def reach(self, t: float | None) -> None:
        """Wait until the time of a record. Does not wait for a record without a time, or where the clock jumped back."""
        if t is None or t <= self._now:
            return
        if not self._now:
            self._first = t
        elif self._speed:
            self._sleep((t - self._now) / self._speed)
        self._now = t


def play(run: Run, display: Display, reach: Callable[[float | None], None]) -> None:
    """Pass the events of a run to a display. Last, the ends of steps without records."""
    # Time begins with the journal: planning and the start of the agents are part of what is shown.
    began = run.journal[0].get("t") if run.journal else None
    reach(began if isinstance(began, int | float) else None)
    shown = ShownSteps(display, partial(measured_attempt, run))
    shown.on_plan(plan_of(run))
    ended: set[str] = set()
    by_step = attempts(run.journal)
    node_of = {(tried.step, tried.number): tried.node for of_step in by_step.values() for tried in of_step}
    for attempt, event in replay(run):
        reach(event.t)
        match event:
            case Start():
                shown.on_start(event.step)
            case Line():
                display.on_line(event.step, encode(event))
            case End():
                ended.add(event.step)
                reason = ": ".join(part for part in (event.why or "", event.detail) if part)
                reason = "" if event.outcome == "passed" else reason
                shown.on_end(event.step, event.outcome, reason, attempt, node_of.get((event.step, attempt), ""))
            case _ if sums := sums_of(event):
                shown.on_sums(event.step, sums)
            case _:
                pass
    for step, tried in by_step.items():
        last = last_word(tried)
        if last is not None and step not in ended:
            shown.on_end(step, last.outcome or "missing", last.detail, last.number, last.node)
    for step in run.files.keys() - ended - by_step.keys():
        shown.on_end(step, "missing", "did not start")


def plan_of(run: Run) -> Plan:
    """Return as much of a run's plan as a display needs."""
    skipped = as_mapping(run.manifest.get("plan")).get("skipped") or ()
    return Plan(
        phase="prepare" if run.phase == "prepare" else "install" if run.phase == "install" else "run",
        steps=tuple(
            Step(id=step.id, bench=step.bench, phase="run", argv=(), group=step.group, one_job=step.one_job)
            for step in planned_steps(run)
        ),
        skipped=tuple(SkippedBench(bench=entry["bench"], why=str(entry.get("why"))) for entry in skipped),
    )
