"""Supervises commands on one node: starts them, gathers what they say, ends them together with everything they started.

One file, standard library only, Python 3.8 or later, no import from the package: it is sent to other machines as it
is. Unaware of benchmarks and of plans; what it speaks is docs/protocol.md. Its standard input is its lease: at the end
of it everything is ended.

    python -u -I agent.py serve --run-id ID      requests on stdin, frames on stdout
    python -I agent.py facts [--disk PATH]...    what this machine is, as JSON
    python -I agent.py sweep MARKER...           end every process that carries one of these markers of runs
    python -I agent.py left MARKER...            those processes, as JSON
    python -I agent.py files                     requests about files on stdin, one JSON object a line
    python -I agent.py link ...                  one end of a connection that is measured

Nothing polls: it sleeps until a descriptor, a signal or a deadline wakes it. It may share the machine with a
measurement, so output is gathered at most five times a second and observations (the rings) once.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import fcntl
import getpass
import glob
import heapq
import itertools
import json
import math
import os
import platform
import re
import resource
import selectors
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
from collections import deque
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, Callable, Deque, Dict, List, Mapping, NamedTuple, NoReturn, Optional, Set, Tuple

VERSION = 1
GATHER_S = 0.2  # output and records are read and forwarded at most this often
DRAIN_S = 1.0  # rings
PARTIAL_LINE_S = 1.0  # a line without an end is shown after this
LEFTOVER_S = 0.5  # what outlives its leader may end by itself for so long (resource trackers, loader workers)
END_OF_FILE_S = 1.0  # wait for the pipes to close when nobody of the step is left
MONITOR_S = 2.0  # a monitor may take so long to end after its last step
LINK_ECHOES = 20
LONGEST_WAIT_S = 86400.0  # the kernel waits no longer than 2^31 ms at a time
KNOCK_S = 0.2  # between two looks whether a server answers
ENGINE_S = 15.0  # a container engine may take so long to answer
ENGINE_FAILED = (125, 126)  # docker and podman end so when the fault is theirs, or nothing in the image can be invoked
UNKILLABLE_S = 10.0  # a process that survives SIGKILL for so long hangs in the kernel
GRACE_S = 5.0
READ_BYTES = 1 << 18
LINE_BYTES = 1 << 20  # longer lines are cut
RECORD_BYTES = 1 << 26  # longer records are refused
BACKLOG_BYTES = 1 << 24  # unsent frames beyond which nothing more is read
TAIL_CHARACTERS = 500

OWNER = "agent.json"
RUN_MARKER = "MILABENCH_RUN_MARKER"
STEP_MARKER = "MILABENCH_STEP"
RECORD = b'{"event":'
KIND = re.compile(rb'\{"event": ?"(\w+)"')
WARMUP = re.compile(rb'"warmup": ?true')
# What the instruments say of every process: no measurement of the benchmark.
HOUSEKEEPING = re.compile(rb'"metric": ?"(first_step|compile|host_memory_peak|memory_(allocated|reserved)_peak)"')

# `fail` lines with these reasons say more than the exit code or signal that follows them.
TELLING = ("probe", "invalid", "out-of-memory", "no-space", "environment")
REASONS = (*TELLING, "exit", "no-data")
OUT_OF_MEMORY = re.compile(r"OutOfMemory|CUDA out of memory|HIP out of memory|\bMemoryError\b")
VALUE_HERE = re.compile(r"(.*[=:])?@([a-z]+)$", re.DOTALL)
ABORTED = re.compile(rb"terminate called|SIGABRT|Signal 6\b")  # said by the C++ runtime, by torchrun of a rank
FINAL = b'"overhead":'  # in the last record of a process
WORD = re.compile(r"\w")
KILLED = re.compile(
    r"SIGKILL|[Ss]ignal 9\b|exitcode *: *-9\b|\b[Kk]illed\b"
)  # said of a child: by shells, by launchers
NO_SPACE = re.compile(r"No space left on device|\[Errno 28\]")

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
F_SETPIPE_SZ = 1031


# --------------------------------------------------------------------------------------------------------- small parts


class Timers:
    """Deadlines and what to do at each."""

    def __init__(self) -> None:
        self._heap: List[List[Any]] = []
        self._order = itertools.count()

    def after(self, seconds: float, action: Callable[[], None]) -> List[Any]:
        """Calls `action` once, that many seconds from now; the answer is for `cancel`."""
        entry = [time.monotonic() + seconds, next(self._order), action]
        heapq.heappush(self._heap, entry)
        return entry

    @staticmethod
    def cancel(entry: Optional[List[Any]]) -> None:
        """Forgets a deadline; one that has passed, or None, is no error."""
        if entry is not None:
            entry[2] = None

    def wait_s(self) -> Optional[float]:
        """Seconds until the next deadline, at most LONGEST_WAIT_S; None without one."""
        while self._heap and self._heap[0][2] is None:
            heapq.heappop(self._heap)
        return min(LONGEST_WAIT_S, max(0.0, self._heap[0][0] - time.monotonic())) if self._heap else None

    def run_due(self) -> None:
        """Does what is due."""
        now = time.monotonic()
        while self._heap and self._heap[0][0] <= now:
            action = heapq.heappop(self._heap)[2]
            if action is not None:
                action()


class Outbox:
    """Frames on their way to the control plane; they wait here when it does not read."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.size = 0
        self.broken = False
        self._waiting: Deque[memoryview] = deque()

    def send(self, kind: str, payload: bytes, step: Optional[str] = None, **more: Any) -> None:
        """Queues one frame."""
        if self.broken:
            return
        header: Dict[str, Any] = {"k": kind, "n": len(payload)}
        if step is not None:
            header["step"] = step
        header.update(more)
        head = json.dumps(header, separators=(",", ":")).encode() + b"\n"
        self._waiting.append(memoryview(head + payload))
        self.size += len(head) + len(payload)

    def flush(self) -> None:
        """Writes what the pipe takes."""
        while self._waiting and not self.broken:
            count, size = 0, 0
            for chunk in itertools.islice(self._waiting, 64):
                count, size = count + 1, size + len(chunk)
                if size > READ_BYTES:
                    break
            try:
                written = os.writev(self.fd, list(itertools.islice(self._waiting, count)))
            except BlockingIOError:
                return
            except OSError:
                self.broken = True
                self._waiting.clear()
                self.size = 0
                return
            self.size -= written
            while self._waiting and written >= len(self._waiting[0]):
                written -= len(self._waiting.popleft())
            if written:
                self._waiting[0] = self._waiting[0][written:]


class Lines:
    """Turns the bytes of one output pipe into `line` records.

    Updates that overwrite each other with a carriage return are one line, the last of them.
    """

    def __init__(self, pipe: str) -> None:
        self._pipe = pipe
        self._pending = b""
        self._updating = False
        self.count = 0
        self.last = ""

    @property
    def has_partial(self) -> bool:
        """Whether text without an end is waiting."""
        return bool(self._pending)

    def feed(self, data: bytes, now: float) -> bytes:
        """The records of the lines that `data` completes."""
        parts = (self._pending + data).split(b"\n")
        pending = parts.pop()
        out = []
        for part in parts:
            text = _last_update(part) if b"\r" in part else part
            out.append(self._records(text + b"\n", now))
            self._updating = False
        if b"\r" in pending:
            self._updating = True
            pending = _last_update(pending) + (b"\r" if pending.endswith(b"\r") else b"")
        if len(pending) > LINE_BYTES:
            *whole, pending = _pieces(pending)
            out += [self._records(piece, now) for piece in whole]
        self._pending = pending
        return b"".join(out)

    def partial(self, now: float, last: bool = False) -> bytes:
        """The record of the text that has no end yet; `last` when nothing will follow."""
        text, self._pending = (self._pending, b"") if last else _complete_characters(self._pending)
        if self._updating and not last:
            text = text.rstrip(b"\r") + b"\r"
        return self._records(text, now) if text.strip(b"\r") else b""

    def _records(self, data: bytes, now: float) -> bytes:
        out = []
        for piece in _pieces(data):
            text = piece.decode("utf-8", "backslashreplace")
            out.append('{"event":"line","data":%s,"pipe":"%s","t":%.6f}\n' % (quoted(text), self._pipe, now))
            if WORD.search(text):  # a ruled line says nothing
                self.last = text.strip()[-TAIL_CHARACTERS:] if len(text) > TAIL_CHARACTERS else text.strip()
        self.count += 1
        return "".join(out).encode()


def _last_update(text: bytes) -> bytes:
    return text.rstrip(b"\r").rpartition(b"\r")[2]


def _pieces(data: bytes) -> List[bytes]:
    """The bytes in pieces of bounded size, cut between characters."""
    pieces = []
    while len(data) > LINE_BYTES:
        piece = _complete_characters(data[:LINE_BYTES])[0]
        pieces.append(piece)
        data = data[len(piece) :]
    return [*pieces, data]


def _complete_characters(data: bytes) -> Tuple[bytes, bytes]:
    """Splits before a UTF-8 character that has only partly arrived."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return (data[:-back], data[-back:]) if length > back else (data, b"")
    return data, b""


# --------------------------------------------------------------------------------------------------------------- rings


class Ring:
    """Observations that a process leaves in a file, without a system call; they outlive it.

    Read with pread, not through a mapping: a program that truncates its file must not kill us by SIGBUS.
    Layout: docs/protocol.md, section 2. Raises OSError or ValueError when the file is not a ring.
    """

    MAGIC = b"MBRING01"
    HEADER = 4096
    SLOT = 64
    PENDING = -2
    WARMUP, EPOCH_END, MILLI, PARTS = 1, 2, 4, 8
    STOP_OFFSET = 96

    def __init__(self, path: str, world_size: int = 1) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            header = os.pread(self._fd, self.HEADER, 0)
            if header[:8] != self.MAGIC:
                raise ValueError("it is not a ring")  # noqa: TRY301 - the descriptor is closed below
            (self.capacity,) = struct.unpack_from("<q", header, 8)
            (self._tail,) = struct.unpack_from("<q", header, 24)
            (self._offset_ns,) = struct.unpack_from("<q", header, 48)
            (length,) = struct.unpack_from("<q", header, 88)
            if self.capacity < 1 or os.fstat(self._fd).st_size < self.HEADER + self.SLOT * self.capacity:
                raise ValueError("it is shorter than it says")  # noqa: TRY301
            meta = json.loads(header[512 : 512 + length].decode())
        except BaseException:
            os.close(self._fd)
            raise
        self.is_done = False
        self.head = self._tail
        self.observations = 0
        self.warmups = 0
        self.lost = 0
        self._skipped = 0
        self._parts: Tuple[int, str] = (-1, "")  # of the entry that follows: its batch, and what its step consists of
        self.last: Dict[str, Any] = {"task": meta.get("task"), "units": meta.get("units")}
        self._measured = [0.0, 0.0]  # items and seconds after warm-up
        self._is_loss = meta.get("kind") == "loss"
        self._task = json.dumps(meta.get("task"))
        self._units = json.dumps(meta.get("units"))
        self._rank = ',"rank":%d' % meta.get("rank", 0) if world_size > 1 else ""

    def close(self) -> None:
        """Lets go of the file."""
        os.close(self._fd)

    def tell_stop(self) -> None:
        """Writes that the whole group has its observations, where the loop sees it without a system call."""
        try:
            os.pwrite(self._fd, struct.pack("<q", 1), self.STOP_OFFSET)
        except OSError:
            pass  # it goes on until its own end

    def drain(self, now: float, final: bool = False) -> Tuple[bytes, int]:
        """The records that became complete since the last call, and how many.

        `final`: the writer is dead, so a device time that is still missing will not come; the host clock counts then.
        """
        header = os.pread(self._fd, 96, 0)
        if len(header) < 96:
            return b"", 0
        head, _, lost, closed, _, wanted, _, _, observed = struct.unpack_from("<9q", header, 16)
        self.head = head
        if head - self._tail > self.capacity:
            self._skipped += head - self._tail - self.capacity
            self._tail = head - self.capacity
        slots = self._slots(self._tail, head)
        # A writer that laps us while we copy makes the oldest slots unreadable.
        lapped = struct.unpack("<q", os.pread(self._fd, 8, 16))[0] - self.capacity - self._tail
        if lapped > 0:
            self._skipped += min(lapped, len(slots))
            self._tail += min(lapped, len(slots))
            slots = slots[lapped:]
        self.lost = lost + self._skipped
        text, count, taken = self._losses(slots, now) if self._is_loss else self._rates(slots, now, final)
        self._tail += taken
        os.pwrite(self._fd, struct.pack("<q", self._tail), 24)
        self.is_done = bool(closed) and self._tail >= head
        if count and not self._is_loss:
            self.last["progress"] = [observed, wanted]
        return text.encode(), count

    def _slots(self, start: int, stop: int) -> List[Tuple[int, ...]]:
        first = start % self.capacity
        count = stop - start
        until_end = min(count, self.capacity - first)
        data = os.pread(self._fd, until_end * self.SLOT, self.HEADER + first * self.SLOT)
        if count > until_end:
            data += os.pread(self._fd, (count - until_end) * self.SLOT, self.HEADER)
        return list(struct.iter_unpack("<8q", data[: len(data) // self.SLOT * self.SLOT]))

    def _rates(self, slots: List[Tuple[int, ...]], now: float, final: bool) -> Tuple[str, int, int]:
        # Filled by %, at half the price of json.dumps: this runs beside a measurement, a thousand times a second.
        common = (
            '{"event":"data","data":{"task":' + self._task.replace("%", "%%")
            + ',"rate":%.9g,"units":' + self._units.replace("%", "%%")
            + ',"time":%.6f,"elapsed":%.9f,"n":%s,"batch_id":%d,"t0_ns":%d,"host_ns":%d,"clock":"%s"%s}'
            + ',"pipe":"data","t":%.6f}\n' % now
        )  # fmt: skip
        out = []
        offset, rank, items, seconds, taken = self._offset_ns, self._rank, 0.0, 0.0, 0
        for batch, start, host, value, device, steps, flags, wait in slots:
            if device == self.PENDING and not final:
                break
            taken += 1
            if flags & self.PARTS:
                known = zip(("forward", "backward", "optimizer"), (start, host, value))
                self._parts = (batch, "".join(',"%s":%.9f' % (name, part * 1e-9) for name, part in known if part >= 0))
                continue
            clock, nanoseconds = ("event", device) if device >= 0 else ("host", host)
            more = rank
            parts = self._parts[1] if self._parts[0] == batch else ""
            if wait >= 0:
                more += ',"parts":{"wait":%.9f%s}' % (wait * 1e-9, parts)
            elif parts:
                more += ',"parts":{%s}' % parts[1:]
            if steps > 1:
                more += ',"steps":%d' % steps
            if flags:
                if flags & self.WARMUP:
                    more += ',"warmup":true'
                    self.warmups += 1
                if flags & self.EPOCH_END:
                    more += ',"epoch_end":true'
            n = value / 1000 if flags & self.MILLI else value
            elapsed = nanoseconds * 1e-9
            if not flags & self.WARMUP:
                self._measured[0] += n
                self._measured[1] += elapsed
            items += n
            seconds += elapsed
            end = (start + host + offset) * 1e-9
            if elapsed > 0:
                out.append(common % (n / elapsed, end, elapsed, n, batch, start, host, clock, more))
            else:
                more += ',"nonfinite":["rate"]'
                line = common.replace("%.9g", "%s", 1)
                out.append(line % ("null", end, elapsed, n, batch, start, host, clock, more))
        self.observations += len(out)
        # What a person sees is the rate of the window so far; of the warm-up, that of its latest steps.
        if self._measured[1] > 0:
            self.last["rate"] = self._measured[0] / self._measured[1]
        elif seconds > 0:
            self.last["rate"] = items / seconds
        return "".join(out), len(out), taken

    def _losses(self, slots: List[Tuple[int, ...]], now: float) -> Tuple[str, int, int]:
        out = []
        for batch, t_ns, bits, *_ in slots:
            loss = struct.unpack("<d", struct.pack("<q", bits))[0]
            finite = math.isfinite(loss)
            out.append(
                '{"event":"data","data":{"task":%s,"loss":%s,"time":%.6f,"batch_id":%d%s%s},"pipe":"data","t":%.6f}\n'
                % (
                    self._task,
                    repr(loss) if finite else "null",
                    (t_ns + self._offset_ns) * 1e-9,
                    batch,
                    self._rank,
                    "" if finite else ',"nonfinite":["loss"]',
                    now,
                )
            )
        return "".join(out), len(out), len(out)


# ----------------------------------------------------------------------------------------------------------- processes


class Process(NamedTuple):
    """A line of the process table; `start` (ticks since boot) tells two users of one pid apart."""

    pid: int
    parent: int
    group: int
    session: int
    start: int
    name: str

    def signal(self, number: int) -> None:
        """Signals this very process, not one that has its pid by now."""
        now = read_process(self.pid)
        if now is not None and now.start == self.start:
            try:
                os.kill(self.pid, number)
            except OSError:
                pass


def read_process(pid: int) -> Optional[Process]:
    """The process with this pid; None when there is none or it is dead but for its parent's knowledge."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            head, _, tail = file.read().rpartition(b")")
    except OSError:
        return None
    fields = tail.split()
    state, threads = fields[0], int(fields[17])
    if state in b"ZX" and threads <= 1:
        return None
    name = head.partition(b"(")[2].decode("utf-8", "backslashreplace")
    return Process(pid, int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]), name)


