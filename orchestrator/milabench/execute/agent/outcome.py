"""Decides the outcome of a step from its observations."""

from __future__ import annotations

import os
import re
import signal

from .procfs import cgroups_of, read_text, signal_name
from .protocol import DECISIVE_WHYS, TAIL_CHARACTERS

# Exit codes of docker and podman for their own failures, and for a command in the image that cannot be invoked.
ENGINE_FAILED = (125, 126)
# torch says the first three of its devices and the fourth of the host; JAX the fifth; numpy's errors end in the sixth; then
# cuBLAS and NCCL.
OUT_OF_MEMORY = re.compile(
    r"OutOfMemory|CUDA out of memory|HIP out of memory|can't allocate memory|RESOURCE_EXHAUSTED|MemoryError\b"
    r"|CUBLAS_STATUS_ALLOC_FAILED|Failed to CUDA calloc|Cuda failure (2 )?'out of memory'"
)
# Printed about a child by shells and launchers.
KILLED = re.compile(r"SIGKILL|[Ss]ignal 9\b|exitcode *: *-9\b|\b[Kk]illed\b")
MACHINE_KILLS = "/proc/vmstat"  # counts the kernel's kills for memory of the whole machine
NO_SPACE = re.compile(r"No space left on device|\[Errno 28\]")


class StepOutcome:
    """How a step has ended, in the words of protocol.md, section 5. `why` is None unless it failed.

    `detail` is a line for a person. `reasons` are doubts about a step that passed.
    """

    __slots__ = ("detail", "outcome", "reasons", "why")

    def __init__(self, outcome: str, why: str | None = None, detail: str = "", *reasons: str) -> None:
        self.outcome = outcome
        self.why = why
        self.detail = detail
        self.reasons = reasons


class StepLedger:
    """The observations of a step, from which its outcome follows."""

    def __init__(self, needs_data: bool, is_server: bool = False) -> None:
        self.needs_data = needs_data
        self.is_server = is_server
        self.is_serving = False
        self.measurements = 0
        self.unusable = 0  # observations that are no number, until there is one
        self.lost = 0
        self.error: tuple[str, str] | None = None  # type and message of an exception that an instrument recorded
        self.failure: tuple[str, str] | None = None  # reason and detail of a `fail` line
        self.cause: StepOutcome | None = None  # of an end that we caused
        self.return_code: int | None = None
        self.last_error_line = ""
        self.ranks = 0  # processes that said hello on the sink
        self.finished = 0  # those that sent their final record
        self.saw_abort = False
        self.out_of_memory = ""  # what the kernel reports about killing it, or one of its processes
        self.is_contained = False

    @property
    def aborted_at_exit(self) -> bool:
        """Whether everything had been measured when it aborted: every process had sent its final record."""
        is_abort = self.saw_abort or self.return_code == -signal.SIGABRT
        is_whole = 0 < self.ranks == self.finished and self.measurements > 0
        return self.cause is None and self.error is None and self.failure is None and is_abort and is_whole

    def outcome(self) -> StepOutcome:
        """Decide how the step has ended. Its return code is known, or it was never started."""
        if self.cause is not None:
            return self.cause
        if self.failure is not None and (self.failure[0] in DECISIVE_WHYS or self.return_code == 0):
            return StepOutcome("failed", *self.failure)
        if self.return_code != 0 and self.aborted_at_exit:
            return StepOutcome("passed", None, "", "abort-at-exit")
        if self.return_code != 0:
            return StepOutcome("failed", *self._abnormal(self.return_code if self.return_code is not None else -1))
        if self.is_server:
            return StepOutcome(
                "failed", "exit", "it ended before %s" % ("its client" if self.is_serving else "it was ready")
            )
        if self.unusable and not self.measurements:
            return StepOutcome("failed", "invalid", "none of its %d observations is a number" % self.unusable)
        if self.needs_data and not self.measurements:
            return StepOutcome("failed", "no-data", "it ended well but made no observation")
        return StepOutcome("passed", None, "")

    def _abnormal(self, code: int) -> tuple[str, str]:
        """Return why and detail of a return code that is not 0."""
        text = ": ".join(part for part in self.error if part) if self.error else self.last_error_line
        # NCCL's reason is in the last line of its error.
        has_no_memory = OUT_OF_MEMORY.search(text) is not None
        text = text.splitlines()[0][:TAIL_CHARACTERS] if text else ""
        if has_no_memory:
            return "out-of-memory", text
        if NO_SPACE.search(text):
            return "no-space", text
        if self.out_of_memory and (code in (-signal.SIGKILL, 128 + signal.SIGKILL) or KILLED.search(text)):
            return "out-of-memory", self.out_of_memory
        if code < 0:
            name = signal_name(-code)
            hint = ", perhaps by the kernel for want of memory" if name == "SIGKILL" else ""
            return "signal", "ended by %s%s%s" % (name, hint, " after: " + text if text else "")
        if self.is_contained and code in ENGINE_FAILED and not self.ranks:
            return "environment", "its container could not be started: %s" % (text or "stderr is empty")
        return "exit", text or "exited with code %d, with an empty stderr" % code


