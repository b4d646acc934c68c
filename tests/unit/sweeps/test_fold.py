from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from milabench.analysis.measure import Measurement, measure
from milabench.analysis.serving_model import LaunchPoint, ServingCurve
from milabench.analysis.summary import summarise
from milabench.analysis.summary_io import summary_from_json
from milabench.analysis.summary_model import BenchSummary
from milabench.events.model import Config, Event
from milabench.events.rundir import open_run
from milabench.sweeps.curve import dominated_area
from milabench.sweeps.fold import counted_quantiles, planned_points
from tests.examples import thinned
from tests.recorded_run import data, record
from tests.serving_runs import about, end_of, launches, request, serving_run, sweep

POINT = "concurrency=2"


def measured(*events: Event) -> Measurement:
    return measure("chat.client", events)


def test_a_point_that_was_planned_has_the_name_that_its_client_gives_it() -> None:
    loads = {"concurrency": [1, 1_000_000], "rate": [2, 2.5, 1.0000001, 1.0000002, 1_234_567.0, 0.001]}
    assert [point.name for point in planned_points(loads)] == [
        *("concurrency=1", "concurrency=1000000", "rate=2", "rate=2.5"),
        *("rate=1.0000001", "rate=1.0000002", "rate=1234567", "rate=0.001"),
    ]


def the_point(*requests: Event, slo: dict[str, float] | None = None, **end: Any) -> LaunchPoint:
    curve = measured(about(slo=slo or {}), *requests, end_of(POINT, **end)).serving
    assert curve is not None
    (point,) = curve.points
    return point


def the_bench(tmp_path: Path, *of_launches: Iterable[Event], **more: Any) -> BenchSummary:
    steps = launches("chat", lambda repeat: tuple(of_launches[repeat]), len(of_launches))
    summary = summarise(record(tmp_path, *steps, **more))
    text = json.dumps(summary.to_json())
    assert summary_from_json(json.loads(text)).benchmarks[0].serving == summary.benchmarks[0].serving
    return summary.benchmarks[0]


def the_curve(bench: BenchSummary) -> ServingCurve:
    assert bench.serving is not None
    return bench.serving


# A: sent at 100.0, first token after 0.2 s, then 4 gaps of 100 ms. B: sent at 100.5, first after 0.4 s, then 2 of 50 ms.
TWO = (request(POINT, 0, 100.0, 0.2, [100_000] * 4), request(POINT, 1, 100.5, 0.4, [50_000] * 2))


def test_the_numbers_of_a_point_follow_from_its_requests() -> None:
    point = the_point(*TWO)
    # From 100.0 until B ends at 101.0: 5 + 3 output tokens, and 128 input tokens of each.
    assert (point.start, point.stop, point.requests, point.errors) == (100.0, 101.0, 2, 0)
    wanted = {
        "output_tps": 8.0,
        "total_tps": 264.0,
        "request_rate": 2.0,
        "error_rate": 0.0,
    }
    assert point.values == pytest.approx(wanted)
    assert list(point.values) == list(wanted)


@pytest.mark.parametrize(("count", "shown"), [(4, ()), (5, (50,)), (28, (50,)), (29, (50, 90)), (299, (50, 90, 99))])
def test_a_quantile_needs_so_many_requests_that_the_slowest_bounds_it(count: int, shown: tuple[int, ...]) -> None:
    # The k-th of n has a first token after k ms, and two gaps of k ms.
    requests = [request(POINT, k - 1, 100.0, k / 1e3, [1000 * k] * 2) for k in range(1, count + 1)]
    values = the_point(*requests).values
    for q in (50, 90, 99):
        # The median-unbiased estimate, type 8 of Hyndman and Fan (1996).
        wanted = (count + 1 / 3) * q / 100 + 1 / 3 if q in shown else None
        for name in ("ttft", "tpot"):
            assert values.get(f"{name}_p{q}_ms") == (None if wanted is None else pytest.approx(wanted, rel=1e-4))
        assert ((f"itl_p{q}_ms" in values), (f"e2e_p{q}_ms" in values)) == (q in shown, q in shown)
    assert ("user_tps" in values) == (90 in shown)


def test_the_order_of_records_does_not_matter() -> None:
    events = [about(), end_of(POINT), *TWO]
    in_order, shuffled = measured(about(), *TWO, end_of(POINT)), measured(*events)
    assert in_order.serving == shuffled.serving


