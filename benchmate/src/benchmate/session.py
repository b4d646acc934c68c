"""The session: a process's configuration, sink and observers, on which the functions of the package act."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING

from benchmate import compile_time, memory, step_parts
from benchmate.clock import keep_for_ever, process_start_ns, wait_for_devices
from benchmate.configuration import Config, getenv, read_config
from benchmate.frameworks import process_group
from benchmate.records import observation
from benchmate.relay_pipe import find_relay
from benchmate.ring import LOST, STOP, UNIX_MINUS_MONO, Ring, take_entries, take_losses
from benchmate.sink import AgentSink, Sink, open_sink

if TYPE_CHECKING:
    from benchmate.answers import Answers
    from benchmate.loop_observer import Observer
    from benchmate.loss_recorder import LossRecorder
    from benchmate.program_rates import ProgramRates

MEASURED_BY = "MILABENCH_MEASURED_BY"
"""The variable with the id of the measuring process: its children inherit it, and measure nothing."""
MAX_SWALLOWED_STOPS = 100
MAIN_THREAD_GRACE_NS = 5_000_000_000
"""The time in which the main thread should see that another thread has the window."""
INJECTIONS_APART_NS = 100_000_000
"""The time in which the main thread, after an exception of another thread, reaches `program_ended`. The next comes later."""
_JOIN_S = 0.05  # in which a thread that waits for another one sees that it is to end
BARRIER_TIMEOUT_S = 86_400.0
"""The agent's own limit is shorter. This limit is for an agent that hangs."""


