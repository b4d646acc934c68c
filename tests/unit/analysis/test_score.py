from __future__ import annotations

import math

import pytest

from milabench.analysis.score import ScoreEntry, score
from milabench.analysis.two_samples import LogMean


def entry(value: float | None, weight: float | None = 1.0, **more: float) -> ScoreEntry:
    if "spread" not in more:
        return ScoreEntry(value=value, weight=weight)
    level = LogMean(mean=0.0, variance=more["spread"] ** 2 / more["n"], freedom=more["n"] - 1)
    return ScoreEntry(value=value, weight=weight, levels=(level,))


def test_the_score_is_the_weighted_geometric_mean_of_what_passed() -> None:
    found = score([entry(2, 1), entry(0.5, 1), entry(1, 2), entry(4, 4)])
    assert found.value == pytest.approx(2.0)
    assert (found.complete, found.is_weighted, found.reference) == ((4, 4), True, None)


def test_what_did_not_run_is_counted_as_wanted_and_adds_nothing() -> None:
    found = score([entry(4.0), entry(None)])
    assert found.value == pytest.approx(4.0)
    assert found.complete == (1, 2)


def test_a_score_says_how_many_of_its_numbers_are_suspect() -> None:
    suspect = ScoreEntry(value=2.0, weight=1.0, is_suspect=True)
    assert score([suspect, entry(4.0), ScoreEntry(value=None, weight=1.0, is_suspect=True)]).suspects == 1
    assert score([suspect, entry(4.0)]).value == score([entry(2.0), entry(4.0)]).value


def test_a_suite_without_weights_is_scored_unweighted_and_says_so() -> None:
    found = score([entry(2, 0), entry(8, 0)])
    assert found.value == pytest.approx(4.0)
    assert (found.is_weighted, found.complete) == (False, (2, 2))


def test_a_benchmark_of_weight_zero_does_not_count_in_a_weighted_suite() -> None:
    assert score([entry(2, 1), entry(8, 0)]).complete == (1, 1)


def test_a_benchmark_of_unknown_weight_makes_a_weighted_score_incomplete() -> None:
    assert score([entry(2, 1), entry(8, None)]).complete == (1, 2)


def test_nothing_that_passed_gives_no_score() -> None:
    assert score([entry(None)]).value is None
    assert score([]).complete == (0, 0)


def test_a_change_of_unit_leaves_the_ratio_of_two_scores() -> None:
    a, b = [entry(100.0), entry(0.2)], [entry(50.0), entry(0.4)]
    scaled = [[side[0], entry((side[1].value or 0) * 3600)] for side in (a, b)]
    plain = (score(a).value or 0) / (score(b).value or 1)
    assert (score(scaled[0]).value or 0) / (score(scaled[1]).value or 1) == pytest.approx(plain)


def test_one_benchmark_gives_its_own_log_t_interval() -> None:
    spread = 0.01
    found = score([entry(10.0, spread=spread, n=3)]).ci95
    assert found is not None
    half = 4.302652729749462 * spread / math.sqrt(3)
    assert found == pytest.approx((10 * math.exp(-half), 10 * math.exp(half)))


def test_there_is_no_interval_while_one_benchmark_has_fewer_than_three_processes() -> None:
    assert score([entry(10.0, spread=0.01, n=3), entry(10.0)]).ci95 is None
