"""Readings of power meters stored with a run: imports them, aligned with its clock, and reads them back."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from milabench.analysis.intervals import Interval
from milabench.analysis.step_results import planned_steps
from milabench.devices.regular_file import read_regular
from milabench.errors import ConfigError, NothingSelected, RecordError, UsageError
from milabench.events.attempts import attempts, last_word
from milabench.events.names import encode_name
from milabench.events.readings import Readings
from milabench.events.rundir import Run
from milabench.events.wire import parse_object
from milabench.procurement.energy_curves import Basis, ClockFit, EnergyCurve, Point, fit_clock, run_curve
from milabench.procurement.meter_files import read_meter
from milabench.procurement.metering import (
    MeterRecord,
    around,
    has_holes,
    meter_curve,
    meter_declaration,
    meter_from_json,
    metered_energy,
)
from milabench.procurement.requests import MeterRequest
from milabench.workflow.files import read_file, write_file
from milabench.workflow.measured_runs import METERS, resolve_runs

_AROUND_S = 600.0  # what is kept of the readings before and after a run, for the power of the idle machine


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPower:
    """A counting attempt at a step: when it ran and when it measured, in unix seconds. The readings of each device in W."""

    step: str
    bench: str
    repeat: int
    span: Interval
    window: Interval | None
    devices: dict[str, list[Point]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedMeter:
    """A meter's record and the file that has it. `is_new` false where the same had been imported before.

    `unread` are the steps with few readings in their windows. `of_devices` is the power that all meters of the
    run measured together while it ran, over what its devices drew by their own sensors. None where these were not read.
    """

    path: Path
    record: MeterRecord
    is_new: bool
    unread: tuple[str, ...] = ()
    of_devices: float | None = None


def import_meter(request: MeterRequest) -> ImportedMeter:
    """Import a meter's measurements of a run. Without an offset the clocks are aligned by the run's own record of its power.

    Raises NothingSelected, RecordError, ConfigError for problems in a file, UsageError where the clocks cannot be aligned.
    """
    file, declaration, clock_offset = request.file, request.declaration, request.clock_offset
    (run,) = resolve_runs(request.base, [request.run])
    content = read_file(file, hint="check the path")
    metered = read_meter(content, str(file), request.outlets)
    declared = None if declaration is None else meter_declaration(read_file(declaration), str(declaration))
    steps = step_powers(run)
    if not steps:
        raise NothingSelected(f"{run.name}: none of its steps has a beginning and an end to compare a meter with")
    whole = min(step.span[0] for step in steps), max(step.span[1] for step in steps)
    if any(max(len(outlet.power), len(outlet.energy)) < 2 for outlet in metered.outlets):
        raise ConfigError(f"{file}: has an outlet with a single reading, but energy is between two")
    curve = meter_curve(metered.outlets)
    own, basis = _own_power(steps)
    if clock_offset is None:
        try:
            clock = fit_clock(curve, own, basis)
        except UsageError as error:
            raise UsageError(f"{file}: {error}") from None
    else:
        clock = ClockFit(offset_s=clock_offset, basis="given")
        moved = curve.moved(clock_offset)
        if not (moved.times[0] < whole[1] and moved.times[-1] > whole[0]):
            apart = whole[0] - moved.times[-1] if moved.times[-1] <= whole[0] else whole[1] - moved.times[0]
            raise UsageError(
                f"{file}: none of its readings is of the time of the run, which is {apart:+.0f} s from them. "
                "--clock-offset auto finds the offset"
            )
    margin = _AROUND_S + 0.1 * (whole[1] - whole[0])
    record = MeterRecord(
        source=file.name,
        digest=hashlib.sha256(content).hexdigest(),
        kind=metered.kind,
        outlets=around(metered, (whole[0] - margin - clock.offset_s, whole[1] + margin - clock.offset_s)),
        clock=clock,
        declared=declared,
        notes=metered.notes,
    )
    unread = tuple(step.step for step in steps if has_holes(record, step.window or step.span))
    kept = _kept(run, record)
    of_devices = _share_of_devices(meters_of(run), own, whole) if basis == "device power" else None
    return replace(kept, unread=unread, of_devices=of_devices)


def _own_power(steps: Sequence[StepPower]) -> tuple[EnergyCurve, Basis]:
    """Return the run's own record of its power, and its source."""
    spans: list[tuple[str, Interval, list[Point]]] = []
    for step in steps:
        spans += [(place, step.span, readings) for place, readings in step.devices.items()] or [("", step.span, [])]
    return run_curve(spans)


