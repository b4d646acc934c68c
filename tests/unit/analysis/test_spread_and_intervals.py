from __future__ import annotations

import json
import math
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from milabench.analysis import intervals, sample_statistics


@pytest.fixture(scope="module")
def known() -> Any:
    return json.loads((Path(__file__).resolve().parents[2] / "golden" / "known_answers.json").read_text())


def test_t_quantiles_are_right_to_nine_digits(known: Any) -> None:
    for freedom, value in known["t975"].items():
        assert intervals.t_quantile(0.975, int(freedom)) == pytest.approx(value, rel=1e-12)


def test_t_of_a_fractional_freedom_gives_the_known_welch_p_value(known: Any) -> None:
    welch = known["welch"]
    assert 2 * intervals.t_tail(welch["t"], welch["df"]) == pytest.approx(welch["p"], rel=1e-9)


def test_a_tail_with_infinitely_many_degrees_of_freedom_is_the_normal_one() -> None:
    """Computed: (1 - Phi(1.959963984540054)) = 0.025; what is declared and not measured has such an error."""
    assert intervals.t_tail(1.959963984540054, math.inf) == pytest.approx(0.025, rel=1e-12)
    assert intervals.t_tail(0.0, math.inf) == 0.5


def test_t_is_symmetric_and_becomes_normal() -> None:
    assert intervals.t_quantile(0.025, 4) == -intervals.t_quantile(0.975, 4)
    assert intervals.t_quantile(0.5, 3) == pytest.approx(0, abs=1e-9)
    assert intervals.t_quantile(0.975, 1e6) == pytest.approx(1.959966, abs=1e-6)
    assert intervals.t_quantile(0.975, 1e9) == pytest.approx(1.959963984540054, abs=1e-9)


@pytest.mark.parametrize(("p", "freedom"), [(0.0, 3), (1.0, 3), (0.5, 0), (math.nan, 3), (0.9, math.nan)])
def test_there_is_no_t_quantile_out_of_range(p: float, freedom: float) -> None:
    with pytest.raises(ValueError):
        intervals.t_quantile(p, freedom)


def test_median_ranks_are_the_known_ones(known: Any) -> None:
    for n, expected in known["median_ci_ranks_95"].items():
        found = intervals.median_ranks(int(n))
        assert found == (None if expected is None else tuple(expected[:2]))


def test_the_median_interval_is_made_of_observed_values() -> None:
    assert intervals.median_interval([5, 1, 4, 2, 3, 6]) == (1, 6)
    assert intervals.median_interval([1, 2, 3, 4, 5]) is None


def test_quantiles_are_r7(known: Any) -> None:
    for percent, expected in known["percentiles_1..10"].items():
        found = sample_statistics.quantile(range(1, 11), int(percent) / 100)
        assert found == pytest.approx(expected["numpy_linear_R7"], abs=1e-12)


def numacc(number: int) -> list[float]:
    if number == 1:
        return [10000001, 10000003, 10000002]
    base, step = {2: (1.2, 0.1), 3: (1000000.2, 0.1), 4: (10000000.2, 0.1)}[number]
    return [base] + [base - step if turn % 2 == 0 else base + step for turn in range(1000)]


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_nist_univariate_data_give_the_certified_values(known: Any, number: int) -> None:
    certified = known["nist"][f"NumAcc{number}"]
    values = numacc(number)
    assert len(values) == certified["n"]
    assert sample_statistics.mean(values) == pytest.approx(certified["mean"], rel=1e-14)
    assert sample_statistics.stdev(values) == pytest.approx(certified["stdev_n-1"], rel=1e-7)


DRAWN: dict[str, Any] = {
    "durations": lambda draw: int(draw.gauss(1e6, 5e4)),
    "rates": lambda draw: 32e9 / int(draw.gauss(1e6, 5e4)),
    "hardly a difference": lambda draw: 1e6 + draw.random() * 1e-2,
    "one far from all others": lambda draw: 1e6 if draw.random() > 0.001 else 1e12,
}


@pytest.mark.parametrize("kind", DRAWN)
@pytest.mark.parametrize("n", [3, 1024, 1025, 5000])
def test_the_spread_of_blocks_is_that_of_exact_arithmetic(kind: str, n: int) -> None:
    draw = random.Random(kind)
    values = [*(DRAWN[kind](draw) for _ in range(n - 1)), 2e6]
    near = sample_statistics.mean(values)
    exact = [Fraction(value) for value in values]
    centre = sum(exact) / n
    squares = sum((value - centre) ** 2 for value in exact)
    blocks = sample_statistics.in_blocks(values)
    spread = sample_statistics.variation_of_blocks(blocks, near)
    assert spread == pytest.approx(math.sqrt(squares / (n - 1)) / float(centre), rel=1e-13)


@pytest.mark.parametrize("value", [0.1, 1e6 / 3, 1_000_003])
def test_equal_values_have_no_spread(value: float) -> None:
    blocks = sample_statistics.in_blocks([value] * 5000)
    assert sample_statistics.variation_of_blocks(blocks, value * (1 + 1e-12)) == pytest.approx(0.0)


def test_the_score_is_a_weighted_geometric_mean(known: Any) -> None:
    case = known["score"]
    assert sample_statistics.geometric_mean(case["r"], case["w"]) == pytest.approx(case["weighted_gm"])
    assert sample_statistics.geometric_mean(case["r"]) == pytest.approx(case["unweighted"])


def test_log_t_needs_three_values_and_holds_the_geometric_mean() -> None:
    assert intervals.log_t_interval([1.0, 2.0]) is None
    found = intervals.log_t_interval([1.0, 2.0, 4.0])
    assert found is not None
    half = 4.302652729749462 * math.log(2) / math.sqrt(3)
    assert found == pytest.approx((2 * math.exp(-half), 2 * math.exp(half)))


@pytest.mark.parametrize("n", [3, 5, 10])
def test_log_t_covers_as_often_as_it_claims(n: int) -> None:
    draw = random.Random(20260314 + n)
    trials = 4000
    hits = 0
    for _ in range(trials):
        found = intervals.log_t_interval([math.exp(draw.gauss(0, 0.02)) for _ in range(n)])
        assert found is not None
        hits += found[0] <= 1 <= found[1]
    assert 0.94 <= hits / trials <= 0.965