def test_a_gap_that_brings_n_tokens_counts_as_n_gaps_of_an_nth() -> None:
    # A chunk without a token, such as the one that names the role, is no arrival: its time is part of the next gap.
    gaps, tokens = [30_000, 40_000, 60_000], [1, 3, 0, 1]
    point = the_point(*(request(POINT, k, 10.0, 0.1, gaps, tokens=tokens, output_tokens=5) for k in range(30)))
    # 10, 10, 10 and 100 ms of each.
    assert point.values["itl_p50_ms"] == pytest.approx(10.0)
    assert point.values["itl_p90_ms"] == pytest.approx(100.0)
    assert point.values["tpot_p50_ms"] == pytest.approx(130 / 4)


def test_quantiles_of_counted_values_are_those_of_the_values_one_by_one() -> None:
    noise = random.Random(3)
    for size in (1, 2, 3, 10, 101):
        values = sorted(noise.choice((1, 2, 5, 7.5, 100)) for _ in range(size))
        for q in (0.0, 0.5, 0.9, 0.99, 1.0):
            place = q * (size - 1)
            low, high = values[math.floor(place)], values[math.ceil(place)]
            (found,) = counted_quantiles({value: values.count(value) for value in values}, [q])
            assert found == pytest.approx(low + (place - math.floor(place)) * (high - low))


def test_requests_with_an_error_count_in_the_error_rate_alone() -> None:
    failed = request(POINT, 2, 0.0, 900.0, error="HTTP 500", output_tokens=1)
    silent = request(POINT, 3, 0.0, 900.0, output_tokens=0)
    point, without = the_point(*TWO, failed, silent), the_point(*TWO)
    assert (point.requests, point.errors, point.values.pop("error_rate")) == (4, 2, 0.5)  # type: ignore[attr-defined]
    assert point.values == {name: value for name, value in without.values.items() if name != "error_rate"}


def test_a_point_whose_requests_all_failed_has_failed() -> None:
    refused = (request(POINT, index, 5.0, 0.1, error="connection refused") for index in range(3))
    point = the_point(*refused, slo={"ttft_p90_ms": 500})
    assert (point.state, point.why) == ("failed", "all of its 3 requests failed: connection refused")
    assert (point.values, point.meets_slo) == ({"error_rate": 1.0}, None)


def test_requests_of_one_token_have_no_time_between_tokens() -> None:
    ones = (request(POINT, index, float(index), 0.5) for index in range(30))
    point = the_point(*ones, slo={"ttft_p90_ms": 600, "tpot_p90_ms": 50, "itl_p99_ms": 50})
    assert not {"user_tps", "tpot_p50_ms", "itl_p50_ms"} & set(point.values)
    assert point.values["output_tps"] == pytest.approx(30 / 29.5)
    assert point.meets_slo is True  # there is nothing that could break the limits of what lies between tokens
    assert point.values["goodput"] == pytest.approx(30 / 29.5)


def test_of_tokens_that_came_together_nobody_knows_the_time_between() -> None:
    # Twelve tokens in four arrivals; as if each brought three, nine of them came after the first.
    several = [request(POINT, index, 10.0 + index, 0.1, [30_000] * 3, output_tokens=12) for index in range(30)]
    point = the_point(*several, slo={"itl_p90_ms": 1000})
    assert not {"itl_p50_ms", "itl_p90_ms", "itl_p99_ms"} & set(point.values)
    assert point.values["tpot_p90_ms"] == pytest.approx(10.0)
    assert point.values["user_tps"] == pytest.approx(100.0)
    assert point.meets_slo is False


def test_a_hundredth_of_the_tokens_may_have_no_arrival_of_its_own() -> None:
    plain = [request(POINT, index, float(index), 0.1, [10_000] * 99) for index in range(298)]
    merged = request(POINT, 298, 4.0, 0.1, [10_000] * 98, output_tokens=100)
    assert the_point(*plain, merged).values["itl_p99_ms"] == pytest.approx(10.0)


