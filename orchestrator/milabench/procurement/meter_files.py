"""The files of power meters -> readings of outlets: a CSV of a PDU or a meter, and reports of a Redfish service (DMTF DSP0268).

Columns are known by their units. A file that can be read in two ways is refused, never guessed at.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple

from milabench.errors import ConfigError, Problem
from milabench.events.stored_json import Number
from milabench.events.values import written_number
from milabench.shown import some_of

Quantity = Literal["power", "energy"]

# What a reading is worth in W, or in J.
_UNITS: Final[Mapping[str, tuple[Quantity, float]]] = {
    "w": ("power", 1.0),
    "kw": ("power", 1e3),
    "watt": ("power", 1.0),
    "watts": ("power", 1.0),
    "kilowatts": ("power", 1e3),
    "wh": ("energy", 3.6e3),
    "kwh": ("energy", 3.6e6),
    "j": ("energy", 1.0),
    "kj": ("energy", 1e3),
    "joules": ("energy", 1.0),
}
_VALUE_COLUMN: Final = re.compile(r"(?P<name>|.*[\s_\-/(\[])(?P<units>[A-Za-z]+)[)\]]?")
_TIMES: Final = frozenset(
    {"time", "timestamp", "datetime", "date time", "date/time", "epoch", "unix", "unix time", "t", "time s", "time utc"}
)
_OUTLETS: Final = frozenset({"outlet", "device", "channel", "port", "pdu", "meter", "name", "sensor", "id", "node"})
_TOTALS: Final = frozenset({"total", "sum", "all", "whole"})
# Words of a column's name that say what is measured, not where.
_NO_NAMES: Final = re.compile(
    r"\b(?:active|real|power|energy|consumption|consumed|reading|counter|draw|avg|mean)\b", re.I
)
# Years 1973 to 5138 in seconds, so that no unit of an epoch is mistaken for another.
_MOST: Final = 1e15  # of a reading in the units of its column: no more than a wrong unit would make of it
_SHOWN_ROWS: Final = 5
_EPOCH_SCALES: Final = ((1e8, 1e11, 1.0), (1e11, 1e14, 1e-3), (1e14, 1e17, 1e-6), (1e17, 1e20, 1e-9))


@dataclass(slots=True)
class Outlet:
    """The readings of an outlet or sensor: (unix seconds, W), and (unix seconds, J) of a counter since some past point."""

    name: str
    power: Sequence[tuple[Number, Number]] = field(default_factory=list)
    energy: Sequence[tuple[Number, Number]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterFile:
    """The content of a file. `notes` are assumptions. `kind` is its producer."""

    kind: Literal["csv", "redfish"]
    outlets: tuple[Outlet, ...]
    notes: tuple[str, ...] = ()


def read_meter(content: bytes, name: str, wanted: Sequence[str] = ()) -> MeterFile:
    """Return the readings in a file, of the outlets `wanted` or of all.

    Raises ConfigError with the problem at `name:line:column`, or where outlets would be counted twice.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise _refused(f"{name}:{line}:1", "is no text in UTF-8", "export it as CSV or JSON") from None
    is_json = text.lstrip()[:1] in ("{", "[")
    read = _read_redfish(text, name) if is_json else _read_csv(text, name)
    outlets = _chosen(read.outlets, name, wanted, is_sum_known=not is_json)
    return MeterFile(kind=read.kind, outlets=outlets, notes=read.notes)


def _chosen(outlets: Sequence[Outlet], name: str, wanted: Sequence[str], *, is_sum_known: bool) -> tuple[Outlet, ...]:
    known = [outlet.name for outlet in outlets]
    shown = some_of(known, 8)
    for each in wanted:
        if each not in known:
            raise _refused(name, f"has no outlet {each!r}", f"it has {shown}")
    chosen = [outlet for outlet in outlets if outlet.name in wanted] if wanted else list(outlets)
    totals = [outlet.name for outlet in chosen if outlet.name.lower() in _TOTALS]
    if len(chosen) > 1 and (totals or not (is_sum_known or wanted)):
        what = f"has a total and its parts: {shown}" if totals else f"has several sensors: {shown}"
        raise _refused(name, what, "choose those that do not overlap with --outlet")
    return tuple(chosen)