def processes() -> Dict[int, Process]:
    """All live processes."""
    found = (read_process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {process.pid: process for process in found if process is not None}


def descendants(table: Dict[int, Process], roots: Set[int]) -> Set[int]:
    """The pids below `roots`, without them."""
    children: Dict[int, List[int]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: Set[int] = set()
    todo = list(roots)
    while todo:
        for pid in children.get(todo.pop(), ()):
            if pid not in found:
                found.add(pid)
                todo.append(pid)
    return found - roots


def environment_of(pid: int) -> Set[bytes]:
    """What a process was started with, each NAME=value."""
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            return set(file.read().split(b"\0"))
    except OSError:
        return set()


def environment_has(pid: int, entry: str) -> bool:
    """Whether a process was started with this NAME=value."""
    return os.fsencode(entry) in environment_of(pid)


def command_of(process: Process) -> str:
    """The command line of a process, shortened; its name when it has none."""
    return " ".join(words_of(process.pid))[:100] or process.name


def words_of(pid: int) -> List[str]:
    """The command line of a process; none of one that is gone."""
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return file.read().rstrip(b"\0").decode("utf-8", "backslashreplace").split("\0")
    except OSError:
        return []


def named(found: List[Process]) -> str:
    """Processes for a person."""
    shown = ["%d (%s)" % (process.pid, command_of(process)) for process in found[:5]]
    return ", ".join(shown) + (" and %d more" % (len(found) - 5) if len(found) > 5 else "")


def signal_name(number: int) -> str:
    """SIGKILL for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal %d" % number


def prctl(option: int, value: int) -> None:
    """Sets an attribute of this process; silently nothing where the kernel does not know it."""
    LIBC.prctl(option, value, 0, 0, 0)


LIBC = ctypes.CDLL(None, use_errno=True)


# ------------------------------------------------------------------------------------------------ how a step has ended


class Account:
    """What was seen of a step, from which its outcome follows."""

    def __init__(self, needs_data: bool, is_server: bool = False) -> None:
        self.needs_data = needs_data
        self.is_server = is_server
        self.is_serving = False
        self.measurements = 0
        self.warmups = 0
        self.records = 0
        self.lines = 0
        self.lost = 0
        self.bytes = 0
        self.error: Optional[Tuple[str, str]] = None
        self.failure: Optional[Tuple[str, str]] = None
        self.cause: Optional[Tuple[str, Optional[str], str]] = None
        self.return_code: Optional[int] = None
        self.last_words = ""
        self.ranks = 0
        self.finished = 0
        self.said_abort = False
        self.out_of_memory = ""  # what the kernel tells of having killed it, or one of its processes
        self.is_contained = False

    @property
    def aborted_at_exit(self) -> bool:
        """Whether all of it had been measured when it aborted: every process had sent its final record."""
        is_abort = self.said_abort or self.return_code == -signal.SIGABRT
        is_whole = 0 < self.ranks == self.finished and self.measurements > 0
        return self.cause is None and self.error is None and self.failure is None and is_abort and is_whole

    def outcome(self) -> Tuple[str, Optional[str], str]:
        """Outcome, why and one line of detail, in the vocabulary of docs/protocol.md, section 5."""
        if self.cause is not None:
            return self.cause
        if self.failure is not None and (self.failure[0] in TELLING or self.return_code == 0):
            return ("failed", *self.failure)
        if self.return_code != 0 and self.aborted_at_exit:
            return "passed", None, ""
        if self.return_code != 0:
            return self._abnormal(self.return_code if self.return_code is not None else -1)
        if self.is_server:
            return "failed", "exit", "it ended before %s" % ("its client" if self.is_serving else "it was ready")
        if self.needs_data and not self.measurements:
            return "failed", "no-data", "it ended well but made no observation"
        return "passed", None, ""

    def _abnormal(self, code: int) -> Tuple[str, Optional[str], str]:
        said = ": ".join(part for part in self.error if part) if self.error else self.last_words
        said = said.splitlines()[0][:TAIL_CHARACTERS] if said else ""
        if OUT_OF_MEMORY.search(said):
            return "failed", "out-of-memory", said
        if NO_SPACE.search(said):
            return "failed", "no-space", said
        if self.out_of_memory and (code in (-signal.SIGKILL, 128 + signal.SIGKILL) or KILLED.search(said)):
            return "failed", "out-of-memory", self.out_of_memory
        if code < 0:
            name = signal_name(-code)
            hint = ", perhaps by the kernel for want of memory" if name == "SIGKILL" else ""
            return "failed", "signal", "ended by %s%s%s" % (name, hint, " after: " + said if said else "")
        if self.is_contained and code in ENGINE_FAILED and not self.ranks:
            return "failed", "environment", "its container could not be started: %s" % (said or "no word on stderr")
        return "failed", "exit", said or "exit code %d without a word on stderr" % code


class KernelKills:
    """Tells the kernel's SIGKILL for want of memory from anybody else's, by what is counted from here on.

    A control group of version 2 counts what is killed in those below it, too; one of version 1 only what is killed in itself,
    and which that is cannot be asked of the dead. There the machine's count has to do.
    """

    def __init__(self) -> None:
        self._anywhere = oom_kills("/proc/vmstat")
        self._before = {path: oom_kills(path) for path in kill_counters("self")}

    def look_at(self, pid: int) -> None:
        """Remembers the control groups of a process that has ended and is not waited for yet: it may have gone into its own."""
        for path in kill_counters(str(pid)):
            self._before.setdefault(path, None)

    def told(self, is_elsewhere: bool) -> str:
        """One line when there was such a kill; `is_elsewhere`: in a container, whose groups are gone and were not ours."""
        anywhere = oom_kills("/proc/vmstat")
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


# -------------------------------------------------------------------------------------------- what a step is read from


class Source:
    """A descriptor of a step that is read when it has something, then rests.

    The rest is long for those that say little, so that they cost little, and vanishes for those that say much, so that
    no writer ever waits for room in its pipe or socket (a socket holds some 200 small messages).
    """

    LITTLE, MUCH = 1 << 10, 1 << 12  # bytes in one reading

    def __init__(self, step: "Step", fd: int, name: str) -> None:
        self.step = step
        self.fd = fd
        self.name = name
        self.is_open = True
        self._armed = False
        self._rest_s = GATHER_S
        os.set_blocking(fd, False)
        self.arm()

    @property
    def is_monitor(self) -> bool:
        """Whether it comes from who watches the step, not from the step."""
        return False

    def arm(self) -> None:
        """Asks to be woken."""
        if self.is_open and not self._armed and not self.step.agent.is_paused:
            self.step.agent.selector.register(self.fd, selectors.EVENT_READ, self.ready)
            self._armed = True

    def disarm(self) -> None:
        """Asks not to be woken."""
        if self._armed:
            self.step.agent.selector.unregister(self.fd)
            self._armed = False

    def close(self) -> None:
        """Lets go of the descriptor."""
        if self.is_open:
            self.disarm()
            self.is_open = False
            self._close()

    def ready(self, _: int) -> None:
        """Reads once, then rests."""
        if self.is_open and self._armed:
            size = self.read()
            if self.is_open and size and not self.step.is_hurried:
                self._rest(size)
            self.step.read_something(size, is_sign=not self.is_monitor)

    def _rest(self, size: int) -> None:
        if size >= self.MUCH:
            self._rest_s = self._rest_s / 4 if self._rest_s > 0.001 else 0.0
        elif size < self.LITTLE:
            self._rest_s = min(GATHER_S, max(0.001, self._rest_s * 2))
        if self._rest_s > 0:
            self.disarm()
            if self._rest_s < GATHER_S:
                self.step.agent.timers.after(self._rest_s, self.arm)
            else:
                self.step.agent.schedule_gathering()

    def read_rest(self) -> None:
        """Reads what is there now, without waiting for more; not for ever, should somebody go on writing."""
        for _ in range(256):
            if not self.is_open or not self.read():
                break

    def read(self) -> int:
        """Takes one piece; its size, 0 when there was none now. Closes itself at the end."""
        raise NotImplementedError

    def _close(self) -> None:
        os.close(self.fd)


class Output(Source):
    """The standard output or error of a step."""

    def __init__(self, step: "Step", fd: int, name: str) -> None:
        self.lines = Lines(name)
        self._partial: Optional[List[Any]] = None
        super().__init__(step, fd, name)

    def read(self) -> int:
        try:
            data = os.read(self.fd, READ_BYTES)
        except BlockingIOError:
            return 0
        except OSError:
            data = b""
        if not data:
            self.close()
            return 0
        self.step.account.bytes += len(data)
        self.step.hear(self.name, data)
        if self.name == "stderr" and not self.step.account.said_abort:
            self.step.account.said_abort = ABORTED.search(data) is not None
        self.step.emit("line", self.lines.feed(data, time.time()))
        if self.lines.has_partial and self._partial is None:
            self._partial = self.step.agent.timers.after(PARTIAL_LINE_S, self._show_partial)
        return len(data)

    def _show_partial(self) -> None:
        self._partial = None
        self.step.emit("line", self.lines.partial(time.time()))

    def _close(self) -> None:
        self.step.agent.timers.cancel(self._partial)
        self.step.emit("line", self.lines.partial(time.time(), last=True))
        os.close(self.fd)


class Listener(Source):
    """The sink of a step, to which any number of its processes connect."""

    def __init__(self, step: "Step", path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(path)
        self._socket.listen(1024)
        super().__init__(step, self._socket.fileno(), "sink")

    def ready(self, _: int) -> None:
        self.read_rest()

    def read(self) -> int:
        try:
            connection, _ = self._socket.accept()
        except OSError:  # nobody there, or no descriptor left: the process waits in the queue
            return 0
        self.step.connections.append(Connection(self.step, connection))
        return 1

    def _close(self) -> None:
        self._socket.close()


class Connection(Source):
    """One process on the sink."""

    def __init__(self, step: "Step", connection: socket.socket) -> None:
        self._socket = connection
        self._piece = bytearray()
        self._refused = False
        self.world_size = 1
        self.role = ""
        self.is_ready = False
        self.was_released = False
        self.is_complete = False
        self._is_finished = False
        super().__init__(step, connection.fileno(), "sink")

    @property
    def is_monitor(self) -> bool:
        return self.role == "monitor"

    def tell(self, message: Dict[str, Any]) -> None:
        """Sends one line; a process that has gone or never reads misses it."""
        try:
            self._socket.send(json.dumps(message).encode() + b"\n", socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
        except OSError:
            pass

    def read(self) -> int:
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return 0
        except OSError:
            data = b""
        if not data:
            self.close()
            return 0
        self.step.account.bytes += len(data)
        cut = data.rfind(b"\n") + 1
        if not cut:
            self._piece += data
            if len(self._piece) > RECORD_BYTES:
                self._refuse("a record of more than %d bytes on the sink was dropped" % RECORD_BYTES)
                self._piece = bytearray(b"x")  # what follows up to the next line end belongs to it
            return len(data)
        whole = bytes(self._piece) + data[:cut]
        self._piece = bytearray(data[cut:])
        self._take(whole)
        return len(data)

    def _take(self, whole: bytes) -> None:
        """Stamps and forwards whole lines. The usual case, nothing but records, is a few scans by the C library."""
        if FINAL in whole and not self.is_monitor and not self._is_finished:
            self._is_finished = True
            self.step.account.finished += 1
        count = whole.count(b"\n")
        stamp = b',"t":%.6f}\n' % time.time()
        account = self.step.account
        if whole.startswith(RECORD) and whole.count(b"\n" + RECORD) == whole.count(b"}\n") - 1 == count - 1:
            is_first = (
                not account.measurements and not self.is_monitor and (b'"rate":' in whole or b'"metric":' in whole)
            )
            if is_first or b'"error"' in whole:
                self._look_at(whole.splitlines())
            account.records += count
            self.step.emit("rec", whole.replace(b"}\n", stamp))
            return
        records = []
        for line in whole.splitlines():
            if line.startswith(RECORD) and line.endswith(b"}"):
                records.append(line[:-1] + stamp)
                self._look_at([line])
                account.records += 1
            elif line:
                self._control(line)
        self.step.emit("rec", b"".join(records))

    def _look_at(self, lines: List[bytes]) -> None:
        """Notes errors, and measurements until there is one. A quote inside a string is escaped: `"rate":` is a key."""
        account = self.step.account
        for line in lines:
            kind = KIND.match(line)
            if kind is None or self.is_monitor:  # what a monitor measures is not the benchmark's
                continue
            if kind[1] == b"data":
                if b'"metric":' in line:
                    account.measurements += HOUSEKEEPING.search(line) is None
                elif b'"rate":' in line:
                    account.warmups += WARMUP.search(line) is not None
                    account.measurements += 1
            elif kind[1] == b"error":
                try:
                    error = json.loads(line.decode("utf-8", "replace"))["data"]
                    account.error = str(error.get("type") or ""), str(error.get("message") or "")
                except (ValueError, KeyError, AttributeError):
                    pass

    def _control(self, line: bytes) -> None:
        try:
            message = json.loads(line.decode())
            if "hello" in message:
                self.world_size = int(message["hello"].get("world_size") or 1)
                self.role = str(message["hello"].get("role") or "")
                self.step.account.ranks += not self.is_monitor
            elif "ring" in message:
                self.step.open_ring(os.path.basename(message["ring"]["path"]), self.world_size)
            elif "fail" in message:
                why = message["fail"].get("why")
                detail = (str(message["fail"].get("detail") or "").splitlines() or [""])[0]
                self.step.account.failure = (why if why in REASONS else "exit", detail[:TAIL_CHARACTERS])
            elif "ready" in message:
                self.is_ready = True
                self.step.agent.release(self.step.group)
            elif "complete" in message:
                self.is_complete = True
                self.step.agent.settle(self.step.group)
            else:
                raise ValueError  # noqa: TRY301 - one place for all that is wrong with a line
        except (ValueError, TypeError, KeyError, AttributeError):
            self._refuse("a line on the sink is no record: " + line[:80].decode("utf-8", "backslashreplace"))

    def _refuse(self, why: str) -> None:
        if not self._refused:
            self._refused = True
            self.step.message(why)

    def _close(self) -> None:
        if self._piece.strip():
            self.step.message(
                "the sink was closed in the middle of a record, of which %d bytes came" % len(self._piece)
            )
        self._socket.close()
        if self.was_released:
            self.step.agent.settle(self.step.group)


# ---------------------------------------------------------------------------------------------------------------- step


class Step:
    """One command under supervision, from its start to its `end` record."""

    def __init__(self, agent: "Agent", request: Dict[str, Any], folder: str) -> None:
        self.agent = agent
        self.id: str = request["step"]
        self.folder = folder
        self.group: str = request.get("group") or self.id
        self.group_size = int(request.get("group_size") or 1)
        self.grace_s = float(request.get("grace_s") or agent.grace_s)
        self.ready: Dict[str, Any] = request.get("ready") or {}
        self.account = Account(bool(request.get("needs_data")), bool(self.ready))
        self._awaited: Optional[Any] = None  # the pattern that tells that it serves, until it does
        self._heard: Dict[str, str] = {}
        self._port = 0
        self._hosts: List[str] = list(self.ready.get("hosts") or ["127.0.0.1"])
        self._env: Dict[str, str] = {}
        self._end_command: List[str] = []
        self._engine_pid: Optional[int] = None  # of what ends its container, while it does
        self.pid: Optional[int] = None
        self.command: List[str] = []
        self.connections: List[Connection] = []
        self.is_over = False
        self.usage = {"user_s": 0.0, "system_s": 0.0, "max_rss_kib": 0, "processes": 0}
        self._request = request
        self._outputs: List[Output] = []
        self._listener: Optional[Listener] = None
        self._rings: List[Ring] = []
        self._known_rings: Set[str] = set()
        self._pending: List[Tuple[str, Dict[str, Any], List[bytes]]] = []
        self._pending_bytes = 0
        self._timers: Dict[str, List[Any]] = {}
        self._last_sign = time.monotonic()
        self.monitor: Dict[str, Any] = request.get("monitor") or {}
        self.barrier_s: Optional[float] = request.get("barrier_s")
        self.is_spread = bool(request.get("is_spread"))  # its group has members on other nodes: who knows all decides
        self._said: Set[str] = set()
        self._is_told_to_stop = False
        self._stage = "run"  # run, leftovers, term, kill, closing
        self._killed_since = 0.0
        self._own_cpu = own_cpu_s()
        self._kills = KernelKills()

    # -- start

    def start(self) -> Dict[str, Any]:
        """Starts the command; the reply for the control plane. A command that cannot be started ends at once."""
        request = self._request
        os.mkdir(self.folder, 0o700)
        sink, config = os.path.join(self.folder, "sink"), os.path.join(self.folder, "config.json")
        with open(config, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o600)
            json.dump(request.get("config") or {}, file)
        self._listener = Listener(self, sink)
        values = {"path": os.environ.get("PATH", os.defpath), **(request.get("values") or {})}
        values.update(sink="unix:" + sink, config=config, marker=self.agent.run_id)
        values.update(container=container_name(self.agent.run_id, self.id, values.get("attempt", "")))
        values.update(folder="%s:%s" % (self.folder, self.folder), user="%d:%d" % (os.getuid(), os.getgid()))
        values.update(userns="keep-id" if os.getuid() else "host")  # podman keeps the ids of a user, and refuses root

        def fill(text: str) -> str:
            return self.agent.filled(text, values, self.group)

        self.command = [fill(word) for word in request["argv"]]
        self._end_command = [fill(word) for word in request.get("end_argv") or ()]
        self.account.is_contained = bool(self._end_command)
        given = {name: None if value is None else fill(value) for name, value in (request.get("env") or {}).items()}
        given.update({RUN_MARKER: self.agent.run_id, STEP_MARKER: self.id})
        inherited = dict(os.environ)
        for variables in VISIBLE_DEVICES.values():
            if any(name in given for name in variables):
                # Ours names devices of the machine; another one, inherited, would count from or overrule it.
                for name in variables:
                    inherited.pop(name, None)
        self._env = env = {name: value for name, value in {**inherited, **given}.items() if value is not None}
        cwd = fill(request["cwd"]) if request.get("cwd") else None
        secret = set(request.get("secret_env") or ())
        self.record(
            "start",
            {
                "command": self.command,
                "env": {name: value for name, value in given.items() if name not in secret},
                "secret_env": sorted(secret),
                "cwd": cwd or os.getcwd(),
                "time": round(time.time(), 6),
            },
        )
        try:
            self._await_service(fill)
            for path in request.get("makedirs") or ():
                os.makedirs(fill(path), exist_ok=True)
            process = subprocess.Popen(
                self.command,
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                pass_fds=self.agent.locks.descriptors(),
                preexec_fn=self.agent.before_exec,  # noqa: PLW1509 - there are no threads here
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            why = "no-space" if getattr(error, "errno", None) == errno.ENOSPC else "environment"
            self.account.cause = ("failed", why, _cannot_start(error, self.command, cwd))
            self.finish()
            return {"pid": None}
        self.pid = process.pid
        process.returncode = 0  # we reap it ourselves: keep its destructor from asking
        assert process.stdout is not None
        assert process.stderr is not None
        for stream, name in ((process.stdout, "stdout"), (process.stderr, "stderr")):
            fd = os.dup(stream.fileno())
            stream.close()
            widen(fd, READ_BYTES)
            self._outputs.append(Output(self, fd, name))
        self._set_limits()
        now = read_process(self.pid)
        return {"pid": self.pid, "pgid": self.pid, "pid_start": now.start if now else None}

    def _set_limits(self) -> None:
        timeout = self._request.get("timeout_s")
        if timeout is not None:
            self._timer("timeout", float(timeout), lambda: self._timed_out(float(timeout)))
        if self._request.get("max_silence_s") is not None:
            self._timer("silence", float(self._request["max_silence_s"]), self._check_silence)

        if self.ready:
            self._timer("ready", float(self.ready["timeout_s"]), self._not_ready)
            if self._port:
                self._knock()
            elif self._awaited is None:
                self._serves()  # nothing is to be waited for

    # -- a server

    def _await_service(self, fill: Callable[[str], str]) -> None:
        """What tells that a server can take requests. Raises OSError when somebody else answers in its place."""
        if "pattern" in self.ready:
            self._awaited = re.compile(self.ready["pattern"], re.MULTILINE)
        elif "port" in self.ready:
            self._port = int(fill("@port") if self.ready["port"] == "@port" else self.ready["port"])
            if self._answers():
                raise OSError(errno.EADDRINUSE, "port %d is in use already" % self._port)

    def hear(self, pipe: str, data: bytes) -> None:
        """Looks in its output for what tells that it serves."""
        if self._awaited is None:
            return
        text = self._heard.get(pipe, "") + data.decode("utf-8", "replace")
        if self._awaited.search(text):
            self._serves()
        else:
            self._heard[pipe] = text[-4096:]  # it may come in pieces

    def _answers(self) -> bool:
        for host in list(self._hosts):
            try:
                socket.create_connection((host, self._port), KNOCK_S).close()
                return True
            except socket.timeout:
                self._hosts.remove(host)  # an address of ours answers at once, if only to refuse
            except OSError:
                pass
        return False

    def _knock(self) -> None:
        if self.is_over or self.account.return_code is not None:
            return
        if self._answers():
            self._serves()
        else:
            self._timer("knock", KNOCK_S, self._knock)

    def _serves(self) -> None:
        self._awaited, self._heard = None, {}
        self._cancel("ready")
        if self._stage == "run":
            self.account.is_serving = True
            self.message("it is ready")
            self.flush()
            self.agent.outbox.send("ready", b"{}", self.id)

    def _not_ready(self) -> None:
        if "port" in self.ready:
            missing = "nothing answers on port %d" % self._port
        else:
            missing = "its output does not match %r" % self.ready.get("pattern", "")
        self.end(("failed", "timeout", "not ready within %g s: %s" % (float(self.ready["timeout_s"]), missing)))

    def _timed_out(self, seconds: float) -> None:
        detail = "still running after %g s" % seconds
        late = self.agent.late_for(self)
        if late:
            detail += ", waiting at the start barrier for " + ", ".join(late)
        self.end(("failed", "timeout", detail))

    def _check_silence(self) -> None:
        allowed = float(self._request["max_silence_s"])
        if self.agent.is_paused:
            self._last_sign = time.monotonic()  # it is us who do not listen
        if self.agent.late_for(self):
            self._last_sign = time.monotonic()  # it may not go on: the barrier has a limit of its own
        silent = time.monotonic() - self._last_sign
        if silent >= allowed:
            self.end(("failed", "silent", "neither output nor a record for %g s" % allowed))
        else:
            self._timer("silence", allowed - silent + 0.01, self._check_silence)

    # -- reading

    @property
    def is_hurried(self) -> bool:
        """Whether the end is near, so that nothing should wait for the next gathering."""
        return self._stage != "run"

    @property
    def sources(self) -> List[Source]:
        """Everything that it is read from."""
        found: List[Source] = [*self._outputs, *self.connections]
        return [*found, self._listener] if self._listener else found

    def read_something(self, size: int, is_sign: bool = True) -> None:
        """A source was read; it gave so many bytes, 0 at its end; whether that is a sign of life of the step."""
        if size:
            if is_sign:
                self._last_sign = time.monotonic()
            self.agent.schedule_gathering()
        elif self.account.return_code is not None:
            self.check()

    def gather(self) -> None:
        """Forwards what has come, and listens again."""
        self.flush()
        self.connections = [connection for connection in self.connections if connection.is_open or connection.is_ready]
        for source in self.sources:
            source.arm()

    def open_ring(self, name: str, world_size: int = 1) -> None:
        """Follows a ring in the step's folder; by name, because a container may know the folder under another path."""
        if name in self._known_rings:
            return
        self._known_rings.add(name)
        try:
            self._rings.append(Ring(os.path.join(self.folder, name), world_size))
        except (OSError, ValueError, TypeError, AttributeError, struct.error) as error:
            self.message("the ring %s cannot be read: %s" % (name, error))
            return
        if self._is_told_to_stop:
            self._rings[-1].tell_stop()
        self.agent.schedule_drain()

    def drain(self, final: bool = False) -> bool:
        """Turns new observations into records; whether there may be more later."""
        for ring in self._rings:
            if ring.is_done:
                continue
            before = ring.head
            payload, count = ring.drain(time.time(), final)
            if ring.head != before:
                self._last_sign = time.monotonic()
            if count:
                self.emit("obs", payload, count=count, last=dict(ring.last) if "rate" in ring.last else {})
        return any(not ring.is_done for ring in self._rings)

    # -- together with others

    @property
    def has_observations(self) -> bool:
        """Whether every process of it that passed the start barrier has its window, or is gone."""
        passed = [connection for connection in self.connections if connection.was_released]
        return self.account.return_code is not None or all(one.is_complete or not one.is_open for one in passed)

    def say(self, kind: str) -> None:
        """Tells the control plane, once, how far it is of what its group does together."""
        if kind not in self._said:
            self._said.add(kind)
            self.flush()
            self.agent.outbox.send(kind, b"{}", self.id)

    def tell_stop(self, reason: str) -> None:
        """Tells its processes that nobody needs their load any longer."""
        self._is_told_to_stop = True
        for ring in self._rings:
            if not ring.is_done:
                ring.tell_stop()
        for connection in self.connections:
            if connection.is_open and not connection.is_monitor:
                connection.tell({"stop": reason})

    # -- writing

    def emit(self, kind: str, payload: bytes, **more: Any) -> None:
        """Queues bytes for the control plane, in order."""
        if not payload:
            return
        if self._pending and self._pending[-1][0] == kind and not more:
            self._pending[-1][2].append(payload)
        else:
            self._pending.append((kind, more, [payload]))
        self._pending_bytes += len(payload)
        if self._pending_bytes > READ_BYTES:
            self.flush()
        else:
            self.agent.schedule_gathering()

    def flush(self) -> None:
        """Sends what is queued."""
        for kind, more, payload in self._pending:
            self.agent.outbox.send(kind, b"".join(payload), self.id, **more)
        self._pending.clear()
        self._pending_bytes = 0

    def record(self, event: str, data: Dict[str, Any]) -> None:
        """Queues a record of our own."""
        text = json.dumps(
            {"event": event, "data": data, "pipe": None, "t": round(time.time(), 6)}, separators=(",", ":")
        )
        self.emit("rec", text.encode() + b"\n")

    def message(self, text: str) -> None:
        """Says something to the reader of the records."""
        self.record("message", {"message": text})

    # -- end

    def end(self, cause: Tuple[str, Optional[str], str], grace_s: Optional[float] = None) -> None:
        """TERM to everything, after the grace KILL. The first cause counts; a second call may shorten the grace."""
        if self.is_over:
            return
        if self.account.cause is None and self.account.return_code is None:
            self.account.cause = cause
        grace = self.grace_s if grace_s is None else grace_s
        if grace <= 0:
            self._kill()
        elif self._stage in ("run", "leftovers"):
            self._terminate(grace)

    def killed(self, pid: int) -> None:
        """One of its processes was killed, or a shell says so of what it ran; it has not been waited for yet."""
        self._kills.look_at(pid)

    def exited(self, code: int) -> None:
        """The leader is gone."""
        if self._end_command and 128 < code < 128 + signal.NSIG:
            code = 128 - code  # as engines tell that a signal ended the program
        self.account.return_code = code
        for name in ("timeout", "silence", "ready", "knock"):
            self._cancel(name)
        if self._end_command and (code != 0 or self.account.cause is not None):
            self._end_container()
        if self._stage == "run":
            self._stage = "leftovers"
        for source in self.sources:
            source.arm()
        for connection in self.connections:
            if connection.is_monitor:
                connection.tell({"stop": "the step has ended"})
        self.agent.settle(self.group)
        self.check()

    def check(self) -> None:
        """After the leader: ends what it left behind, waits for the pipes to close, then closes the account."""
        if self.is_over or self.account.return_code is None or self._engine_pid is not None:
            return
        left = self.agent.members(self)
        if left:
            if self._stage == "leftovers" and "leftovers" not in self._timers:
                self._timer("leftovers", LEFTOVER_S, self._end_leftovers)
        elif all(not source.is_open for source in (*self._outputs, *self.connections)):
            self.finish()
        elif self._stage != "closing":
            self._stage = "closing"
            for name in ("leftovers", "term", "kill"):
                self._cancel(name)
            self._timer("closing", END_OF_FILE_S, self._stop_waiting)

    def _end_container(self) -> None:
        """Lets the engine end what is no child of ours, after its client; where nothing is left, it does nothing."""
        try:
            self._engine_pid = self.agent.start_helper(self._end_command, self._container_ended, env=self._env)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self.message("its container could not be ended: " + _cannot_start(error, self._end_command, None))
            return
        self._timer("engine", ENGINE_S, self._engine_hangs)

    def _container_ended(self, code: int, removed: bytes) -> None:
        self._cancel("engine")
        self._engine_pid = None
        if code == 0 and removed.strip():  # it names what it removed; nothing where there was nothing
            self.message("ended its container, which outlived the command: " + " ".join(self._end_command))
        self.check()

    def _engine_hangs(self) -> None:
        self.message("`%s` has not ended within %g s" % (" ".join(self._end_command), ENGINE_S))
        engine = read_process(self._engine_pid or 0)
        if engine is not None:
            engine.signal(signal.SIGKILL)

    def _end_leftovers(self) -> None:
        left = self.agent.members(self)
        if left:
            self.message("ended what outlived its leader: " + named(left))
            self._terminate(self.grace_s)
        else:
            self.check()

    def _stop_waiting(self) -> None:
        held = [source for source in (*self._outputs, *self.connections) if source.is_open]
        for source in held:
            source.read_rest()
        held = [source for source in held if source.is_open and not source.is_monitor]
        if held:
            names = " and ".join(sorted({source.name for source in held}))
            holders = named(holders_of([source.fd for source in held])) or "a process that we cannot see"
            self.message("%s is still held open after the end, by %s" % (names, holders))
        self.finish()

    def _terminate(self, grace_s: float) -> None:
        self._stage = "term"
        self._cancel("leftovers")
        self._signal_all(signal.SIGTERM)
        self._signal_all(signal.SIGCONT)  # a stopped process cannot heed TERM
        self._timer("term", grace_s, self._kill)
        for source in self.sources:
            source.arm()

    def _kill(self) -> None:
        if self.is_over:
            return
        if self._stage != "kill":
            self._stage = "kill"
            self._killed_since = time.monotonic()
            self._cancel("term")
        left = self._signal_all(signal.SIGKILL)
        if not left and self.account.return_code is not None:
            self.check()
        elif time.monotonic() - self._killed_since < UNKILLABLE_S:
            # Looks again: it may have forked meanwhile, and the end of a grandchild is not signalled to us.
            self._timer("kill", 0.1, self._kill)
        else:
            self.message("these do not die of SIGKILL, they hang in the kernel: " + named(left))
            self.finish()

    def _signal_all(self, number: int) -> List[Process]:
        found = self.agent.members(self)
        for process in found:
            process.signal(number)
        return found

    def finish(self) -> None:
        """Takes what is left to read, decides the outcome, writes the last record."""
        if self.is_over:
            return
        if self._listener is not None:
            self._listener.read_rest()
        for source in self.sources:
            source.read_rest()
            source.close()
        self._drain_finally()
        account = self.account
        account.lines = sum(output.lines.count for output in self._outputs)
        if account.return_code:
            account.out_of_memory = self._kills.told(is_elsewhere=bool(self._end_command))
        account.last_words = next((output.lines.last for output in self._outputs if output.name == "stderr"), "")
        self.is_over = True
        for name in list(self._timers):
            self._cancel(name)
        outcome, why, detail = account.outcome()
        if outcome == "passed":
            for path in self._request.get("marks") or ():
                try:
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666))
                except OSError as error:
                    self.message("it will be done again, for this cannot be noted: %s" % said_of(error))
        data: Dict[str, Any] = {
            "command": self.command,
            "time": round(time.time(), 6),
            "return_code": account.return_code,
            "outcome": outcome,
        }
        if why is not None:
            data.update(why=why, detail=detail)
        reasons = ["abort-at-exit"] if outcome == "passed" and account.return_code and account.aborted_at_exit else []
        if reasons:
            data["reasons"] = reasons
        self.record("end", data)
        self.flush()
        ended = {
            "outcome": outcome,
            "why": why,
            "detail": detail,
            "reasons": reasons,
            "return_code": account.return_code,
            "counts": {
                "observations": account.measurements,
                "warmup": account.warmups,
                "records": account.records,
                "lines": account.lines,
                "bytes": account.bytes,
                "lost": account.lost,
            },
            "rusage": self.usage,
            "agent_cpu_s": round(own_cpu_s() - self._own_cpu, 6),
        }
        self.agent.outbox.send("ended", json.dumps(ended).encode(), self.id)
        self.agent.forget(self)

    def _drain_finally(self) -> None:
        # A process may have died between making a ring and announcing it.
        for path in glob.glob(os.path.join(glob.escape(self.folder), "*.ring")):
            self.open_ring(os.path.basename(path))
        self.drain(final=True)
        for ring in self._rings:
            self.account.warmups += ring.warmups
            self.account.measurements += ring.observations
            self.account.records += ring.observations
            self.account.lost += ring.lost
            ring.close()
        if self.account.lost:
            self.message("%d observations were overwritten before they could be read" % self.account.lost)

    def _timer(self, name: str, seconds: float, action: Callable[[], None]) -> None:
        self._cancel(name)

        def fire() -> None:
            self._timers.pop(name, None)
            action()

        self._timers[name] = self.agent.timers.after(seconds, fire)

    def _cancel(self, name: str) -> None:
        self.agent.timers.cancel(self._timers.pop(name, None))


