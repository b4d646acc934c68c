"""A meter's measurements of a run, as kept next to the run's records, and its owner's declaration."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal

from msgspec import Struct, field

from milabench.analysis.intervals import Interval
from milabench.analysis.json_codec import to_json_value
from milabench.analysis.sample_statistics import median
from milabench.config.declared_file import declared_values
from milabench.config.kinds import ShareText, Whole, key, record_of
from milabench.errors import ConfigError, Problem
from milabench.events.stored_json import from_json_value
from milabench.procurement.costs import whole_machine_power
from milabench.procurement.energy_curves import ClockFit, EnergyCurve, total_curve
from milabench.procurement.meter_files import MeterFile, Outlet
from milabench.procurement.power_levels import Location, PowerLevel, PowerMeasurement, Subsystem, power_level
from milabench.procurement.uncertainty import Deviation, UncertainValue, sum_of

SCHEMA = 1
_KIND = "milabench-meter"
# Power that was not read for so many times as long as between two readings, or for this share of a window, is not known.
_HOLE: Final = 10
_UNREAD: Final = 0.05
_COUNT = Annotated[int, Whole(at_least=1, at_most=10**9)]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterDeclaration:
    """Facts that readings lack: the place of the meter, its load, its error."""

    nodes: _COUNT | None = key("Nodes of the machine.", default=None)
    measured_nodes: _COUNT | None = key("Nodes that the meter measures. Default: all.", default=None)
    is_random: bool = key("Whether the measured nodes were drawn at random.", default=False, name="random")
    compute: Subsystem = key("The compute nodes: `measured`, `estimated` or `left out`.", default="measured")
    interconnect: Subsystem = key("The interconnect.", default="left out")
    others: Subsystem = key("All other parts that take part, such as storage and pumps.", default="left out")
    location: Location = key("Where it measures, seen from the power conversion.", default="before conversion")
    error: Annotated[float, ShareText()] | None = key("Most that the meter errs by, such as `1 %`.", default=None)
    meters: _COUNT = key("Number of equal meters, on equal shares of the load.", default=1)


def meter_declaration(content: bytes, name: str) -> MeterDeclaration:
    """Return the declaration in a YAML file. Raises ConfigError with every problem, each at `name:line:column`."""
    root, values = declared_values(record_of(MeterDeclaration), content, name)
    declared: MeterDeclaration = record_of(MeterDeclaration).build(values)
    if (declared.measured_nodes or 0) > (declared.nodes or 10**9):
        what = f"{declared.measured_nodes}, of {declared.nodes} nodes"
        raise ConfigError(Problem(str(root.mark), "measured_nodes", what))
    return declared


class MeterRecord(Struct, frozen=True, kw_only=True):
    """The readings of a meter around a run, on the meter's own clock, and how that was found to differ from the run's.

    `digest` is the SHA-256 of the file that was imported under the name `source`.
    """

    source: str
    digest: str = field(name="sha256")
    kind: Literal["csv", "redfish"] = field(name="format")
    notes: tuple[str, ...] = ()
    clock: ClockFit
    declared: MeterDeclaration | None = None
    outlets: tuple[Outlet, ...]

    @property
    def curve(self) -> EnergyCurve:
        """The energy of all its outlets on the clock of the run."""
        return meter_curve(self.outlets).moved(self.clock.offset_s)

    @property
    def label(self) -> str:
        """Its name in reports: its file and its clock."""
        clock = f"clock {self.clock.offset_s:+.3g} s"
        if self.clock.ci95 is not None:
            clock += f" ± {self.clock.ci95[1] - self.clock.offset_s:.2g} s"
        return f"{self.source}, {clock}"

    def to_json(self) -> dict[str, Any]:
        """Return the record as its file has it."""
        return {"schema": SCHEMA, "kind": _KIND, **to_json_value(self)}


def meter_curve(outlets: Sequence[Outlet]) -> EnergyCurve:
    """Return the energy of outlets together: of each by its counter, else by its power."""
    return total_curve(
        [
            EnergyCurve(outlet.energy) if len(outlet.energy) > 1 else EnergyCurve.of_power(outlet.power)
            for outlet in outlets
        ]
    )


def meter_from_json(value: Mapping[str, Any]) -> MeterRecord:
    """Return a record that was read back. Raises ValueError, with the problem, for other values."""
    if value.get("schema") != SCHEMA or value.get("kind") != _KIND:
        raise ValueError("is no record of a meter by this version")
    try:
        record = from_json_value(MeterRecord, value)
    except ValueError as error:
        raise ValueError(f"is no record of a meter: {error}") from None
    if not record.outlets or not all(map(_rises, record.outlets)):
        raise ValueError("has no readings in the order of time")
    declared = record.declared
    if declared is not None and declared.nodes is not None:
        measured = declared.nodes if declared.measured_nodes is None else declared.measured_nodes
        if not 1 <= measured <= declared.nodes:
            raise ValueError(f"measures {measured} of {declared.nodes} nodes")
    return record


def _rises(outlet: Outlet) -> bool:
    readings = outlet.energy if len(outlet.energy) > 1 else outlet.power
    return len(readings) > 1 and all(a[0] < b[0] for a, b in itertools.pairwise(readings))


def around(file: MeterFile, span: Interval) -> tuple[Outlet, ...]:
    """Return the readings of a file within a span of the meter's clock. Outlets without two of them are left out."""
    cut = [
        replace(
            outlet,
            power=[each for each in outlet.power if span[0] <= each[0] <= span[1]],
            energy=[each for each in outlet.energy if span[0] <= each[0] <= span[1]],
        )
        for outlet in file.outlets
    ]
    return tuple(outlet for outlet in cut if max(len(outlet.power), len(outlet.energy)) > 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeteredLaunch:
    """The meters' measurement in a repeat's window: its mean power in W, and its relative error from the clock.

    `drawn` is the deviation of all nodes from the sampled nodes. None where unknown.
    """

    power_w: float
    seconds: float
    clock_share: float = 0.0
    drawn: Deviation | None = None


def metered_launch(
    meters: Sequence[MeterRecord], curves: Sequence[EnergyCurve], window: Interval
) -> MeteredLaunch | None:
    """Return the measurement of all meters of a run within a window. None where a meter does not cover it, or has holes."""
    if (
        not curves
        or not all(curve.covers(window) for curve in curves)
        or any(has_holes(each, window) for each in meters)
    ):
        return None
    seconds = window[1] - window[0]
    total = shifted = 0.0
    drawn: list[UncertainValue] = []
    for meter, curve in zip(meters, curves, strict=True):
        share = _share(meter)
        energy, error = curve.within(window) / share, meter.clock.error_s or 0.0
        moved = [curve.within((window[0] + by, window[1] + by)) / share for by in (-error, error)]
        total += energy
        shifted += max(abs(other - energy) for other in moved)
        drawn += _of_drawn_nodes(meter, window)
    if total <= 0:
        return None
    launch = MeteredLaunch(power_w=total / seconds, seconds=seconds, clock_share=shifted / total)
    estimate = sum_of(drawn).log_estimate if drawn else None
    if estimate is None:
        return launch
    sd = estimate.error * sum(power.value for power in drawn) / launch.power_w
    return replace(launch, drawn=Deviation(sd, estimate.freedom, source="nodes that were drawn"))


def metered_energy(meters: Sequence[MeterRecord], span: Interval) -> float:
    """Return the energy of the whole machine within a span, in J, by all meters of a run and the shares that they measure."""
    return math.fsum(meter.curve.within(span) / _share(meter) for meter in meters)


def has_holes(meter: MeterRecord, window: Interval) -> bool:
    """Return whether an outlet of a meter was not read for much of a window, whose power there nobody knows."""
    return any(_unread_s(meter, outlet, window) > _UNREAD * (window[1] - window[0]) for outlet in meter.outlets)


def _unread_s(meter: MeterRecord, outlet: Outlet, window: Interval) -> float:
    """Return how long of a window lies between readings that are far apart. A counter knows the energy of such a time."""
    is_counter = len(outlet.energy) > 1
    readings = outlet.energy if is_counter else outlet.power
    pairs = [(a + meter.clock.offset_s, b + meter.clock.offset_s) for (a, _), (b, _) in itertools.pairwise(readings)]
    most = _HOLE * median([b - a for a, b in pairs])
    far = [(a, b) for a, b in pairs if b - a > most and not (is_counter and window[0] <= a and b <= window[1])]
    return math.fsum(max(0.0, min(b, window[1]) - max(a, window[0])) for a, b in far)


def _of_drawn_nodes(meter: MeterRecord, window: Interval) -> Iterator[UncertainValue]:
    """Yield the power of all nodes from a random sample, each with its own outlet. Nothing for other meters."""
    declared = meter.declared
    if declared is None or not declared.is_random or declared.nodes is None or len(meter.outlets) < 2:
        return
    if len(meter.outlets) == declared.measured_nodes:
        curves = [meter_curve([outlet]).moved(meter.clock.offset_s) for outlet in meter.outlets]
        readings = [curve.within(window) / (window[1] - window[0]) for curve in curves]
        if min(readings) > 0:
            yield whole_machine_power(readings, declared.nodes)


def _share(meter: MeterRecord) -> float:
    """Return which share of the machine a meter measures, as its owner declares it."""
    declared = meter.declared
    if declared is None or declared.nodes is None or declared.measured_nodes is None:
        return 1.0
    return declared.measured_nodes / declared.nodes


def level_of(meter: MeterRecord, curve: EnergyCurve, window: Interval, run: Interval) -> PowerLevel:
    """Return the level that a meter reaches in a window, the core phase, of work from `run[0]` to `run[1]`."""
    declared = meter.declared or MeterDeclaration(compute="left out", location="device")
    inside = curve.readings_in(window)
    idle = [time for time in curve.times if not run[0] <= time <= run[1]]
    reports = {"core"} | ({"run"} if curve.covers(run) else set()) | ({"idle"} if len(idle) >= 10 else set())
    nodes = declared.nodes
    return power_level(
        PowerMeasurement(
            is_energy=all(len(outlet.energy) > 1 for outlet in meter.outlets),
            sample_s=curve.interval_s,
            covers="run" if curve.covers(run) else "core" if curve.covers(window) else "part",
            core_s=window[1] - window[0],
            uncovered_s=(inside[0] - window[0]) + (window[1] - inside[-1]) if inside else window[1] - window[0],
            reports=frozenset(reports),  # type: ignore[arg-type]
            readings=len(inside),
            readings_apart_s=max((b - a for a, b in itertools.pairwise(inside)), default=0.0),
            node_kinds=() if nodes is None else ((declared.measured_nodes or nodes, nodes),),
            measured_kw=curve.within(window) / (window[1] - window[0]) / 1000,
            is_random_part=declared.is_random,
            compute=declared.compute,
            interconnect=declared.interconnect,
            others=declared.others,
            location=declared.location,
            meter_error=float("inf") if declared.error is None else declared.error,
            meters=declared.meters,
        )
    )
