"""The levels of a power measurement after Green500 and the EE HPC WG: the reached level, and the missing parts of the next.

github EEHPCWG/PowerMeasurementMethodology ff1d705, methodology.tex (working copy of version 3.0).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

Subsystem = Literal["measured", "estimated", "left out"]
Location = Literal["before conversion", "loss measured", "loss measured off line", "loss from the maker", "device"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerMeasurement:
    """How a power was measured.

    `is_energy`: a meter integrates. Else it reads a power every `sample_s`. `covers` is the measured part of the run, whose core
    phase takes `core_s`, all but `uncovered_s`. `reports` are the means, or energies, given, and `readings` those wholly
    within the core phase, at most `readings_apart_s` apart. `node_kinds` has (measured, all) nodes of each kind. Subsystems that
    take no part are `measured`. `meter_error` is the error of each of `meters` equal meters on equal shares, 0.01 for 1 %.
    """

    is_energy: bool = False
    sample_s: float = math.inf
    covers: Literal["part", "core", "run"] = "part"
    core_s: float = 0.0
    uncovered_s: float = 0.0
    reports: frozenset[Literal["core", "run", "idle"]] = frozenset()
    readings: int = 0
    readings_apart_s: float = 0.0
    node_kinds: tuple[tuple[int, int], ...] = ()
    measured_kw: float = 0.0
    is_random_part: bool = False
    compute: Subsystem = "left out"
    interconnect: Subsystem = "left out"
    others: Subsystem = "left out"
    location: Location = "device"
    meter_error: float = math.inf
    meters: int = 1

    @property
    def is_whole_machine(self) -> bool:
        """Whether every node was measured."""
        return bool(self.node_kinds) and all(measured == nodes for measured, nodes in self.node_kinds)


Rule = Callable[[PowerMeasurement], bool]


def _part(share: float, kilowatts: float, *, enough_kw: float = math.inf) -> Rule:
    def is_met(m: PowerMeasurement) -> bool:
        if m.is_whole_machine:
            return True
        if not (m.node_kinds and m.is_random_part):
            return False
        measured = sum(part for part, _ in m.node_kinds)
        is_share = all(part >= share * nodes for part, nodes in m.node_kinds)
        return m.measured_kw >= enough_kw or (is_share and m.measured_kw >= kilowatts and measured >= 15)

    return is_met


def _meter(most: float) -> Rule:
    # Several equal meters on equal shares err less together; each is at most 3 %.
    def is_met(m: PowerMeasurement) -> bool:
        together = m.meters > 1 and m.meter_error <= 0.03 and m.meter_error / math.sqrt(m.meters) <= most * (1 + 1e-9)
        return m.meter_error <= most or together

    return is_met


def _is_sampled(m: PowerMeasurement) -> bool:
    return m.is_energy or m.sample_s <= 1


def _is_full_report(m: PowerMeasurement) -> bool:
    apart = m.readings_apart_s <= 0.1 * m.core_s
    return m.reports == {"core", "run", "idle"} and m.readings >= 10 and apart


def _at(*locations: Location) -> Rule:
    return lambda m: m.location in locations


_BOTH = {"measured", "estimated"}
_MEANWHILE: Final[tuple[Location, ...]] = ("before conversion", "loss measured")
_FULL = "core, run and idle {}, 10 or more readings in the core phase, at most a tenth of its length apart"

ASPECTS: Final[Mapping[str, tuple[tuple[str, Rule], ...]]] = {
    "1a granularity": (
        ("a reading a second", _is_sampled),
        ("a reading a second", _is_sampled),
        ("integrated energy", lambda m: m.is_energy),
    ),
    "1b timing": (
        ("the whole core phase, a minute or more", lambda m: m.covers in {"core", "run"} and m.core_s >= 60),
        ("the whole run", lambda m: m.covers == "run" and m.core_s >= 60),
        (
            "the whole run, at most 10 s of the core phase uncovered",
            lambda m: m.covers == "run" and m.core_s >= 60 and m.uncovered_s <= 10,
        ),
    ),
    "1c reported": (
        ("the mean power of the core phase", lambda m: "core" in m.reports),
        (_FULL.format("means"), _is_full_report),
        (_FULL.format("energies"), _is_full_report),
    ),
    "2 machine fraction": (
        ("the whole machine, 40 kW, or the largest of 1/10, 2 kW and 15 nodes, at random", _part(0.1, 2, enough_kw=40)),
        ("the whole machine, or the largest of 1/8, 10 kW and 15 nodes, at random", _part(1 / 8, 10)),
        ("the whole machine", lambda m: m.is_whole_machine),
    ),
    "3 subsystems": (
        (
            "compute measured, interconnect measured or estimated",
            lambda m: m.compute == "measured" and m.interconnect in _BOTH,
        ),
        (
            "compute measured, all others measured or estimated",
            lambda m: m.compute == "measured" and {m.interconnect, m.others} <= _BOTH,
        ),
        ("all measured", lambda m: {m.compute, m.interconnect, m.others} == {"measured"}),
    ),
    "4 location": (
        ("before conversion, or its loss known", _at(*_MEANWHILE, "loss measured off line", "loss from the maker")),
        ("before conversion, or its loss measured", _at(*_MEANWHILE, "loss measured off line")),
        ("before conversion, or its loss measured meanwhile", _at(*_MEANWHILE)),
    ),
    "4b meter": (
        ("an error of 5 % at most", _meter(0.05)),
        ("an error of 2 % at most", _meter(0.02)),
        ("an error of 1 % at most", _meter(0.01)),
    ),
}
"""The aspects of the methodology: of each the requirements of the three levels, in words and as a rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLevel:
    """The level that a measurement reaches, 0 to 3, and for each level above it the missing parts: `aspect: requirement`."""

    level: int
    missing: tuple[tuple[int, str], ...]
    location: Location

    @property
    def label(self) -> str:
        """The level as reports name it."""
        if self.level:
            return f"L{self.level}"
        return "device power, no EE HPC level" if self.location == "device" else "no EE HPC level"


def power_level(measurement: PowerMeasurement) -> PowerLevel:
    """Return the level of a measurement. Every aspect has to reach it."""
    missing = tuple(
        (level, f"{aspect}: {needed}")
        for level in (1, 2, 3)
        for aspect, levels in ASPECTS.items()
        for needed, is_met in [levels[level - 1]]
        if not is_met(measurement)
    )
    lacking = {level for level, _ in missing}
    return PowerLevel(level=min(lacking, default=4) - 1, missing=missing, location=measurement.location)
