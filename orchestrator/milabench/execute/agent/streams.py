"""The sources from which a step is read: its output pipes, its sink and the processes that connect to it."""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import re
import socket
import time
from json.encoder import encode_basestring_ascii as quoted

from ...redaction import Masker
from .event_loop import GATHER_S, READ_BYTES, EventLoop
from .outcome import StepLedger
from .protocol import TAIL_CHARACTERS, WHYS, StepFrames

TYPE_CHECKING = False  # see unpack.py
if TYPE_CHECKING:
    from typing import Any, Protocol

    from .event_loop import Timer

    class StreamOwner(Protocol):
        """The part of its step that a stream needs."""

        frames: StepFrames
        ledger: StepLedger
        connections: list[ObservationConnection]
        loop: EventLoop

        @property
        def is_ending(self) -> bool:
            """Whether the step is about to end, so that nothing should wait for the next gathering."""

        def note_read(self, size: int, is_heartbeat: bool) -> None:
            """Take note that `size` bytes were read, 0 at the end. `is_heartbeat`: they come from the step itself."""

        def scan_output(self, pipe: str, data: bytes) -> None:
            """Look in the output for the sign that a server is ready."""

        def open_ring(self, name: str, world_size: int) -> None:
            """Follow a ring in the step's folder."""

        def note_at_barrier(self) -> None:
            """Take note that a process waits at the start barrier."""

        def note_complete(self) -> None:
            """Take note that a process has its observations, or is gone."""


PARTIAL_LINE_S = 1.0  # a line without an end is shown after this
RECORD_BYTES = 1 << 26  # longer records are refused
RECORD_START, RECORD_END = b'{"event":', b"}\n"
RECORD_SEAM = RECORD_END + RECORD_START
OBSERVATION = b'"data","data":{"task":'  # what follows on RECORD_START in the records that come in masses
EVENT_NAME = re.compile(rb' ?"(\w+)"')  # after RECORD_START
NO_RATE = re.compile(rb'"rate": ?(null|NaN|-|Infinity|0(\.0*)?[,}])')
# A request to a server is an observation if it was answered; a point of a sweep says at which rate they were to come.
MEASURING = (b'"rate":', b'"metric":', b'"request":')
ANSWERED = re.compile(rb'"error": ?""')
POINT = re.compile(rb'"data": ?\{"point":')
# What the instruments record about every process: not a measurement of the benchmark.
PROCESS_METRIC = re.compile(rb'"metric": ?"(first_step|compile|host_memory_peak|memory_(allocated|reserved)_peak)"')
ABORT_TEXT = re.compile(rb"terminate called|SIGABRT|Signal 6\b")  # printed by the C++ runtime, by torchrun
FINAL_RECORD = b'"overhead":'  # in the last record of a process


class Source:
    """A descriptor of a step that is read when it has something, then rests.

    The rest is long for those that write little, so that they cost little, and vanishes for those that write much, so that
    no writer ever waits for room in its pipe or socket (a socket holds some 200 small messages).
    """

    FEW_BYTES, MANY_BYTES, FULL_BYTES = 1 << 10, 1 << 12, 1 << 15  # bytes in one reading
    is_monitor = False
    """Whether it comes from who watches the step, not from the step."""

    def __init__(self, owner: StreamOwner, fd: int, name: str) -> None:
        self.owner = owner
        self.fd = fd
        self.name = name
        self.is_open = True
        self._armed = False
        self._rest_s = GATHER_S
        os.set_blocking(fd, False)
        self.arm()

    def arm(self) -> None:
        """Ask to be woken."""
        if self.is_open and not self._armed and not self.owner.loop.is_paused:
            self.owner.loop.on_readable(self.fd, self.ready)
            self._armed = True

    def disarm(self) -> None:
        """Ask not to be woken."""
        if self._armed:
            self.owner.loop.forget(self.fd)
            self._armed = False

    def close(self) -> None:
        """Let go of the descriptor."""
        if self.is_open:
            self.disarm()
            self.is_open = False
            self._close()

    def ready(self, _: int) -> None:
        """Read once, then rest."""
        size = self.read()
        if self.is_open and size and not self.owner.is_ending:
            self._rest(size)
        self.owner.note_read(size, is_heartbeat=not self.is_monitor)

    def _rest(self, size: int) -> None:
        if size >= self.FULL_BYTES:  # its writer waits for room, or is about to
            self._rest_s = 0.0
        elif size >= self.MANY_BYTES:
            self._rest_s = self._rest_s / 4 if self._rest_s > 0.001 else 0.0
        elif size < self.FEW_BYTES:
            self._rest_s = min(GATHER_S, max(0.001, self._rest_s * 2))
        if self._rest_s > 0:
            self.disarm()
            if self._rest_s < GATHER_S:
                self.owner.loop.after(self._rest_s, self.arm)
            else:
                self.owner.frames.schedule_gathering()

    def read_rest(self) -> None:
        """Read the available data without waiting for more, and not for ever if a process goes on writing."""
        for _ in range(256):
            if not self.is_open or not self.read():
                break

    def read(self) -> int:
        """Take a piece. Return its size, 0 when there was none now. Close at the end."""
        try:
            data = os.read(self.fd, READ_BYTES)
        except BlockingIOError:
            return 0
        except OSError:
            data = b""
        if data:
            self.take(data)
        else:
            self.close()
        return len(data)

    def take(self, data: bytes) -> None:
        """Forward the read data."""
        raise NotImplementedError

    def _close(self) -> None:
        os.close(self.fd)


