from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from milabench.analysis.compare import compare_systems
from milabench.analysis.comparison_model import Comparison, Contrast, System
from milabench.analysis.job_mix import Costs, costs_of
from milabench.analysis.milabench13 import BenchFigures
from milabench.analysis.paired_comparison import AB, Pair, with_ratio
from milabench.analysis.rescoring import milabench13_summary, relative_to, reweighted
from milabench.analysis.sample_statistics import geometric_mean
from milabench.analysis.score import Score
from milabench.analysis.summary import scored, summarise
from milabench.analysis.summary_model import BenchSummary, Failure, ReplicateResult, Summary
from milabench.analysis.system_diff import system_differences
from milabench.analysis.throughput import Throughput, Totals
from milabench.report.comparison_text import index_table
from tests.changed_values import replace
from tests.recorded_run import Recorded, rates, record

STEADY = (1.0, 1.01, 0.99, 1.005, 0.995)


def bench(name: str = "digits", level: float = 100.0, shape: Sequence[float] = STEADY, **more: Any) -> BenchSummary:
    """A benchmark whose launches reached the level times each number of the shape."""
    values = [level * each for each in shape]
    units = more.get("units", "images/s")
    direction = more.get("direction", "higher")
    processes = tuple(
        ReplicateResult(
            steps=(f"{name}.R{place}",),
            slot="local/D0",
            repeat=place,
            throughput=Throughput(
                value=value,
                units=units,
                direction=direction,
                totals=(Totals(rank=0, items=value * 10, seconds=10.0, observations=10, steps=10),),
            ),
        )
        for place, value in enumerate(values)
    )
    told: dict[str, Any] = {
        "bench": name,
        "outcome": "passed",
        "counts": {
            "planned": len(values),
            "passed": len(values),
            "failed": 0,
            "skipped": 0,
            "missing": 0,
            "cancelled": 0,
        },
        "ngpu": 1,
        "nodes": 1,
        "instances": 1,
        "processes": processes,
        "perf": geometric_mean(values) if values else None,
        "units": units,
        "replicates": len(values),
        "weight": 1.0,
        "validity": "valid" if values else None,
    }
    return BenchSummary(**{**told, **more})


def system(name: str, *benches: BenchSummary, manifest: Mapping[str, Any] | None = None, **more: Any) -> System:
    costs = more.pop("costs", Costs())
    empty = Score(value=None, ci95=None, complete=(0, 0), is_weighted=False)
    summary = Summary(run=name, verdict="passed", benchmarks=benches, score=empty, profile="default", version="2.0.0")
    return System(name=name, summary=replace(summary, **more), costs=costs, manifest=manifest or {})


def only(comparison: Comparison) -> Contrast:
    (row,) = comparison.rows
    (contrast,) = row.contrasts
    assert contrast is not None
    return contrast


def between(level: float, shape: Sequence[float] = STEADY, **more: Any) -> Contrast:
    return only(
        compare_systems([system("a", bench(shape=shape)), system("b", bench(level=level, shape=shape))], **more)
    )


@pytest.mark.parametrize(
    ("level", "shape", "verdict"),
    [
        (110.0, STEADY, "FASTER"),
        (90.0, STEADY, "SLOWER"),
        (100.0, (1.0, 1.001, 0.999, 1.0, 1.0) * 2, "EQUIVALENT"),
        (100.6, (1.0, 1.001, 0.999, 1.0, 1.0) * 6, "DIFFERENT-BUT-SMALL"),
        (101.0, STEADY, "INCONCLUSIVE"),
    ],
)
def test_the_five_verdicts(level: float, shape: tuple[float, ...], verdict: str) -> None:
    assert between(level, shape).verdict == verdict


def test_a_difference_below_the_margin_is_never_called_faster() -> None:
    shape = (1.0, 1.0001, 0.9999, 1.0, 1.0)
    assert between(103.0, shape).verdict == "FASTER"
    assert between(103.0, shape, margin=0.05).verdict == "DIFFERENT-BUT-SMALL"


