"""How often comparisons are wrong, by simulation with fixed seeds; methodology.md, sections 2 and 3."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from statistics import variance

import pytest

from milabench.analysis.sample_statistics import mean
from milabench.analysis.score import ScoreEntry, counted_entries, log_index_estimate
from milabench.analysis.two_samples import Estimate, LogMean, paired_difference, tail, welch

pytestmark = pytest.mark.turns(3)

TRIALS = 3000


def claims(found: Estimate) -> bool:
    """Whether a difference would be claimed at 5 %, no margin allowed for."""
    return 2 * tail(abs(found.d), found.error, found.freedom) <= 0.05


def nested(draw: random.Random, processes: int, steps: int) -> list[list[float]]:
    """Logarithms of rates: 2 % between processes, 0.5 % within."""
    return [
        [level + draw.gauss(0, 0.005) for _ in range(steps)]
        for level in (draw.gauss(0, 0.02) for _ in range(processes))
    ]


@pytest.mark.slow
def test_an_a_a_comparison_raises_a_false_alarm_in_one_of_twenty() -> None:
    draw = random.Random(1)
    alarms = pooled = 0
    for _ in range(TRIALS):
        a, b = nested(draw, 20, 3), nested(draw, 20, 3)
        alarms += claims(welch([mean(each) for each in a], [mean(each) for each in b]))
        # What must not be done: iterations of one process are no replicates.
        pooled += claims(welch([x for each in a for x in each], [x for each in b for x in each]))
    assert 0.035 <= alarms / TRIALS <= 0.065
    assert pooled / TRIALS > 0.2


@pytest.mark.slow
def test_pairs_measured_in_turn_are_immune_to_a_drift_that_fools_one_after_the_other() -> None:
    draw = random.Random(2)
    one_after_the_other = in_turn = 0
    for _ in range(TRIALS):
        values = [0.02 * place / 20 + draw.gauss(0, 0.005) for place in range(20)]
        one_after_the_other += claims(welch(values[:10], values[10:]))
        a, b = [], []
        for block in range(10):
            first, second = values[2 * block : 2 * block + 2]
            before, after = (first, second) if draw.random() < 0.5 else (second, first)
            a.append(before)
            b.append(after)
        in_turn += claims(paired_difference(a, b))
    assert one_after_the_other / TRIALS > 0.9
    assert 0.035 <= in_turn / TRIALS <= 0.065


@pytest.mark.slow
def test_the_interval_of_an_index_covers_as_often_as_it_claims() -> None:
    draw = random.Random(3)
    hits = trials = 0
    for _ in range(TRIALS // 2):
        entries = []
        for place in range(10):
            sd = (0.005, 0.01, 0.03)[place % 3]
            a, b = ([math.exp(draw.gauss(0, sd)) for _ in range(4)] for _ in range(2))
            ratio = math.exp(log_mean(b) - log_mean(a))
            entries.append(
                ScoreEntry(
                    value=ratio,
                    weight=1.0 + place % 2,
                    levels=tuple(
                        LogMean(mean=log_mean(side), variance=variance(map(math.log, side)) / 4, freedom=3)
                        for side in (a, b)
                    ),
                )
            )
        found = log_index_estimate(counted_entries(entries)[0])
        assert found is not None
        low, high = found.interval()
        hits += low <= 0 <= high
        trials += 1
    assert 0.935 <= hits / trials <= 0.97


def log_mean(values: Sequence[float]) -> float:
    return mean([math.log(value) for value in values])