class Session:
    """Everything that a process measures. Created by the runner, or at the first use in a script of its own."""

    def __init__(
        self, config: Config, sink: Sink | None = None, *, stop_exception: type[BaseException] | None = None
    ) -> None:
        environ = os.environ
        self.config = config
        # torchrun and its like say it in the environment; mpirun and spawn() leave it to the program.
        rank, world_size = (0, 1) if "RANK" in environ else _process_group_rank()
        self.rank = getenv("RANK", int, rank)
        self.local_rank = getenv("LOCAL_RANK", int, rank)
        self.world_size = getenv("WORLD_SIZE", int, world_size)
        self.rank_label: Mapping[str, int] = {"rank": self.rank} if self.world_size > 1 else {}
        """The rank in a record, where there are others."""
        hello = {
            "pid": os.getpid(),
            "role": "rank",
            "rank": self.rank,
            "local_rank": self.local_rank,
            "world_size": self.world_size,
        }
        if self._is_of_a_child(environ):
            # What it does is not the work that its parent measures, as in a forked child.
            sink, stop_exception = Sink(), None
        self.sink: Sink = sink if sink is not None else open_sink(environ, hello)
        self.stop_exception: type[BaseException] | None = None
        """The exception that ends the program when the window is complete. None in a script of its own, where none is raised."""
        self.relay = find_relay(environ) if isinstance(self.sink, AgentSink) else None
        """The pipe of the relay that started the program, which ends it with the window of the program's own rates."""
        self.stopped_because: str | None = None
        self.failures: list[tuple[str, str]] = []
        self.observers: dict[str, Observer] = {}
        self.losses: dict[str, LossRecorder] = {}
        self.program_rates: dict[str, ProgramRates] = {}
        self.is_forked_child = False
        self._pid = os.getpid()
        self._sent_messages: set[str] = set()
        self._first_step_sent = False
        self._setup_peaks: dict[str, int] | None = None
        self._tasks_with_parts: set[str] = set()
        self.passed_barrier = False
        """Whether the start barrier, if there is any, has been passed."""
        self.satisfied: set[str] = set()
        """Tasks that have all their observations, and run on only so that others of their group measure under their load."""
        self._open_pauses = 0
        self._pause_name = ""
        self.paused_ns = 0
        """Begin of the open pause. 0 without a pause."""
        self._is_refused = False
        self._swallowed = self._first_stop_ns = self._injected_ns = 0
        self._has_program_ended = self._is_finished = False
        self._lock = threading.RLock()
        """Held while an observer is made, while another thread raises in the main thread, and while the session finishes."""
        self._when_replaced: list[Callable[[], None]] = []
        if stop_exception is not None:
            self.end_program_with(stop_exception)
        self.answers: Answers | None = self._wanted_answers()

    def _is_of_a_child(self, environ: Mapping[str, str]) -> bool:
        """Whether a process that has measured has spawned or executed this process, which is no rank of its job."""
        pid = str(os.getpid())
        return self.world_size == 1 and "RANK" not in environ and environ.get(MEASURED_BY, pid) != pid

    def _wanted_answers(self) -> Answers | None:
        """Return the repeater of the first steps after the window, where the suite asks for it."""
        if self.stop_exception is None or not self.config.values.get("answers"):
            return None
        from benchmate.answers import Answers, wanted_answers

        wanted = wanted_answers(self.config.values)
        return None if wanted is None else Answers(wanted, self.rank_label, self.record, self.message)

    # Records

    def record(self, event: str, data: Mapping[str, object]) -> None:
        """Send a record to the sink."""
        self.sink.record(event, data)

    def message(self, text: str, *, once: bool = False) -> None:
        """Send a line for the reader of the run, with `once` only the first time."""
        if once:
            if text in self._sent_messages:
                return
            self._sent_messages.add(text)
        self.record("message", {"message": text})

    def metric(self, name: str, value: float, units: str = "", direction: str = "none", **more: object) -> None:
        """Record a measurement that is not an observation of the loop."""
        self.record("data", {"metric": name, "value": value, "units": units, "direction": direction, **more})

    def fail(self, why: str, detail: str) -> None:
        """Fail the step, whatever the program's exit code will be."""
        # The protocol is lines, and a person reads it as one.
        line = " ".join(detail.split())
        if (why, line) not in self.failures:
            self.failures.append((why, line))
            self.sink.control({"fail": {"why": why, "detail": line}})

    def refuse(self, why: str) -> None:
        """Fail the step, for its loop cannot be counted right. `stop` then ends the program."""
        self.fail("probe", why)
        self._is_refused = self.stop_exception is not None

    def error(self, error: BaseException, trace: str = "") -> None:
        """Record an exception that ended the program or an instrument."""
        self.record("error", {"type": type(error).__name__, "message": str(error), "trace": trace})

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

    def record_collectives(self, task: str, ends_ns: Sequence[int], unix_minus_mono_ns: int) -> None:
        """Record when this rank entered the collectives of its last steps, as far as torch knows."""
        from benchmate.collectives import last_collectives

        # Of another release of torch the recorder may be another.
        with contextlib.suppress(RuntimeError, TypeError, ValueError, LookupError):
            for columns in last_collectives(ends_ns, unix_minus_mono_ns):
                self.record("data", {"task": task, "rank": self.rank, "collectives": columns})

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

    def open_ring(self, task: str, units: str, kind: str, capacity: int = 32768) -> Ring:
        """Open a ring and announce it to the agent. Without an agent, a ring that this process reads itself."""
        meta: dict[str, object] = {"task": task, "units": units, "rank": self.rank, "clock": "host", "kind": kind}
        folder = self.sink.ring_folder
        if folder is not None:
            try:
                ring = Ring(meta, folder=folder, capacity=capacity)
            except OSError as error:
                self.message(f"ring: {folder}: {error.strerror}. Observations are sent when a loop ends")
            else:
                self.sink.control({"ring": {"path": str(ring.path), **meta}})
                return ring
        return Ring(meta, capacity=capacity)

    def drain(self, ring: Ring) -> None:
        """Send the entries of a ring that no other process reads."""
        if ring.path is not None:
            return
        offset, meta = ring.words[UNIX_MINUS_MONO], ring.meta
        if meta["kind"] == "loss":
            for batch_id, t_ns, loss in take_losses(ring.memory):
                time_s = (t_ns + offset) / 1e9
                self.record("data", {"task": meta["task"], "loss": loss, "time": time_s, "batch_id": batch_id})
            return
        for entry in take_entries(ring.memory):
            self.record("data", observation(entry, meta, offset, self.world_size))

    def first_step(self, end_ns: int) -> None:
        """Record, at the end of the first step of the process, the time since the process began."""
        if self._first_step_sent:
            return
        self._first_step_sent = True
        if isinstance(self.sink, AgentSink):
            os.environ.setdefault(MEASURED_BY, str(os.getpid()))
        began_ns = process_start_ns()
        if began_ns is None:
            self.message("first_step: not available: /proc/self/stat cannot be read")
        else:
            self.metric("first_step", (end_ns - began_ns) / 1e9, "s", "lower")

    def wait_for_go(self) -> None:
        """Report that warm-up is over, and wait until that is so for the whole group."""
        self.passed_barrier = True
        self.record("data", {"ready": True})
        self.sink.control({"ready": True})
        answer = self.sink.answer(BARRIER_TIMEOUT_S)
        if answer is None or "go" not in answer:
            self.message("barrier: no go from the agent. Measuring on without it")
        else:
            self.record("data", {"go": answer["go"]})

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

    def begin_window(self) -> None:
        """Count memory from here, at the first window of the process."""
        if self._setup_peaks is None:
            self._setup_peaks = memory.allocator_peaks()
            memory.reset_allocator_peaks()

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
        for observer in self.observers.values():
            observer.close()
        if self.answers is not None:
            self.answers.close()
        for losses in self.losses.values():
            losses.close()
        for rates in self.program_rates.values():
            rates.close()
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

    def record_overhead(self, host_s: float, lost: int = 0) -> None:
        """Record the cost of the instruments: seconds of the host, and records sent and dropped. `lost` are those of rings."""
        sink = self.sink
        overhead = {"host_s": host_s, "records": sink.records, "bytes": sink.bytes, "dropped": sink.dropped + lost}
        self.record("data", {"overhead": overhead})

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


def _process_group_rank() -> tuple[int, int]:
    """Return (rank, world size) in the process group that the program has created without a launcher."""
    group = process_group()
    return (0, 1) if group is None else (group.get_rank(), group.get_world_size())
