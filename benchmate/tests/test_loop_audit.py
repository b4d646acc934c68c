"""The second count of a launch beside the observers'."""

from __future__ import annotations

from time import perf_counter_ns

import pytest
from test_observer import Stop, go_through, measuring

from benchmate.loop_audit import Count, items_ratio, observed_count, ratio_of
from benchmate.observed_loops import ObservedIterable
from benchmate.ring import WINDOW_START, WINDOW_STOP


def test_the_observed_steps_are_those_of_the_window():
    here = measuring(warmup=2, window=3)
    with pytest.raises(Stop):
        go_through(ObservedIterable(range(100), here.observer("train", "items/s"), 2.5))
    words = here.observers["train"].ring.words
    assert observed_count(here.observers["train"], words[WINDOW_START], words[WINDOW_STOP]) == Count("observed", 3, 7.5)
    assert observed_count(here.observers["train"], perf_counter_ns(), perf_counter_ns()).steps == 0


@pytest.mark.parametrize(("ours", "theirs", "ratio"), [(100, 102, 1), (96, 100, 0.96), (200, 100, 2), (5, 0, None)])
def test_counts_agree_to_a_percent_and_a_step_at_each_end(ours: int, theirs: int, ratio: float | None):
    assert ratio_of(Count("observed", ours, None), Count("loaders", theirs, None)) == ratio


@pytest.mark.parametrize(
    ("ours", "samples", "ratio"),
    [(1600, 1600, 1), (1584, 1616, 1), (600, 1600, 0.375), (1600, 0, None), (None, 9, None)],
)
def test_items_are_compared_with_the_samples_of_the_loaders(ours: int | None, samples: int, ratio: float | None):
    assert items_ratio(Count("observed", 100, ours), Count("loaders", 100, samples)) == ratio
