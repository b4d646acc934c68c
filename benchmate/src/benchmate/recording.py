"""The records of a process: where they go, what they say of it, and the decisions that concern the whole process.

`session.Session` adds the tasks that are measured, which know only this.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from benchmate import memory
from benchmate.clock import process_start_ns
from benchmate.configuration import Config, getenv
from benchmate.frameworks import process_group
from benchmate.records import observation, text_of
from benchmate.relay_pipe import find_relay
from benchmate.ring import UNIX_MINUS_MONO, Ring, take_entries, take_losses
from benchmate.sink import AgentSink, Sink, open_sink

if TYPE_CHECKING:
    from benchmate.answers import Answers

MEASURED_BY = "MILABENCH_MEASURED_BY"
"""The variable with the id of the measuring process: its children inherit it, and measure nothing."""
BARRIER_TIMEOUT_S = 86_400.0
"""The agent's own limit is shorter. This limit is for an agent that hangs."""


class Recording:
    """The configuration of a process, its rank and its sink."""

    def __init__(self, config: Config, sink: Sink | None, stop_exception: type[BaseException] | None) -> None:
        environ = os.environ
        self.config = config
        # torchrun and its like say it in the environment; mpirun and spawn() leave it to the program.
        rank, world_size = (0, 1) if "RANK" in environ else _process_group_rank()
        self.rank = getenv("RANK", int, rank)
        self.world_size = getenv("WORLD_SIZE", int, world_size)
        self.rank_label: Mapping[str, int] = {"rank": self.rank} if self.world_size > 1 else {}
        """The rank in a record, where there are others."""
        hello = {
            "pid": os.getpid(),
            "role": "rank",
            "rank": self.rank,
            "local_rank": getenv("LOCAL_RANK", int, rank),
            "world_size": self.world_size,
        }
        if self._is_of_a_child(environ):
            # What it does is not the work that its parent measures, as in a forked child.
            sink, stop_exception = Sink(), None
        self.sink: Sink = sink if sink is not None else open_sink(environ, hello)
        self.stop_exception = stop_exception
        """The exception that ends the program when the window is complete. None in a script of its own, where none is raised."""
        self.relay = find_relay(environ) if isinstance(self.sink, AgentSink) else None
        """The pipe of the relay that started the program, which ends it with the window of the program's own rates."""
        self.answers: Answers | None = None
        """The repeater of the first steps after the window, where the suite asks for it."""
        self.failures: list[tuple[str, str]] = []
        self.passed_barrier = False
        """Whether the start barrier, if there is any, has been passed."""
        self.satisfied: set[str] = set()
        """Tasks that have all their observations, and run on only so that others of their group measure under their load."""
        self.paused_ns = 0
        """Begin of the open pause. 0 without a pause."""
        self._is_refused = False
        self._sent_messages: set[str] = set()
        self._first_step_sent = False
        self._setup_peaks: dict[str, int] | None = None

    def _is_of_a_child(self, environ: Mapping[str, str]) -> bool:
        """Whether a process that has measured has spawned or executed this process, which is no rank of its job."""
        pid = str(os.getpid())
        return self.world_size == 1 and "RANK" not in environ and environ.get(MEASURED_BY, pid) != pid

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
        self.record("error", {"type": type(error).__name__, "message": text_of(error), "trace": trace})

    def record_overhead(self, host_s: float, lost: int = 0) -> None:
        """Record the cost of the instruments: seconds of the host, and records sent and dropped. `lost` are those of rings."""
        sink = self.sink
        overhead = {"host_s": host_s, "records": sink.records, "bytes": sink.bytes, "dropped": sink.dropped + lost}
        self.record("data", {"overhead": overhead})

    # Steps

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

    def record_collectives(self, task: str, ends_ns: Sequence[int], unix_minus_mono_ns: int) -> None:
        """Record when this rank entered the collectives of its last steps, as far as torch knows."""
        from benchmate.collectives import last_collectives

        # Of another release of torch the recorder may be another.
        with contextlib.suppress(RuntimeError, TypeError, ValueError, LookupError):
            for columns in last_collectives(ends_ns, unix_minus_mono_ns):
                self.record("data", {"task": task, "rank": self.rank, "collectives": columns})

    def begin_window(self) -> None:
        """Count memory from here, at the first window of the process."""
        if self._setup_peaks is None:
            self._setup_peaks = memory.allocator_peaks()
            memory.reset_allocator_peaks()

    # What depends on the tasks

    @property
    def is_measuring(self) -> bool:
        """Whether a task that is to end the program lacks its window."""
        raise NotImplementedError

    def runs_on(self, task: str, ring: Ring) -> bool:
        """Return whether a task that has its observations runs on, because another instance of the group has not."""
        raise NotImplementedError

    def stop(self, reason: str) -> bool:
        """End the program once every task that was to end it has its window. Return whether the loop itself should end."""
        raise NotImplementedError


def _process_group_rank() -> tuple[int, int]:
    """Return (rank, world size) in the process group that the program has created without a launcher."""
    group = process_group()
    return (0, 1) if group is None else (group.get_rank(), group.get_world_size())