def test_an_undecided_difference_says_how_many_launches_would_decide() -> None:
    found = between(102.0, (1.0, 1.04, 0.96, 1.02, 0.98))
    assert (found.verdict, found.note) == ("INCONCLUSIVE", "")
    assert found.needed is not None and found.needed > 50
    exact = between(101.0)
    assert (exact.needed, "so near to the margin" in exact.note) == (None, True)


def test_below_three_launches_there_is_a_ratio_and_no_verdict() -> None:
    found = between(200.0, (1.0, 1.01))
    assert (found.ratio, found.ci95, found.verdict, found.needed) == (pytest.approx(2.0), None, "INCONCLUSIVE", 3)
    assert "an interval needs 3" in found.note


def test_numbers_without_any_spread_are_compared_and_said_to_be_so() -> None:
    found = between(106.0, (1.0, 1.0, 1.0))
    assert (found.verdict, found.note[:34]) == ("FASTER", "every repeat gave the same number:")
    # That they do not scatter at all is an accident: the error of each side is 0.0035.
    assert found.ci95 == pytest.approx((1.06 * math.exp(-0.01374), 1.06 * math.exp(0.01374)), abs=1e-4)
    one_side = only(compare_systems([system("a", bench()), system("b", bench(level=102, shape=(1.0, 1.0, 1.0)))]))
    assert one_side.note == ""


def test_where_less_is_better_a_smaller_value_is_faster() -> None:
    a, b = (bench(level=level, direction="lower", units="s") for level in (100.0, 50.0))
    found = only(compare_systems([system("a", a), system("b", b)]))
    assert (found.ratio, found.verdict) == (pytest.approx(2.0), "FASTER")
    assert found.ci95 is not None and found.ci95[0] > 1.9


def test_the_same_difference_is_not_claimed_among_many_that_are_none() -> None:
    shape = (1.0, 1.02, 0.98, 1.01, 0.99)
    alone = compare_systems([system("a", bench(shape=shape)), system("b", bench(level=104.5, shape=shape))])
    others = [bench(f"other{place}", shape=shape) for place in range(20)]
    among = compare_systems(
        [system("a", bench(shape=shape), *others), system("b", bench(level=104.5, shape=shape), *others)]
    )
    assert only(alone).verdict == "FASTER"
    (row,) = (row for row in among.rows if row.bench == "digits")
    assert row.contrasts[0] is not None
    assert row.contrasts[0].verdict == "INCONCLUSIVE"
    assert row.contrasts[0].p_holm == pytest.approx(min(1.0, 21 * (only(alone).p_holm or 0)))


def test_several_systems_are_one_family_and_each_has_an_index() -> None:
    found = compare_systems([system(name, bench(level=level)) for name, level in (("a", 100), ("b", 110), ("c", 80))])
    assert [index.verdict for index in found.indices] == ["FASTER", "SLOWER"]
    assert ". c is slower than a" in found.sentence


def test_the_index_is_a_weighted_geometric_mean_with_its_dependence_on_benchmarks_and_weights() -> None:
    a = system("a", bench("x", 100.0), bench("y", 10.0, weight=3.0))
    b = system("b", bench("x", 200.0), bench("y", 9.0, weight=3.0))
    (index,) = compare_systems([a, b]).indices
    assert index.value == pytest.approx(math.exp((math.log(2) + 3 * math.log(0.9)) / 4))
    assert index.without == {"x": pytest.approx(0.9), "y": pytest.approx(2.0)}
    assert index.weights_within == pytest.approx((math.log(2) + 3 * math.log(0.9)) / (math.log(2) - 3 * math.log(0.9)))
    assert index.holds == "the order changes with weights changed by more than 37 %"
    assert index.complete == (2, 2)
    (alike,) = compare_systems([a, system("b", bench("x", 200.0), bench("y", 19.0, weight=3.0))]).indices
    assert alike.holds == "the same order for all weights"


