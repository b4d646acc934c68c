"""The laws of conservation: a launch that breaks one has a number that is invalid, with the two figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from milabench.analysis.measure import measure
from milabench.analysis.summary import summarise
from milabench.events.model import Data, Event
from tests.recorded_run import Recorded, record
from tests.unit.analysis.test_throughput import asked, pause, step, window

REGULAR = [step(1.0 + 0.1 * k, 0.1) for k in range(100)]


def window_of(pid: int, **more: Any) -> Event:
    data = {"start_ns": 1_000_000_000, "stop_ns": 11_000_000_000, "why": "complete", "pid": pid}
    return Data(step="b", data={"task": "train", "window": data, **more})


BROKEN = {
    "a second process beside the first": (
        [window(1.0, 11.0), *REGULAR, *(step(1.0 + 0.1 * k, 0.03) for k in range(100))],
        "rank 0: steps and pauses of 13.0 s in a window of 9.9 s",
    ),
    "a second process between long gaps": (
        [
            window(1.0, 11.0),
            *(step(1.0 + 0.2 * k, 0.1) for k in range(50)),
            *(step(1.0 + 1.0 * k, 0.1) for k in range(10)),
        ],
        "rank 0: 1.0 s of a window of 9.1 s are in two steps at once",
    ),
    "a loop within a pause": (
        [window(1.0, 11.0), *REGULAR, pause("validation", 4.0, 6.0)],
        "rank 0: 160 of 800 items are of steps in a declared pause",
    ),
    "two processes, one after the other": (
        [window_of(7), window_of(8), *REGULAR],
        "rank 0: steps of 2 processes, but a rank's steps come from 1",
    ),
    "a window that goes on after its last step": (
        [window_of(7), *REGULAR[:60]],
        "rank 0: steps, pauses and the time between them are 6.0 s of a window of 10.0 s",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_law_is_a_sentence_with_both_figures(name: str) -> None:
    events, sentence = BROKEN[name]
    assert measure("b", [asked(), *events]).inconsistencies == (sentence,)


@pytest.mark.parametrize(
    "events",
    [
        [window(1.0, 11.0), *REGULAR],
        [
            window(1.0, 13.0),
            *REGULAR[:50],
            pause("validation", 6.0, 8.0),
            *(step(8.0 + 0.1 * k, 0.1) for k in range(50)),
        ],
        # The pause is within a step, and that is longer by it.
        [window(1.0, 13.0), step(1.0, 2.1), pause("v", 1.05, 3.05), *(step(3.1 + 0.1 * k, 0.1) for k in range(99))],
        [window_of(7, rank=0), window_of(8, rank=1), *REGULAR, *(step(1.0 + 0.1 * k, 0.1, rank=1) for k in range(100))],
        # Another rank goes on while the first validates.
        [
            window(1.0, 11.0),
            *REGULAR[:30],
            *REGULAR[50:],
            *(step(1.0 + 0.1 * k, 0.1, rank=1) for k in range(100)),
            Data(
                step="b",
                data={"task": "main", "pause": {"name": "v", "start_ns": 4 * 10**9, "stop_ns": 6 * 10**9}, "rank": 0},
            ),
        ],
    ],
)
def test_what_keeps_the_laws_is_consistent(events: list[Event]) -> None:
    assert measure("b", [asked(), *events]).inconsistencies == ()


def test_an_inconsistent_number_is_invalid_and_says_why(tmp_path: Path) -> None:
    events, sentence = BROKEN["a loop within a pause"]
    (bench,) = summarise(record(tmp_path, Recorded(events=(asked(), *events)))).benchmarks
    assert (bench.outcome, bench.validity) == ("passed", "invalid")
    assert "inconsistent" in bench.doubts
    assert [check["message"] for check in bench.validations if check["check"] == "inconsistent"] == [sentence]