def _cannot_start(error: Exception, command: List[str], cwd: Optional[str]) -> str:
    reason = getattr(error, "strerror", None) or str(error)
    if cwd and not os.path.isdir(cwd):
        return "cannot start in %s: there is no such folder" % cwd
    if isinstance(error, FileNotFoundError) and os.path.exists(command[0]):
        return "cannot start %s: the interpreter in its first line is missing" % command[0]
    path = getattr(error, "filename", None)
    return "cannot start %s: %s" % (path or (command[0] if command else "an empty command"), reason)


def holders_of(descriptors: List[int]) -> List[Process]:
    """Other processes that have the pipes or sockets behind these descriptors open."""
    wanted = set()
    for fd in descriptors:
        try:
            wanted.add(os.readlink("/proc/self/fd/%d" % fd))
        except OSError:
            pass
    found = []
    for pid, process in processes().items():
        if pid == os.getpid():
            continue
        for path in glob.glob("/proc/%d/fd/*" % pid):
            try:
                if os.readlink(path) in wanted:
                    found.append(process)
                    break
            except OSError:
                pass
    return found


def own_cpu_s() -> float:
    """CPU seconds that this agent has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


# --------------------------------------------------------------------------------------------------------------- locks


class Locks:
    """Files that say who uses a device; held by flock, so that they fall with their holder, however it ends."""

    def __init__(self, folder: Optional[str], run_id: str) -> None:
        self._given = folder
        self._run_id = run_id
        self._held: Dict[str, int] = {}

    def descriptors(self) -> List[int]:
        """Handed to every step: a device is in use as long as one of its processes lives, agent or not."""
        return list(self._held.values())

    def open(self, names: List[str]) -> List[Tuple[str, int]]:
        """Opens the files of those not yet held, in the order in which everybody takes them. Raises OSError."""
        opened: List[Tuple[str, int]] = []
        try:
            for name in sorted(set(names) - set(self._held)):
                opened.append((name, self._open(name)))
        except OSError:
            for _, fd in opened:
                os.close(fd)
            raise
        return opened

    def take(self, opened: List[Tuple[str, int]]) -> List[Dict[str, Any]]:
        """Locks all of them, or none and says who holds the first that is taken."""
        for name, fd in opened:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = self.holder(name, fd)
                for _, other in opened:
                    fcntl.flock(other, fcntl.LOCK_UN)
                return [holder]
        self.keep(opened)
        return []

    def keep(self, opened: List[Tuple[str, int]]) -> None:
        """Notes them, locked by now, as ours, in the files too."""
        whose = {
            "run": self._run_id,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "user": user_name(),
            "since": round(time.time(), 3),
        }
        for name, fd in opened:
            os.ftruncate(fd, 0)
            os.pwrite(fd, json.dumps(whose).encode() + b"\n", 0)
            self._held[name] = fd

    def holder(self, name: str, fd: int) -> Dict[str, Any]:
        """What the holder of a lock wrote about itself."""
        try:
            whose = json.loads(os.pread(fd, 4096, 0).decode())
        except (OSError, ValueError):
            whose = {}
        return dict(whose if isinstance(whose, dict) else {}, name=name)

    def release(self) -> None:
        """Lets go of all, also where a stray process has inherited the descriptor."""
        for fd in self._held.values():
            fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)
        self._held.clear()

    def _open(self, name: str) -> int:
        path = os.path.join(self._folder(), re.sub(r"[^A-Za-z0-9_.+-]", "_", name) + ".lock")
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            # Not O_CREAT at once: for another user's file in a sticky folder the kernel refuses it
            # (fs.protected_regular).
            return os.open(path, flags)
        except FileNotFoundError:
            pass
        try:
            fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            return os.open(path, flags)
        os.fchmod(fd, 0o666)
        return fd

    def _folder(self) -> str:
        given = self._given or os.environ.get("MILABENCH_LOCK_DIR")
        candidates = [given] if given else ["/run/lock/milabench", "/tmp/milabench-locks"]
        for folder in candidates:
            try:
                os.mkdir(folder)
                os.chmod(folder, 0o1777)  # noqa: S103 - the locks of all users, as /tmp
            except OSError:
                pass  # it is there, or cannot be: the next line tells
            if os.path.isdir(folder) and not os.path.islink(folder) and os.access(folder, os.W_OK | os.X_OK):
                return folder
        raise OSError(
            errno.EACCES, "cannot be written; MILABENCH_LOCK_DIR names another folder", " or ".join(candidates)
        )


def user_name() -> str:
    """Who we are; the number where there is no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return str(os.getuid())


