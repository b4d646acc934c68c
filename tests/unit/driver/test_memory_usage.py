"""Memory over time, from the records of a monitor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from milabench.driver.memory_usage import MemoryFold, Usage
from milabench.events.model import Data


def fold(*records: dict[str, Any]) -> MemoryFold:
    made = MemoryFold()
    for record in records:
        made.observe(Data(step="s", t=0.0, data=record))
    return made


def used(*sizes: float) -> dict[str, Any]:
    return {"gpudata": {str(at): {"memory": [size, 1000.0]} for at, size in enumerate(sizes)}}


def held(*sizes: Sequence[float]) -> dict[str, Any]:
    """A sample in which each device tells the memory of our processes, and 900 MiB of somebody else's."""
    foreign = {"pid": 1, "memory_MiB": 900.0, "own": False}
    return {
        "gpudata": {
            str(at): {
                "memory": [950.0, 1000.0],
                "processes": [foreign, *({"pid": 2, "memory_MiB": size, "own": True} for size in own)],
            }
            for at, own in enumerate(sizes)
        }
    }


def test_mean_and_deviation_are_averaged_over_devices_and_the_maximum_is_the_largest_of_all() -> None:
    devices = fold(used(0, 0), used(700, 100), used(749, 200)).devices(2)
    assert devices == Usage(mean=pytest.approx(291.5), std=pytest.approx(259.50357992168057), max=749.0)


def test_the_memory_of_all_processes_of_the_step_counts_and_nobody_elses() -> None:
    seen = fold(held([], []), held([10, 20], [5]), held([30], [5]))
    assert seen.is_of_tree
    assert seen.devices(1) == Usage(mean=20.0, std=pytest.approx(17.320508), max=30.0)


def test_where_a_process_does_not_tell_its_memory_that_of_the_device_counts() -> None:
    sample = {"gpudata": {"0": {"memory": [7.0, 10.0], "processes": [{"pid": 2, "own": True}]}}}
    seen = fold(sample)
    assert (seen.is_of_tree, seen.devices(1)) == (False, Usage(mean=7.0, std=0.0, max=7.0))


def test_where_the_driver_hides_all_processes_the_memory_of_the_device_counts() -> None:
    seen = fold({"gpudata": {"0": {"memory": [7.0, 10.0], "processes": []}}})
    assert (seen.is_of_tree, seen.devices(1)) == (False, Usage(mean=7.0, std=0.0, max=7.0))


def test_a_single_sample_has_no_deviation_and_without_one_there_is_nothing() -> None:
    assert fold({"process": {"rss_MiB": 12.5}}).host == Usage(mean=12.5, std=0.0, max=12.5)
    assert (fold().host, fold().devices(2)) == (None, None)
