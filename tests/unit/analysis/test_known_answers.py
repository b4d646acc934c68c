"""The numbers of methodology.md, section 3; those of steady states, t and medians stand with their modules."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from milabench.analysis import intervals, sample_statistics, two_samples
from milabench.analysis.measure import measure
from milabench.analysis.score import ScoreEntry, compat_score, score, weights_that_turn
from milabench.events.model import Data
from milabench.events.readings import DeviceReadings, energy_of


@pytest.fixture(scope="module")
def known() -> Any:
    return json.loads((Path(__file__).resolve().parents[2] / "golden" / "known_answers.json").read_text())


def test_8_welch(known: Any) -> None:
    found = two_samples.welch(known["mwu"]["b"], known["mwu"]["a"])
    assert found.d / found.error == pytest.approx(known["welch"]["t"], rel=1e-12)
    assert found.freedom == pytest.approx(known["welch"]["df"], rel=1e-12)
    assert 2 * two_samples.tail(found.d, found.error, found.freedom) == pytest.approx(known["welch"]["p"], rel=1e-9)


def test_9_the_exact_bootstrap_of_a_mean(known: Any) -> None:
    case = known["bootstrap_exact_n3"]
    means = [Fraction(sum(drawn), 3) for drawn in itertools.product(case["x"], repeat=3)]
    assert {str(value): count for value, count in Counter(means).items()} == case["pmf"]
    assert sample_statistics.stdev([float(value) for value in means]) ** 2 * 26 / 27 == pytest.approx(
        float(Fraction(case["var"]))
    )


def test_10_the_interval_of_a_ratio(known: Any) -> None:
    case = known["ratio_ci"]
    found = two_samples.welch(*([math.log(value) for value in case[side]] for side in ("old", "new")))
    low, high = found.interval()
    assert [math.exp(low), math.exp(found.d), math.exp(high)] == pytest.approx(case["log_welch"], rel=1e-12)
    assert found.freedom == pytest.approx(case["log_welch_df"], rel=1e-12)


def test_12_a_throughput_is_a_ratio_of_totals(known: Any) -> None:
    case = known["throughput"]
    events = [
        Data(step="", data={"task": "train", "rate": 32 / seconds, "units": "images/s", "elapsed": seconds, "n": 32})
        for seconds in case["step_s"]
    ]
    found = measure("s", events).throughput
    assert found is not None
    assert found.value == pytest.approx(case["total"])


def test_13_scores_do_not_depend_on_units(known: Any) -> None:
    case = known["log1p_not_unit_free"]
    ratios = []
    for scale in (1, 1000, 3600):
        a, b = (
            [ScoreEntry(value=side[0], weight=1), ScoreEntry(value=side[1] * scale, weight=1)]
            for side in (case["A"], case["B"])
        )
        ratios.append((score(a).value or 0) / (score(b).value or 1))
    assert ratios == pytest.approx([case["geo_ratio_A_over_B"]] * 3)


def test_13_the_score_of_milabench_1_3_does(known: Any) -> None:
    case = known["log1p_not_unit_free"]
    for scale, ratio in ((1, "items_per_s"), (1000, "second_metric_x1000"), (3600, "x3600")):
        found = [compat_score([(s[0], 1, 1), (s[1] * scale, 1, 1)]) for s in (case["A"], case["B"])]
        assert (found[0] or 0) / (found[1] or 1) == pytest.approx(case[f"log1p_ratio_{ratio}"])


def test_14_the_table_of_pyperfs_documentation(known: Any) -> None:
    case = known["pyperf_doc"]
    assert 1 / case["py38_with_insignificant_as_1"] == pytest.approx(case["inv"])


def test_17_the_median_absolute_deviation(known: Any) -> None:
    assert sample_statistics.median_absolute_deviation(known["outliers"]["x"]) == known["outliers"]["mad"]


def test_18_energy_is_the_integral_of_power(known: Any) -> None:
    case = known["energy"]
    for powers, joules in (
        ([300.0] * 11, case["const300W_10s"]),
        ([10.0 * second for second in range(11)], case["ramp_0_100W_10s"]["trapezoid"]),
    ):
        device = DeviceReadings(key="0")
        for second, power in enumerate(powers):
            device.add({"power_W": power}, float(second))
        assert energy_of(device, (0.0, 10.0)).integral_j == pytest.approx(joules)


def test_19_many_claims_at_once(known: Any) -> None:
    case = known["multiplicity"]
    assert two_samples.holm(case["p"]) == pytest.approx(case["holm"])


def test_22_the_largest_value_bounds_a_quantile(known: Any) -> None:
    for q, n in known["n_for_max_to_bound_quantile_95%"].items():
        assert intervals.most_bounds(float(q)) == n


def test_the_change_of_weights_that_turns_a_ranking() -> None:
    logs, weights = [math.log(2), -math.log(1.5)], [1.0, 1.0]
    turn = weights_that_turn(logs, weights)
    assert turn is not None
    worst = sum(w * (1 - math.copysign(turn, log)) * log for log, w in zip(logs, weights, strict=True))
    assert worst == pytest.approx(0)
    assert weights_that_turn([0.1, 0.2], [1.0, 2.0]) == 1.0
    assert weights_that_turn([0.0], [1.0]) is None