class OomWatch:
    """Tells the kernel's SIGKILL for want of memory from any other, by counters from here on.

    A control group of version 2 also counts kills in the groups below it. A group of version 1 counts only its own kills,
    and which that is cannot be asked of the dead. There the machine's count has to do.
    """

    def __init__(self) -> None:
        self._anywhere = oom_kills(MACHINE_KILLS)
        self._before = {path: oom_kills(path) for path in kill_counters("self")}

    def note_killed(self, pid: int) -> None:
        """Remember the control groups of a process that has ended and is not waited for yet: it may have gone into its own."""
        for path in kill_counters(pid):
            self._before.setdefault(path, None)

    def describe_kill(self, is_elsewhere: bool) -> str:
        """Return a line when there was such a kill. `is_elsewhere`: in a container, whose groups are gone and were not ours."""
        anywhere = oom_kills(MACHINE_KILLS)
        is_possible = self._anywhere is None or anywhere is None or anywhere > self._anywhere
        for path, before in self._before.items():
            count = oom_kills(path)
            # Of a group that was not known at first the machine's count says whether it is from now.
            if count is not None and (count > before if before is not None else count > 0 and is_possible):
                return "the kernel killed it for memory" + memory_limit_of(path)
        knows_all = any(path.endswith("memory.events") for path in self._before) and not is_elsewhere
        if is_possible and not knows_all and anywhere is not None and self._anywhere is not None:
            return "killed while the kernel was killing for memory on this machine"
        return ""


def kill_counters(pid: object) -> list[str]:
    """Return the files that count the kernel's kills for memory in the control groups of a process, of version 1 or 2."""
    counters = []
    for controllers, path in cgroups_of(pid):
        if not controllers:
            patterns = ["/sys/fs/cgroup%s/memory.events", "/sys/fs/cgroup/unified%s/memory.events"]
        else:
            patterns = ["/sys/fs/cgroup/memory%s/memory.oom_control"] if "memory" in controllers else []
        counters += [pattern % path for pattern in patterns if os.path.exists(pattern % path)]
    return counters


def oom_kills(path: str) -> int | None:
    """Return a counter of the kernel's kills for memory, a control group's or the machine's. None where it is not counted."""
    for line in read_text(path).splitlines():
        name, _, count = line.partition(" ")
        if name == "oom_kill" and count.strip().isdigit():
            return int(count)
    return None


def memory_limit_of(counter: str) -> str:
    """Return `, in a control group that may hold 512 MiB`, for the group of such a counter. Empty without a limit."""
    folder = os.path.dirname(counter)
    for name in ("memory.max", "memory.limit_in_bytes"):
        limit = read_text(os.path.join(folder, name)).strip()
        # Version 2 says `max` where there is none, version 1 a number close to 2**63.
        if limit.isdigit() and int(limit) < 1 << 60:
            return ", in a control group that may hold %d MiB" % (int(limit) >> 20)
    return ""