def _refused(where: str, what: str, hint: str = "") -> ConfigError:
    return ConfigError(Problem(where, "", what, hint))


# ----------------------------------------------------------------------------------------------------------------- CSV


class _ValueColumn(NamedTuple):
    at: int
    name: str
    quantity: Quantity
    scale: float


class _Layout(NamedTuple):
    """The columns: the time (a column, or a date and a time), the name of an outlet, the values."""

    times: tuple[int, ...]
    outlet: int | None
    values: tuple[_ValueColumn, ...]
    width: int


def _read_csv(text: str, name: str) -> MeterFile:
    delimiter = _delimiter(text)
    problems: list[Problem] = []
    bad_rows = 0
    layout: _Layout | None = None
    outlets: dict[str, Outlet] = {}
    has_zone = True
    for where, cells in _rows(text, name, delimiter):
        if layout is None:
            layout = _layout(cells, where)
            continue
        try:
            has_zone &= _Row(cells, where, is_decimal_comma=delimiter != ",").add_to(outlets, layout)
        except ConfigError as error:
            bad_rows += 1
            if bad_rows <= _SHOWN_ROWS:
                problems += error.problems
    if bad_rows > _SHOWN_ROWS:
        problems.append(Problem(name, "", f"{bad_rows - _SHOWN_ROWS} more rows cannot be read"))
    if problems:
        raise ConfigError(problems)
    if not outlets:
        raise _refused(f"{name}:1:1", "has no readings", "a meter's CSV has a heading and a row for each time")
    notes = () if has_zone else ("its times name no zone: they are taken as UTC",)
    return MeterFile(kind="csv", outlets=tuple(outlets.values()), notes=notes)


def _rows(text: str, name: str, delimiter: str) -> Iterator[tuple[str, list[str]]]:
    """Yield `file:line` and the cells of each row that is neither empty nor a remark. Raises ConfigError."""
    rows = csv.reader(io.StringIO(text), delimiter=delimiter)
    try:
        for cells in rows:
            if any(cell.strip() for cell in cells) and not cells[0].lstrip().startswith("#"):
                yield f"{name}:{rows.line_num}", cells
    except csv.Error as error:
        raise _refused(f"{name}:{rows.line_num}:1", f"is no CSV: {error}") from None


