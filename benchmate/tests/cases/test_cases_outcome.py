"""The outcome of a case, from how its process ended."""

from __future__ import annotations

import pytest

from benchmate.cases.registry import Case
from benchmate.cases.results import CasePayload, CaseResult, make_result
from benchmate.result_channel import CHANNEL_CLOSED
from benchmate.supervisor import ProcessExit

CASE = Case(name="sum", family=0, instance=0, subject=sum, params={})
PASSED: CasePayload = {"outcome": "passed", "wall_ns": 5}


def outcome_of(payload: CasePayload | None, code: int | None, **more: object) -> CaseResult:
    return make_result(CASE, 0, payload, ProcessExit(code=code, **more), timeout_s=2.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "more", "why", "detail"),
    [
        (-15, {"is_late": True}, "timeout", "still running after 2 s. -t sets the limit"),
        (0, {}, "no-data", "exited with code 0, but without a result"),
        (CHANNEL_CLOSED, {}, "no-data", "the case closed the pipe of its result"),
        (3, {}, "exit", "exit code 3"),
        (1, {"tail": "Traceback\nImportError: no torch\n\n"}, "exit", "exit code 1: ImportError: no torch"),
        (-11, {}, "signal", "ended by SIGSEGV"),
        (-9, {}, "signal", "ended by SIGKILL"),
        (-9, {"was_oom": True}, "out-of-memory", "the kernel killed it for memory"),
        (None, {}, "environment", "the server that it was to be forked from has ended"),
    ],
)
def test_a_process_without_a_result_has_failed_and_its_end_says_why(
    code: int | None, more: dict[str, object], why: str, detail: str
) -> None:
    outcome = outcome_of(None, code, **more)
    assert (outcome.outcome, outcome.why, outcome.detail) == ("failed", why, detail)


@pytest.mark.parametrize(
    ("code", "more", "reasons"),
    [(0, {}, ()), (-6, {}, ("abort-at-exit",)), (-9, {"is_late": True}, ("abort-at-exit",))],
)
def test_what_was_measured_before_a_bad_end_is_measured_and_marked(
    code: int, more: dict[str, object], reasons: tuple[str, ...]
) -> None:
    outcome = outcome_of(PASSED, code, **more)
    assert (outcome.outcome, outcome.why, outcome.reasons) == ("passed", "", reasons)


def test_what_a_case_says_of_its_failure_counts_more_than_its_exit_code() -> None:
    outcome = outcome_of({"outcome": "failed", "why": "out-of-memory", "detail": "run: MemoryError"}, 1)
    assert (outcome.outcome, outcome.why, outcome.detail) == ("failed", "out-of-memory", "run: MemoryError")
