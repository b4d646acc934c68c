"""One process from its start to its last descendant: its result, its output, its limit, and how it ended."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmate.cases.channel import CLOSED_MEANWHILE
from benchmate.cases.isolation import Isolation, Running
from benchmate.cases.processes import end_group, oom_kills

FORWARDED_BYTES = 1 << 20
"""How much of a process's output is shown; of the rest the end is kept."""
TAIL_BYTES = 4096
_RESULT_BYTES = 16 << 20
_GRACE_S = 0.5  # between the request to end and the order
_LEAVING_S = 5.0  # for what a program does after its result: the limit was for the case


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseOutcome:
    """How a case's process ended.

    `outcome`, `why` and `reasons` as in docs/protocol.md, section 5; `said` is what the process told of itself; `seconds` from
    its start to its end; `tail` the end of its output.
    """

    outcome: str
    why: str = ""
    detail: str = ""
    reasons: tuple[str, ...] = ()
    said: dict[str, Any]
    seconds: float
    tail: str = ""


def supervise(isolation: Isolation, name: str, timeout_s: float, show: Callable[[bytes], None]) -> CaseOutcome:
    """Run one case in a process of its own; `show` gets the beginning of its output as it comes.

    Raises IsolationError when it cannot be started.
    """
    before, begin = oom_kills(), time.monotonic()
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
        result, output = _pipe(ours, theirs), _pipe(ours, theirs)
        running = isolation.start(name, result[1], output[1])
        theirs.close()
        watched = _Watch(running, result[0], output[0], show)
        try:
            is_late = watched.until(begin + timeout_s)
        finally:
            code = running.close()
            watched.drain()
    was_oom = code == -signal.SIGKILL and oom_kills() > before
    return classify_exit(
        watched.result(),
        code,
        late_after_s=timeout_s if is_late else None,
        was_oom=was_oom,
        seconds=time.monotonic() - begin,
        tail=watched.tail.decode("utf-8", "replace"),
    )


def _pipe(ours: contextlib.ExitStack, theirs: contextlib.ExitStack) -> tuple[int, int]:
    reading, writing = os.pipe()
    ours.callback(os.close, reading)
    theirs.callback(os.close, writing)
    return reading, writing


def classify_exit(
    said: dict[str, Any] | None,
    code: int | None,
    *,
    late_after_s: float | None,
    was_oom: bool,
    seconds: float,
    tail: str,
) -> CaseOutcome:
    """The outcome from what a process said (None: nothing) and how it ended (`code` as of subprocess; None: unknown)."""
    last = next((line for line in reversed(tail.splitlines()) if line.strip()), "").strip()
    why, detail = "", ""
    reasons: tuple[str, ...] = ()
    if said is not None:
        outcome, why, detail = said["outcome"], said.get("why", ""), said.get("detail", "")
        if outcome == "passed" and (code != 0 or late_after_s is not None):
            # It was measured, then did not end as it should: gloo and some drivers abort at exit.
            reasons = ("abort-at-exit",)
            detail = _how(code) if late_after_s is None else "did not end after its result"
        return CaseOutcome(
            outcome=outcome, why=why, detail=detail, reasons=reasons, said=said, seconds=seconds, tail=tail
        )
    if late_after_s is not None:
        why, detail = "timeout", f"still running after {late_after_s:g} s; -t sets the limit"
    elif was_oom:
        why, detail = "out-of-memory", "the kernel killed it for memory"
    elif code is None:
        why, detail = "environment", "the process it was to be forked from has ended"
    elif code < 0:
        why, detail = "signal", _how(code)
    elif code == CLOSED_MEANWHILE and not last:
        why, detail = "no-data", "the case closed the pipe of its result"
    elif code == 0:
        why, detail = "no-data", "ended well, but without a result"
    else:
        why, detail = "exit", f"{_how(code)}{': ' if last else ''}{last}"
    return CaseOutcome(outcome="failed", why=why, detail=detail, said={}, seconds=seconds, tail=tail)


def _how(code: int | None) -> str:
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            return f"ended by {signal.Signals(-code).name}"
    return f"exit code {code}"


class _Watch:
    """Reads what comes until the process ends, or must."""

    def __init__(self, running: Running, result: int, output: int, show: Callable[[bytes], None]) -> None:
        self._running, self._show = running, show
        self._pipes = {result: self._take_result, output: self._take_output}
        self._shown = 0
        self._result = bytearray()
        self.tail = b""
        for descriptor in self._pipes:
            os.set_blocking(descriptor, False)

    def until(self, deadline: float) -> bool:
        """Until the leader has ended; True when that had to be brought about."""
        with selectors.DefaultSelector() as selector:
            for descriptor in (self._running.ended, *self._pipes):
                selector.register(descriptor, selectors.EVENT_READ)
            has_result = False
            while (left := deadline - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    if key.fd == self._running.ended:
                        return False
                    if self._read(key.fd) == b"":
                        selector.unregister(key.fd)
                if not has_result and b"\n" in self._result:
                    has_result = True
                    deadline = time.monotonic() + _LEAVING_S
            end_group(self._running.pid, signal.SIGTERM)
            self._leave(selector, time.monotonic() + _GRACE_S)
        return True

    def _leave(self, selector: selectors.BaseSelector, deadline: float) -> None:
        while (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                if key.fd == self._running.ended:
                    return
                if not self._read(key.fd):
                    selector.unregister(key.fd)

    def drain(self) -> None:
        """What is in the pipes still; whoever holds their other end, nothing is waited for."""
        for descriptor in self._pipes:
            while self._read(descriptor):
                pass

    def result(self) -> dict[str, Any] | None:
        """What the process said of itself; None when that is no whole line of ours."""
        line, newline, _ = self._result.partition(b"\n")
        with contextlib.suppress(ValueError):
            said = json.loads(line) if newline else None
            if isinstance(said, dict) and said.get("outcome") in ("passed", "failed", "skipped"):
                return said
        return None

    def _read(self, descriptor: int) -> bytes | None:
        """What there is; empty at its end, None when there is nothing now."""
        try:
            data = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return None
        self._pipes[descriptor](data)
        return data

    def _take_result(self, data: bytes) -> None:
        if len(self._result) < _RESULT_BYTES:
            self._result += data

    def _take_output(self, data: bytes) -> None:
        room = FORWARDED_BYTES - self._shown
        if room > 0 and data:
            self._show(data[:room])
        self._shown += len(data)
        self.tail = (self.tail + data)[-TAIL_BYTES:]
        if room > 0 and self._shown >= FORWARDED_BYTES:
            self._show(f"\n... output beyond {FORWARDED_BYTES} bytes is not shown\n".encode())