def test_weights_can_be_given_for_old_runs() -> None:
    a, b = (system(name, bench("x", 100.0), bench("y", level)) for name, level in (("a", 10.0), ("b", 20.0)))
    (index,) = compare_systems([a, b], weights={"x": 1.0}).indices
    assert (index.value, index.complete) == (pytest.approx(1.0), (1, 1))


def test_what_failed_is_excluded_and_told_first() -> None:
    failed = bench(
        outcome="failed", shape=(), failures=(Failure(step="digits.D0", why="exit", detail="ValueError", log=None),)
    )
    found = compare_systems([system("a", bench(), bench("y")), system("b", failed, bench("y"))])
    assert found.excluded == (("digits", "b failed: exit: ValueError"),)
    assert found.indices[0].complete == (1, 2)
    assert [one.step for one in found.systems[1].failures] == ["digits.D0"]
    assert "over 1 of 2 benchmarks" in found.sentence


def test_a_reference_that_lacks_half_of_the_benchmarks_leaves_the_others_and_says_so() -> None:
    found = compare_systems([system("a", bench("x")), system("b", bench("x"), bench("y"))])
    assert found.excluded == (("y", "a is not in this run"),)
    assert found.indices[0].complete == (1, 2)
    assert "the suites differ: 1 of 2 benchmarks are not in every run" in found.warnings


def test_runs_with_nothing_in_common_have_no_index_and_a_sentence_that_says_it() -> None:
    found = compare_systems([system("a", bench("x")), system("b", bench("y"))])
    assert found.indices[0].value is None
    assert "their speed cannot be compared" in found.sentence
    assert found.job_mix == ()


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (bench(shape=()), "b was not measured: no observation"),
        (bench(validity="invalid", doubts=("throttled",)), "b invalid: throttled"),
        (bench(units="tokens/s"), "its units differ: a images/s, b tokens/s"),
        (bench(direction="none"), "b neither higher nor lower is better"),
    ],
)
def test_a_number_that_cannot_be_compared_is_left_out_with_its_reason(broken: BenchSummary, why: str) -> None:
    found = compare_systems([system("a", bench()), system("b", broken)])
    assert found.rows[0].contrasts == (None,)
    assert why in found.excluded[0][1]


def test_a_suspect_number_counts_and_is_marked() -> None:
    found = compare_systems(
        [system("a", bench()), system("b", bench(level=110, validity="suspect", doubts=("short",)))]
    )
    assert (only(found).is_suspect, only(found).verdict) == (True, "FASTER")
    assert found.systems[1].suspects == (("digits", "suspect", ("short",)),)
    assert "some numbers are suspect" in found.sentence
    assert found.indices[0].suspects == 1
    assert index_table(found).rows[0][3] == "1 of 1, 1 suspect"


def noisy(bench: str, ratios: Sequence[float]) -> AB:
    """An A/B run of a benchmark with itself."""
    pair = Pair(bench=bench, a="A", b="B", is_same=True)
    pair = with_ratio(pair, dict.fromkeys(range(len(ratios)), 1.0), dict(enumerate(ratios)))
    return AB(suites=("s", "s"), pairs=(pair,))


def test_an_index_is_not_faster_by_less_than_the_noise_of_its_benchmarks() -> None:
    noise = noisy("digits", (0.97, 1.03, 0.98, 1.02, 1.0))
    quiet = compare_systems([system("a", bench()), system("b", bench(level=103))])
    found = compare_systems([system("a", bench(), ab=noise), system("b", bench(level=103))])
    assert (quiet.indices[0].margin, quiet.indices[0].verdict) == (0.01, "FASTER")
    assert found.rows[0].margin == pytest.approx(0.03244, abs=1e-5)
    assert found.indices[0].margin == pytest.approx(found.rows[0].margin)
    assert found.indices[0].verdict == only(found).verdict != "FASTER"
    # Two benchmarks, of weight 1 and 3, of which only the first is noisy: the weighted mean of their margins.
    others = [(bench(), bench("other", weight=3.0)), (bench(), bench("other", weight=3.0))]
    both = compare_systems([system("a", *others[0], ab=noise), system("b", *others[1])])
    assert math.log1p(both.indices[0].margin) == pytest.approx((math.log(1.03244) + 3 * math.log(1.01)) / 4, abs=1e-5)


