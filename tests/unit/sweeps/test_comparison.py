"""Curves of two servers: the ratios at their common points, what has none, and that all of a curve's intervals hold together."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from milabench.analysis.compare import compare_systems
from milabench.analysis.comparison_model import Comparison, CurveRatio, System
from milabench.analysis.sample_statistics import geometric_mean
from milabench.analysis.serving_model import CurvePoint, PointValue, ServingCurve
from milabench.analysis.two_samples import judge_family
from milabench.errors import NothingSelected
from milabench.report.comparison_text import index_table
from milabench.sweeps.comparison import compare_curves
from milabench.workflow.report_runs import comparison_exit_code
from tests.examples import thinned
from tests.unit.analysis.test_compare import bench, system

A, B = (10.0, 10.2, 9.9, 10.1, 10.3), (8.0, 8.1, 7.9, 8.2, 8.05)  # whose log-Welch ratio is known
# Of B over A by confidence level: scipy 1.17's ttest_ind of the logarithms, with unequal variances.
LEVELS = {0.95: (0.779985, 0.814481), 0.975: (0.776717, 0.817908), 0.9875: (0.773393, 0.821423)}
STEADY = (1.0, 1.01, 0.99)
LOADS = (1, 2, 4, 8, 16, 32, 64)


def number(*launches: float) -> PointValue:
    return PointValue(value=geometric_mean(launches), launches=launches)


def point(load: float, slower: Sequence[float] = STEADY, **more: Any) -> CurvePoint:
    """A point of a server whose launches took so many times as long as one with nothing to do."""
    values = {
        "output_tps": number(*(100 * load / (1 + load / 40) / each for each in slower)),
        "user_tps": number(*(50 / (1 + load / 30) / each for each in slower)),
        "ttft_p90_ms": number(*(200 * (1 + load / 20) * each for each in slower)),
    }
    return CurvePoint(**{"name": f"concurrency={load:g}", "concurrency": load, "values": values, **more})


def curve(*points: CurvePoint, area: Sequence[float] = (), **more: Any) -> ServingCurve:
    return ServingCurve(points=points, area=number(*area) if area else None, **more)


def server(name: str, *curves: ServingCurve, suite: Mapping[str, Any] | None = None, **more: Any) -> System:
    """A system of one benchmark, a session for each curve."""
    manifest = {"suite": {"chat": suite}} if suite else None
    sessions = [
        system(name, bench("chat", units="tokens/s", serving=one, **more), manifest=manifest, run=f"run{number}")
        for number, one in enumerate(curves)
    ]
    return replace(sessions[0], later=tuple(sessions[1:]))


def compared(first: ServingCurve, other: ServingCurve, **more: Any) -> Comparison:
    return compare_systems([server("old", first), server("new", other)], **more)


def ratio(comparison: Comparison, metric: str, at: str) -> CurveRatio:
    (found,) = [r for one in comparison.curves for r in one.ratios if (r.metric, r.point) == (metric, at)]
    return found


def test_one_common_point_has_the_known_ratio_and_interval() -> None:
    one = replace(point(8), values={"output_tps": number(*A)})
    other = replace(point(8), values={"output_tps": number(*B)})
    (found,) = compared(curve(one), curve(other)).curves[0].ratios
    assert (found.system, found.point, found.metric, found.units) == ("new", "concurrency=8", "output_tps", "tokens/s")
    assert (found.launches, found.sessions) == ((5, 5), (1, 1))
    assert found.contrast.ratio == pytest.approx(0.797046, abs=1e-6)  # methodology.md, section 2
    assert found.contrast.ci95 == pytest.approx((0.779985, 0.814481), abs=1e-6)
    assert found.contrast.verdict == "SLOWER"


def same_at(*loads: float) -> tuple[ServingCurve, ServingCurve]:
    """Two curves whose points all have the launches of A, and of B."""
    first, other = (
        curve(*(replace(point(load), values={"output_tps": number(*launches)}) for load in loads))
        for launches in (A, B)
    )
    return first, other


@pytest.mark.parametrize(
    ("loads", "interval"),
    [((8,), LEVELS[0.95]), ((8, 16), LEVELS[0.975]), ((8, 16, 32, 64), LEVELS[0.9875])],
)
def test_the_intervals_of_k_points_are_at_1_less_a_kth_of_5_per_cent(
    loads: tuple[int, ...], interval: tuple[float, float]
) -> None:
    found = compared(*same_at(*loads))
    for load in loads:
        assert ratio(found, "output_tps", f"concurrency={load}").contrast.ci95 == pytest.approx(interval, abs=1e-6)


def test_points_of_another_metric_widen_no_interval() -> None:
    first, other = same_at(8)
    both = [
        replace(one, points=(*one.points, replace(point(4), values={"ttft_p90_ms": number(*launches)})))
        for one, launches in ((first, A), (other, B))
    ]
    found = compared(*both)
    assert ratio(found, "output_tps", "concurrency=8").contrast.ci95 == pytest.approx(LEVELS[0.95], abs=1e-6)
    # Less is better: the ratio is inverted, and so are its bounds.
    low, high = LEVELS[0.95]
    inverted = ratio(found, "ttft_p90_ms", "concurrency=4").contrast
    assert (inverted.ratio, inverted.verdict) == (pytest.approx(1 / 0.797046, abs=1e-5), "FASTER")
    assert inverted.ci95 == pytest.approx((1 / high, 1 / low), abs=1e-5)


@pytest.mark.slow
def test_a_server_20_per_cent_slower_has_the_ratio_1_over_1_2_at_every_point_in_95_of_100_comparisons() -> None:
    rng, tries, together = random.Random(18), len(thinned(range(400), 4)), 0
    for _ in range(tries):
        sides = [
            curve(*(point(load, [slower * math.exp(rng.gauss(0, 0.02)) for _ in range(3)]) for load in LOADS))
            for slower in (1.0, 1.2)
        ]
        (found,) = compare_curves([server("old", sides[0]), server("new", sides[1])], margin=0.01, across=False)
        bounds = [r.contrast.ci95 for r in found.ratios if r.metric == "ttft_p90_ms"]
        assert len(bounds) == len(LOADS)
        together += all(low <= 1 / 1.2 <= high for low, high in bounds if low)
    # 95 % by Bonferroni, less three standard errors of so many tries.
    assert together / tries >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / tries)


def test_what_one_side_did_not_measure_has_no_ratio_and_says_why() -> None:
    failed = CurvePoint(name="concurrency=16", concurrency=16, state="failed", why="the server ended")
    first = curve(point(4), point(8), point(16), point(32), area=(10, 11, 12))
    other = curve(point(4), replace(point(8), arrivals="poisson"), failed, area=(10, 11, 12))
    (found,) = compared(first, other).curves
    assert {(r.point, r.metric) for r in found.ratios} == {
        ("concurrency=4", metric) for metric in ("output_tps", "user_tps", "ttft_p90_ms")
    }
    assert found.apart == (
        ("concurrency=8", "arrivals differ: old none, new poisson"),
        ("concurrency=16", "old: measured; new: failed: the server ended"),
        ("concurrency=32", "old: measured; new: is not in its sweep"),
        ("area", "new: is over different points than the area of old"),
    )


def test_below_three_launches_there_is_a_ratio_and_a_note() -> None:
    found = compared(curve(point(4, (1.0, 1.1))), curve(point(4, (1.2, 1.3))))
    one = ratio(found, "output_tps", "concurrency=4").contrast
    assert (one.ratio, one.ci95, one.verdict, one.needed) == (
        pytest.approx(math.sqrt(1.1 / 1.56)),
        None,
        "INCONCLUSIVE",
        3,
    )
    assert "an interval needs 3 repeats" in one.note


def test_the_area_is_compared_where_both_curves_have_the_same_points() -> None:
    found = compared(curve(point(4), area=A), curve(point(4), area=B))
    area = ratio(found, "area", "")
    assert (area.units, area.contrast.ratio) == ("(tokens/s)^2", pytest.approx(0.797046, abs=1e-6))
    assert area.contrast.ci95 == pytest.approx(LEVELS[0.95], abs=1e-6)  # alone, whatever the number of points


def test_the_verdicts_on_curves_are_a_family_of_their_own() -> None:
    one, other = (curve(point(4, [slower * each for each in STEADY]), area=A) for slower in (1.0, 1.1))
    alone = compare_systems([system("old", bench(level=100)), system("new", bench(level=104))])
    beside = compare_systems(
        [
            system("old", bench(level=100), bench("chat", serving=one)),
            system("new", bench(level=104), bench("chat", serving=other)),
        ]
    )
    rows = {row.bench: row.contrasts[0] for row in beside.rows}
    (before,) = alone.rows[0].contrasts
    assert before is not None and rows["digits"] is not None and before.p_holm is not None
    assert rows["digits"].p_holm == pytest.approx(2 * before.p_holm)  # digits and chat, whatever its curve has
    claims = [r.contrast for one in beside.curves for r in one.ratios]
    assert len(claims) == 4
    estimates = [claim.evidence.estimate for claim in claims if claim.evidence is not None]
    judged = [judge_family([estimate], [beside.margin])[0] for estimate in estimates]
    least = min(each.p_holm for each in judged if each is not None)
    assert min(claim.p_holm for claim in claims if claim.p_holm is not None) == pytest.approx(min(1.0, 4 * least))


def test_an_area_without_a_point_of_the_client_is_over_other_points() -> None:
    noted = point(4, notes=("client-bound: sent 0.9 of 1.0 requests/s",))
    found = compared(curve(noted, point(8), area=A), curve(point(4), point(8), area=B)).curves[0]
    assert {r.point for r in found.ratios if r.contrast.is_suspect} == {"concurrency=4"}
    assert dict(found.apart)["area"] == "new: is over different points than the area of old"


def test_a_point_with_a_note_is_suspect_and_so_is_the_area_it_is_part_of() -> None:
    noted = point(4, notes=("client differs: ttft_p90_ms 9, from its requests 10",))
    found = compared(curve(noted, point(8), area=A), curve(point(4), point(8), area=B))
    suspect = {r.point for r in found.curves[0].ratios if r.contrast.is_suspect}
    assert suspect == {"concurrency=4", ""}


def test_a_doubt_of_the_whole_benchmark_is_one_of_each_point_and_one_of_a_point_is_not() -> None:
    def doubted(*reasons: str) -> set[bool]:
        old, new = server("old", curve(point(4))), server("new", curve(point(4)), validity="suspect", doubts=reasons)
        return {r.contrast.is_suspect for r in compare_systems([old, new]).curves[0].ratios}

    assert doubted("contended") == {True}
    assert doubted("client-bound") == {False}


def test_single_sessions_are_warned_of_where_only_curves_are_compared() -> None:
    ended = [server(name, curve(point(4)), perf=None, processes=()) for name in ("old", "new")]
    assert any("one session each" in warning for warning in compare_systems(ended).warnings)


def test_sessions_are_the_sample_where_a_side_has_several() -> None:
    old = server("old", *(curve(point(4, [drift * each for each in STEADY])) for drift in (1.0, 1.05, 0.95)))
    new = server("new", *(curve(point(4, [drift * each for each in STEADY])) for drift in (1.2, 1.26, 1.14)))
    found = compare_systems([old, new])
    one = ratio(found, "ttft_p90_ms", "concurrency=4")
    assert (one.sessions, one.launches) == ((3, 3), (9, 9))
    assert one.contrast.freedom == pytest.approx(4, abs=0.05)  # three sessions a side, as far apart on both
    assert [curve.name for curve in found.curves[0].curves] == [
        *("old run0", "old run1", "old run2", "new run0", "new run1", "new run2")
    ]


@pytest.mark.parametrize(("key", "value"), [("acceptance_length", 3.2), ("expert_routing", "uniform_random")])
def test_routing_and_accepted_tokens_are_part_of_the_work(key: str, value: object) -> None:
    plain, stated = ({"serve": {"input_tokens": 128, **more}} for more in ({}, {key: value}))
    systems = [server(name, curve(point(4)), suite=suite) for name, suite in (("old", plain), ("new", stated))]
    (found,) = compare_systems(systems).curves
    assert found.ratios == ()
    assert any(f"serve.{key} none / {value}" in why for _, why in found.apart), found.apart
    same = [server(name, curve(point(4)), suite=stated) for name in ("old", "new")]
    assert compare_systems(same).curves[0].ratios


def test_other_requests_are_not_compared_unless_across() -> None:
    def asked(name: str, **serve: Any) -> System:
        return server(name, curve(point(4)), suite={"serve": {"input_tokens": 128, "rate": [1], **serve}})

    systems = [asked("old"), asked("new", input_tokens=256, rate=[1, 2], slo={"ttft_p90_ms": 5})]
    (found,) = compare_systems(systems).curves
    assert found.ratios == ()
    why = "asks other requests than old: serve.input_tokens 128 / 256 (--across compares it all the same)"
    assert found.apart == (("new", why),)
    assert compare_systems(systems, across=True).curves[0].ratios
    chats = [asked("old"), asked("new", endpoint="chat")]
    assert "serve.endpoint none / chat" in compare_systems(chats).curves[0].apart[0][1]


def test_other_servers_and_other_points_are_the_same_requests() -> None:
    def of(name: str, *points: CurvePoint, **suite: Any) -> System:
        return server(name, curve(*points), suite=suite)

    old = of("old", point(4), server={"argv": ["--slots", "4"]}, serve={"concurrency": [4], "input_tokens": 8})
    new = of("new", point(4), server={"argv": ["--slots", "8"]}, serve={"concurrency": [4, 8], "input_tokens": 8})
    comparison = compare_systems([old, new])
    assert comparison.rows[0].contrasts == (None,)  # the benchmark's one number is of another sweep
    assert {r.point for r in comparison.curves[0].ratios} == {"concurrency=4"}
    ((name, why),) = comparison.excluded
    assert name == "chat"
    assert "serve.concurrency 4 / 4, 8" in why
    assert "server" not in why.partition("other work")[2]
    assert why.endswith(" (its curves are compared point by point)")
    assert comparison.sentence.startswith("new and old have curves in common and no single number")
    (row,) = index_table(comparison).rows
    assert "none: no benchmark in common has a number that counts" in row


def test_servers_of_other_arguments_at_the_same_loads_have_a_ratio_and_an_index() -> None:
    def of(name: str, slots: str, **more: Any) -> System:
        serve = {"concurrency": [4], "input_tokens": 8}
        return server(name, curve(point(4)), suite={"server": {"argv": ["--slots", slots]}, "serve": serve, **more})

    comparison = compare_systems([of("old", "4"), of("new", "8", argv={"--dtype": "int8"}, command=["other"])])
    assert comparison.excluded == ()
    assert comparison.rows[0].contrasts[0] is not None
    assert (comparison.indices[0].complete, comparison.indices[0].value) == ((1, 1), pytest.approx(1))
    other = of("new", "8", client={"argv": ["--ignored"]})
    assert [name for name, _ in compare_systems([of("old", "4"), other]).excluded] == ["chat"]


def test_a_slower_point_is_an_exit_code_and_a_curve_is_something_in_common() -> None:
    old, new = (curve(*(point(load, [slower * each for each in STEADY]) for load in LOADS)) for slower in (1.0, 1.2))
    # Neither has a single number: no point meets the SLO.
    ended = [server(name, one, perf=None, processes=()) for name, one in (("old", old), ("new", new))]
    assert comparison_exit_code(compare_systems(ended)) == 1
    assert comparison_exit_code(compare_systems(ended[::-1])) == 0
    with pytest.raises(NothingSelected):
        comparison_exit_code(compare_systems([server(name, curve(), perf=None, processes=()) for name in "ab"]))


def test_a_benchmark_with_a_curve_on_one_side_only_is_left_to_the_others() -> None:
    assert compare_systems([server("old", curve(point(4))), system("new", bench("chat"))]).curves == ()
    three = compare_systems([server("a", curve(point(4))), system("b", bench("chat")), server("c", curve(point(4)))])
    assert three.curves[0].apart == (("b", "has no curve"),)
    assert {r.system for r in three.curves[0].ratios} == {"c"}