class Output(Source):
    """The standard output or error of a step."""

    def __init__(self, owner: StreamOwner, fd: int, name: str) -> None:
        self.lines = LineDecoder(name, owner.frames.masker)
        self._partial: Timer | None = None
        super().__init__(owner, fd, name)

    def take(self, data: bytes) -> None:
        self.owner.scan_output(self.name, data)
        if self.name == "stderr" and not self.owner.ledger.saw_abort:
            self.owner.ledger.saw_abort = ABORT_TEXT.search(data) is not None
        self.owner.frames.emit("line", self.lines.feed(data, time.time()))
        if self.lines.pending and self._partial is None:
            self._partial = self.owner.loop.after(PARTIAL_LINE_S, self._show_partial)

    def _show_partial(self) -> None:
        self._partial = None
        self.owner.frames.emit("line", self.lines.partial(time.time()))

    def _close(self) -> None:
        self.owner.loop.cancel(self._partial)
        self.owner.frames.emit("line", self.lines.partial(time.time(), last=True))
        os.close(self.fd)


class Listener(Source):
    """The sink of a step, to which any number of its processes connect."""

    def __init__(self, owner: StreamOwner, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(path)
        self._socket.listen(1024)  # all ranks of a node connect within milliseconds of each other
        super().__init__(owner, self._socket.fileno(), "sink")

    def ready(self, _: int) -> None:
        self.read_rest()

    def read(self) -> int:
        try:
            connection, _ = self._socket.accept()
        except OSError:  # nobody is waiting, or no descriptor is left: the process stays in the queue
            return 0
        self.owner.connections.append(ObservationConnection(self.owner, connection))
        return 1

    def _close(self) -> None:
        self._socket.close()


class ObservationConnection(Source):
    """A process on the sink."""

    def __init__(self, owner: StreamOwner, connection: socket.socket) -> None:
        self._socket = connection
        self._partial_record = bytearray()
        self._has_rejected = False
        self.world_size = 1
        self.identity: tuple[int, int, int, int] = (0, 0, 0, 1)  # pid, rank, local rank, world size
        self.is_ready = False
        self.was_released = False
        self.is_complete = False
        self._is_finished = False
        super().__init__(owner, connection.fileno(), "sink")

    def send(self, message: dict[str, Any]) -> None:
        """Send a line. A process that has gone or never reads misses it."""
        with contextlib.suppress(OSError):
            self._socket.send(json.dumps(message).encode() + b"\n", socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)

    def take(self, data: bytes) -> None:
        cut = data.rfind(b"\n") + 1
        if cut:
            whole = b"".join((self._partial_record, data[:cut])) if self._partial_record else data[:cut]
            self._partial_record = bytearray(data[cut:])
            self._accept(whole)
            return
        self._partial_record += data
        if len(self._partial_record) > RECORD_BYTES:
            self._reject("a record of more than %d bytes on the sink was dropped" % RECORD_BYTES)
            self._partial_record = bytearray(b"x")  # what follows up to the next line end belongs to it

    def _accept(self, whole: bytes) -> None:
        """Stamp and forward whole lines. The usual case, nothing but records, is a few scans by the C library."""
        whole = self.owner.frames.masker.mask_bytes(whole)
        stamp = b',"t":%.6f' % time.time()
        if whole.startswith(RECORD_START) and whole.endswith(RECORD_END):
            records = whole[len(RECORD_START) : -len(RECORD_END)].split(RECORD_SEAM)
            # bytes.count looks at one byte after the other; replace jumps from line end to line end.
            if len(whole) - len(whole.replace(b"\n", b"")) == len(records):
                self._note(records, whole)
                records[0] = RECORD_START + records[0]
                records[-1] += stamp + RECORD_END
                self.owner.frames.emit("rec", (stamp + RECORD_SEAM).join(records))
                return
        accepted = []
        for line in whole.splitlines():
            if line.startswith(RECORD_START) and line.endswith(b"}"):
                accepted.append(line[:-1] + stamp + RECORD_END)
                self._note([line[len(RECORD_START) : -1]], line)
            elif line:
                self._accept_control(line)
        self.owner.frames.emit("rec", b"".join(accepted))

    def _note(self, records: list[bytes], whole: bytes) -> None:
        """Take note of records, each without RECORD_START and its last brace. `whole` holds all of them."""
        ledger = self.owner.ledger
        if self.is_monitor:  # what a monitor measures is not the benchmark's
            return
        # Sorted, all would stand between these two: what both begin with, all do.
        if not (min(records).startswith(OBSERVATION) and max(records).startswith(OBSERVATION)):
            if not self._is_finished and FINAL_RECORD in whole:
                self._is_finished = True
                ledger.finished += 1
            if b'"error"' in whole:
                self._inspect(records)
                return
        if not ledger.measurements and any(key in whole for key in MEASURING):
            self._inspect(records)

    def _inspect(self, records: list[bytes]) -> None:
        """Note errors, and measurements until the first. A quote inside a string is escaped: `"rate":` is a key."""
        ledger = self.owner.ledger
        for record in records:
            kind = EVENT_NAME.match(record)
            if kind is None:
                continue
            if kind[1] == b"data":
                if b'"metric":' in record:
                    ledger.measurements += PROCESS_METRIC.search(record) is None
                elif b'"request":' in record:
                    ledger.measurements += ANSWERED.search(record) is not None
                elif b'"rate":' in record and POINT.search(record) is None:
                    is_unusable = NO_RATE.search(record) is not None
                    ledger.unusable += is_unusable
                    ledger.measurements += not is_unusable
            elif kind[1] == b"error":
                with contextlib.suppress(ValueError, KeyError, AttributeError, RecursionError):
                    error = json.loads((RECORD_START + record + b"}").decode("utf-8", "replace"))["data"]
                    ledger.error = str(error.get("type") or ""), str(error.get("message") or "")

    def _accept_control(self, line: bytes) -> None:
        try:
            message = json.loads(line.decode())
            if "hello" in message:
                hello = message["hello"]
                self.world_size = int(hello.get("world_size") or 1)
                pid, rank, local = (int(hello.get(name) or 0) for name in ("pid", "rank", "local_rank"))
                self.identity = pid, rank, local, self.world_size
                self.is_monitor = hello.get("role") == "monitor"
                self.owner.ledger.ranks += not self.is_monitor
            elif "ring" in message:
                self.owner.open_ring(os.path.basename(message["ring"]["path"]), self.world_size)
            elif "fail" in message:
                why = message["fail"].get("why")
                detail = (str(message["fail"].get("detail") or "").splitlines() or [""])[0]
                self.owner.ledger.failure = (why if why in WHYS else "exit", detail[:TAIL_CHARACTERS])
            elif "ready" in message:
                self.is_ready = True
                self.owner.note_at_barrier()
            elif "complete" in message:
                self.is_complete = True
                self.owner.note_complete()
            else:
                raise ValueError  # noqa: TRY301 - one place for all that is wrong with a line
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            self._reject("a line on the sink is no record: " + line[:80].decode("utf-8", "backslashreplace"))

    def _reject(self, why: str) -> None:
        if not self._has_rejected:
            self._has_rejected = True
            self.owner.frames.message(why)

    def _close(self) -> None:
        if self._partial_record.strip():
            self.owner.frames.message(
                "the sink was closed in the middle of a record, of which %d bytes came" % len(self._partial_record)
            )
        self._socket.close()
        if self.was_released:
            self.owner.note_complete()


LINE_BYTES = 1 << 20  # longer lines are cut
LONGEST_CHARACTER = 4  # bytes
WORD = re.compile(r"\w")


class LineDecoder:
    """Turns the bytes of an output pipe into `line` records, without secrets.

    Updates that overwrite each other with a carriage return are a single line, the last of them.
    """

    def __init__(self, pipe: str, masker: Masker | None = None) -> None:
        self._pipe = pipe
        self._masker = masker or Masker()
        self.pending = b""  # text without an end yet
        self._updating = False
        self.last = ""

    def feed(self, data: bytes, now: float) -> bytes:
        """Return the records of the lines that `data` completes."""
        # Before anything is cut, so that no secret lies across a cut: it may come in several writes.
        whole, end, pending = self._masker.mask_bytes(self.pending + data).rpartition(b"\n")
        out = []
        if end and b"\r" not in whole and len(whole) < LINE_BYTES:
            out.append(self._plain_records(whole, now))
        elif end:
            for part in whole.split(b"\n"):
                text = _last_update(part) if b"\r" in part else part
                out.append(self._records(text + b"\n", now))
        self._updating = self._updating and not end
        if b"\r" in pending:
            self._updating = True
            pending = _last_update(pending) + (b"\r" if pending.endswith(b"\r") else b"")
        if len(pending) > LINE_BYTES:
            kept = len(pending) - self._masker.held_back(pending)
            *pieces, last = _pieces(pending[:kept])
            out += [self._records(piece, now) for piece in pieces]
            pending = last + pending[kept:]
        self.pending = pending
        return b"".join(out)

    def partial(self, now: float, last: bool = False) -> bytes:
        """Return the record of the text that has no end yet. `last` when nothing will follow."""
        text, self.pending = (self.pending, b"") if last else self._showable(self.pending)
        if self._updating and not last:
            text = text.rstrip(b"\r") + b"\r"
        return self._records(text, now) if text.strip(b"\r") else b""

    def _showable(self, text: bytes) -> tuple[bytes, bytes]:
        """Split before a possible beginning of a character or of a secret."""
        kept = len(text) - self._masker.held_back(text)
        shown, rest = _complete_characters(text[:kept])
        return shown, rest + text[kept:]

    def _plain_records(self, whole: bytes, now: float) -> bytes:
        """Return the records of whole lines that need nothing: a program that prints many waits for us."""
        texts = whole.decode("utf-8", "backslashreplace").split("\n")
        begin, end = '{"event":"line","data":', ',"pipe":"%s","t":%.6f}\n' % (self._pipe, now)
        last = next((text for text in reversed(texts) if WORD.search(text)), None)
        if last is not None:
            self.last = last.strip()[-TAIL_CHARACTERS:] if len(last) > TAIL_CHARACTERS else last.strip()
        return (begin + (end + begin).join([quoted(text + "\n") for text in texts]) + end).encode()

    def _records(self, data: bytes, now: float) -> bytes:
        out = []
        for piece in _pieces(data):
            text = piece.decode("utf-8", "backslashreplace")
            out.append('{"event":"line","data":%s,"pipe":"%s","t":%.6f}\n' % (quoted(text), self._pipe, now))
            if WORD.search(text):  # a line of dashes carries no information
                self.last = text.strip()[-TAIL_CHARACTERS:] if len(text) > TAIL_CHARACTERS else text.strip()
        return "".join(out).encode()


def _last_update(text: bytes) -> bytes:
    return text.rstrip(b"\r").rpartition(b"\r")[2]


def _pieces(data: bytes) -> list[bytes]:
    """Return the bytes in pieces of bounded size, cut between characters."""
    pieces = []
    while len(data) > LINE_BYTES:
        piece = _complete_characters(data[:LINE_BYTES])[0]
        pieces.append(piece)
        data = data[len(piece) :]
    return [*pieces, data]


def _complete_characters(data: bytes) -> tuple[bytes, bytes]:
    """Split before a UTF-8 character that has only partly arrived."""
    before = max(0, len(data) - LONGEST_CHARACTER)
    _, complete = codecs.utf_8_decode(data[before:], "ignore", False)
    return data[: before + complete], data[before + complete :]
