"""Quantiles of requests: when there is one, what bounds it, how often its interval holds, what `accept` makes of it."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import accumulate, product
from typing import Any

import pytest

from milabench.acceptance.criteria import parse_criteria
from milabench.acceptance.evaluate import evaluate_criteria
from milabench.analysis.acceptance_model import CriterionResult
from milabench.analysis.serving_model import LaunchCurve, LaunchPoint, ServingCurve
from milabench.sweeps.curve import serving_curve
from milabench.sweeps.request_quantiles import LEVELS, requests_quantile
from tests.examples import ONLY_ALL, thinned
from tests.unit.analysis.test_compare import bench, system

LIMIT = 70.0  # ms, on the p99 of the time to the first token


def at_most(n: int, q: float) -> list[float]:
    """The probability that at most so many of n values are below their q-quantile, by how many."""
    return list(accumulate(math.comb(n, k) * q**k * (1 - q) ** (n - k) for k in range(n + 1)))


@pytest.mark.parametrize(("n", "q"), [(5, 0.5), (29, 0.9), (64, 0.9), (299, 0.99), (700, 0.99)])
def test_a_bound_is_the_nearest_order_statistic_that_holds(n: int, q: float) -> None:
    number = requests_quantile([[float(k) for k in range(1, n + 1)]], q)
    assert number is not None
    below = at_most(n, q)
    for level in LEVELS:
        # The k-th value is below the quantile unless at most k - 1 are; above it if at most k - 1 are.
        upper = [k for k in range(1, n + 1) if 1 - below[k - 1] <= 1 - level + 1e-9]
        lower = [k for k in range(1, n + 1) if below[k - 1] <= 1 - level + 1e-9]
        assert number.upper.get(f"{level:g}") == min(upper, default=None)
        assert number.lower.get(f"{level:g}") == max(lower, default=None)
    assert number.bound(0.92, is_upper=False) == number.lower["0.95"]  # the next level that is kept
    assert number.bound(0.99999, is_upper=False) is None


def test_one_request_fewer_has_none() -> None:
    assert requests_quantile([[1.0] * 28], 0.9) is None
    assert requests_quantile([[1.0] * 149, [1.0] * 149], 0.99) is None
    assert requests_quantile([[1.0] * 150, [1.0] * 149], 0.99) is not None


def test_launches_that_differ_need_enough_requests_each() -> None:
    rng = random.Random(4)

    def launch(count: int, slower: float) -> list[float]:
        return sorted(100 * slower * rng.lognormvariate(0, 0.1) for _ in range(count))

    apart = [launch(40, slower) for slower in (1.0, 1.5, 2.2)]
    number = requests_quantile(apart, 0.9)
    assert number is not None and number.ci95 is not None
    # The interval of a mean over three launches: it reaches beyond every one of them.
    assert number.ci95[0] < number.launches[0] < number.launches[2] < number.ci95[1]
    assert requests_quantile([launch[:20] for launch in apart], 0.9) is None
    alike = requests_quantile([launch(20, 1.0) for _ in range(3)], 0.9)
    assert alike is not None and alike.launches == ()
    two, slower = requests_quantile(apart[:2], 0.9), requests_quantile(apart[1:2], 0.9)
    assert two is not None and slower is not None and two.ci95 is None
    assert two.upper["0.95"] == slower.upper["0.95"]


def test_what_nobody_knows_is_above_all() -> None:
    assert requests_quantile([[1.0] * 25 + [math.inf] * 5], 0.9) is None
    number = requests_quantile([[1.0] * 28 + [math.inf]], 0.9)
    assert number is not None and (number.value, number.upper) == (1.0, {"0.8": 1.0})


def a_curve(launches: Sequence[Sequence[float]], limit: float | None = None) -> ServingCurve:
    slo = {} if limit is None else {"ttft_p99_ms": limit}
    about: dict[str, Any] = {"name": "concurrency=4", "concurrency": 4.0, "values": {"output_tps": 100.0}}
    curves = [
        [LaunchCurve(slo=slo, points=(LaunchPoint(requests=len(times), samples={"ttft": sorted(times)}, **about),))]
        for times in launches
    ]
    found = serving_curve(curves)
    assert found is not None
    return found


def drawn(rng: random.Random, scale: float, count: int) -> list[float]:
    """Times to the first token, ms: nearly normal, whose p99 is 2.01 times the scale."""
    return [scale * rng.lognormvariate(0, 0.3) for _ in range(count)]


def accepted(curve: ServingCurve, confidence: str = "0.95") -> CriterionResult:
    text = f"benchmarks: {{chat: {{confidence: {confidence}, serving: {{concurrency=4: {{ttft_p99_ms: {{maximum: 70 ms}}}}}}}}}}"
    criteria = parse_criteria(text.encode(), "a.yaml")
    (check,) = (
        check
        for check in evaluate_criteria(criteria, system("run", bench("chat", serving=curve)).summary).checks
        if check.criterion != "runs"
    )
    return check


@pytest.mark.slow
def test_few_requests_pass_no_server_and_many_pass_a_good_one() -> None:
    rng = random.Random(38)
    bad, good = 75.7 / math.exp(2.3263 * 0.3), 60 / math.exp(2.3263 * 0.3)
    few = [accepted(a_curve([drawn(rng, bad, 24) for _ in range(3)], LIMIT)) for _ in range(40)]
    assert {(check.verdict, check.missing.partition(":")[0]) for check in few} == {("INCONCLUSIVE", "few-requests")}
    many = [accepted(a_curve([drawn(rng, good, 1000) for _ in range(3)], LIMIT)).verdict for _ in range(20)]
    assert many.count("PASS") >= 19
    worse = [accepted(a_curve([drawn(rng, bad, 1000) for _ in range(3)], LIMIT)).verdict for _ in range(20)]
    assert "PASS" not in worse and worse.count("FAIL") >= 15


@pytest.mark.parametrize("scale", [28.0, 34.0, 36.0, 40.0])
def test_the_slo_and_a_criterion_on_the_same_limit_have_one_verdict(scale: float) -> None:
    rng = random.Random(5)
    for count in (24, 110, 400):
        curve = a_curve([drawn(rng, scale, count) for _ in range(3)], LIMIT)
        verdicts = {True: "PASS", False: "FAIL", None: "INCONCLUSIVE"}
        kept = curve.points[0].meets_slo
        assert accepted(curve).verdict == verdicts[kept] or count == 24  # a limit may be missed where no value is shown
        assert (curve.best == "concurrency=4") == (kept is True)
        assert curve.has_few_requests == (kept is None or count == 24)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "launches"),
    [
        *product((24, 64, 200), (1, 3, 10)),
        (1000, 1),
        *(pytest.param(1000, launches, marks=ONLY_ALL) for launches in (3, 10)),
    ],
)
def test_an_interval_holds_the_truth_in_95_of_100(count: int, launches: int) -> None:
    rng = random.Random(count * launches)
    for q, share in ((50, 0.5), (90, 0.9), (99, 0.99)):
        hits = [
            number.ci95[0] <= -math.log(1 - share) <= number.ci95[1]
            for _ in thinned(range(200))
            if (
                number := requests_quantile(
                    [sorted(rng.expovariate(1) for _ in range(count)) for _ in range(launches)], share
                )
            )
            and number.ci95
        ]
        # Within four standard deviations of 95 of 100.
        assert not hits or abs(sum(hits) / len(hits) - 0.95) <= 4 * math.sqrt(0.95 * 0.05 / len(hits)), q