def machine(base: Path, name: str, devices: Sequence[float], launches: Sequence[float] = STEADY[:3]) -> System:
    """A machine on whose devices a benchmark reached so much, launch by launch."""
    steps = [
        Recorded(tag=f"D{place}", devices=(place,), repeat=repeat, events=rates(*[level * launch] * 3))
        for repeat, launch in enumerate(launches)
        for place, level in enumerate(devices)
    ]
    return System(name=name, summary=summarise(record(base / name, *steps, name=name)))


def test_a_difference_that_may_be_that_of_the_devices_at_hand_says_so(tmp_path: Path) -> None:
    """Means of the logarithms of 0.98, 1, 1.02 and of 1.01, 1.03, 1.05; Welch at df 4: t = 2.776, s = 0.02, 0.0194."""
    launches = (1.0, 1.001, 0.999)
    a = machine(tmp_path, "a", (98.0, 100.0, 102.0), launches)
    found = only(compare_systems([a, machine(tmp_path, "b", (101.0, 103.0, 105.0), launches)]))
    assert (found.verdict, found.ratio) == ("FASTER", pytest.approx(1.0301, abs=1e-4))
    # t = 2.776 of two errors of 0.0035, the least that three launches have.
    assert found.ci95 == pytest.approx((1.0159, 1.0443), abs=2e-4)
    assert found.ci95_devices == pytest.approx((0.98497, 1.07710), abs=5e-5)
    assert found.note == "true of these devices. For others of their kinds the 95 % interval is [0.9850, 1.0771]"
    far = only(compare_systems([a, machine(tmp_path, "far", (131.0, 133.0, 135.0), launches)]))
    assert (far.verdict, far.note) == ("FASTER", "")


def test_two_devices_are_too_few_to_know_how_devices_differ(tmp_path: Path) -> None:
    found = compare_systems([machine(tmp_path, name, (98.0, 102.0)) for name in ("a", "b")])
    assert only(found).ci95_devices is None
    said = "a, b: measured on two devices only: other devices of this model may differ by more than these numbers show"
    assert said in found.warnings


def test_what_a_reader_must_know_first_is_told() -> None:
    found = compare_systems(
        [system("a", bench(), is_ended=False, profile="quick"), system("b", bench(), version="3.0.0")]
    )
    told = "\n".join(found.warnings)
    for said in ("a: the run is incomplete or still active", "a: measured with the quick profile", "one device"):
        assert said in told
    assert "profiles differ: a quick, b default" in told
    assert "versions of milabench differ: a 2.0.0, b 3.0.0" in told


def test_that_milabench_1_3_measured_one_side_is_told_once() -> None:
    figures = BenchFigures(n=2, failed=0)
    old, older = (system(name, bench(milabench13=figures), bench("text", milabench13=figures)) for name in ("a", "b"))
    ours = system("c", bench(), bench("text"))
    notes = [note for note in compare_systems([old, ours]).warnings if "1.3" in note]
    assert len(notes) == 1
    assert notes[0].startswith("measured differently: milabench 1.3 (a)")
    assert ", and c all the time of a window" in notes[0]
    assert not [note for note in compare_systems([old, older]).warnings if "1.3" in note]


def test_whole_systems_are_compared_or_single_instances_and_more_devices_have_an_efficiency() -> None:
    a, b = bench(), bench(level=90.0, ngpu=4, instances=1)
    b = replace(
        b,
        instances=2,
        processes=tuple(replace(one, slot=f"local/D{d}") for one in b.processes for d in range(2)),
    )
    whole, single = (only(compare_systems([system("a", a), system("b", b)], per=per)) for per in ("system", "instance"))
    assert (whole.ratio, single.ratio) == (pytest.approx(1.8), pytest.approx(0.9))
    assert (whole.efficiency, single.efficiency) == (pytest.approx(1.8 / 4), pytest.approx(1.8 / 4))