def _share_of_devices(meters: Sequence[MeterRecord], devices: EnergyCurve, span: Interval) -> float | None:
    """Return the meters' power over the devices' own, in the part of a span that all meters cover. None without any."""
    curves = [meter.curve for meter in meters]
    start, stop = (
        max(span[0], *(curve.times[0] for curve in curves)),
        min(span[1], *(curve.times[-1] for curve in curves)),
    )
    drawn = devices.within((start, stop)) if start < stop else 0.0
    return metered_energy(meters, (start, stop)) / drawn if drawn > 0 else None


def _kept(run: Run, record: MeterRecord) -> ImportedMeter:
    path = run.path / METERS / f"{encode_name(Path(record.source).stem)}.json"
    present = dict(_read(run))
    for place, meter in present.items():
        if place != path and (meter.digest == record.digest or _has_the_readings_of(meter, record)):
            raise UsageError(
                f"{record.source}: has the readings of {place}, and would count twice. Remove that file first"
            )
    if path in present and present[path].digest != record.digest:
        raise UsageError(
            f"{path}: is of another file called {record.source}. Rename this file, or remove that record first"
        )
    is_new = path not in present or present[path].to_json() != record.to_json()
    if is_new:
        write_file(path, json.dumps(record.to_json()) + "\n")
    return ImportedMeter(path=path, record=record, is_new=is_new)


def _has_the_readings_of(one: MeterRecord, other: MeterRecord) -> bool:
    """Return whether an outlet is in both records, however each was exported: the same values in sequence."""
    series = [
        [[value for _, value in readings] for outlet in record.outlets for readings in (outlet.power, outlet.energy)]
        for record in (one, other)
    ]
    return any(
        len(set(values)) > 2 and len(values) == len(others) and all(map(_is_close, values, others))
        for values in series[0]
        for others in series[1]
    )


def _is_close(value: float, other: float) -> bool:
    return math.isclose(value, other, rel_tol=1e-9)


def meters_of(run: Run) -> tuple[MeterRecord, ...]:
    """Return the meters' measurements of a run. Raises RecordError for a record that cannot be read."""
    return tuple(meter for _, meter in _read(run))


def _read(run: Run) -> list[tuple[Path, MeterRecord]]:
    found = []
    for path in sorted((run.path / METERS).glob("*.json")):
        try:
            found.append((path, meter_from_json(parse_object(read_regular(path)))))
        except (OSError, ValueError, TypeError) as error:
            raise RecordError(f"{path}: cannot be read: {error}. Remove it and import the meter again") from None
    return found


def step_powers(run: Run) -> list[StepPower]:
    """Return when each passed step ran and measured, and the readings of its devices. Raises RecordError."""
    tried, powers = attempts(run.journal), []
    for step in planned_steps(run):
        attempt = last_word(tried.get(step.id, ()))
        if attempt is None or attempt.outcome != "passed":
            continue
        readings = Readings()
        for event in run.batches(step.id, attempt.number):
            readings.observe(event)
        devices = {
            f"{step.node}/{key}": list(dict(pairs).items())
            for key, device in readings.devices.items()
            if (
                pairs := [
                    (t, watts) for t, watts in zip(device.time, device.power, strict=True) if not math.isnan(watts)
                ]
            )
        }
        ends = [time for pairs in devices.values() for time, _ in pairs] + [*(readings.window or ())]
        ends += [time for time in (attempt.began, attempt.ended) if time is not None and not ends]
        if len(ends) < 2 or min(ends) >= max(ends):
            continue
        powers.append(
            StepPower(
                step=step.id,
                bench=step.bench,
                repeat=step.repeat,
                span=(min(ends), max(ends)),
                window=readings.window,
                devices=devices,
            )
        )
    return powers
