"""Readings of devices: their window, and the energy in it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milabench.events.model import Data
from milabench.events.readings import DeviceReadings, Readings, energy_of


def device(*samples: tuple[float, dict[str, Any]]) -> DeviceReadings:
    made = DeviceReadings(key="0")
    for time, sample in samples:
        made.add(sample, time)
    return made


def test_the_ends_of_the_window_are_interpolated() -> None:
    metered = device(*((float(t), {"power_W": 10.0 * t, "energy_J": 5.0 * t * t}) for t in range(11)))
    energy = energy_of(metered, (2.5, 7.5))
    assert energy.integral_j == pytest.approx(5 * (7.5**2 - 2.5**2))
    assert energy.counter_j == pytest.approx(5 * (7.5**2 - 2.5**2), rel=0.01)


def test_a_window_that_samples_do_not_reach_has_no_energy() -> None:
    metered = device(*((t / 10, {"power_W": 10.0, "energy_J": t}) for t in range(50)))
    assert energy_of(metered, (0.0, 60.0)).counter_j is None
    assert energy_of(metered, (0.0, 60.0)).integral_j is None


def test_a_counter_that_began_anew_tells_nothing() -> None:
    metered = device((0.0, {"energy_J": 900.0}), (1.0, {"energy_J": 5.0}), (2.0, {"energy_J": 10.0}))
    assert energy_of(metered, (0.0, 2.0)).counter_j is None


def test_samples_without_a_reading_are_left_out() -> None:
    metered = device((0.0, {"power_W": 100.0}), (1.0, {}), (2.0, {"power_W": 100.0}))
    assert energy_of(metered, (0.0, 2.0)).integral_j == pytest.approx(200.0)
    assert math.isnan(metered.power[1])


@given(st.floats(1, 1000), st.floats(0.0, 0.9), st.floats(0.1, 5.0))
def test_constant_power_is_power_times_time_wherever_the_window_lies(power: float, start: float, length: float) -> None:
    metered = device(*((t / 10, {"power_W": power, "energy_J": power * t / 10}) for t in range(71)))
    energy = energy_of(metered, (start, start + length))
    assert energy.integral_j == pytest.approx(power * length, rel=1e-6)
    assert energy.counter_j == pytest.approx(power * length, rel=1e-6)


def window(task: str, start: float, stop: float) -> Data:
    return Data(step="s", data={"task": task, "window": {"start": start, "stop": stop}})


def test_the_window_is_that_of_training_and_holds_those_of_all_ranks() -> None:
    readings = Readings()
    for event in (window("validation", 0, 1), window("train", 10, 20), window("train", 11, 21)):
        readings.observe(event)
    assert readings.window == (10, 21)


@pytest.mark.parametrize(
    "sample", [None, 3, {"memory": 5}, {"memory": [1]}, {"throttle": 4, "processes": {}}, {"ecc": 1}]
)
def test_readings_of_any_shape_are_survived(sample: Any) -> None:
    readings = Readings()
    readings.observe(Data(step="s", data={"gpudata": {"0": sample}, "time": 1.0}))
    readings.observe(Data(step="s", data={"gpudata": [], "time": "x", "window": 4}))