def test_an_answer_that_came_at_once_meets_no_limit_on_the_time_between_tokens() -> None:
    at_once = [request(POINT, index, float(index), 0.5, output_tokens=12) for index in range(4)]
    point = the_point(*at_once, slo={"ttft_p90_ms": 600, "tpot_p90_ms": 50})
    assert not {"user_tps", "tpot_p50_ms", "itl_p50_ms"} & set(point.values)
    assert (point.meets_slo, point.values["goodput"]) == (False, 0.0)


def test_the_first_arrival_may_bring_several_tokens() -> None:
    point = the_point(*(request(POINT, k, 10.0, 0.1, [40_000], tokens=[4, 4], output_tokens=8) for k in range(5)))
    assert (point.values["tpot_p50_ms"], point.values["itl_p50_ms"]) == pytest.approx((10.0, 10.0))


def test_an_error_of_any_kind_is_one() -> None:
    point = the_point(*TWO, request(POINT, 2, 100.0, 0.2, [100_000], error={"code": 5}))
    assert (point.requests, point.errors) == (3, 1)


def test_requests_of_one_token_have_no_area(tmp_path: Path) -> None:
    ones = [request(POINT, index, float(index), 0.5) for index in range(4)]
    assert the_curve(the_bench(tmp_path, (about(), *ones, end_of(POINT)))).area is None


def test_a_client_that_does_not_stream_has_no_time_to_the_first_token() -> None:
    asked = {"point": POINT, "at": 1.0, "end": 2.0, "output_tokens": 8, "input_tokens": 4, "error": ""}
    point = the_point(*(data(request={**asked, "index": k}) for k in range(5)), slo={"ttft_p90_ms": 500})
    assert (point.values["output_tps"], point.values["e2e_p50_ms"], point.meets_slo) == (20.0, 2000.0, False)
    assert "ttft_p50_ms" not in point.values


@pytest.mark.parametrize(
    ("slo", "goodput", "is_met"),
    [
        ({}, None, None),
        ({"ttft_p90_ms": 381.0}, 1.0, None),  # B breaks it; of two requests that shows nothing
        ({"ttft_p50_ms": 100.0}, 0.0, None),
        ({"ttft_p90_ms": 199.0}, 0.0, False),  # both: at most one in a hundred such pairs if nine in ten kept it
        ({"ttft_p90_ms": 199.0, "tpot_p90_ms": 96.0}, 0.0, False),
        ({"e2e_p99_ms": 601}, 2.0, None),
        ({"error_rate": 0.0}, None, True),
        ({"itl_p90_ms": 99}, None, None),
        ({"nothing_ms": 1}, None, None),  # not one of ours
    ],
)
def test_goodput_counts_what_keeps_every_limit(
    slo: dict[str, float], goodput: float | None, is_met: bool | None
) -> None:
    point = the_point(*TWO, slo=slo)
    assert point.values.get("goodput") == (None if goodput is None else pytest.approx(goodput))
    assert point.meets_slo is is_met


GOOD = {"point": POINT, "index": 2, "at": 7.0, "first": 0.2, "end": 0.5, "gaps_us": [75_000] * 4, "output_tokens": 5}
BAD: dict[str, list[Any]] = {
    "index": [None, -1, 1.5, "1", True, 0],
    "at": [None, "now", math.nan, 1e60, [1]],
    "first": [None, -0.1, math.nan, 1e9, "x"],
    "end": [None, 0, -1.0, math.inf, 0.1],
    "gaps_us": [[1.5], [-1], [None], "12", 3, [2**70], {"a": 1}],
    "tokens": [[1], [-1, 1], ["a", 1], 5, [0.5, 1, 1, 1, 1]],
    "output_tokens": [None, -3, 2.5, "5", math.nan],
    "point": [None, "", 5, ["concurrency=2"]],
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in BAD.items() for value in values])
def test_a_request_that_cannot_be_used_is_counted_and_changes_nothing(key: str, value: Any) -> None:
    result = measured(about(), *TWO, data(request={**GOOD, key: value}), end_of(POINT))
    assert result.serving is not None
    assert result.unusable == 1
    assert result.serving.points == (the_point(*TWO),)
    assert result.throughput is not None
    assert "nonfinite" in result.throughput.doubts