# ------------------------------------------------------------------------------------------------------------- monitor


class Monitor:
    """The process that watches a group of steps from outside and tells each its readings over its sink.

    It is no member of any step: it neither keeps one alive nor counts as its sign of life. Raises OSError when it
    cannot be started.
    """

    def __init__(self, agent: "Agent", group: str, argv: List[str], steps: List[Step]) -> None:
        self.group = group
        self.is_over = False
        import tempfile  # with hashlib it takes 6 ms, for which no step waits here

        self._words = tempfile.TemporaryFile(dir=agent.folder)
        about = [
            dict(step.monitor.get("about") or {}, step=step.id, pid=step.pid, sink="unix:%s/sink" % step.folder)
            for step in steps
        ]
        env = dict(os.environ)
        env[RUN_MARKER] = agent.run_id
        # In the agent's own folder: a file of simulated devices may be named relative to where the command was given.
        process = subprocess.Popen(
            argv,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._words,
            start_new_session=True,
            preexec_fn=agent.before_exec,  # noqa: PLW1509 - there are no threads here
        )
        self.pid = process.pid
        process.returncode = 0  # reaped by the agent
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps({"steps": about}).encode())
            process.stdin.close()
        except OSError:
            pass  # it has ended already, and says why

    def kill(self) -> None:
        """Ends it, should it still be there."""
        now = read_process(self.pid)
        if now is not None and now.parent == os.getpid():
            now.signal(signal.SIGKILL)

    def close(self) -> str:
        """The last line that it said on stderr."""
        self._words.seek(0)
        lines = self._words.read(1 << 16).decode("utf-8", "backslashreplace").strip().splitlines()
        self._words.close()
        return lines[-1][:TAIL_CHARACTERS] if lines else ""


# --------------------------------------------------------------------------------------------------------------- agent


