"""Levels of power measurement: EEHPCWG/PowerMeasurementMethodology ff1d705, methodology.tex."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from milabench.procurement.power_levels import ASPECTS, PowerMeasurement, power_level

THIRD = PowerMeasurement(
    is_energy=True,
    covers="run",
    core_s=3600,
    uncovered_s=4,
    reports=frozenset({"core", "run", "idle"}),
    readings=12,
    readings_apart_s=300,
    node_kinds=((128, 128), (4, 4)),
    measured_kw=660,
    compute="measured",
    interconnect="measured",
    others="measured",
    location="before conversion",
    meter_error=0.01,
)
# 16 of 128 nodes, as in K-PWR-4.
EIGHTH = {"node_kinds": ((16, 128),), "measured_kw": 82.61, "is_random_part": True}


def lacks(measurement: PowerMeasurement, level: int) -> list[str]:
    return [text.partition(":")[0] for of, text in power_level(measurement).missing if of == level]


def test_a_measurement_that_keeps_every_rule_reaches_the_third_level() -> None:
    assert power_level(THIRD).level == 3
    assert power_level(THIRD).missing == ()
    assert power_level(THIRD).label == "L3"


@pytest.mark.parametrize(
    ("change", "level", "aspect"),
    [
        ({"is_energy": False, "sample_s": 1}, 2, "1a granularity"),
        ({"is_energy": False, "sample_s": 60}, 0, "1a granularity"),
        ({"uncovered_s": 11}, 2, "1b timing"),
        ({"covers": "core"}, 1, "1b timing"),
        ({"covers": "part"}, 0, "1b timing"),
        ({"core_s": 59}, 0, "1b timing"),
        ({"reports": frozenset({"core"})}, 1, "1c reported"),
        ({"reports": frozenset()}, 0, "1c reported"),
        ({"readings": 9}, 1, "1c reported"),
        ({"readings_apart_s": 361}, 1, "1c reported"),
        (EIGHTH, 2, "2 machine fraction"),
        ({**EIGHTH, "is_random_part": False}, 0, "2 machine fraction"),
        ({**EIGHTH, "node_kinds": ((16, 129),)}, 1, "2 machine fraction"),
        # Each kind of node to the fraction; beyond 40 kW the first level asks for no share.
        ({**EIGHTH, "node_kinds": ((16, 128), (0, 4))}, 1, "2 machine fraction"),
        ({**EIGHTH, "node_kinds": ((14, 100),), "measured_kw": 30}, 0, "2 machine fraction"),
        ({**EIGHTH, "node_kinds": ((15, 150),), "measured_kw": 2}, 1, "2 machine fraction"),
        ({"others": "estimated"}, 2, "3 subsystems"),
        ({"others": "left out"}, 1, "3 subsystems"),
        ({"interconnect": "left out"}, 0, "3 subsystems"),
        ({"compute": "estimated"}, 0, "3 subsystems"),
        ({"location": "loss measured"}, 3, ""),
        ({"location": "loss measured off line"}, 2, "4 location"),
        ({"location": "loss from the maker"}, 1, "4 location"),
        ({"location": "device"}, 0, "4 location"),
        ({"meter_error": 0.02}, 2, "4b meter"),
        ({"meter_error": 0.05}, 1, "4b meter"),
        ({"meter_error": 0.051}, 0, "4b meter"),
    ],
)
def test_one_aspect_alone_lowers_the_level(change: dict[str, Any], level: int, aspect: str) -> None:
    measurement = replace(THIRD, **change)
    assert power_level(measurement).level == level
    if level < 3:
        assert lacks(measurement, level + 1) == [aspect]


@pytest.mark.parametrize(
    ("meters", "error", "level"), [(1, 0.01, 3), (4, 0.02, 3), (9, 0.03, 3), (8, 0.03, 2), (100, 0.04, 1)]
)
def test_k_pwr_3_meters_together(meters: int, error: float, level: int) -> None:
    """Source: methodology.tex, reproduced: 1, 4 and 9 meters of 1, 2 and 3 %; none above 3 % counts together."""
    assert power_level(replace(THIRD, meters=meters, meter_error=error)).level == level


def test_board_readings_reach_no_level_and_say_so() -> None:
    boards = PowerMeasurement(
        sample_s=0.1,
        covers="run",
        core_s=3600,
        reports=frozenset({"core", "run"}),
        node_kinds=((8, 8),),
        compute="left out",
        location="device",
        meter_error=0.05,
    )
    assert power_level(boards).label == "device power, no EE HPC level"
    assert lacks(boards, 1) == ["3 subsystems", "4 location"]
    assert power_level(PowerMeasurement(location="before conversion")).label == "no EE HPC level"


def test_every_aspect_says_what_a_level_needs() -> None:
    assert len(ASPECTS) == 7
    assert all(needed for levels in ASPECTS.values() for needed, _ in levels)