@pytest.mark.parametrize(
    "value", [None, 5, "x", [], [1], {}, {"name": 3}, {"name": ""}, {"name": POINT, "state": "odd"}]
)
def test_a_point_that_is_none_raises_nothing(value: Any) -> None:
    result = measured(about(), *TWO, data(point=value))
    assert result.serving is not None
    (point,) = result.serving.points
    assert (point.name, point.state) == (POINT, "failed")
    assert point.why == (
        "its state is 'odd'" if value == {"name": POINT, "state": "odd"} else "the records end before the point does"
    )


def test_a_request_of_no_point_of_the_sweep_is_not_usable() -> None:
    declared = Config(step="", data={"serve": {"concurrency": [2]}})
    result = measured(declared, about(), *TWO, request("concurrency=3", 0, 1.0, 0.1), end_of(POINT))
    assert result.serving is not None
    assert [point.name for point in result.serving.points] == [POINT]
    assert result.unusable == 1


def test_what_other_benchmarks_record_is_no_sweep() -> None:
    result = measured(
        data(request=5, point="a"), data(point=[1, 2]), data(metric="accuracy", value=0.5, units="", main=True)
    )
    assert (result.serving, result.unusable) == (None, 0)
    assert result.throughput is not None and result.throughput.value == 0.5


def test_points_of_the_suite_that_left_no_record_were_skipped() -> None:
    serve = {"concurrency": [1, 2], "rate": [2.5, 0.123456789], "arrivals": "poisson", "scenario": ["offline"]}
    # A name of other digits is the same load.
    events = (*TWO, end_of(POINT), request("rate=0.123456789", 0, 1.0, 0.1))
    result = measured(Config(step="", data={"serve": serve}), about(), *events, end_of("rate=0.123456789"))
    assert result.serving is not None
    assert [(point.name, point.state) for point in result.serving.points] == [
        ("concurrency=1", "skipped"),
        (POINT, "measured"),
        ("rate=2.5", "skipped"),
        ("rate=0.123456789", "measured"),
        ("scenario=offline", "skipped"),
    ]
    (missing,) = (point for point in result.serving.points if point.name == "rate=2.5")
    assert (missing.rate, missing.arrivals, missing.why) == (2.5, "poisson", "nothing was recorded")


def test_requests_that_were_lost_make_the_number_suspect() -> None:
    for count, is_lost in ((2, False), (3, True)):
        result = measured(about(), *TWO, end_of(POINT, requests=count))
        assert result.throughput is not None
        assert ("dropped" in result.throughput.doubts) is is_lost