class Agent:
    """The loop: requests, signals, steps, deadlines."""

    def __init__(
        self, run_id: str, grace_s: float, lock_folder: Optional[str], lease_s: Optional[float] = None
    ) -> None:
        self.run_id = run_id
        self.grace_s = grace_s
        self._lease_s = lease_s
        self._heard = time.monotonic()
        self._cage: Optional[Cage] = None
        self.selector = selectors.DefaultSelector()
        self.timers = Timers()
        self.outbox = Outbox(1)
        self.locks = Locks(lock_folder, run_id)
        self.steps: Dict[str, Step] = {}
        self.is_paused = False
        remove_dead_folders()
        self.folder = private_folder(run_id)
        self._numbers = itertools.count()
        self._ports: Dict[Tuple[str, str], str] = {}
        self._ended_in_group: Dict[str, int] = {}
        self._requests = b""
        self._helpers: Dict[int, Tuple[int, bytearray, Callable[[int, bytes], None]]] = {}
        self._monitors: Dict[int, Monitor] = {}
        self._barriers: Dict[str, List[Any]] = {}
        self._released: Set[str] = set()  # groups with members on other nodes that may measure
        self._draining: Optional[List[Any]] = None
        self._gathering: Optional[List[Any]] = None
        self._is_writing = False
        self._leaving = False
        self._waking, self._woken = socket.socketpair()
        self._soft_files = raise_file_limit()

    def serve(self) -> int:
        """Works until the lease ends, or a signal or the control plane says so."""
        if self._lease_s is not None:  # whoever started us cannot look after what a killed agent leaves
            self._cage = Cage.make()
            start_guard(self.run_id, self.grace_s, self._cage)
            self._check_lease()
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        for fd in (0, 1):
            os.set_blocking(fd, False)
        widen(1, 1 << 20)  # a second's observations should pass in one piece, not wake both sides for every 64 kB
        self._waking.setblocking(False)
        self._woken.setblocking(False)
        signal.set_wakeup_fd(self._waking.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        self.selector.register(self._woken, selectors.EVENT_READ, self._signals)
        self.selector.register(0, selectors.EVENT_READ, self._read_requests)
        hello = {
            "version": VERSION,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "python": platform.python_version(),
        }
        self.outbox.send("hello", json.dumps(dict(hello, run=self.run_id, folder=self.folder)).encode())
        try:
            while not (self._leaving and not self.steps):
                self._turn()
            self._say_goodbye()
        finally:
            self._end_strays()
            shutil.rmtree(self.folder, ignore_errors=True)
        return 0

    def _turn(self) -> None:
        self.outbox.flush()
        if self.outbox.broken and not self._leaving:
            self.leave("nobody reads the records any more")
        self._watch_outbox()
        for key, mask in self.selector.select(self.timers.wait_s()):
            key.data(mask)
        self.timers.run_due()

    def _watch_outbox(self) -> None:
        if (self.outbox.size > 0) != self._is_writing:
            self._is_writing = not self._is_writing
            if self._is_writing:
                self.selector.register(1, selectors.EVENT_WRITE, lambda _: None)
            else:
                self.selector.unregister(1)
        # A control plane that does not read must not make us grow without bound, nor keep us from supervising.
        if self.outbox.size > BACKLOG_BYTES and not self.is_paused:
            self.is_paused = True
            for step in self.steps.values():
                for source in step.sources:
                    source.disarm()
        elif self.is_paused and self.outbox.size < BACKLOG_BYTES // 2:
            self.is_paused = False
            for step in self.steps.values():
                step.gather()
            self.schedule_drain()

    def _say_goodbye(self) -> None:
        deadline = time.monotonic() + 2.0
        while self.outbox.size and not self.outbox.broken and time.monotonic() < deadline:
            self.outbox.flush()
            if self.outbox.size:
                select_write(1, deadline - time.monotonic())

    def _end_strays(self) -> None:
        """Whatever we started or adopted and is not of any step."""
        for _ in range(50):
            table = processes()
            left = [table[pid] for pid in descendants(table, {os.getpid()})]
            for process in left:
                process.signal(signal.SIGKILL)
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return
            time.sleep(0.02)

    # -- signals and children

    def _signals(self, _: int) -> None:
        numbers = self._woken.recv(4096)
        if any(number in numbers for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)):
            name = signal_name(next(number for number in numbers if number != signal.SIGCHLD))
            self.leave("the agent got %s" % name)
        if signal.SIGCHLD in numbers:
            self._reap()

    def _reap(self) -> None:
        while True:
            try:
                dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                break
            if dead is None:
                break
            owner = self._owner_of_dead(dead.si_pid)
            if owner is not None and dead.si_status in (signal.SIGKILL, 128 + signal.SIGKILL):
                owner.killed(dead.si_pid)
            pid, status, used = os.wait4(dead.si_pid, 0)
            code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            if owner is not None:
                owner.usage["user_s"] = round(owner.usage["user_s"] + used.ru_utime, 6)
                owner.usage["system_s"] = round(owner.usage["system_s"] + used.ru_stime, 6)
                owner.usage["max_rss_kib"] = max(owner.usage["max_rss_kib"], used.ru_maxrss)
                owner.usage["processes"] += 1
                if owner.pid == pid:
                    owner.exited(code)
            elif pid in self._helpers:
                self._helper_ended(pid, code)
            elif pid in self._monitors:
                self._monitor_ended(self._monitors.pop(pid), code)
        for step in list(self.steps.values()):
            step.check()

    def _owner_of_dead(self, pid: int) -> Optional[Step]:
        """Whose process has died: the dead still show their group and session, but no environment."""
        for step in self.steps.values():
            if step.pid == pid:
                return step
        if pid in self._helpers or pid in self._monitors:
            return None
        try:
            with open("/proc/%d/stat" % pid, "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            return None
        for step in self.steps.values():
            if step.pid is not None and step.pid in (int(fields[2]), int(fields[3])):
                return step
        return next(iter(self.steps.values())) if len(self.steps) == 1 else None

    def members(self, step: Step) -> List[Process]:
        """The live processes of a step: leader, group, session, what carries its marker, and all their descendants.

        One that shed all of that (own session, empty environment, orphaned) belongs to the step when there is no other.
        """
        if step.pid is None:
            return []
        table = processes()
        ours = descendants(table, {os.getpid()})
        leaders = {other.pid for other in self.steps.values() if other.pid is not None}
        roots = set()
        for pid in ours:
            process = table[pid]
            if step.pid in (pid, process.group, process.session):
                roots.add(pid)
            elif process.parent == os.getpid() and not (
                pid in self._helpers or pid in self._monitors or pid in leaders
            ):
                alone = len(self.steps) == 1
                if alone or environment_has(pid, "%s=%s" % (STEP_MARKER, step.id)):
                    roots.add(pid)
        return [table[pid] for pid in sorted(roots | descendants(table, roots))]

    def before_exec(self) -> None:
        """In the child: it dies with us, and gets back the limit on open files that it would have had."""
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        resource.setrlimit(resource.RLIMIT_NOFILE, self._soft_files)
        if self._cage is not None:
            self._cage.enter()

    # -- requests

    def _check_lease(self) -> None:
        """Leaves when nothing was heard for too long: a network that is cut ends no input."""
        assert self._lease_s is not None
        left = self._heard + self._lease_s - time.monotonic()
        if left <= 0:
            self.leave("nothing was heard from the orchestrator for %g s" % self._lease_s, "lost-node")
        else:
            self.timers.after(left, self._check_lease)

    def _read_requests(self, _: int) -> None:
        try:
            data = os.read(0, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.selector.unregister(0)
            self.leave("the orchestrator is gone")
            return
        self._heard = time.monotonic()
        *lines, self._requests = (self._requests + data).split(b"\n")
        for line in lines:
            if line.strip():
                self._request(line)

    def _request(self, line: bytes) -> None:
        number = None
        try:
            request = json.loads(line.decode())
            number = request.get("id")
            answer = self._answer(request)
        except OSError as error:
            answer = {"ok": False, "error": said_of(error)}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            answer = {"ok": False, "error": "%s: %s" % (type(error).__name__, error)}
        if answer is not None:
            self.reply(number, answer)

    def reply(self, number: Any, answer: Dict[str, Any]) -> None:
        """Answers a request."""
        self.outbox.send("reply", json.dumps({"id": number, "ok": True, **answer}).encode())

    def _answer(self, request: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        """What to reply; None when the reply comes later."""
        verb = request["verb"]
        if verb == "beat":
            return None  # that it came is what it says
        if verb == "start":
            return self._start(request)
        if verb == "end":
            return self._end(request)
        if verb == "signal":
            return self._signal(request)
        if verb == "stop":
            self.steps[request["step"]].tell_stop(request.get("reason") or "asked to")
            return {}
        if verb == "lock":
            return self._lock(request)
        if verb == "unlock":
            self.locks.release()
            return {}
        if verb in ("facts", "sweep"):
            self._ask_helper(request)
            return None
        if verb == "release":
            if any(step.group == request["group"] for step in self.steps.values()):
                self._released.add(request["group"])
                self.release(request["group"])
            return {"t": round(time.time(), 6)}
        if verb == "port":
            return {"port": free_port()}
        if verb == "usage":
            return {"cpu_s": round(own_cpu_s(), 6), "waiting_bytes": self.outbox.size}
        if verb == "exit":
            self.leave("asked to exit")
            return {}
        raise ValueError("no such verb: %s" % verb)

    def _start(self, request: Dict[str, Any]) -> Dict[str, Any]:
        if self._leaving:
            raise ValueError("the agent is leaving")
        if request["step"] in self.steps:
            raise ValueError("step %s is already running" % request["step"])
        if not request["argv"]:
            raise ValueError("step %s has no command" % request["step"])
        step = Step(self, request, os.path.join(self.folder, str(next(self._numbers))))
        self.steps[step.id] = step
        reply = step.start()
        self.watch(step.group)
        return reply

    def _end(self, request: Dict[str, Any]) -> Dict[str, Any]:
        step = self.steps.get(request["step"])
        if step is None:
            return {"running": False}
        why = request.get("why")
        outcome = "failed" if why else "cancelled"
        cause = (outcome, why, request.get("detail") or "ended on request")
        step.end(("passed", None, "") if request.get("is_done") else cause, request.get("grace_s"))
        return {"running": True}

    def _signal(self, request: Dict[str, Any]) -> Dict[str, Any]:
        step = self.steps[request["step"]]
        number = request["signal"]
        if isinstance(number, str):
            number = getattr(signal, "SIG" + number.upper().replace("SIG", "", 1))
        if step.pid is not None and step.account.return_code is None:
            os.killpg(step.pid, number)
        return {}

    def _lock(self, request: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        opened = self.locks.open(list(request["devices"]))
        holders = self.locks.take(opened)
        if not holders:
            return {"held": self.locks.descriptors() != []}
        if not request.get("wait"):
            for _, fd in opened:
                os.close(fd)
            return {"ok": False, "error": "held", "holders": holders}
        # The helper waits in flock on our own descriptors: what it gets, we have, and nobody polls.
        self.outbox.send("waiting", json.dumps({"id": request.get("id"), "holders": holders}).encode())

        def taken(code: int, _: bytes) -> None:
            if code == 0:
                self.locks.keep(opened)
                self.reply(request.get("id"), {"held": True})
            else:
                for _name, fd in opened:
                    os.close(fd)
                self.reply(request.get("id"), {"ok": False, "error": "held", "holders": holders})

        descriptors = [fd for _, fd in opened]
        self._ask_ourselves(["flock", *map(str, descriptors)], taken, descriptors)
        return None

    def _ask_helper(self, request: Dict[str, Any]) -> None:
        """Asks in a process of its own: a driver that hangs must not hang the supervision."""
        if request["verb"] == "facts":
            words = ["facts", *(word for path in request.get("disk") or () for word in ("--disk", path))]
        else:
            words = ["sweep", request["marker"], "--grace", str(request.get("grace_s", self.grace_s))]

        def answered(code: int, output: bytes) -> None:
            try:
                answer = {"ok": True, "answer": json.loads(output.decode())}
            except ValueError:
                answer = {"ok": False, "error": "%s failed (%d)" % (request["verb"], code)}
            self.reply(request.get("id"), answer)

        self._ask_ourselves(words, answered)

    def _ask_ourselves(
        self, words: List[str], done: Callable[[int, bytes], None], descriptors: Optional[List[int]] = None
    ) -> None:
        self.start_helper([sys.executable, "-I", "-S", os.path.abspath(__file__), *words], done, descriptors)

    def start_helper(
        self,
        command: List[str],
        done: Callable[[int, bytes], None],
        descriptors: Optional[List[int]] = None,
        env: Optional[Dict[str, str]] = None,
    ) -> int:
        """Starts a command that is of no step; its pid. `done` is told its exit code and what it printed."""
        process = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if env is not None else None,
            pass_fds=descriptors or (),
            preexec_fn=self.before_exec,  # noqa: PLW1509 - there are no threads here
        )
        process.returncode = 0  # reaped by us
        assert process.stdout is not None
        fd = os.dup(process.stdout.fileno())
        process.stdout.close()
        output = bytearray()
        self._helpers[process.pid] = (fd, output, done)

        def read(_: int) -> None:
            data = os.read(fd, READ_BYTES)
            output.extend(data)
            if not data:
                self.selector.unregister(fd)

        self.selector.register(fd, selectors.EVENT_READ, read)
        return process.pid

    def _helper_ended(self, pid: int, code: int) -> None:
        fd, output, done = self._helpers.pop(pid)
        if fd in self.selector.get_map():
            self.selector.unregister(fd)
        os.set_blocking(fd, False)
        try:
            while True:
                data = os.read(fd, READ_BYTES)
                if not data:
                    break
                output.extend(data)
        except BlockingIOError:
            pass
        os.close(fd)
        done(code, bytes(output))

    # -- what steps need of us

    def filled(self, text: str, values: Dict[str, str], group: str) -> str:
        """`@name`, alone or at the end after `=` or `:`, replaced by a value that is only known here."""
        found = VALUE_HERE.match(text)
        if found is None:
            return text
        head, name = found.group(1) or "", found.group(2)
        if name == "port" and name not in values:
            return head + self._port(group)
        return head + values[name] if name in values else text

    def _port(self, group: str) -> str:
        """A port that was free a moment ago, the same for all steps of a group."""
        key = (group, "port")
        if key not in self._ports:
            self._ports[key] = str(free_port())
        return self._ports[key]

    def release(self, group: str) -> None:
        """Lets the members of a group go once all of them are ready or have ended."""
        members = [step for step in self.steps.values() if step.group == group]
        if not members:
            return
        size = max(step.group_size for step in members)
        if members[0].is_spread:
            if group not in self._released:
                for step in filter(is_ready, members):
                    step.say("at-barrier")
                return
        elif size > 1:
            present = len(members) + self._ended_in_group.get(group, 0)
            if present < size or not all(is_ready(step) for step in members):
                self._limit_barrier(group, members)
                return
        self.timers.cancel(self._barriers.pop(group, None))
        message = {"go": round(time.time(), 6)}
        for step in members:
            for connection in step.connections:
                if connection.is_ready and not connection.was_released:
                    connection.was_released = True
                    connection.tell(message)

    def late_for(self, step: Step) -> List[str]:
        """Whom a step waits for at the start barrier; nobody when it does not wait."""
        if not any(one.is_open and one.is_ready and not one.was_released for one in step.connections):
            return []
        here = [other.id for other in self.steps.values() if other.group == step.group and not is_ready(other)]
        return here or (["steps on other nodes"] if step.is_spread else [])

    def _limit_barrier(self, group: str, members: List[Step]) -> None:
        """Nobody waits longer at the barrier than is allowed, counted from the first who is there."""
        allowed = [step.barrier_s for step in members if step.barrier_s is not None]
        if allowed and group not in self._barriers and any(map(is_ready, members)):
            seconds = max(allowed)
            self._barriers[group] = self.timers.after(seconds, lambda: self._barrier_failed(group, seconds))

    def _barrier_failed(self, group: str, seconds: float) -> None:
        self._barriers.pop(group, None)
        members = [step for step in self.steps.values() if step.group == group]
        late = [step for step in members if not is_ready(step)]
        names = ", ".join(step.id for step in late) or "a member that was never started"
        for step in members:
            if step in late:
                detail = "not ready within %g s of the first of its group" % seconds
            else:
                detail = "waited at the start barrier for %s, which was not ready within %g s" % (names, seconds)
            step.end(("failed", "timeout", detail))

    def settle(self, group: str) -> None:
        """Ends the work of a group's members once each has its observations: until then all keep up the load."""
        members = [step for step in self.steps.values() if step.group == group]
        if members and members[0].is_spread:
            for step in members:
                if step.has_observations and any(one.is_complete for one in step.connections):
                    step.say("measured")
            return
        connections = [connection for step in members for connection in step.connections]
        if any(one.is_complete for one in connections) and all(step.has_observations for step in members):
            for step in members:
                step.tell_stop("all of the group have their observations")

    def watch(self, group: str) -> None:
        """Starts the group's monitor when the last of its members on this node has been started."""
        members = [step for step in self.steps.values() if step.group == group]
        size = max((step.group_size for step in members), default=0)
        live = [step for step in members if step.pid is not None and step.account.return_code is None]
        asked = next((step.monitor for step in live if step.monitor.get("argv")), None)
        if asked is None or len(members) + self._ended_in_group.get(group, 0) < size:
            return
        if any(monitor.group == group and not monitor.is_over for monitor in self._monitors.values()):
            return
        try:
            monitor = Monitor(self, group, asked["argv"], live)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            live[0].message("no monitor: " + _cannot_start(error, asked["argv"], None))
            return
        self._monitors[monitor.pid] = monitor

    def _monitor_ended(self, monitor: "Monitor", code: int) -> None:
        """A monitor that ends before its steps is worth a message, not a failure."""
        said = monitor.close()
        live = [
            step for step in self.steps.values() if step.group == monitor.group and step.account.return_code is None
        ]
        if live and not monitor.is_over:
            how = "was ended by %s" % signal_name(-code) if code < 0 else "ended with exit code %d" % code
            live[0].message(
                "the monitor %s; from here on nobody reads devices and host%s" % (how, said and ": " + said)
            )

    def schedule_drain(self) -> None:
        """Rings are read once a second, all in one waking."""
        if self._draining is None:
            self._draining = self.timers.after(DRAIN_S - time.monotonic() % DRAIN_S, self._drain)

    def schedule_gathering(self) -> None:
        """What has come is forwarded, and who rests is listened to again: for all steps in one waking."""
        if self._gathering is None:
            self._gathering = self.timers.after(GATHER_S - time.monotonic() % GATHER_S, self._gather)

    def _gather(self) -> None:
        self._gathering = None
        for step in list(self.steps.values()):
            step.gather()

    def _drain(self) -> None:
        self._draining = None
        if self.is_paused:
            return
        more = [step.drain() for step in list(self.steps.values())]
        for step in self.steps.values():
            step.flush()
        if any(more):
            self.schedule_drain()

    def forget(self, step: Step) -> None:
        """A step is over."""
        self.steps.pop(step.id, None)
        shutil.rmtree(step.folder, ignore_errors=True)
        if any(other.group == step.group for other in self.steps.values()) or step.group_size > 1:
            self._ended_in_group[step.group] = self._ended_in_group.get(step.group, 0) + 1
            if self._ended_in_group[step.group] >= step.group_size:
                del self._ended_in_group[step.group]
                self._ports.pop((step.group, "port"), None)
        else:
            self._ports.pop((step.group, "port"), None)
        if step.ready and not step.account.is_serving:
            self._ended_in_group.pop(step.group, None)  # its client will not be started
        self.release(step.group)
        self.settle(step.group)
        if all(other.group != step.group for other in self.steps.values()):
            self._released.discard(step.group)
            self.timers.cancel(self._barriers.pop(step.group, None))
            for monitor in self._monitors.values():
                if monitor.group == step.group and not monitor.is_over:
                    monitor.is_over = True
                    self.timers.after(MONITOR_S, monitor.kill)

    def leave(self, reason: str, why: Optional[str] = None) -> None:
        """Ends everything, in steps; asked twice, at once. With `why` the steps have failed, else they are cancelled."""
        grace = 0.0 if self._leaving else None
        self._leaving = True
        for step in list(self.steps.values()):
            step.end(("failed" if why else "cancelled", why, reason), grace)


def is_ready(step: Step) -> bool:
    """Whether as many of its processes are ready as there are ranks."""
    ranks = [connection for connection in step.connections if connection.role != "monitor"]
    world = max((connection.world_size for connection in ranks), default=1)
    return sum(connection.is_ready for connection in ranks) >= world


def free_port() -> int:
    """A port that is free at this moment on every address of this machine."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def raise_file_limit() -> Tuple[int, int]:
    """Lets us open as many files as we may; the limits as they were."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    except (OSError, ValueError):
        pass
    return before


def widen(fd: int, size: int) -> None:
    """Lets a pipe hold so many bytes; it stays as it is where the user's allowance of pipe memory is used up."""
    try:
        fcntl.fcntl(fd, F_SETPIPE_SZ, size)
    except OSError:
        pass


def select_write(fd: int, seconds: float) -> None:
    """Waits until something can be written."""
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_WRITE)
        selector.select(max(0.0, seconds))


def private_folder(run_id: str) -> str:
    """A new folder for sinks and rings that only we can enter.

    In memory where possible: a ring's page on a disk is write-protected while it is written back, which stalls its
    writer. A short path: a socket's may have 107 bytes. The file in it is locked as long as we live, which tells others
    whose folder may go.
    """
    for candidate in folder_places():
        try:
            room = os.statvfs(candidate)
            if len(candidate) > 60 or room.f_bavail * room.f_frsize < 1 << 25:
                continue
            folder = os.path.join(candidate, "milabench-" + os.urandom(6).hex())
            os.mkdir(folder, 0o700)
            lock = os.open(os.path.join(folder, OWNER), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.write(lock, json.dumps({"run": run_id, "pid": os.getpid()}).encode())
            return folder
        except OSError:
            continue
    raise SystemExit("no place for sockets: none of %s can be written" % ", ".join(folder_places()))


def folder_places() -> List[str]:
    """Where agents make their folders, the best first."""
    places = [os.environ.get("XDG_RUNTIME_DIR", ""), "/dev/shm", os.environ.get("TMPDIR", ""), "/tmp"]
    return [place for number, place in enumerate(places) if place and place not in places[:number]]


def new_digest(content: bytes = b"") -> Any:
    """A SHA-256 of these bytes, to which more may be added."""
    import hashlib  # which only files and folders need

    return hashlib.sha256(content)


def remove_dead_folders() -> None:
    """Removes the folders of our user's agents that were killed."""
    for place in folder_places():
        for path in glob.glob(os.path.join(glob.escape(place), "milabench-*", OWNER)):
            try:
                lock = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            except OSError:
                continue
            try:
                is_written = os.fstat(lock).st_size > 0  # else its owner is just about to lock it
                if is_written and os.fstat(lock).st_uid == os.getuid():
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(os.path.dirname(path), ignore_errors=True)
            except OSError:
                pass  # its owner lives
            finally:
                os.close(lock)


# --------------------------------------------------------------------------------------------------------------- sweep


def sweep(markers: List[str], grace_s: float) -> Dict[str, Any]:
    """Ends every process with one of these markers, except ourselves and our ancestors; removes dead agents' folders."""
    ended: Dict[int, str] = {}
    containers = end_containers(markers)
    deadline = time.monotonic() + grace_s
    number = signal.SIGTERM
    while True:
        left = marked(markers)
        for process in left:
            if process.pid not in ended or number == signal.SIGKILL:
                ended[process.pid] = ended.get(process.pid) or command_of(process)
                process.signal(number)
                process.signal(signal.SIGCONT)
        if not left:
            break
        if time.monotonic() > deadline:
            if number == signal.SIGKILL:
                break
            number, deadline = signal.SIGKILL, time.monotonic() + UNKILLABLE_S
        time.sleep(0.02)  # they are not our children: nobody tells us of their end
    remove_dead_folders()
    # A client may have gone on making its container until it was ended itself.
    containers += end_containers(markers)
    still = containers_of(markers) if containers else []
    gone = [container for container in dict.fromkeys(containers) if container not in still]
    return {
        "ended": [*_shown(gone), *({"pid": pid, "command": command} for pid, command in ended.items())],
        "left": [*_shown(still), *({"pid": process.pid, "command": command_of(process)} for process in left)],
    }


def marked(markers: List[str]) -> List[Process]:
    """The live processes that carry one of these markers of runs."""
    table = processes()
    spared = {os.getpid()}
    while True:
        above = {table[pid].parent for pid in spared if pid in table} - spared
        if not above:
            break
        spared |= above
    entries = {os.fsencode("%s=%s" % (RUN_MARKER, marker)) for marker in markers}
    return [
        process
        for pid, process in table.items()
        if pid not in spared and (entries & environment_of(pid) or keeps_container(process, markers))
    ]


def left_behind(markers: List[str]) -> Dict[str, Any]:
    """The processes that `sweep` would end."""
    found = [{"pid": process.pid, "command": command_of(process)} for process in marked(markers)]
    return {"left": [*_shown(containers_of(markers)), *found]}


def _shown(containers: List[Tuple[str, str]]) -> List[Dict[str, Any]]:
    """Containers among processes: they have no pid that means something here."""
    return [{"pid": 0, "command": "%s container %s" % container} for container in containers]


def container_name(marker: str, step: str, attempt: str) -> str:
    """What the container of an attempt is called, in the letters that engines allow; `attempt` is empty for the first."""
    name = "-".join(part for part in (marker, step, attempt) if part)
    return "milabench-" + re.sub(r"[^A-Za-z0-9_.-]", "_", name)


def keeps_container(process: Process, markers: List[str]) -> bool:
    """Whether it is podman's keeper of a container with one of these markers.

    Podman gives it an environment of its own; of a container that was struck while it was made, it stays for ever, and
    with it the locks that it inherited.
    """
    if process.name != "conmon":
        return False
    words = words_of(process.pid)
    return any(word.startswith(container_name(marker, "", "") + "-") for word in words for marker in markers)


def end_containers(markers: List[str]) -> List[Tuple[str, str]]:
    """Lets the engines end and remove the containers with one of these markers; engine and name of each."""
    found = containers_of(markers)
    for engine, name in found:
        ask_engine(engine, "rm", "--force", name)
    return found


def containers_of(markers: List[str]) -> List[Tuple[str, str]]:
    """Engine and name of the containers with one of these markers; none of an engine that does not answer.

    Those that do not run are among them: a client that was killed early leaves one that was made and never started.
    """
    found = []
    for engine in ("docker", "podman"):
        if shutil.which(engine) is None:
            continue
        for marker in markers:
            label = "label=milabench.marker=" + marker
            names = ask_engine(engine, "ps", "--all", "--filter", label, "--format", "{{.Names}}").split()
            found += [(engine, name) for name in names]
    return found


def ask_engine(*words: str) -> str:
    """What a container engine prints; nothing when it fails or hangs."""
    try:
        return ask_command(*words)
    except (OSError, subprocess.SubprocessError):
        return ""


# --------------------------------------------------------------------------------------- what outlives a killed agent


class Cage:
    """A cgroup of version 2 for everything that is started: the kernel kills all that is in it at one word."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._procs = os.open(os.path.join(folder, "cgroup.procs"), os.O_WRONLY | os.O_CLOEXEC)

    @classmethod
    def make(cls) -> "Optional[Cage]":
        """A new one below our own; None where we may not."""
        for line in read_text("/proc/self/cgroup").splitlines():
            if not line.startswith("0::"):
                continue
            for base in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
                above = base + line[3:].rstrip("/")
                folder = "%s/milabench-%d" % (above, os.getpid())
                # Who moves a process from one to the other needs to write the nearest that is above both.
                if not os.access(above + "/cgroup.procs", os.W_OK):
                    continue
                cls._remove_dead(above)
                try:
                    os.mkdir(folder)
                    if os.path.exists(folder + "/cgroup.kill"):
                        return cls(folder)
                    os.rmdir(folder)
                except OSError:
                    pass
        return None

    @staticmethod
    def _remove_dead(above: str) -> None:
        """Removes those that agents left whose guard was killed too; the kernel refuses one that holds a process."""
        for path in glob.glob(glob.escape(above) + "/milabench-*"):
            pid = path.rpartition("-")[2]
            if pid.isdigit() and read_process(int(pid)) is None:
                try:
                    os.rmdir(path)
                except OSError:
                    pass

    def enter(self) -> None:
        """Puts the calling process in; it stays outside where the kernel refuses."""
        try:
            os.write(self._procs, b"0")
        except OSError:
            pass

    def empty(self) -> None:
        """Kills everything in it, and removes it."""
        try:
            with open(self.folder + "/cgroup.kill", "w") as file:
                file.write("1")
        except OSError:
            pass
        for _ in range(100):
            try:
                os.rmdir(self.folder)
                return
            except OSError as error:
                if error.errno != errno.EBUSY:
                    return
            time.sleep(0.02)  # nobody tells us that the last has died


def start_guard(run_id: str, grace_s: float, cage: Optional[Cage]) -> None:
    """Leaves a process behind that waits for our end, however that comes, and ends what carries the run's marker.

    It is no child of ours, so that nobody takes it for part of a step.
    """
    reading, writing = os.pipe()  # the writing end is ours alone: it is not inherited over exec
    child = os.fork()
    if child:
        os.close(reading)
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.close(writing)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        while os.read(reading, 1):
            pass
        sweep([run_id], grace_s)
        if cage is not None:
            cage.empty()
    finally:
        os._exit(0)


# --------------------------------------------------------------------------------------------------------------- files


class Files:
    """Answers about files, and takes folders that a sender has; one request, one answer, a line each.

    Files are named by paths below a root, so that nothing else can be written. What has come of a file is kept when the
    connection is lost, and the next time only the rest is asked for.
    """

    PARTS = ".milabench-parts"

    def __init__(self, source: Any, answers: int) -> None:
        self._source = source
        self._answers = answers

    def serve(self) -> int:
        """Works until the end of its input."""
        while True:
            line = self._source.readline()
            if not line:
                return 0
            try:
                request = json.loads(line.decode())
                answer = getattr(self, "do_" + request["do"])(request)
            except OSError as error:
                answer = {"ok": False, "error": said_of(error), "errno": error.errno}
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                answer = {"ok": False, "error": "%s: %s" % (type(error).__name__, error)}
            self._say(dict({"ok": True}, **answer))
            if not answer.get("ok", True):
                return 1  # what the sender has begun to send cannot be told from its next request

    def _say(self, answer: Dict[str, Any]) -> None:
        data = json.dumps(answer).encode() + b"\n"
        while data:
            data = data[os.write(self._answers, data) :]

    def do_facts(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """What this machine is."""
        return {"facts": facts(request.get("disks") or [])}

    def do_mark(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Makes an empty file, with the folders above it."""
        os.makedirs(os.path.dirname(request["path"]), exist_ok=True)
        with open(request["path"], "ab"):
            return {}

    def do_look(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Which of these paths exist."""
        return {"found": [os.path.exists(path) for path in request["paths"]]}

    def do_forget(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Removes files."""
        for path in request["paths"]:
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass
        return {}

    def do_link(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Makes a symbolic link, in one step in the place of an older one."""
        new = "%s.%d" % (request["path"], os.getpid())
        os.symlink(request["target"], new)
        os.replace(new, request["path"])
        return {}

    def do_take(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Makes a folder like the sender's: `entries` are its links, folders and files, of which what is not here is sent.

        `[path, "d", mode]`, `[path, "l", target]`, `[path, "f", mode, size, mtime_ns, sha256 or ""]`; without a digest, a
        file with the same size and time is the same. What else is here is removed, unless it is to be kept.
        """
        root = request["root"]
        os.makedirs(root, exist_ok=True)
        entries = request["entries"]
        for entry in entries:
            if entry[0].startswith("/") or ".." in entry[0].split("/"):
                raise ValueError("%s leads out of the folder" % entry[0])
        files = [entry for entry in entries if entry[1] == "f"]
        for path, kind, *about in entries:
            self._prepare(os.path.join(root, path), kind, about)
        need = [(number, entry) for number, entry in enumerate(files) if not self._has(root, entry)]
        offsets = [self._offset(self._part(root, entry), entry[3]) for _, entry in need]
        self._say({"ok": True, "need": [[number, at] for (number, _), at in zip(need, offsets)]})
        for (_, entry), offset in zip(need, offsets):
            self._take_file(root, entry, offset)
        removed = 0 if request.get("keep") else self._remove_others(root, {entry[0] for entry in entries})
        shutil.rmtree(os.path.join(root, self.PARTS), ignore_errors=True)
        return {"taken": len(need), "removed": removed}

    def _prepare(self, path: str, kind: str, about: List[Any]) -> None:
        if kind == "f":
            if os.path.islink(path) or os.path.isdir(path):
                self._remove(path)
            return
        if kind == "d":
            if os.path.islink(path) or not os.path.isdir(path):
                self._remove(path)
                os.mkdir(path)
            os.chmod(path, about[0] | 0o700)
            return
        if not os.path.islink(path) or os.readlink(path) != about[0]:
            self._remove(path)
            os.symlink(about[0], path)

    @staticmethod
    def _remove(path: str) -> None:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):
            os.unlink(path)

    def _has(self, root: str, entry: List[Any]) -> bool:
        path, _, mode, size, mtime_ns, digest = entry
        path = os.path.join(root, path)
        try:
            found = os.lstat(path)
        except OSError:
            return False
        if not stat.S_ISREG(found.st_mode) or found.st_size != size:
            return False
        if digest:
            same = bool(self._digest_of(path).hexdigest() == digest)
        else:
            same = bool(found.st_mtime_ns == mtime_ns)
        if same and stat.S_IMODE(found.st_mode) != mode:
            os.chmod(path, mode)
        return same

    @staticmethod
    def _digest_of(path: str) -> Any:
        found = new_digest()
        with open(path, "rb") as file:
            while True:
                piece = file.read(1 << 20)
                if not piece:
                    return found
                found.update(piece)

    def _part(self, root: str, entry: List[Any]) -> str:
        name = new_digest(json.dumps([entry[0], entry[3], entry[4], entry[5]]).encode()).hexdigest()[:24]
        return os.path.join(root, self.PARTS, name)

    @staticmethod
    def _offset(part: str, size: int) -> int:
        try:
            have = os.stat(part).st_size
        except OSError:
            return 0
        return have if have <= size else 0

    def _take_file(self, root: str, entry: List[Any], offset: int) -> None:
        path, _, mode, size, mtime_ns, _ = entry
        part = self._part(root, entry)
        os.makedirs(os.path.dirname(part), exist_ok=True)
        digest = self._digest_of(part) if offset else new_digest()
        with open(part, "r+b" if offset else "wb") as file:
            file.seek(offset)
            left = size - offset
            while left:
                piece = self._source.read(min(left, 1 << 20))
                if not piece:
                    raise ValueError("the sender stopped in the middle of %s" % path)
                file.write(piece)
                digest.update(piece)
                left -= len(piece)
            file.truncate()
        if self._source.read(32) != digest.digest():
            os.unlink(part)
            raise ValueError("%s arrived altered; try again" % path)
        os.chmod(part, mode)
        os.utime(part, ns=(mtime_ns, mtime_ns))
        os.replace(part, os.path.join(root, path))

    def _remove_others(self, root: str, wanted: Set[str]) -> int:
        removed = 0
        for folder, folders, files in os.walk(root, topdown=True):
            below = os.path.relpath(folder, root)
            for name in [*folders, *files]:
                path = name if below == "." else "%s/%s" % (below, name)
                if path not in wanted and name != self.PARTS and "__pycache__" not in path.split("/"):
                    self._remove(os.path.join(root, path))
                    removed += 1
            folders[:] = [name for name in folders if name != self.PARTS and os.path.isdir(os.path.join(folder, name))]
        return removed


def said_of(error: OSError) -> str:
    """An OSError for a person."""
    text = error.strerror or str(error)
    text = text[:1].lower() + text[1:]
    return "%s: %s" % (error.filename, text) if error.filename else text


# ---------------------------------------------------------------------------------------------------------------- link


def link_listen(seconds: float) -> Dict[str, Any]:
    """The far end of a measured connection: says its port, answers a byte with a byte, then takes what comes."""
    with socket.socket() as listener:
        listener.bind(("", 0))
        listener.listen(1)
        listener.settimeout(seconds)
        print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
        try:
            connection, _ = listener.accept()
        except OSError:
            return {"taken": 0}
        with connection:
            connection.settimeout(seconds)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            taken, echoes = 0, 0
            try:
                while True:
                    data = connection.recv(1 << 20)
                    if not data:
                        break
                    taken += len(data)
                    if echoes < LINK_ECHOES:
                        connection.sendall(data)
                        echoes += len(data)
            except OSError:
                pass
            return {"taken": taken}


def link_connect(host: str, port: int, seconds: float) -> Dict[str, Any]:
    """The near end: the least of a few round trips in seconds, and bytes per second one way."""
    with socket.create_connection((host, port), timeout=5.0) as connection:
        connection.settimeout(10.0)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        trips = []
        for _ in range(LINK_ECHOES):
            began = time.monotonic()
            connection.sendall(b"x")
            connection.recv(1)
            trips.append(time.monotonic() - began)
        block, sent, began = bytes(1 << 20), 0, time.monotonic()
        while time.monotonic() - began < seconds:
            connection.sendall(block)
            sent += len(block)
        took = time.monotonic() - began
        return {"round_trip_s": round(min(trips), 7), "bytes_per_s": round(sent / took)}


# --------------------------------------------------------------------------------------------------------------- facts


def facts(disks: List[str]) -> Dict[str, Any]:
    """What this machine is. What cannot be found out is None, with the reason under `absent`."""
    absent: Dict[str, str] = {}
    memory = memory_info()
    found, software = accelerators(absent)
    usable, hidden = visible_devices(found, os.environ)
    if found and not usable:
        absent["devices"] = "%s leaves none of %d" % (" ".join("%s=%s" % pair for pair in hidden.items()), len(found))
    return {
        "hostname": socket.gethostname(),
        "addresses": addresses(),
        "boot": read_text("/proc/sys/kernel/random/boot_id").strip(),
        "user": user_name(),
        "os": os_name(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "time": round(time.time(), 6),
        "cpu": cpu_info(absent),
        "memory_mib": memory.get("MemTotal"),
        "memory_available_mib": memory.get("MemAvailable"),
        "shm_mib": disk_space("/dev/shm", absent),
        "load": list(os.getloadavg()),
        "disk": {path: disk_space(path, absent) for path in disks},
        "devices": [device for device in usable if "lost" not in device],
        "lost": [device for device in usable if "lost" in device],
        "hidden_by": hidden,
        **software,
        "absent": absent,
    }


def read_text(path: str) -> str:
    """A small file; empty when it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def addresses() -> List[str]:
    """The addresses of this machine but for those of the loopback, as the kernel's routing tables list them."""
    found, last = [], ""
    for line in read_text("/proc/net/fib_trie").splitlines():
        words = line.split()
        if len(words) == 2 and words[0] in ("|--", "+--"):
            last = words[1]
        elif words[:3] == ["/32", "host", "LOCAL"] and not last.startswith("127.") and last not in found:
            found.append(last)
    for line in read_text("/proc/net/if_inet6").splitlines():
        digits, _, _, scope = line.split()[:4]
        if scope == "00":
            found.append(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits)))
    return found


def os_name() -> str:
    """What the distribution calls itself."""
    for line in read_text("/etc/os-release").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip('"')
    return platform.system()


def memory_info() -> Dict[str, int]:
    """MiB by the names of /proc/meminfo; the total is what cgroups leave us."""
    found = {}
    for line in read_text("/proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        if rest.strip().endswith("kB"):
            found[name] = int(rest.split()[0]) // 1024
    limits = [
        int(text) // (1 << 20)
        for name in ("memory.max", "memory/memory.limit_in_bytes")
        for text in cgroup_files(name)
        if text.isdigit()
    ]
    if "MemTotal" in found:
        found["MemTotal"] = min([found["MemTotal"], *limits])
    return found


def kill_counters(pid: str) -> List[str]:
    """The files that count the kernel's kills for memory in the control groups of a process, of version 1 or 2."""
    found = []
    for line in read_text("/proc/%s/cgroup" % pid).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            places = ["/sys/fs/cgroup%s/memory.events", "/sys/fs/cgroup/unified%s/memory.events"]
        elif "memory" in controllers.split(","):
            places = ["/sys/fs/cgroup/memory%s/memory.oom_control"]
        else:
            continue
        found += [place % path.rstrip("/") for place in places if os.path.exists(place % path.rstrip("/"))]
    return found


def oom_kills(path: str) -> Optional[int]:
    """How often the kernel has killed for memory, by a control group's counter or the machine's; None where it is not told."""
    for line in read_text(path).splitlines():
        name, _, count = line.partition(" ")
        if name == "oom_kill" and count.strip().isdigit():
            return int(count)
    return None


def memory_limit_of(counter: str) -> str:
    """`, in a control group that may hold 512 MiB`, of the group of such a counter; nothing where none is set."""
    folder = os.path.dirname(counter)
    for name in ("memory.max", "memory.limit_in_bytes"):
        limit = read_text(os.path.join(folder, name)).strip()
        if limit.isdigit() and int(limit) < 1 << 60:
            return ", in a control group that may hold %d MiB" % (int(limit) >> 20)
    return ""


def cgroup_files(name: str) -> List[str]:
    """The contents of a control file in our cgroup and all above it; version 1 names start with their controller."""
    controller, _, file = name.rpartition("/")
    found = []
    for line in read_text("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller:
            if controller not in controllers.split(","):
                continue
            bases = ["/sys/fs/cgroup/" + controllers, "/sys/fs/cgroup/" + controller]
        elif controllers == "":
            bases = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
        else:
            continue
        folder = path.rstrip("/")
        while True:
            texts = [read_text(base + folder + "/" + file).strip() for base in bases]
            found += [text for text in texts if text][:1]
            if not folder:
                break
            folder = folder.rpartition("/")[0]
    return found


def cpu_info(absent: Dict[str, str]) -> Dict[str, Any]:
    """The processor: `count` is what affinity and cgroup quotas leave us, at least 1."""
    model, cores, sockets = None, set(), set()
    physical = ""
    for line in read_text("/proc/cpuinfo").splitlines():
        name, _, value = (part.strip() for part in line.partition(":"))
        if name in ("model name", "Model", "cpu model") and model is None:
            model = value
        elif name == "physical id":
            physical = value
            sockets.add(value)
        elif name == "core id":
            cores.add((physical, value))
    if model is None:
        absent["cpu.model"] = "/proc/cpuinfo does not name it"
    if not cores:
        absent["cpu.cores"] = "/proc/cpuinfo does not tell cores from threads"
    usable = len(os.sched_getaffinity(0))
    quota = cpu_quota()
    return {
        "model": model,
        "count": max(1, min(usable, int(quota) if quota is not None else usable)),
        "affinity": usable,
        "online": os.cpu_count(),
        "quota": quota,
        "cores": len(cores) or None,
        "sockets": len(sockets) or None,
    }


def cpu_quota() -> Optional[float]:
    """Processors' worth of time that cgroups allow us; None without a limit."""
    found = []
    for text in cgroup_files("cpu.max"):
        quota, _, period = text.partition(" ")
        if quota.isdigit() and period.isdigit():
            found.append(int(quota) / int(period))
    periods = cgroup_files("cpu/cpu.cfs_period_us")
    for quota, period in zip(cgroup_files("cpu/cpu.cfs_quota_us"), periods):
        if quota.isdigit() and period.isdigit() and int(period):
            found.append(int(quota) / int(period))
    return min(found) if found else None


def disk_space(path: str, absent: Dict[str, str]) -> Optional[Dict[str, int]]:
    """MiB free and in all where a path is or would be."""
    place = os.path.abspath(path)
    while not os.path.exists(place) and place != "/":
        place = os.path.dirname(place)
    try:
        room = os.statvfs(place)
    except OSError as error:
        absent["disk." + path] = str(error.strerror)
        return None
    block = room.f_frsize
    return {"free_mib": room.f_bavail * block >> 20, "total_mib": room.f_blocks * block >> 20}


def accelerators(absent: Dict[str, str]) -> Tuple[List[Dict[str, Any]], Dict[str, Any]]:
    """The devices, and the versions that belong to all of them; by the vendor's library, else by its command line."""
    reasons = []
    for ask in (nvidia_by_library, nvidia_by_command, amd_by_command, intel_by_command, habana_by_command):
        try:
            devices, software = ask()
        except (
            OSError,
            ValueError,
            KeyError,
            IndexError,
            TypeError,
            AttributeError,
            subprocess.SubprocessError,
        ) as error:
            reasons.append("%s: %s" % (ask.__name__.replace("_", " "), error))
            continue
        if devices:
            return devices, software
        reasons.append("%s: none" % ask.__name__.replace("_", " "))
    absent["devices"] = "; ".join(reasons)
    return [], {}


# Which variables choose among a vendor's devices. Each counts from what those before it left.
VISIBLE_DEVICES = {
    "cuda": ("CUDA_VISIBLE_DEVICES",),
    "rocm": ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    "xpu": ("ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR"),
    "hpu": ("HABANA_VISIBLE_DEVICES", "HABANA_VISIBLE_MODULES"),
}


def visible_devices(
    devices: List[Dict[str, Any]], env: Mapping[str, str]
) -> Tuple[List[Dict[str, Any]], Dict[str, str]]:
    """(the devices that programs with this environment may use, in their order, the variables that say so)."""
    arch = devices[0]["arch"] if devices else ""
    hidden = {name: env[name] for name in VISIBLE_DEVICES.get(arch, ()) if name in env}
    if "HIP_VISIBLE_DEVICES" in hidden:
        hidden.pop("CUDA_VISIBLE_DEVICES", None)  # HIP reads it only in the absence of its own
    usable = devices
    for text in hidden.values():
        usable = chosen_devices(usable, text)
    return usable, hidden


def chosen_devices(devices: List[Dict[str, Any]], text: str) -> List[Dict[str, Any]]:
    """The devices that the value of such a variable names: by number, by UUID or its beginning, or by the UUID of a MIG slice.

    The list ends before the first word that names nothing, as CUDA has it; an empty value means none, `all` and `*` all.
    """
    words = [word.strip() for word in text.rpartition(":")[2].split(",")]
    if words in (["all"], ["*"]):
        return devices
    found: List[Dict[str, Any]] = []
    for word in words:
        device = named_device(devices, word)
        if device is None:
            break
        if device not in found:
            found.append(device)
    if any("slice_of" in device for device in found):
        # Slices of one device share its number, and CUDA knows them by their UUIDs only.
        found = [dict(device, index=number, visible_as=device["uuid"]) for number, device in enumerate(found)]
    return found


def named_device(devices: List[Dict[str, Any]], word: str) -> Optional[Dict[str, Any]]:
    """The device, or slice of one, that a number or a UUID stands for."""
    number = word.partition(".")[0]  # ZE_AFFINITY_MASK may name a tile: 0.1
    if number.isdigit():
        return devices[int(number)] if int(number) < len(devices) else None
    if not word or word.startswith("-"):
        return None
    for device in devices:
        if str(device.get("uuid") or "").startswith(word):
            return device
        for piece in device.get("slices") or ():
            if str(piece["uuid"]).startswith(word):
                whole = {name: value for name, value in device.items() if name != "slices"}
                return dict(whole, slice_of=device["uuid"], **piece)
    return None


class NvmlMemory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class NvmlPci(ctypes.Structure):
    _fields_ = [("legacy", ctypes.c_char * 16), ("numbers", ctypes.c_uint * 5), ("bus_id", ctypes.c_char * 32)]


class NvmlProcess(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("memory", ctypes.c_ulonglong), ("instances", ctypes.c_uint * 2)]


class Nvml:
    """The few questions that we have for libnvidia-ml; an answer that it does not give is None."""

    SM, MEMORY = 1, 2  # clock domains

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libnvidia-ml.so.1")
        if self._library.nvmlInit_v2() != 0:
            raise OSError("the library is there, the driver is not")

    def close(self) -> None:
        """Lets go of the driver."""
        self._library.nvmlShutdown()

    def text(self, name: str, *arguments: Any) -> Optional[str]:
        """An answer in a buffer that we give."""
        buffer = ctypes.create_string_buffer(96)
        if self._call(name, *arguments, buffer, ctypes.c_uint(96)):
            return buffer.value.decode("utf-8", "replace")
        return None

    def number(self, name: str, *arguments: Any) -> Optional[int]:
        """An answer in an unsigned int."""
        value = ctypes.c_uint()
        return value.value if self._call(name, *arguments, ctypes.byref(value)) else None

    def pair(self, name: str, *arguments: Any) -> Optional[Tuple[int, int]]:
        """An answer in two unsigned ints: now, and after the next boot."""
        now, later = ctypes.c_uint(), ctypes.c_uint()
        return (
            (now.value, later.value) if self._call(name, *arguments, ctypes.byref(now), ctypes.byref(later)) else None
        )

    def fill(self, name: str, device: Any, structure: Any) -> Optional[Any]:
        """The structure, filled."""
        return structure if self._call(name, device, ctypes.byref(structure)) else None

    def handle(self, index: int) -> Any:
        """A device, for the other questions. Raises OSError for one that is lost."""
        device = ctypes.c_void_p()
        code = self._library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device))
        if code != 0:
            raise OSError("%s (NVML error %d)" % (self._reason(code), code))
        return device

    def _reason(self, code: int) -> str:
        function = getattr(self._library, "nvmlErrorString", None)
        if function is None:
            return "does not answer"
        function.restype = ctypes.c_char_p
        return bytes(function(code)).decode("utf-8", "replace")

    def slices(self, device: Any) -> List[Dict[str, Any]]:
        """The MIG slices of a device that is cut up."""
        found = []
        for number in range(self.number("nvmlDeviceGetMaxMigDeviceCount", device) or 0):
            piece = ctypes.c_void_p()
            if self._call("nvmlDeviceGetMigDeviceHandleByIndex", device, ctypes.c_uint(number), ctypes.byref(piece)):
                memory = self.fill("nvmlDeviceGetMemoryInfo", piece, NvmlMemory())
                found.append(
                    {
                        "uuid": self.text("nvmlDeviceGetUUID", piece),
                        "name": self.text("nvmlDeviceGetName", piece),
                        "memory_mib": memory.total >> 20 if memory else None,
                    }
                )
        return found

    def processes(self, device: Any) -> Optional[List[Dict[str, Any]]]:
        """Who computes on a device; a process whose memory the driver hides has None."""
        room = 512
        count = ctypes.c_uint(room)
        found = (NvmlProcess * room)()
        if not self._call("nvmlDeviceGetComputeRunningProcesses_v3", device, ctypes.byref(count), found):
            return None
        hidden = (1 << 64) - 1
        return [
            {"pid": one.pid, "memory_mib": None if one.memory == hidden else one.memory >> 20}
            for one in found[: count.value]
        ]

    def _call(self, name: str, *arguments: Any) -> bool:
        function = getattr(self._library, name, None)
        return function is not None and function(*arguments) == 0


def nvidia_by_library() -> Tuple[List[Dict[str, Any]], Dict[str, Any]]:
    """NVIDIA's devices as NVML numbers them, which is by PCI address."""
    nvml = Nvml()
    try:
        cuda = nvml.number("nvmlSystemGetCudaDriverVersion_v2")
        software = {
            "driver": nvml.text("nvmlSystemGetDriverVersion"),
            "cuda": "%d.%d" % (cuda // 1000, cuda % 1000 // 10) if cuda else None,
        }
        count = nvml.number("nvmlDeviceGetCount_v2") or 0
        return [dict(_nvidia_device(nvml, index), **software) for index in range(count)], software
    finally:
        nvml.close()


def _nvidia_device(nvml: Nvml, index: int) -> Dict[str, Any]:
    try:
        device = nvml.handle(index)
    except OSError as error:
        return {"index": index, "arch": "cuda", "lost": str(error)}
    memory = nvml.fill("nvmlDeviceGetMemoryInfo", device, NvmlMemory())
    pci = nvml.fill("nvmlDeviceGetPciInfo_v3", device, NvmlPci())
    limit = nvml.number("nvmlDeviceGetPowerManagementLimit", device)
    default = nvml.number("nvmlDeviceGetPowerManagementDefaultLimit", device)
    ecc = nvml.pair("nvmlDeviceGetEccMode", device)
    mig = nvml.pair("nvmlDeviceGetMigMode", device)
    return {
        "index": index,
        "arch": "cuda",
        "uuid": nvml.text("nvmlDeviceGetUUID", device),
        "name": nvml.text("nvmlDeviceGetName", device),
        "memory_mib": memory.total >> 20 if memory else None,
        "memory_used_mib": memory.used >> 20 if memory else None,
        "pci": pci.bus_id.decode() if pci else None,
        "power_limit_w": limit / 1000 if limit is not None else None,
        "power_limit_default_w": default / 1000 if default is not None else None,
        "sm_clock_max_mhz": nvml.number("nvmlDeviceGetMaxClockInfo", device, ctypes.c_uint(Nvml.SM)),
        "mem_clock_max_mhz": nvml.number("nvmlDeviceGetMaxClockInfo", device, ctypes.c_uint(Nvml.MEMORY)),
        "ecc": bool(ecc[0]) if ecc else None,
        "mig": bool(mig[0]) if mig else None,
        "processes": nvml.processes(device),
        **({"slices": nvml.slices(device)} if mig and mig[0] else {}),
    }


def ask_command(*words: str) -> str:
    """What a vendor's tool prints. Raises OSError when it is not there, SubprocessError when it fails or hangs."""
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=20, check=True
    )
    return done.stdout.decode("utf-8", "replace")


def _cell(text: str, kind: Callable[[str], Any]) -> Any:
    """A value of a vendor's table; None for its many ways to say that there is none."""
    try:
        return kind(text)
    except ValueError:
        return None


def nvidia_by_command() -> Tuple[List[Dict[str, Any]], Dict[str, Any]]:
    """NVIDIA's devices as nvidia-smi tells them."""
    fields = "index,uuid,name,memory.total,driver_version,power.limit,power.default_limit,pci.bus_id,ecc.mode.current"
    devices = []
    for line in ask_command("nvidia-smi", "--query-gpu=" + fields, "--format=csv,noheader,nounits").splitlines():
        index, uuid, name, memory, driver, limit, default, pci, ecc = (cell.strip() for cell in line.split(","))
        devices.append(
            {
                "index": int(index),
                "arch": "cuda",
                "uuid": uuid,
                "name": name,
                "memory_mib": _cell(memory, int),
                "driver": driver,
                "power_limit_w": _cell(limit, float),
                "power_limit_default_w": _cell(default, float),
                "pci": pci,
                "ecc": {"Enabled": True, "Disabled": False}.get(ecc),
            }
        )
    return devices, {"driver": devices[0]["driver"] if devices else None}


def amd_by_command() -> Tuple[List[Dict[str, Any]], Dict[str, Any]]:
    """AMD's devices as rocm-smi tells them."""
    options = (
        "--showuniqueid",
        "--showproductname",
        "--showmeminfo",
        "vram",
        "--showdriverversion",
        "--showbus",
        "--json",
    )
    answer = json.loads(ask_command("rocm-smi", *options))
    driver = (answer.get("system") or {}).get("Driver version")
    devices = []
    for card, said in sorted(answer.items()):
        if card.startswith("card"):
            devices.append(
                {
                    "index": int(card[4:]),
                    "arch": "rocm",
                    "uuid": said.get("Unique ID"),
                    "name": said.get("Card Series") or said.get("Card series") or said.get("Device Name"),
                    "memory_mib": int(said.get("VRAM Total Memory (B)") or 0) >> 20 or None,
                    "pci": said.get("PCI Bus"),
                    "driver": driver,
                }
            )
    return sorted(devices, key=lambda device: int(device["index"] or 0)), {"driver": driver}


def intel_by_command() -> Tuple[List[Dict[str, Any]], Dict[str, Any]]:
    """Intel's devices as xpu-smi tells them."""
    devices = []
    for said in json.loads(ask_command("xpu-smi", "discovery", "-j"))["device_list"]:
        number = str(said["device_id"])
        more = json.loads(ask_command("xpu-smi", "discovery", "-d", number, "-j"))
        devices.append(
            {
                "index": int(number),
                "arch": "xpu",
                "uuid": said.get("uuid"),
                "name": said.get("device_name"),
                "memory_mib": int(more.get("memory_physical_size_byte") or 0) >> 20 or None,
                "pci": said.get("pci_bdf_address"),
                "driver": more.get("driver_version"),
            }
        )
    return devices, {"driver": devices[0]["driver"] if devices else None}


def habana_by_command() -> Tuple[List[Dict[str, Any]], Dict[str, Any]]:
    """Gaudi devices as hl-smi tells them."""
    devices = []
    table = ask_command("hl-smi", "-Q", "index,uuid,name,memory.total,driver_version", "-f", "csv,noheader,nounits")
    for line in table.splitlines():
        index, uuid, name, memory, driver = (cell.strip() for cell in line.split(","))
        devices.append(
            {
                "index": int(index),
                "arch": "hpu",
                "uuid": uuid,
                "name": name,
                "memory_mib": _cell(memory, int),
                "driver": driver,
            }
        )
    return devices, {"driver": devices[0]["driver"] if devices else None}


# ---------------------------------------------------------------------------------------------------------------- main


def wait_for_locks(descriptors: List[int]) -> int:
    """Locks descriptors that we share with the agent, however long that takes."""
    for fd in descriptors:
        fcntl.flock(fd, fcntl.LOCK_EX)
    return 0


def main() -> NoReturn:
    """One verb, one exit code."""
    parser = argparse.ArgumentParser(prog="agent", description="supervises commands on one node")
    verbs = parser.add_subparsers(dest="verb", required=True)
    serve = verbs.add_parser("serve", help="requests on stdin, frames on stdout")
    serve.add_argument("--run-id", required=True)
    serve.add_argument("--grace", type=float, default=GRACE_S, help="seconds from TERM to KILL")
    serve.add_argument("--locks", help="folder of the device locks")
    serve.add_argument(
        "--lease", type=float, help="leave after so many seconds in which nothing was heard; leave a guard"
    )
    ask = verbs.add_parser("facts", help="what this machine is, as JSON")
    ask.add_argument("--disk", action="append", default=[])
    clean = verbs.add_parser("sweep", help="end what a run left behind")
    clean.add_argument("markers", nargs="+")
    clean.add_argument("--grace", type=float, default=GRACE_S)
    look = verbs.add_parser("left", help="what a sweep would end")
    look.add_argument("markers", nargs="+")
    verbs.add_parser("files", help="requests about files on stdin")
    link = verbs.add_parser("link", help="one end of a connection that is measured")
    link.add_argument("--to", nargs=2, metavar=("HOST", "PORT"), help="the near end; without it, the far one")
    link.add_argument("--seconds", type=float, default=0.3)
    lock = verbs.add_parser("flock", help="wait for inherited lock descriptors")
    lock.add_argument("descriptors", nargs="+", type=int)
    arguments = parser.parse_args()
    if arguments.verb == "serve":
        sys.exit(Agent(arguments.run_id, arguments.grace, arguments.locks, arguments.lease).serve())
    if arguments.verb == "files":
        sys.exit(Files(sys.stdin.buffer, 1).serve())
    if arguments.verb == "flock":
        sys.exit(wait_for_locks(arguments.descriptors))
    if arguments.verb == "facts":
        answer = facts(arguments.disk)
    elif arguments.verb == "left":
        answer = left_behind(arguments.markers)
    elif arguments.verb == "link":
        try:
            to = arguments.to
            answer = link_connect(to[0], int(to[1]), arguments.seconds) if to else link_listen(20.0)
        except OSError as error:
            answer = {"error": said_of(error)}
    else:
        answer = sweep(arguments.markers, arguments.grace)
    print(json.dumps(answer))
    sys.exit(0)


if __name__ == "__main__":
    main()
