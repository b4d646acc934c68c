"""Whatever numbers the records of a run hold, they are summed up, judged and drawn, and what is written is strict JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from milabench import pages as html
from milabench.analysis.compare import compare_systems
from milabench.analysis.comparison_model import System
from milabench.analysis.log_metrics import REDUCTIONS
from milabench.analysis.score import Score
from milabench.analysis.summary import summarise
from milabench.analysis.summary_io import summary_from_json
from milabench.analysis.summary_model import BenchSummary, Summary
from milabench.analysis.traces import Tracing
from milabench.ci import junit
from milabench.events.rundir import Run, open_run
from milabench.events.values import LARGEST_NUMBER, finite_number, positive, strict, whole
from milabench.report import csv, markdown, text
from milabench.report import json as as_json
from milabench.workflow.run_checks import checks_of
from tests.examples import ALL, PART
from tests.recorded_run import Recorded, rates, record

pytestmark = pytest.mark.turns(3)

EXTREMES = ("1e308", "-1e308", "5e-324", "0", "1e999", "NaN", "1" + "0" * 400)
OBSERVATION = {"task": "train", "rate": 9.0, "units": "images/s", "elapsed": 1.0, "n": 9, "host_ns": 10**9, "rank": 0}
CONFIG = {"metrics": {"speed": {"pattern": r"speed (\S+)", "reduce": "mean", "direction": "lower"}}}
DEVICE = {
    "memory": [10.0, 100.0],
    "load": 0.5,
    "temperature": 60,
    "power_W": 300,
    "sm_clock_MHz": 1500,
    "energy_J": 9.0,
    "processes": [{"pid": 7, "own": False, "memory_MiB": 5.0}],
    "ecc": {"uncorrected": 0},
    "throttle": ["sw_thermal"],
}


def records() -> Iterator[tuple[str, Any]]:
    """(kind, payload) of a step in which everything is told that is ever counted with."""
    for place in range(12):
        parts = {"wait": 0.1, "forward": 0.2}
        yield "data", {**OBSERVATION, "t0_ns": place * 10**9, "time": 100.0 + place, "batch_id": place, "parts": parts}
        sample = {**DEVICE, "energy_J": 300.0 * place}
        yield "data", {"task": "main", "gpudata": {"0": sample}, "time": 100.0 + place}
        yield "data", {"task": "main", "cpudata": {"load": 0.5}, "process": {"rss_MiB": 9.5}, "time": 100.0 + place}
        yield "data", {"task": "train", "loss": 2.0 - place / 10, "time": 100.0 + place, "batch_id": place}
    window = {"start_ns": 10**9, "stop_ns": 11 * 10**9, "start": 101.0, "stop": 111.0, "why": "enough"}
    yield "data", {"task": "train", "window": window}
    yield "data", {"metric": "first_step", "value": 0.5, "units": "s", "direction": "lower"}
    yield "data", {"metric": "memory_reserved_peak", "value": 4.5, "units": "GiB", "params": {"size": 5}}
    yield "verdict", {"check": "own", "verdict": "warn", "numbers": {"share": 0.5}, "message": ""}


def main_metrics() -> Iterator[tuple[str, Any]]:
    yield from (("data", {"metric": "m", "case": c, "value": 2.5, "direction": "lower", "main": True}) for c in "abc")


def sweep_records() -> Iterator[tuple[str, Any]]:
    """Those of a client that swept a server, with everything that is ever counted with."""
    yield (
        "data",
        {"serving": {"client": "plain", "version": "1", "seed": 1, "slo": {"ttft_p90_ms": 500, "e2e_p90_ms": 9000}}},
    )
    for point in (1, 2):
        name = f"concurrency={point}"
        for index in range(3):
            times = {"at": 100.0 + index, "due": 100.0, "first": 0.25, "end": 0.75, "gaps_us": [250_000, 250_000]}
            tokens = {"tokens": [1, 1, 2], "output_tokens": 4, "input_tokens": 8, "error": ""}
            yield "data", {"request": {"point": name, "index": index, **times, **tokens}}
        load = {"concurrency": point, "start": 100.0, "stop": 103.0, "requests": 3, "warmup": 2}
        yield "data", {"point": {"name": name, **load, "state": "measured", "notes": [], "client": {"output_tps": 4.0}}}
        yield "data", {"metric": "kv_cache", "value": 0.5, "units": "", "case": name}
    yield "data", {"task": "main", "gpudata": {"0": DEVICE}, "time": 99.0}
    yield "data", {"task": "main", "gpudata": {"0": DEVICE}, "time": 104.0}


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of the numbers in a payload."""
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(item, (*path, key))
    elif isinstance(value, int | float):
        yield path


def line(kind: str, payload: Any, path: tuple[Any, ...] = (), extreme: str = "") -> str:
    """The record with one of its numbers replaced, as text: JSON's own words for what cannot be are written as well."""
    told = json.loads(json.dumps(payload))
    if path:
        below = told
        for key in path[:-1]:
            below = below[key]
        below[path[-1]] = "@@"
    return json.dumps({"event": kind, "data": told, "pipe": "data", "t": 1.0}).replace('"@@"', extreme) + "\n"


def written(base: Path, *files: str) -> Run:
    """A run of three launches with these records."""
    benches = [Recorded(repeat=repeat, events=rates(5.0)) for repeat in range(3)]
    run = record(base, *benches, Recorded(bench="other", events=rates(7.0)), manifest={"suite": {"digits": CONFIG}})
    for repeat, lines in enumerate(files):
        name = f"digits.D0.R{repeat}" if repeat else "digits.D0"
        path = run.path / f"{name}.data"
        kept = path.read_text().splitlines(keepends=True)
        path.write_text(kept[0] + lines + kept[-1])
    return open_run(run.path)


