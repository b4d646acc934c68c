"""Rates that a program measured itself, and gives as numbers: their warm-up, their window and their end."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter_ns, time_ns

from benchmate.recording import Recording
from benchmate.records import as_number, window_record
from benchmate.relay_pipe import ask_to_end

CLOCK = "program"
"""The clock named in a record: such a rate has neither items nor seconds, and only the program knows the timed part."""

OBSERVATION_KEYS = frozenset({"n", "elapsed", "t0_ns", "host_ns"})

PROGRESS_NS = 1_000_000_000
"""Between two records of the progress when all the wanted rates are there, but not yet the seconds of the window."""


class ProgramRates:
    """The rates of a task that its program measured itself.

    They are recorded unchanged. Rates of the warm-up are marked, and `window` says when the window began and ended, as for an
    observed loop. The program is ended when the window is complete, by its runner or by the relay that started it, unless ranks
    work together, of which others would wait.
    """

    def __init__(self, session: Recording, task: str) -> None:
        self._session = session
        self._measure = measure = session.config.measure
        self._task = task
        has_end = session.stop_exception is not None or session.relay is not None
        self.stopping = task == "train" and has_end and session.world_size == 1
        self._is_warm_up = bool(measure.warmup_steps or measure.warmup_s or measure.barrier)
        self._first_ns = self._start_ns = self._last_ns = perf_counter_ns()
        self._unix_minus_mono_ns = time_ns() - self._first_ns
        self._warm = 0
        self._count = 0
        self._progress_ns = 0
        self._relay_knows = False
        self.is_complete = False

    def take(self, data: Mapping[str, object]) -> None:
        """Take a rate: `rate`, in `units`. `time` is the unix time at which it was measured, now where it is not given.

        A rate measured with our own clock has the keys of an observation, too: n, elapsed, t0_ns and host_ns.
        """
        if self.is_complete and self.stopping:
            # The program has not ended: it caught what was to end it, or waits outside of Python.
            self._stop()
            return
        now_ns = self._last_ns = perf_counter_ns()
        record = {
            "task": self._task,
            "rate": as_number(data["rate"]),
            "units": str(data.get("units") or "items/s"),
            "time": as_number(data.get("time")) or (now_ns + self._unix_minus_mono_ns) / 1e9,
            "clock": CLOCK,
        }
        if data.keys() >= OBSERVATION_KEYS:
            record |= {key: as_number(data[key]) for key in OBSERVATION_KEYS} | {"clock": "host"}
        if self._is_warm_up:
            record["warmup"] = True
        record |= self._session.rank_label
        self._session.record("data", record)
        self._count += 1
        if self._count == 1:
            self._first_ns = now_ns
            self._session.first_step(now_ns)
        wanted = max(1, self._measure.window_steps)
        if self._is_warm_up:
            if self._count == 1:
                self._record_progress(0, wanted, now_ns)
            self._end_warm_up(now_ns)
            return
        observed = self._count - self._warm
        if observed <= wanted or now_ns - self._progress_ns >= PROGRESS_NS:
            self._record_progress(observed, wanted, now_ns)
        if observed >= wanted and now_ns - self._start_ns >= self._measure.window_s * 1e9:
            self._end_window("complete")
            if self.stopping:
                self._stop()

    def _record_progress(self, observed: int, wanted: int, now_ns: int) -> None:
        self._progress_ns = now_ns
        self._session.record("data", {"task": self._task, "progress": [observed, wanted], "clock": CLOCK})

    def _stop(self) -> None:
        """End the program, or have it ended by the relay that started it."""
        session, reason = self._session, f"{self._task}: {self._count - self._warm} rates"
        if session.stop_exception is not None or session.relay is None:
            session.stop(reason)
        elif not self._relay_knows and not session.is_measuring:
            self._relay_knows = ask_to_end(session.relay, reason)

    def _end_warm_up(self, now_ns: int) -> None:
        measure = self._measure
        if self._count < measure.warmup_steps or now_ns - self._first_ns < measure.warmup_s * 1e9:
            return
        if measure.barrier and not self._session.passed_barrier:
            self._session.wait_for_go()
        self._is_warm_up, self._warm = False, self._count
        self._session.begin_window()
        self._start_ns = self._last_ns = perf_counter_ns()

    def _end_window(self, why: str) -> None:
        if self.is_complete:
            return
        self.is_complete = True
        window = window_record(self._start_ns, self._last_ns, self._unix_minus_mono_ns, why)
        self._session.record("data", {"task": self._task, "window": window, "clock": CLOCK})

    def close(self) -> None:
        """Complete open entries: the program has ended."""
        if self._is_warm_up:
            self._session.message(
                f"{self._task}: ended during warm-up, after {self._count} rates: nothing was measured"
            )
            return
        observed_s = (self._last_ns - self._start_ns) / 1e9
        has_all = self._count - self._warm >= self._measure.window_steps and observed_s >= self._measure.window_s
        self._end_window("complete" if has_all else "ended")
