"""What the check in C lets pass has the shape: it may refuse more, which is then looked at one by one, but never less."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milabench.events.shapes import RATE_SHAPE, SUMMARY_SHAPE, ShapeCheck, require_shape

CHECKS = {"rate": (RATE_SHAPE, ShapeCheck(RATE_SHAPE)), "summary": (SUMMARY_SHAPE, ShapeCheck(SUMMARY_SHAPE))}
COUNTS = dict.fromkeys(("planned", "passed", "failed", "skipped", "missing", "cancelled"), 1)
GOOD: dict[str, Any] = {
    "rate": {
        "value": 812.5,
        "repeat": 0,
        "observations": 60,
        "spread_within": None,
        "totals": [{"rank": 0, "items": 32, "seconds": 1.5, "observations": 60, "steps": 60}],
        "latency": {"min": 0.001},
        "window": {"n": 60, "lag1": -0.5, "p": 1},
    },
    "summary": {
        "run": "a",
        "system": {"arch": "cpu", "nodes": [{"name": "local", "devices": [{"index": 0}], "details": {"a": [1]}}]},
        "options": {"overrides": ["a=1"], "environ": {"A": "b", "C": None}},
        "aim": {"precision": 0.01, "budget_s": None},
        "replicates": {"digits": {"planned": 3}},
        "benchmarks": [
            {
                "counts": COUNTS,
                "tags": ["a"],
                "perf": 3,
                "ci95": [1.0, 2],
                "validations": [
                    {"step": "a", "check": "rate", "verdict": "pass", "message": "", "numbers": {"a": [None]}}
                ],
                "metrics": [{"metric": "rate", "value": 1, "params": {}, "steps": ["a"]}],
            }
        ],
    },
}
leaves = (
    st.none()
    | st.booleans()
    | st.sampled_from(
        [0, -1, 2**63 - 1, 2**63, -(2**63), 10**60, 0.0, -0.5, 1e-60, 1e50, 1.1e50, 2.0, "", "a", "\ud800"]
    )
    | st.sampled_from([[], {}, [1], {"a": 1}, {"a": None}, [None], [{}], [["a"]]])
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The place of every value in a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in items for place in places(item, (*path, key)))]


def with_other(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    """A copy with another value in one place."""
    if not path:
        return other
    copied = dict(value) if isinstance(value, dict) else dict(enumerate(value))
    copied[path[0]] = with_other(copied[path[0]], path[1:], other)
    return copied if isinstance(value, dict) else list(copied.values())


@pytest.mark.parametrize("name", CHECKS)
def test_what_was_written_passes(name: str) -> None:
    _, check = CHECKS[name]
    assert check.checked(json.dumps(GOOD[name]).encode()) is not None


@pytest.mark.parametrize("name", CHECKS)
@given(given_data=st.data())
def test_what_passes_has_the_shape(name: str, given_data: st.DataObject) -> None:
    shape, check = CHECKS[name]
    value = GOOD[name]
    for _ in range(given_data.draw(st.integers(1, 2))):
        value = with_other(value, given_data.draw(st.sampled_from(places(value))), given_data.draw(leaves))
    content = json.dumps(value).encode()
    if check.checked(content) is not None:
        require_shape(json.loads(content), shape)


def test_what_is_no_json_does_not_pass() -> None:
    _, check = CHECKS["summary"]
    assert [check.checked(content) for content in (b"", b"[]", b"{", b"\xff", b"[" * 10_000)] == [None] * 5
