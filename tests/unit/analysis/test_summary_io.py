from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from milabench.analysis.serving_model import CurvePoint, PointValue, ServingCurve
from milabench.analysis.summary import summarise
from milabench.analysis.summary_io import summary_from_json
from milabench.errors import RecordError
from milabench.events.model import Meta
from milabench.report.json import report_schema
from tests.changed_values import replace
from tests.recorded_run import Recorded, data, message, rates, record

CURVE = ServingCurve(
    client="vllm",
    version="0.32.0",
    seed=1,
    slo={"ttft_p90_ms": 500.0},
    points=(
        CurvePoint(
            name="concurrency=8",
            concurrency=8.0,
            notes=("errors: 1 of 32",),
            requests=96,
            errors=3,
            values={
                "output_tps": PointValue(value=100.0, ci95=(98.0, 102.0), launches=(99.0, 100.0, 101.0)),
                "error_rate": PointValue(value=0.0, launches=(0.0, 0.0, 0.0)),
            },
            meets_slo=True,
        ),
        CurvePoint(name="rate=2.5", rate=2.5, arrivals="poisson", state="skipped", why="the server had died"),
    ),
    area=PointValue(value=2000.0, launches=(2000.0,)),
    best="concurrency=8",
    slo_concurrency=8.0,
)


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


def test_the_curve_of_a_server_is_written_down_and_read_back(tmp_path: Path) -> None:
    summary = summarise(record(tmp_path, Recorded(events=rates(5.0))))
    (bench,) = summary.benchmarks
    whole = replace(summary, benchmarks=(replace(bench, serving=CURVE),))
    text = json.dumps(whole.to_json())
    assert summary_from_json(json.loads(text)).benchmarks[0].serving == CURVE
    Draft202012Validator(report_schema()).validate(json.loads(text))


@pytest.mark.parametrize(
    "value",
    [{"value": "many"}, {"value": None}, {}, {"value": 1.0, "launches": 3}, {"value": 1.0, "ci95": [1.0]}, None, 5.0],
    ids=str,
)
def test_a_number_of_a_point_that_is_none_is_refused_with_its_place(tmp_path: Path, value: object) -> None:
    summary = summarise(record(tmp_path, Recorded(events=rates(5.0))))
    told = replace(summary, benchmarks=(replace(summary.benchmarks[0], serving=CURVE),)).to_json()
    told["benchmarks"][0]["serving"]["points"][0]["values"]["output_tps"] = value
    with pytest.raises(RecordError, match=r"^is no summary or report of a run: "):
        summary_from_json(told)


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
