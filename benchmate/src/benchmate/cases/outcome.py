"""How the process of a case ended, in the words of protocol.md, section 5. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import cast

from benchmate.cases.payload import CasePayload
from benchmate.result_channel import CHANNEL_CLOSED
from benchmate.supervisor import ProcessExit

OUTCOMES = ("passed", "failed", "skipped")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseOutcome:
    """`outcome` is passed, failed or skipped; `why` and `reasons` are words of the protocol, `detail` is for a person."""

    outcome: str
    why: str = ""
    detail: str = ""
    reasons: tuple[str, ...] = ()


def parse_payload(line: bytes) -> CasePayload | None:
    """Return what a process sent; None when it is no payload of a case."""
    try:
        payload = json.loads(line)
    except ValueError:
        return None
    is_payload = isinstance(payload, dict) and payload.get("outcome") in OUTCOMES
    return cast("CasePayload", payload) if is_payload else None


def classify_exit(payload: CasePayload | None, ended: ProcessExit, timeout_s: float) -> CaseOutcome:
    """Return the outcome, from what a process sent (None: nothing) and how it ended."""
    if payload is not None:
        return _after_result(payload, ended)
    last_line = next((line for line in reversed(ended.tail.splitlines()) if line.strip()), "").strip()
    if ended.is_late:
        why, detail = "timeout", f"still running after {timeout_s:g} s; -t sets the limit"
    elif ended.was_oom:
        why, detail = "out-of-memory", "the kernel killed it for memory"
    elif ended.code is None:
        why, detail = "environment", "the server that it was to be forked from has ended"
    elif ended.code < 0:
        why, detail = "signal", ended.how
    elif ended.code == CHANNEL_CLOSED and not last_line:
        why, detail = "no-data", "the case closed the pipe of its result"
    elif ended.code == 0:
        why, detail = "no-data", "exited with code 0, but without a result"
    else:
        why, detail = "exit", f"{ended.how}{': ' if last_line else ''}{last_line}"
    return CaseOutcome(outcome="failed", why=why, detail=detail)


def _after_result(payload: CasePayload, ended: ProcessExit) -> CaseOutcome:
    outcome = payload["outcome"]
    if outcome == "passed" and (ended.code != 0 or ended.is_late):
        # It was measured, then did not end as it should: gloo and some drivers abort at exit.
        detail = "did not end after its result" if ended.is_late else ended.how
        return CaseOutcome(outcome=outcome, detail=detail, reasons=("abort-at-exit",))
    return CaseOutcome(outcome=outcome, why=payload.get("why", ""), detail=payload.get("detail", ""))