def test_every_number_of_a_point_is_a_metric_of_its_case() -> None:
    thirty = [request(POINT, k, 100.0 + k // 2 / 2, 0.2, [10_000] * 3) for k in range(30)]
    events = (about(), *thirty, end_of(POINT), data(metric="kv_cache", value=0.25, units="", case=POINT))
    metrics = measured(*events).metrics
    by_name = {metric.name: metric for metric in metrics}
    assert len(by_name) == len(metrics)
    assert (by_name["output_tps"].value, by_name["output_tps"].case, by_name["output_tps"].units) == (
        pytest.approx(120 / 7.23),
        POINT,
        "tokens/s",
    )
    assert (by_name["ttft_p90_ms"].direction, by_name["kv_cache"].value) == ("lower", 0.25)


@pytest.mark.parametrize(
    ("points", "area"),
    [
        ([], 0.0),
        ([(10.0, 100.0)], 1000.0),
        # 40 wide and 100 high; above it 20 wide up to 300, and 10 wide up to 500.
        ([(40.0, 100.0), (20.0, 300.0), (10.0, 500.0)], 10_000.0),
        ([(10.0, 500.0), (40.0, 100.0), (20.0, 300.0)], 10_000.0),
        # What another point exceeds in both adds nothing.
        ([(40.0, 100.0), (20.0, 300.0), (10.0, 500.0), (15.0, 200.0), (10.0, 450.0), (40.0, 60.0)], 10_000.0),
        # The end of a curve at which both fall.
        ([(10.0, 500.0), (5.0, 400.0)], 5_000.0),
    ],
)
def test_the_area_is_that_of_the_steps(points: list[tuple[float, float]], area: float) -> None:
    assert dominated_area(points) == area


ENOUGH = 30  # requests for a p90
# In a launch, output tokens a second and time to the first token (s) by point.
Loads = dict[str, tuple[float, float]]


def launch(
    loads: Loads, slo: float | None = 500.0, failed: dict[str, str] | None = None, count: int = ENOUGH, **more: Any
) -> tuple[Event, ...]:
    events = [about(slo={} if slo is None else {"ttft_p90_ms": slo})]
    for name, (tps, ttft) in loads.items():
        lasts = 2 * count / tps
        events += [request(name, k, 10.0, ttft, [round((lasts - ttft) * 1e6)]) for k in range(count)]
        events.append(end_of(name, **more))
    events += [
        end_of(name, state=state.partition(":")[0], why=state.partition(":")[2])
        for name, state in (failed or {}).items()
    ]
    return tuple(events)


def test_the_best_point_is_that_of_all_launches(tmp_path: Path) -> None:
    # By itself each launch has another best point: 4, 8, and 4 again, since 8 was too slow in the third.
    one = {"concurrency=4": (11.0, 0.3), "concurrency=8": (10.0, 0.3)}
    two = {"concurrency=4": (10.0, 0.3), "concurrency=8": (15.0, 0.3)}
    three = {"concurrency=4": (12.1, 0.3), "concurrency=8": (15.0, 0.6)}
    bench = the_bench(tmp_path, launch(one), launch(two), launch(three))
    curve = the_curve(bench)
    assert (curve.best, curve.slo_concurrency, curve.slo_rate) == ("concurrency=4", 4.0, None)
    # Of the second, two launches keep the limit and one does not: neither is shown.
    assert [point.meets_slo for point in curve.points] == [True, None]
    assert bench.perf == pytest.approx(11.0, rel=1e-4)  # the geometric mean of 10, 11 and 12.1
    assert [process.throughput.value for process in bench.processes] == pytest.approx([11.0, 10.0, 12.1], rel=1e-4)
    value = curve.points[0].values["output_tps"]
    assert value.launches == pytest.approx((11.0, 10.0, 12.1), rel=1e-4)
    # t(0.975, 2) = 4.3027, the standard deviation of the logarithms is ln 1.1 = 0.09531: 11 exp(+-0.23677).
    assert value.ci95 == pytest.approx((8.681, 13.939), rel=1e-3)
    assert bench.ci95 == pytest.approx(value.ci95)
    assert "cases-differ" not in bench.doubts


def test_a_number_that_is_zero_in_a_launch_has_a_plain_mean(tmp_path: Path) -> None:
    failed = [request("concurrency=4", ENOUGH, 10.0, 0.1, error="reset")]
    loads: Loads = {"concurrency=4": (11.0, 0.3)}
    bench = the_bench(tmp_path, (*launch(loads), *failed), (*launch(loads), *failed), launch(loads))
    rate = the_curve(bench).points[0].values["error_rate"]
    assert rate.launches == (1 / 31, 1 / 31, 0.0)
    assert rate.value == pytest.approx(2 / 93)
    # 0.021505 +- 4.3027 * 0.018625 / sqrt 3 = 0.046268: there is no share below zero.
    assert rate.ci95 == pytest.approx((0.0, 0.067773), rel=1e-3)
    assert bench.doubts == ("request-errors",)


def test_errors_that_the_slo_has_a_limit_for_are_no_doubt(tmp_path: Path) -> None:
    failed = request(POINT, 2, 10.0, 0.1, error="reset")
    events = (about(slo={"error_rate": 0.4}), *TWO, failed, end_of(POINT))
    bench = the_bench(tmp_path, events)
    assert (bench.perf, bench.doubts, the_curve(bench).best) == (pytest.approx(8.0), (), POINT)


def test_one_launch_has_a_curve_without_intervals(tmp_path: Path) -> None:
    bench = the_bench(tmp_path, launch({"concurrency=4": (11.0, 0.3)}))
    curve = the_curve(bench)
    assert all(
        not name.endswith("_ms") for point in curve.points for name, value in point.values.items() if not value.ci95
    )
    assert curve.points[0].values["output_tps"].ci95 is None  # but requests are a sample, also those of one launch
    assert curve.area is not None
    assert (curve.area.ci95, len(curve.area.launches), bench.ci95) == (None, 1, None)
    assert bench.perf == pytest.approx(11.0, rel=1e-4)


def test_where_no_point_meets_the_slo_there_is_no_number_and_it_is_said(tmp_path: Path) -> None:
    slow: Loads = {"concurrency=4": (11.0, 0.7), "concurrency=8": (12.0, 0.8)}
    bench = the_bench(tmp_path, launch(slow), launch(slow), launch(slow))
    curve = the_curve(bench)
    assert (bench.outcome, bench.perf, bench.score) == ("passed", None, None)
    assert (curve.best, curve.slo_concurrency) == ("", None)
    assert "no point meets the SLO (ttft_p90_ms 500)" in bench.messages
    assert [point.values["output_tps"].value for point in curve.points] == pytest.approx([11.0, 12.0], rel=1e-4)


def test_requests_of_no_number_do_not_fail_a_sweep_without_a_best_point(tmp_path: Path) -> None:
    slow = launch({"concurrency=4": (11.0, 0.7)})
    bench = the_bench(tmp_path, (*slow, data(request={**GOOD, "point": "concurrency=4", "at": None})))
    assert (bench.outcome, the_curve(bench).points[0].requests) == ("passed", ENOUGH)


def test_without_an_slo_the_best_is_that_of_all_points(tmp_path: Path) -> None:
    bench = the_bench(tmp_path, launch({"concurrency=4": (11.0, 0.7), "rate=2": (12.0, 0.8)}, slo=None))
    curve = the_curve(bench)
    assert (curve.best, curve.slo_concurrency, curve.slo_rate) == ("rate=2", None, None)
    assert bench.perf == pytest.approx(12.0, rel=1e-4)


def test_a_point_that_failed_in_a_launch_is_not_the_best(tmp_path: Path) -> None:
    both: Loads = {"concurrency=4": (11.0, 0.3), "concurrency=8": (15.0, 0.3)}
    broken = launch({"concurrency=4": (11.0, 0.3)}, failed={"concurrency=8": "failed:the server ended"})
    bench = the_bench(tmp_path, launch(both), broken, launch(both))
    curve = the_curve(bench)
    assert (curve.best, curve.slo_concurrency) == ("concurrency=4", 4.0)
    assert bench.doubts == ("points-missing",)
    assert (curve.points[1].state, curve.points[1].why) == ("measured", "the server ended (1 of 3 repeats)")
    assert len(curve.points[1].values["output_tps"].launches) == 2
    assert curve.area is not None
    assert len(curve.area.launches) == 2  # an area without a point is smaller, and no sample of the others
    assert "concurrency=8 failed: the server ended (1 of 3 repeats)" in bench.messages


def test_a_sweep_that_was_cut_off_is_shown_as_far_as_it_came(tmp_path: Path) -> None:
    skipped = {"concurrency=8": "failed:the server ended", "concurrency=16": "skipped:the server had ended"}
    events = launch({"concurrency=4": (11.0, 0.3)}, failed=skipped)
    steps = launches("chat", lambda _: events, 1, outcome="failed", why="exit")
    (bench,) = summarise(record(tmp_path, *steps)).benchmarks
    assert (bench.outcome, bench.perf) == ("failed", None)
    assert [(point.name, point.state) for point in the_curve(bench).points] == [
        ("concurrency=4", "measured"),
        ("concurrency=8", "failed"),
        ("concurrency=16", "skipped"),
    ]
    assert {"concurrency=8 failed: the server ended", "concurrency=16 skipped: the server had ended"} <= set(
        bench.messages
    )


def test_a_launch_that_failed_is_no_part_of_the_curve_of_the_others(tmp_path: Path) -> None:
    good, bad = launch({"concurrency=4": (11.0, 0.3)}), launch({"concurrency=4": (99.0, 0.1)})
    steps = launches("chat", lambda repeat: bad if repeat == 1 else good, 3)
    failed = [replace(step, outcome="failed", why="exit") if step.repeat == 1 else step for step in steps]
    (bench,) = summarise(record(tmp_path, *failed)).benchmarks
    assert the_curve(bench).points[0].values["output_tps"].launches == pytest.approx((11.0, 11.0), rel=1e-4)


@pytest.mark.parametrize(
    ("note", "reason"),
    [
        ("client-bound: 9 of 10 requests/s", "client-bound"),
        ("client differs: output_tps 90, from its requests 100", "client-differs"),
        ("output: 8 of 8 answers have another length than asked: 6 tokens for 24", "output-differs"),
        ("tail: 17% of the time is after the last request was sent", "tail"),
        ("outputs as asked: all of them", None),
        ("warmed up", None),
    ],
)
def test_a_note_of_a_point_makes_the_number_suspect(tmp_path: Path, note: str, reason: str | None) -> None:
    loads: Loads = {"concurrency=4": (11.0, 0.3)}
    bench = the_bench(
        tmp_path,
        (*launch({"rate=1": (9.0, 0.3)}), *launch(loads, notes=[note])),
        launch({**loads, "rate=1": (9.0, 0.3)}),
    )
    assert bench.doubts == (() if reason is None else (reason,))
    assert {point.name: point.notes for point in the_curve(bench).points}["concurrency=4"] == (
        f"{note} (1 of 2 repeats)",
    )


@pytest.mark.parametrize(
    "odd",
    [{"gaps_us": [True] * 4}, {"end": 0.35}, {"gaps_us": [100_000] * 3 + [110_000]}],
)
def test_a_request_that_contradicts_itself_is_no_request(odd: dict[str, Any]) -> None:
    times = {"at": 100.0, "first": 0.2, "end": 0.6, "gaps_us": [100_000] * 4}
    third = data(
        request={"point": POINT, "index": 2, **times, "output_tokens": 5, "input_tokens": 9, "error": "", **odd}
    )
    result = measured(about(), *TWO, third, end_of(POINT))
    assert result.serving is not None
    assert (result.serving.points[0].values, result.unusable) == (the_point(*TWO).values, 1)


BOUND = ["client-bound: 9 requests were in flight, of 16"]


@pytest.mark.parametrize("bound_launches", [1, 2])
def test_a_point_of_the_client_says_nothing_of_the_server(tmp_path: Path, bound_launches: int) -> None:
    good: Loads = {"concurrency=4": (11.0, 0.3)}
    high: Loads = {"concurrency=16": (33.0, 0.1)}
    steps = [(*launch(good), *launch(high, notes=BOUND if repeat < bound_launches else [])) for repeat in range(2)]
    bench, alone = the_bench(tmp_path / "both", *steps), the_bench(tmp_path / "one", launch(good), launch(good))
    curve, of_good = the_curve(bench), the_curve(alone)
    assert (curve.best, curve.slo_concurrency, bench.perf) == ("concurrency=4", 4.0, pytest.approx(11.0, rel=1e-4))
    assert [point.meets_slo for point in curve.points] == [True, None]
    assert curve.points[1].values["output_tps"].value == pytest.approx(33.0, rel=1e-4)  # still shown
    assert curve.area is not None
    assert curve.area == of_good.area
    assert bench.doubts == ("client-bound",)
    assert any(text.startswith("concurrency=16: its client did not keep the load") for text in bench.messages)


def test_where_every_point_is_the_clients_there_is_no_number_and_it_is_said(tmp_path: Path) -> None:
    bench = the_bench(tmp_path, launch({"concurrency=4": (11.0, 0.3)}, notes=BOUND))
    assert (bench.perf, the_curve(bench).best, the_curve(bench).area) == (None, "", None)
    assert "at no point did the client keep the load" in bench.messages


def test_the_tail_of_another_point_is_no_doubt_of_the_number(tmp_path: Path) -> None:
    def lacking(tokens: float) -> list[Event]:
        return [*launch({"concurrency=4": (11.0, 0.3)}), *launch({"rate=2": (tokens, 0.3)}, notes=["tail: 17%"])]

    assert the_bench(tmp_path / "other", lacking(9.0)).doubts == ()
    assert the_bench(tmp_path / "best", lacking(12.0)).doubts == ("tail",)


def test_fewer_than_seven_points_are_said(tmp_path: Path) -> None:
    bench = the_bench(tmp_path, launch({f"concurrency={2**n}": (10.0 + n, 0.3) for n in range(6)}))
    assert bench.messages == ("a curve of 6 points: at least 7 show where it bends",)


POWER = {"price": 87660.0, "years": 1.0, "electricity": 0.36, "pue": 1.5, "currency": "EUR"}


def sampled(uuid: str, watts: float) -> Iterable[Event]:
    """A device that takes so many watts for 20 s, from before the requests of `launch` until after."""
    for second in range(5, 26):
        yield data(task="main", gpudata={"0": {"uuid": uuid, "power_W": watts}}, time=float(second))


def test_energy_and_cost_are_those_of_the_devices_in_the_time_of_the_point(tmp_path: Path) -> None:
    client = launch({"concurrency=4": (10.0, 0.3)})
    steps = launches("chat", lambda _: client, 1)
    # The monitor of the server reads one device; that of the client reads it too, and another one.
    server = replace(steps[0], events=(*steps[0].events, *sampled("GPU-0", 400.0)))
    other = (
        data(task="main", gpudata={"1": {"uuid": "GPU-1", "power_W": 100.0}}, time=5.0),
        data(task="main", gpudata={"1": {"uuid": "GPU-1", "power_W": 100.0}}, time=25.0),
    )
    config = Config(step="", data={"serve": {"concurrency": [4]}})
    run = record(
        tmp_path,
        server,
        replace(steps[1], events=(config, *client, *sampled("GPU-0", 400.0), *other), is_complete=False),
        manifest={"costs": POWER},
    )
    (bench,) = summarise(run).benchmarks
    values = the_curve(bench).points[0].values
    # 500 W for the 1e5 s that a million tokens take at 10 a second.
    assert values["joules_per_mtok"].value == pytest.approx(5e7, rel=1e-4)
    # 87660 over 8766 h is 10 an hour: 27.78 h; and 13.89 kWh at 1.5 x 0.36.
    assert values["cost_per_mtok"].value == pytest.approx(277.78 + 7.5, rel=1e-3)
    assert the_curve(bench).currency == "EUR"


def test_a_system_without_prices_or_readings_has_neither(tmp_path: Path) -> None:
    values = (
        the_curve(the_bench(tmp_path, launch({"concurrency=4": (10.0, 0.3)}), manifest={"costs": POWER}))
        .points[0]
        .values
    )
    assert not {"joules_per_mtok", "cost_per_mtok"} & set(values)


def test_a_cost_may_stand_on_the_declared_power(tmp_path: Path) -> None:
    costs = {**POWER, "power_W": 500.0}
    values = (
        the_curve(the_bench(tmp_path, launch({"concurrency=4": (10.0, 0.3)}), manifest={"costs": costs}))
        .points[0]
        .values
    )
    assert values["cost_per_mtok"].value == pytest.approx(277.78 + 7.5, rel=1e-3)
    assert "joules_per_mtok" not in values


@pytest.mark.slow
def test_records_that_are_cut_off_at_any_byte_are_read(tmp_path: Path) -> None:
    loads: Loads = {"concurrency=4": (10.0, 0.3), "concurrency=8": (11.0, 0.3)}
    run = record(tmp_path, *launches("chat", lambda _: launch(loads, slo=None, count=2), 1))
    file = run.path / "chat.client.data"
    whole = file.read_bytes()
    starts = {name: whole.index(f'"point":{{"name":"{name}"'.encode()) for name in loads}
    ends = {name: whole.index(b"\n", start) for name, start in starts.items()}
    for size in thinned(range(len(whole))):
        file.write_bytes(whole[:size])
        curve = summarise(open_run(run.path)).benchmarks[0].serving
        for point in () if curve is None else curve.points:
            # A point whose end is not recorded is none that was measured.
            is_whole = size >= ends[point.name]
            assert (point.state == "measured") == is_whole
            if point.state == "measured":
                assert point.values["output_tps"].value == pytest.approx(loads[point.name][0], rel=1e-4)


@pytest.mark.slow
def test_the_drawn_runs_saturate_and_one_is_slower(tmp_path: Path) -> None:
    (old,) = summarise(serving_run(tmp_path, "old")).benchmarks
    (new,) = summarise(serving_run(tmp_path, "new", slower=1.2)).benchmarks
    ours, theirs = the_curve(old), the_curve(new)
    assert (ours.best, ours.slo_concurrency, ours.slo_rate, old.doubts) == ("concurrency=16", 16.0, 4.0, ())
    for before, after in zip(ours.points, theirs.points, strict=True):
        if before.concurrency is not None:
            ratio = after.values["output_tps"].value / before.values["output_tps"].value
            assert ratio == pytest.approx(1 / 1.2, rel=1e-3)
    (broken,) = summarise(serving_run(tmp_path, "broken", failed={"concurrency=64": "the server ended"})).benchmarks
    assert broken.doubts == ("points-missing",)
    assert len(sweep(loads=(1,), rates=())) > 64
