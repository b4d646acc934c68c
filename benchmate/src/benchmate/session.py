"""The session: a process's configuration, sink and observers, on which the functions of the package act."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from time import perf_counter_ns
from typing import TYPE_CHECKING

from benchmate import compile_time, memory, step_parts
from benchmate.clock import keep_for_ever, wait_for_devices
from benchmate.configuration import Config, read_config
from benchmate.recording import Recording
from benchmate.ring import LOST, STOP, Ring
from benchmate.sink import Sink

if TYPE_CHECKING:
    from benchmate.loop_observer import Observer
    from benchmate.loss_recorder import LossRecorder
    from benchmate.program_rates import ProgramRates

MAX_SWALLOWED_STOPS = 100
MAIN_THREAD_GRACE_NS = 5_000_000_000
"""The time in which the main thread should see that another thread has the window."""
INJECTIONS_APART_NS = 100_000_000
"""The time in which the main thread, after an exception of another thread, reaches `program_ended`. The next comes later."""
_JOIN_S = 0.05  # in which a thread that waits for another one sees that it is to end


class Session(Recording):
    """Everything that a process measures. Created by the runner, or at the first use in a script of its own."""

    def __init__(
        self, config: Config, sink: Sink | None = None, *, stop_exception: type[BaseException] | None = None
    ) -> None:
        super().__init__(config, sink, stop_exception)
        self.stopped_because: str | None = None
        self.observers: dict[str, Observer] = {}
        self.losses: dict[str, LossRecorder] = {}
        self.program_rates: dict[str, ProgramRates] = {}
        self.is_forked_child = False
        self._pid = os.getpid()
        self._tasks_with_parts: set[str] = set()
        self._open_pauses = 0
        self._pause_name = ""
        self._swallowed = self._first_stop_ns = self._injected_ns = 0
        self._has_program_ended = self._is_finished = False
        self._lock = threading.RLock()
        """Held while an observer is made, while another thread raises in the main thread, and while the session finishes."""
        self._when_replaced: list[Callable[[], None]] = []
        if self.stop_exception is not None:
            self.end_program_with(self.stop_exception)
            asked = self.config.values.get("answers") or {}
            if asked.get("steps"):
                from benchmate.answers import Answers

                self.answers = Answers(asked, self.rank_label, self.record, self.message)

    # Observers

    def observer(self, task: str, units: str, stop: bool | None = None) -> Observer:
        """Return the only observer of a task, created when it is new: several loops over the same task share it."""
        known = self.observers.get(task)
        if known is None:
            from benchmate.loop_observer import Observer

            with self._lock:  # several threads may begin at once
                known = self.observers.get(task)
                if known is None:
                    known = self.observers[task] = Observer(self, task, units, stop)
                    if task in self._tasks_with_parts:
                        self.record_parts(task)
        return known

    def program_rate(self, data: Mapping[str, object]) -> None:
        """Take a rate that the program measured itself (`ProgramRates.take`). A loop that is observed goes before it."""
        task = str(data.get("task") or "train")
        if task in self.observers:
            self.message(f"{task}: rates that the program measured are left out: its loop is observed", once=True)
            return
        if task not in self.program_rates:
            from benchmate.program_rates import ProgramRates

            self.program_rates[task] = ProgramRates(self, task)
        self.program_rates[task].take(data)

    def record_parts(self, task: str) -> None:
        """Record the parts of a task's steps, from now on or as soon as it has an observer."""
        self._tasks_with_parts.add(task)
        if task in self.observers:
            parts = self.observers[task].record_parts()
            if parts is not None:
                step_parts.watch(parts)

    def loss_recorder(self, task: str) -> LossRecorder:
        """Return the loss recorder of a task, created when it is new."""
        known = self.losses.get(task)
        if known is None:
            from benchmate.loss_recorder import LossRecorder

            known = self.losses[task] = LossRecorder(self, task)
        return known

    @contextlib.contextmanager
    def pause(self, name: str) -> Iterator[None]:
        """Declare the time inside the `with` as not measured. Windows become longer by this time."""
        if self._open_pauses == 0:
            # What the devices still have to do is part of what came before.
            wait_for_devices()
            self._pause_name, self.paused_ns = name, perf_counter_ns()
            for observer in self.observers.values():
                observer.begin_pause(self.paused_ns)
        self._open_pauses += 1
        try:
            yield
        finally:
            self._open_pauses -= 1
            # A worker of a loader that was forked does not pause the loop of its parent.
            if self._open_pauses == 0:
                start_ns, self.paused_ns = self.paused_ns, 0
                if self.observers or not self.is_forked_child:
                    wait_for_devices()
                    self._record_pause(self._pause_name, start_ns, perf_counter_ns())

    def _record_pause(self, name: str, start_ns: int, stop_ns: int) -> None:
        pause = {"name": name, "start_ns": start_ns, "stop_ns": stop_ns}
        self.record("data", {"task": "main", "pause": pause, **self.rank_label})
        for observer in self.observers.values():
            observer.end_pause(stop_ns - start_ns)

    def runs_on(self, task: str, ring: Ring) -> bool:
        """Return whether a task that has its observations runs on, because another instance of the group has not.

        Tell the agent once. Its answer is a word in the ring, so that looking at it costs no system call.
        """
        if not self.passed_barrier or ring.path is None or ring.words[STOP]:
            return False
        if task not in self.satisfied:
            self.satisfied.add(task)
            if all(other.task in self.satisfied for other in self.observers.values() if other.stopping):
                self.sink.control({"complete": True})
        return self.sink.ring_folder is not None

    # Ending

    @property
    def is_measuring(self) -> bool:
        """Whether a task that is to end the program lacks its window."""
        tasks: tuple[Observer | ProgramRates, ...] = (*self.observers.values(), *self.program_rates.values())
        return not self._is_refused and any(task.stopping and not task.is_complete for task in tasks)

    def stop(self, reason: str) -> bool:
        """End the program once every task that was to end it has its window.

        Raise the runner's StopProgram, again at each call, because a script may swallow it. A script that keeps swallowing it is
        ended with everything recorded. Return True where there is no runner: the loop itself should end.
        """
        if self.is_measuring:
            return False
        if self.stopped_because is None:
            self.stopped_because = reason
            self.record("stop", {"reason": reason})
        if self.stop_exception is None or self._has_program_ended:
            return True
        is_main_thread = threading.current_thread() is threading.main_thread()
        now_ns = perf_counter_ns()
        self._first_stop_ns = self._first_stop_ns or now_ns
        is_due = is_main_thread or now_ns - self._injected_ns > INJECTIONS_APART_NS
        self._swallowed += is_due
        # A main thread that waits in compiled code for callbacks from another one sees the exception when all is over.
        is_late = not is_main_thread and now_ns - self._first_stop_ns > MAIN_THREAD_GRACE_NS
        if self._swallowed > MAX_SWALLOWED_STOPS or is_late:
            how = "waits for another thread" if is_late else f"swallowed StopProgram {MAX_SWALLOWED_STOPS} times"
            self.message(f"the script {how}. Ended from outside its reach")
            with self._lock:
                self.finish()
                flush_and_exit(0 if not self.failures else 1)
        if is_main_thread:
            raise self.stop_exception(reason)
        with self._lock:
            if is_due and not self._has_program_ended:
                self._injected_ns = now_ns
                self._raise_in_main_thread()
        return True

    def end_program_with(self, stop_exception: type[BaseException]) -> None:
        """Raise this exception in the main thread when the window is complete, also from another thread's loop.

        The latter only where this is called in the main thread, in which alone Python sets and runs handlers of signals.
        """
        import signal

        self.stop_exception = stop_exception
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGRTMAX, self._raise_stop)

    def _raise_stop(self, *_: object) -> None:
        if self.stop_exception is not None and not self._has_program_ended:
            raise self.stop_exception(self.stopped_because)

    def _raise_in_main_thread(self) -> None:
        """End the program where the loop runs in another thread: what that raises would end only itself.

        At the next byte code of the main thread: one that waits in C, in join() say, sees it when that returns.
        """
        import _thread
        import signal

        # Not PyThreadState_SetAsyncExc: until a thread that the main one starts has begun, Python takes it for the main one. It
        # dies of the exception, and the main thread waits for its begin for ever.
        _thread.interrupt_main(signal.SIGRTMAX)

    def wait_for_threads(self) -> None:
        """Wait, as Python does before it ends, until the other threads of the program have ended, or any ends the program.

        Executors let their threads end first, by their registered exit functions.
        """
        threads = [
            thread for thread in threading.enumerate() if not thread.daemon and thread is not threading.main_thread()
        ]
        if threads:
            for release in reversed(getattr(threading, "_threading_atexits", ())):
                threading.Thread(target=release, daemon=True).start()
        for thread in threads:
            while thread.is_alive() and self.stopped_because is None:
                thread.join(_JOIN_S)

    def program_ended(self) -> None:
        """Note that the program's main thread has ended. From here on no other thread raises in it.

        What another thread asked for just before is raised in here, or not at all.
        """
        if self.stop_exception is None:
            return
        while not self._has_program_ended:
            with contextlib.suppress(self.stop_exception), self._lock:
                self._has_program_ended = True

    def finish(self) -> None:
        """Send the rest: the end of each window, losses, peaks of memory, the cost of the instruments. Once."""
        with self._lock:
            # A child whose fork Python did not see must not send what its parent has measured.
            if self._is_finished or self._pid != os.getpid():
                return
            self._is_finished = True
            self._send_the_rest()

    def _send_the_rest(self) -> None:
        recorders: tuple[Observer | LossRecorder | ProgramRates, ...]
        recorders = (*self.observers.values(), *self.losses.values(), *self.program_rates.values())
        for recorder in recorders:
            recorder.close()
        if self.answers is not None:
            self.answers.close()
        self._send_memory()
        for framework, seconds in compile_time.compile_seconds().items():
            self.metric("compile", seconds, "s", "lower", part=framework)
        # Before the cost is measured, which gives each observer another ring.
        lost = sum(observer.ring.words[LOST] for observer in self.observers.values())
        host_s = 0.0
        with contextlib.suppress(RuntimeError):  # a device that has failed
            host_s = sum(observer.cost_s() for observer in self.observers.values())
        self.record_overhead(host_s, lost)
        self.sink.close()

    def when_replaced(self, function: Callable[[], None]) -> None:
        """Call `function` when this session is no longer the process's: it must drop its references to the session."""
        self._when_replaced.append(function)

    def replaced(self) -> None:
        """Call the functions registered with `when_replaced`."""
        for function in self._when_replaced:
            function()

    def _send_memory(self) -> None:
        host_peak = memory.host_peak_bytes()
        if host_peak is not None:
            self.metric("host_memory_peak", host_peak, "B", "lower")
        for part, peaks in (("setup", self._setup_peaks), ("run", memory.allocator_peaks())):
            for kind, value in (peaks or {}).items():
                self.metric(f"memory_{kind}_peak", value, "B", "lower", part=part)

    def forked(self) -> None:
        """Reset in a forked child: the parent's measurements stay with the parent."""
        self.is_forked_child = True
        self._pid = os.getpid()
        self._has_program_ended = self._is_finished = False
        self._swallowed = self._first_stop_ns = self._injected_ns = 0
        self._lock = threading.RLock()  # another thread of the parent may hold the old one
        self.sink.forked()
        if any(observer.count for observer in self.observers.values()):
            # What the child does, in loops of its own as well, is not the work that its parent measures.
            self.sink, self.stop_exception = Sink(), None
        for observer in self.observers.values():
            observer.detach()
        self.observers = {}
        if self.losses:
            keep_for_ever(self.losses)  # those on the parent's device
        self.losses = {}
        self.program_rates = {}
        self.answers = None
        self.replaced()
        step_parts.unwatch_all()
        self.failures = []


def flush_and_exit(code: int) -> None:
    """End the process at once, after flushing its output."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)


_current: Session | None = None


def current() -> Session:
    """Return the session of this process. A script without the runner gets it at its first use."""
    if _current is None:
        return use(Session(read_config(os.environ.get("MILABENCH_BENCH_CONFIG"))))
    return _current


def use(session: Session) -> Session:
    """Make `session` this process's. It sends the rest when the process ends."""
    global _current  # noqa: PLW0603  (one process has one session, as it has one stderr)
    if _current is None:
        os.register_at_fork(after_in_child=_after_fork)
        # Handlers run last in, first out: what the program registers after its first step, to take its devices down, runs before.
        atexit.register(_at_exit)
        compile_time.listen_for_compilations()
    else:
        _current.replaced()
    _current = session
    return session


def _after_fork() -> None:
    if _current is not None:
        _current.forked()


def _at_exit() -> None:
    # A forked child that measured nothing has nothing to send.
    if _current is None:
        return
    if _current.observers or _current.losses or _current.program_rates or not _current.is_forked_child:
        _current.finish()
