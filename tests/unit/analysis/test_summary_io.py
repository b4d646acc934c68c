from __future__ import annotations

import json
from pathlib import Path

import pytest

from milabench.analysis.summary import summarise
from milabench.analysis.summary_io import summary_from_json
from milabench.errors import RecordError
from milabench.events.model import Meta
from tests.recorded_run import Recorded, data, message, rates, record


def test_a_summary_that_was_written_down_is_read_back_whole(tmp_path: Path) -> None:
    meta = Meta(step="", data={"hostname": "n", "accelerators": [{"index": 0, "driver": "550"}], "python": "3.11"})
    events = (meta, *rates(*([5.0, 5.1] * 20), parts={"wait": 0.01}), message("hello"))
    metric = data(metric="energy", value=3.0, units="J", direction="lower", params={"a": 1})
    run = record(
        tmp_path,
        *(Recorded(repeat=number, events=(*events, metric)) for number in range(3)),
        Recorded(
            bench="ddp", tag="", devices=(0, 1), method="multigpu", events=(*rates(5.0, rank=0), *rates(4.0, rank=1))
        ),
        Recorded(bench="bad", outcome="failed", why="exit", stderr="no\n"),
        skipped=[{"bench": "llama", "why": "not fetched"}],
    )
    summary = summarise(run)
    assert summary_from_json(json.loads(json.dumps(summary.to_json())), run.manifest) == summary


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"schema": 2, "benchmarks": []},
        {"schema": 1, "benchmarks": None},
        {"schema": 1, "benchmarks": [{}]},
        {"schema": 1, "benchmarks": [{"bench": "x", "outcome": "odd", "counts": {}}]},
        {"schema": 1, "benchmarks": [{"bench": "x", "outcome": "passed", "counts": {}, "flaky": [1]}]},
    ],
)
def test_what_is_no_summary_is_refused(told: dict[str, object]) -> None:
    with pytest.raises(RecordError):
        summary_from_json(told)