def checked(run: Run) -> BenchSummary:
    """Everything that is made of a run, without an exception and without a number that is none."""
    summary = summarise(run, checks_of(run))
    json.dumps(summary.to_json(), allow_nan=False)
    for module in (as_json, csv, junit, markdown, text):
        assert "Infinity" not in module.render([summary])
    html.render([summary], [Tracing().of(run)])
    against(summary)
    bench = next(one for one in summary.benchmarks if one.bench == "digits")
    assert bench.perf is None or (math.isfinite(bench.perf) and bench.perf > 0)
    return bench


def some_of(paths: list[tuple[Any, ...]], extreme: str) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Numbered places; where not all examples run each place still meets one extreme or two."""
    places = range(len(paths))
    first = EXTREMES.index(extreme) % PART
    return ((place, paths[place]) for place in (places if ALL else places[first::PART]))


def as_json_value(bench: BenchSummary) -> Any:
    summary = Summary(verdict="passed", benchmarks=(bench,), score=Score())
    return json.loads(json.dumps(summary.to_json()))


def told(bench: BenchSummary, check: str) -> tuple[str, str]:
    return next((one["verdict"], one["message"]) for one in bench.validations if one["check"] == check)


def against(summary: Summary) -> None:
    systems = [System(name=name, summary=summary) for name in ("one", "two")]
    assert "Infinity" not in as_json.render_comparison(compare_systems(systems))


@pytest.mark.slow
@pytest.mark.parametrize("extreme", EXTREMES)
def test_no_number_of_a_record_breaks_what_is_made_of_it(tmp_path: Path, extreme: str) -> None:
    everything = list(records())
    kinds = {path for _, payload in everything for path in leaves(payload)}
    for place, path in some_of(sorted(kinds, key=repr), extreme):
        lines = "".join(line(k, p, path if path in leaves(p) else (), extreme) for k, p in everything)
        checked(written(tmp_path / str(place), lines, lines))


@pytest.mark.slow
@pytest.mark.parametrize("extreme", EXTREMES)
def test_no_number_of_a_sweep_breaks_what_is_made_of_it(tmp_path: Path, extreme: str) -> None:
    everything = list(sweep_records())
    kinds = {path for _, payload in everything for path in leaves(payload)}
    for place, path in some_of(sorted(kinds, key=repr), extreme):
        lines = "".join(line(k, p, path if path in leaves(p) else (), extreme) for k, p in everything)
        as_recorded = "".join(line(k, p) for k, p in everything)
        bench = checked(written(tmp_path / str(place), lines, lines, as_recorded))
        assert bench.serving is not None
        assert summary_from_json(as_json_value(bench)).benchmarks[0].serving == bench.serving, path


@pytest.mark.parametrize("extreme", EXTREMES)
def test_no_main_metric_breaks_a_summary(tmp_path: Path, extreme: str) -> None:
    lines = "".join(line(kind, payload, ("value",), extreme) for kind, payload in main_metrics())
    checked(written(tmp_path, lines, lines, lines))


@pytest.mark.parametrize("extreme", EXTREMES)
def test_no_number_of_a_log_breaks_a_summary(tmp_path: Path, extreme: str) -> None:
    speed = CONFIG["metrics"]["speed"]
    config = {"metrics": {reduce: {**speed, "reduce": reduce} for reduce in REDUCTIONS}}
    said = [json.dumps({"event": "line", "data": f"speed {extreme}\n", "pipe": "stdout", "t": 1.0})] * 3
    lines = "\n".join([json.dumps({"event": "config", "data": config, "pipe": None, "t": 1.0}), *said]) + "\n"
    checked(written(tmp_path, lines, lines, lines))


def test_a_rate_beyond_all_measure_is_no_rate_and_is_said_to_be_none(tmp_path: Path) -> None:
    run = record(tmp_path, Recorded(events=rates(1e308, 1e308)))
    (bench,) = summarise(run, checks_of(run)).benchmarks
    assert (bench.perf, bench.score, bench.validity) == (None, None, None)
    assert told(bench, "rate") == ("fail", "nothing was measured: 2 observations have no usable rate")


def test_one_rate_beyond_all_measure_leaves_the_others_and_is_warned_of(tmp_path: Path) -> None:
    run = record(tmp_path, Recorded(events=rates(5.0, 1e308, 5.0)))
    (bench,) = summarise(run, checks_of(run)).benchmarks
    assert bench.perf == 5.0
    assert told(bench, "rate") == ("warn", "1 of 3 observations have no usable rate")


def test_large_numbers_within_measure_are_counted_with(tmp_path: Path) -> None:
    steps = [Recorded(repeat=repeat, events=rates(LARGEST_NUMBER, LARGEST_NUMBER)) for repeat in range(3)]
    (bench,) = summarise(record(tmp_path, *steps)).benchmarks
    assert (bench.perf, bench.spread) == (pytest.approx(LARGEST_NUMBER), pytest.approx(0))


def test_numbers_are_those_that_can_be_counted_with() -> None:
    found = [
        finite_number(value) for value in (1, -2.5, LARGEST_NUMBER, 1e51, 10**400, math.nan, math.inf, True, "1", None)
    ]
    assert found == [1.0, -2.5, LARGEST_NUMBER, None, None, None, None, None, None, None]
    assert [positive(value) for value in (2, 0, -1, 1e-300)] == [2.0, None, None, None]
    assert [whole(value, -1) for value in (3, -3, 2**63, 3.0, True)] == [3, -1, -1, -1, -1]


def test_strict_json_has_null_for_what_is_not_finite() -> None:
    assert strict({"a": [1, math.nan, (math.inf, "x")], "b": None}) == {"a": [1, None, [None, "x"]], "b": None}