def test_a_job_mix_adds_up_time_energy_and_cost() -> None:
    told = {"price": 87660.0, "years": 5, "power_W": 1000.0, "pue": 1.5, "electricity": 0.2, "currency": "EUR"}
    cheap = costs_of({**told, "price": 43830.0})
    a = system("a", bench("x", 100.0), bench("y", 10.0), costs=costs_of(told))
    b = system("b", bench("x", 200.0), bench("y", 10.0), costs=cheap)
    first, other = compare_systems([a, b]).job_mix
    assert (first.time_h, other.time_h) == (pytest.approx(2.0), pytest.approx(1.5))
    assert (other.energy_kwh, other.energy_from) == (pytest.approx(1.5), "declared")
    # An hour is 2 EUR of the price, and 0.3 EUR of electricity; the price of the other is half.
    assert (first.cost, other.cost) == (pytest.approx(2 * 2.3), pytest.approx(1.5 * 1.3))
    assert other.per_watt == pytest.approx(math.sqrt(2))
    assert other.per_money == pytest.approx(math.sqrt(2) * 2.3 / 1.3)
    assert other.time_ci95 is not None and other.time_ci95[0] < 1.5 < other.time_ci95[1]


def test_declared_work_replaces_an_hour_of_the_first_system_and_unknown_costs_are_named() -> None:
    a, b = (system(name, bench("x", 100.0), bench("y", 10.0)) for name in ("a", "b"))
    (first, _) = compare_systems([a, b], work={"x": 360_000.0}).job_mix
    assert (first.time_h, first.cost) == (pytest.approx(1.0, rel=1e-4), None)
    assert first.missing == ("price", "years", "electricity", "power_W")


def test_measured_energy_comes_before_declared_power() -> None:
    energy = tuple(
        {"step": f"digits.R{place}", "metric": "energy", "value": 2000.0 * each, "units": "J"}
        for place, each in enumerate(STEADY)
    )
    a, b = (system(name, bench(metrics=energy), costs=costs_of({"power_W": 5.0})) for name in ("a", "b"))
    mix = compare_systems([a, b]).job_mix[0]
    assert (mix.energy_from, mix.energy_kwh) == ("measured", pytest.approx(2.0 * 360_000 / 3.6e6, rel=1e-4))


def test_one_system_cannot_be_compared() -> None:
    with pytest.raises(ValueError):
        compare_systems([system("a", bench())])


def test_why_lists_what_concerns_a_changed_benchmark_before_the_rest() -> None:
    def manifest(batch: int, other: int, lock: str) -> dict[str, Any]:
        return {
            "suite": {
                "digits": {"argv": {"--batch-size": batch}, "install_group": "torch"},
                "same": {"argv": {"--batch-size": other}, "install_group": "jax"},
            },
            "locks": {"torch": lock, "jax": lock},
            "seed": batch,
        }

    machine = {"arch": "cpu", "nodes": [{"name": "n", "hostname": "h1", "kernel": "6.1", "cpu": {"count": 8}}]}
    newer = {"arch": "cpu", "nodes": [{"name": "n", "hostname": "h2", "kernel": "6.2", "cpu": {"count": 8}}]}
    quiet = (1.0, 1.0001, 0.9999, 1.0, 1.0)
    a = system("a", bench(), bench("same", shape=quiet), manifest=manifest(64, 1, "x"), system=machine)
    b = system("b", bench(level=120), bench("same", shape=quiet), manifest=manifest(128, 2, "y"), system=newer)
    found = system_differences([a, b], compare_systems([a, b]).rows)
    assert [(one.area, one.name, one.values, one.benches) for one in found[:2]] == [
        ("benchmark", "argv.--batch-size", ("64", "128"), ("digits",)),
        ("environment", "lock file", ("x", "y"), ("digits", "same")),
    ]
    assert ("machine", "kernel", ("6.1", "6.2")) in [(one.area, one.name, one.values) for one in found]
    assert found[-1].values == ("1", "2") and not found[-1].is_near
    assert not any("host" in one.name for one in found)