def _delimiter(text: str) -> str:
    line = next((line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")), "")
    return max(";\t,", key=line.count)


def _layout(cells: Sequence[str], where: str) -> _Layout:
    """Return the columns of the heading. Raises ConfigError where it has no time or no value, or something twice."""
    plain = [re.sub(r"[\s_()\[\]]+", " ", cell.strip().lower()).strip() for cell in cells]
    dates = [at for at, heading in enumerate(plain) if heading == "date"]
    times = [at for at, heading in enumerate(plain) if heading in _TIMES]
    if dates and times:
        times = [dates[0], times[0]] if len(dates) == len(times) == 1 else times
    elif dates:
        times = dates
    heading = ", ".join(cell.strip() for cell in cells)
    if not times or (len(times) > 1 and not dates):
        what = "has no column of times" if not times else "has two columns of times"
        raise _refused(f"{where}:1", f"{what}: {heading}", "name a column 'time', in ISO 8601 or seconds since 1970")
    outlets = [at for at, text in enumerate(plain) if text in _OUTLETS]
    values = _value_columns(cells, {*times, *outlets})
    if not values:
        raise _refused(f"{where}:1", f"has no column in W, kW, Wh or kWh: {heading}", "write the unit: 'power (W)'")
    kinds = [(column.name, column.quantity) for column in values]
    for column in reversed(values):
        if kinds.count((column.name, column.quantity)) > 1:
            what = f"has two columns of {column.quantity} for {column.name or 'the meter'}: {heading}"
            raise _refused(f"{where}:{_place(cells, column.at)}", what, "remove a column, or name both")
    return _Layout(tuple(times), outlets[0] if outlets else None, values, len(cells))


def _value_columns(cells: Sequence[str], taken: Collection[int]) -> tuple[_ValueColumn, ...]:
    """Return the columns whose heading ends in a unit of power or energy."""
    values = []
    for at, cell in enumerate(cells):
        match = _VALUE_COLUMN.fullmatch(cell.strip()) if at not in taken else None
        known = _UNITS.get(match["units"].lower()) if match is not None else None
        if match is None or known is None:
            continue
        named = _NO_NAMES.sub(" ", match["name"].replace("_", " "))
        values.append(_ValueColumn(at, re.sub(r"\s+", " ", named).strip(" :-/(["), *known))
    return tuple(values)


def _place(cells: Sequence[str], at: int) -> int:
    return 1 + sum(len(cell) + 1 for cell in cells[:at])


class _Row(NamedTuple):
    """A row with its `file:line`."""

    cells: Sequence[str]
    where: str
    is_decimal_comma: bool

    def problem(self, at: int, what: str, hint: str = "") -> ConfigError:
        return _refused(f"{self.where}:{_place(self.cells, at)}", what, hint)

    def time(self, layout: _Layout) -> tuple[float, bool]:
        if len(self.cells) != layout.width:
            raise self.problem(0, f"has {len(self.cells)} cells, the heading {layout.width}")
        text = " ".join(self.cells[at].strip() for at in layout.times)
        moment = moment_of(text.replace(",", ".") if self.is_decimal_comma else text)
        if moment is None:
            hint = "write it as 2026-03-14T12:00:00Z, or in seconds since 1970"
            raise self.problem(layout.times[0], f"{text!r} is no time", hint)
        return moment

    def number(self, at: int) -> float | None:
        text = self.cells[at].strip()
        if not text:
            return None
        try:
            value = float(text.replace(",", ".") if self.is_decimal_comma else text)
        except ValueError:
            value = math.nan
        if not 0 <= value < _MOST:
            what = f"expected a number from 0 up and below {_MOST:g}, got {text!r}"
            raise self.problem(at, what, "leave the cell empty if it was not read")
        return value

    def add_to(self, outlets: dict[str, Outlet], layout: _Layout) -> bool:
        """Add the readings of the row. Return whether its time names a zone. Raises ConfigError."""
        time, is_zoned = self.time(layout)
        for column in layout.values:
            value = self.number(column.at)
            if value is None:
                continue
            named = "" if layout.outlet is None else self.cells[layout.outlet].strip()
            outlet = " ".join(filter(None, (named, column.name))) or "meter"
            readings = getattr(outlets.setdefault(outlet, Outlet(outlet)), column.quantity)
            if readings and time <= readings[-1][0]:
                back = readings[-1][0] - time
                what = f"is {back:g} s before the row above" if back else "is the time of an earlier row"
                raise self.problem(
                    0, what, "sort the rows by time, or if the clock was set back make a file for each part"
                )
            if readings and column.quantity == "energy" and value * column.scale < readings[-1][1]:
                hint = "give a counter that only grows, or a column of power"
                raise self.problem(column.at, f"the counter of energy falls to {value:g}", hint)
            readings.append((time, value * column.scale))
        return is_zoned


def moment_of(text: str) -> tuple[float, bool] | None:
    """Return unix seconds, and whether the text says which zone they are of. None for other texts."""
    try:
        number = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            return None
        is_zoned = moment.tzinfo is not None
        return (moment if is_zoned else moment.replace(tzinfo=UTC)).timestamp(), is_zoned
    for low, high, scale in _EPOCH_SCALES:
        if low <= number < high:
            return number * scale, True
    return None


# ------------------------------------------------------------------------------------------------------------- Redfish

_ENERGY_METRIC: Final = re.compile(r"kwh|joules", re.I)
_POWER_METRIC: Final = re.compile(r"watt|power(?!factor|state|supply\w*status)", re.I)
_NO_READING: Final = re.compile(
    r"limit|cap\b|capacity|capping|threshold|rated|max|min|peak|average|avg|apparent|reactive|percent", re.I
)


def _read_redfish(text: str, name: str) -> MeterFile:
    outlets: dict[str, Outlet] = {}
    for reading in _redfish_readings(_documents(text, name)):
        moment = moment_of(reading.time) if isinstance(reading.time, str) else None
        value = written_number(reading.value)
        if moment is None or value is None or value < 0:
            what = f"{reading.source}: expected a reading with its time, got {reading.value!r} at {reading.time!r}"
            raise _refused(name, what, "dump reports of the telemetry service, whose values have a Timestamp")
        quantity, scale = reading.quantity
        getattr(outlets.setdefault(reading.source, Outlet(reading.source)), quantity).append((moment[0], value * scale))
    if not outlets:
        what = "has no reading of power or energy with a time"
        hint = "dump MetricReports of the telemetry service, or sensors with their ReadingTime"
        raise _refused(f"{name}:1:1", what, hint)
    for outlet in outlets.values():
        # Reports overlap: what several of them hold is one reading.
        outlet.power, outlet.energy = (sorted(dict(readings).items()) for readings in (outlet.power, outlet.energy))
        fall = next((b for a, b in zip(outlet.energy, outlet.energy[1:], strict=False) if b[1] < a[1]), None)
        if fall is not None:
            at = datetime.fromtimestamp(fall[0], UTC).isoformat()
            what = f"the counter of energy falls at {at}"
            raise ConfigError(Problem(name, outlet.name, what, "dump the time after it"))
    return MeterFile(kind="redfish", outlets=tuple(outlets.values()))


def _documents(text: str, name: str) -> list[object]:
    """Return the JSON values of a file: a single value, or a value a line. Raises ConfigError."""
    try:
        return [json.loads(text)]
    except (ValueError, RecursionError) as error:
        values = []
        for number, line in enumerate(text.splitlines(), start=1):
            if not line.strip():
                continue
            try:
                values.append(json.loads(line))
            except (ValueError, RecursionError) as why:
                # Of a file that is one value, where that one ends; else where this line does.
                at, of = (number, why) if values else (getattr(error, "lineno", 1), error)
                what = getattr(of, "msg", "a number is too long, or it is nested too deep")
                raise _refused(f"{name}:{at}:{getattr(of, 'colno', 1)}", f"is no JSON: {what}") from None
        return values


class _Reading(NamedTuple):
    source: str
    time: Any
    value: Any
    quantity: tuple[Quantity, float]


def _redfish_readings(values: Iterable[object]) -> Iterator[_Reading]:
    """Yield the readings of power and energy, wherever they stand: in a report, a collection, a list of them, a sensor."""
    waiting = list(values)[::-1]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value[::-1]
        elif isinstance(value, Mapping):
            if "MetricValue" in value:
                quantity = _metric_quantity(value)
                if quantity is not None:
                    yield _Reading(_metric_source(value), value.get("Timestamp"), value["MetricValue"], quantity)
            elif "Reading" in value and "ReadingTime" in value:
                known = _UNITS.get(str(value.get("ReadingUnits", "")).lower())
                if known is not None:
                    source = str(value.get("@odata.id") or value.get("Id") or value.get("Name") or "sensor")
                    yield _Reading(source, value["ReadingTime"], value["Reading"], known)
            else:
                waiting += list(value.values())[::-1]


def _metric_quantity(value: Mapping[str, object]) -> tuple[Quantity, float] | None:
    """Return the quantity of a metric value, by its property or definition. None for other quantities than power and energy."""
    named = _property_parts(value)[1] or str(value.get("MetricId") or "")
    if _NO_READING.search(named):
        return None
    if match := _ENERGY_METRIC.search(named):
        return _UNITS[match[0].lower()]
    return _UNITS["kw" if "kilowatt" in named.lower() else "w"] if _POWER_METRIC.search(named) else None


def _metric_source(value: Mapping[str, object]) -> str:
    """Return the measured object: the path of the property without its last part, so that power and energy share it."""
    return _property_parts(value)[0] or str(value.get("MetricId") or "sensor")


def _property_parts(value: Mapping[str, object]) -> tuple[str, str]:
    """Return the path and the name of the property that a metric value is of."""
    path = str(value.get("MetricProperty") or "").removesuffix("/Reading")
    resource, _, named = path.rpartition("/")
    return resource.rstrip("#/"), named
