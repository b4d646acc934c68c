"""The audit of ways to time a call: what it reads from processes, and when it says that a difference is noise."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from milabench.timing_audit.analysis import CellKey, TimingAudit, timing_audit
from milabench.timing_audit.report import render

KNOWN = json.loads((Path(__file__).parents[2] / "golden" / "known_answers.json").read_text())
MS = 1_000_000


def process(
    cell: tuple[int, int, str],
    *,
    block: int = 0,
    again: bool = False,
    call_ms: float = 4.0,
    event_ms: float | None = None,
    enqueue_ms: float | None = None,
    first_ms: float | None = None,
    calls: int = 100,
    unfinished: int = 0,
) -> dict[str, Any]:
    """The record of one process whose calls all take `call_ms`, but for the first."""
    wall = [round(call_ms * MS)] * calls
    if first_ms is not None:
        wall[0] = round(first_ms * MS)
    batch, warmup, sync = cell
    return {
        "block": block,
        "model": "builtin:cnn",
        "cell": {"batch": batch, "warmup": warmup, "sync": sync, "again": again},
        "audit": {
            "device": "cpu" if event_ms is None else "cuda",
            "warmup_ns": [round(300 * MS)] * warmup,
            "wall_ns": wall,
            "enqueue_ns": wall if enqueue_ms is None else [round(enqueue_ms * MS)] * calls,
            "event_ns": [] if event_ms is None else [round(event_ms * MS)] * calls,
            "window_ns": sum(wall) + 1000,
            "unfinished": unfinished,
            "absent": "no accelerator here" if event_ms is None else "",
        },
    }


def audited(records: list[dict[str, Any]]) -> TimingAudit:
    found = timing_audit(records)
    assert found is not None
    return found


def noisy(rng: random.Random, blocks: int, *, sync_each: float = 1.0) -> Iterator[dict[str, Any]]:
    for block, warmup, sync in itertools.product(range(blocks), (0, 50), ("none", "each")):
        factor = sync_each if sync == "each" else 1.0
        yield process((1, warmup, sync), block=block, call_ms=4 * factor * math.exp(rng.gauss(0, 0.002)))
        if (warmup, sync) == (50, "each"):
            yield process((1, 50, "each"), block=block, again=True, call_ms=4 * factor * math.exp(rng.gauss(0, 0.002)))


def test_the_first_call_is_in_the_mean_and_not_in_the_median() -> None:
    # The experiment of the document: a one-off start-up, smeared over a thousand calls by the mean.
    (cell,) = audited([process((1, 0, "each"), call_ms=4.48, first_ms=474.48, calls=1000)]).cells
    assert cell.wall == pytest.approx(4.48e-3)
    assert cell.mean - cell.wall == pytest.approx(KNOWN["seed004"]["one_off_ms_over_1000"][1] / 1000 / 1e3)
    assert cell.first_call == pytest.approx(0.47448)


def test_the_documents_own_table_is_below_the_noise_because_each_cell_is_one_process() -> None:
    table = {
        (0, "each"): (4.95, 4.93),
        (0, "none"): (4.95, None),
        (50, "each"): (4.48, 4.67),
        (50, "none"): (4.51, None),
    }
    found = audited(
        [process((1, warmup, sync), call_ms=wall, event_ms=event) for (warmup, sync), (wall, event) in table.items()]
    )
    (batch,) = found.batches
    assert {effect.standing for effect in batch.effects} == {"one process"}
    assert batch.floor is None
    assert "below the noise: a single process does not predict the next" in render(found)
    assert "suspect: batch=1 warmup=50 sync=each: 100 calls whose event lasted longer than the wall" in render(found)


def test_the_wait_at_the_end_belongs_to_every_call_but_the_start_up_only_to_the_first() -> None:
    record = process((1, 0, "end"), call_ms=1.0, first_ms=300.0, calls=101)
    record["audit"]["window_ns"] = 300 * MS + 100 * 9 * MS  # the device took 9 ms a call
    (cell,) = audited([record]).cells
    assert cell.wall == pytest.approx(9e-3)


@pytest.mark.parametrize(
    ("enqueue_ms", "event_ms", "bound"),
    [(3.29, 3.28, "launch-bound"), (3.8, 9.5, "device-bound"), (8.0, 9.5, "mixed"), (None, None, "unknown")],
)
def test_what_bounds_a_call_is_told_by_how_long_the_host_needs_to_ask_for_it(
    enqueue_ms: float | None, event_ms: float | None, bound: str
) -> None:
    found = audited([process((1, 50, "each"), call_ms=9.6, event_ms=event_ms, enqueue_ms=enqueue_ms)])
    assert [batch.bound for batch in found.batches] == [bound]


def test_equal_ways_are_below_the_noise_floor_and_a_real_difference_is_told_apart() -> None:
    rng = random.Random(1)
    equal = {effect.name: effect for effect in audited(list(noisy(rng, 5))).batches[0].effects}
    assert {effect.standing for effect in equal.values()} == {"below the noise floor"}
    (batch,) = audited(list(noisy(rng, 5, sync_each=1.2))).batches
    found = {effect.name: effect for effect in batch.effects}
    assert batch.floor == pytest.approx(0.01, rel=0.5)
    assert found["sync none -> each"].standing == "told apart"
    assert found["sync none -> each"].ratio == pytest.approx(1.2, rel=0.01)
    assert found["warmup 0 -> 50"].standing == "below the noise floor"
    assert found["warmup 0 -> 50 x sync none -> each"].ratio == pytest.approx(1, abs=0.01)


def test_a_drift_over_the_blocks_is_no_effect_because_effects_are_ratios_inside_a_block() -> None:
    records = list(noisy(random.Random(2), 6))
    for record in records:
        record["audit"]["wall_ns"] = [round(ns * 1.1 ** record["block"]) for ns in record["audit"]["wall_ns"]]
    (batch,) = audited(records).batches
    assert {effect.standing for effect in batch.effects} == {"below the noise floor"}


def test_six_processes_have_an_exact_interval_of_their_median() -> None:
    (cell,) = audited([process((1, 0, "each"), block=block, call_ms=4 + block / 10) for block in range(6)]).cells
    assert cell.wall == pytest.approx(4.25e-3)
    assert cell.wall_interval == pytest.approx((4.0e-3, 4.5e-3))


def test_a_process_that_measured_nothing_is_named_and_the_others_count() -> None:
    bad = process((8, 0, "each"))
    bad["audit"] = {"error": "RuntimeError: out of memory"}
    found = audited([process((1, 0, "each")), bad])
    assert [cell.key for cell in found.cells] == [CellKey(batch=1, warmup=0, sync="each")]
    assert "not measured: batch=8 warmup=0 sync=each: RuntimeError: out of memory" in render(found)
    assert timing_audit([]) is None


def test_reading_an_event_at_once_is_shown_as_the_race_that_it_is() -> None:
    text = render(audited([process((64, 50, "none"), event_ms=4.0, unfinished=98)]))
    assert "98%" in text
    assert "record all, wait once at the end, then read" in text


def test_without_a_device_the_reason_takes_the_place_of_the_event_column() -> None:
    found = audited([process((1, 50, "each"))])
    assert found.cells[0].event is None
    assert "no event column: no accelerator here" in render(found)