def test_a_score_is_relative_to_a_named_and_dated_reference() -> None:
    reference = system("old", bench("x", 100.0), created="2026-01-02", version="1.0")
    run = system("new", bench("x", 200.0), bench("y", 1.0))
    found = relative_to(run, reference)
    assert found.score.reference == "old (milabench 1.0, 2026-01-02, profile default)"
    assert (found.score.value, found.score.complete) == (pytest.approx(2.0), (1, 2))
    assert [one.ratio for one in found.benchmarks] == [pytest.approx(2.0), None]


def test_a_weight_profile_scores_an_old_run_anew() -> None:
    reference, run = system("old", bench("x"), bench("y")), system("new", bench("x", 400.0), bench("y", 200.0))
    assert relative_to(run, reference).score.value == pytest.approx(math.sqrt(8.0))
    found = relative_to(replace(run, summary=reweighted(run.summary, {"y": 2.0}, "mine.yaml")), reference)
    assert found.score.value == pytest.approx(2.0)


def test_a_run_has_no_score_by_itself(tmp_path: Path) -> None:
    summary = summarise(record(tmp_path, Recorded(events=rates(100.0)), Recorded(bench="y", events=rates(4.0))))
    assert (summary.score.value, summary.score.ci95, summary.score.complete) == (None, None, (2, 2))
    assert reweighted(summary, {"y": 2.0}, "mine.yaml").score.value is None


def with_work(name: str, argv: Mapping[str, Any] | None, level: float = 100.0, **more: Any) -> System:
    """A system whose only benchmark was given these arguments; None: they were not recorded."""
    return system(name, bench("x", level, **more), manifest={} if argv is None else {"suite": {"x": {"argv": argv}}})


def test_what_did_other_work_than_the_reference_has_no_ratio_and_says_why() -> None:
    reference = with_work("old", {"--batch": 32})
    (found,) = relative_to(with_work("new", {"--batch": 64}), reference).benchmarks
    assert found.ratio is None
    assert found.no_ratio == "does other work than the reference: --batch 32 / 64"
    (found,) = relative_to(with_work("new", {}), reference).benchmarks
    assert found.no_ratio == "does other work than the reference: --batch 32 / none"


def test_unknown_work_has_no_ratio_to_any_reference() -> None:
    reference, run = with_work("old", {"--batch": 32}), with_work("new", None, 200.0)
    (found,) = relative_to(run, reference).benchmarks
    why = "may do other work than the reference: its arguments are not recorded in this run"
    assert (found.ratio, found.no_ratio) == (None, why)
    (found,) = relative_to(run, reference, is_strict=True).benchmarks
    assert (found.ratio, found.no_ratio != "") == (None, True)


def test_the_validity_of_the_references_number_stands_beside_the_ratio() -> None:
    reference = with_work("old", {}, validity="suspect", doubts=("stalled",))
    (found,) = relative_to(with_work("new", {}, 200.0), reference).benchmarks
    assert (found.ratio, found.reference_validity) == (pytest.approx(2.0), "suspect (stalled)")
    assert found.to_json()["reference_validity"] == "suspect (stalled)"


def test_a_benchmark_that_the_reference_lacks_says_so_and_one_without_a_number_says_nothing() -> None:
    run = system("new", bench("x"), bench("y"), bench("z", outcome="failed", shape=()))
    found = {one.bench: one.no_ratio for one in relative_to(run, system("old", bench("x"))).benchmarks}
    assert (found["x"], found["z"], "no such benchmark" in found["y"]) == ("", "", True)


def test_the_compat_score_counts_what_failed_as_nothing_and_says_what_it_is() -> None:
    benches = (bench("x", 100.0), bench("y", outcome="failed", shape=()))
    found = milabench13_summary(system("a", *benches).summary)
    assert (found.score.is_compat, found.score.value) == (True, pytest.approx(math.sqrt(101.0), rel=1e-4))
    assert scored(benches).complete == (0, 2)
