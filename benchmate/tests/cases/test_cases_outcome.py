"""How a process that ended is judged, from values."""

from __future__ import annotations

import pytest

from benchmate.cases.channel import CLOSED_MEANWHILE
from benchmate.cases.outcome import CaseOutcome, classify_exit

PASSED = {"outcome": "passed", "wall_ns": 5}


def ended(said: dict[str, object] | None, code: int | None, **more: object) -> CaseOutcome:
    about = {"late_after_s": None, "was_oom": False, "seconds": 1.0, "tail": "", **more}
    return classify_exit(said, code, **about)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "more", "why", "detail"),
    [
        (-15, {"late_after_s": 2.0}, "timeout", "still running after 2 s; -t sets the limit"),
        (0, {}, "no-data", "ended well, but without a result"),
        (CLOSED_MEANWHILE, {}, "no-data", "the case closed the pipe of its result"),
        (3, {}, "exit", "exit code 3"),
        (1, {"tail": "Traceback\nImportError: no torch\n\n"}, "exit", "exit code 1: ImportError: no torch"),
        (-11, {}, "signal", "ended by SIGSEGV"),
        (-9, {}, "signal", "ended by SIGKILL"),
        (-9, {"was_oom": True}, "out-of-memory", "the kernel killed it for memory"),
        (None, {}, "environment", "the process it was to be forked from has ended"),
    ],
)
def test_a_process_without_a_result_has_failed_and_its_end_says_why(
    code: int | None, more: dict[str, object], why: str, detail: str
) -> None:
    found = ended(None, code, **more)
    assert (found.outcome, found.why, found.detail) == ("failed", why, detail)


@pytest.mark.parametrize(
    ("code", "more", "reasons"),
    [(0, {}, ()), (-6, {}, ("abort-at-exit",)), (-9, {"late_after_s": 600.0}, ("abort-at-exit",))],
)
def test_what_was_measured_before_a_bad_end_is_measured_and_marked(
    code: int, more: dict[str, object], reasons: tuple[str, ...]
) -> None:
    found = ended(PASSED, code, **more)
    assert (found.outcome, found.why, found.reasons) == ("passed", "", reasons)


def test_what_a_case_says_of_its_failure_counts_more_than_its_exit_code() -> None:
    found = ended({"outcome": "failed", "why": "out-of-memory", "detail": "run: MemoryError"}, 1)
    assert (found.outcome, found.why, found.detail) == ("failed", "out-of-memory", "run: MemoryError")
