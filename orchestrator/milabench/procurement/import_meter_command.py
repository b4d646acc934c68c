"""`milabench import-meter`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from milabench.cli.options import base_option, collected_as, file_option, json_option, run_names
from milabench.procurement.requests import MeterRequest
from milabench.shown import some_of

if TYPE_CHECKING:
    from milabench.procurement.run_meters import ImportedMeter

_DAY_S = 86400.0
_LEAST_OF_DEVICES = 0.95  # their own sensors err by a few per cent


def offset_of(ctx: click.Context, param: click.Parameter, value: str) -> float | None:
    """Return `auto` as None, else seconds. Raises BadParameter."""
    if value.strip() == "auto":
        return None
    try:
        seconds = float(value.strip().removesuffix("s"))
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds):
        raise click.BadParameter(f"expected seconds such as -3600, or auto, got '{value}'", ctx, param)
    return seconds


@click.command("import-meter")
@click.argument("run", shell_complete=run_names)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.csv|REDFISH.json")
@base_option
@click.option(
    "--clock-offset",
    callback=offset_of,
    default="auto",
    show_default=True,
    metavar="SECONDS|auto",
    help="Seconds to add to the meter's times. auto: the offset that best fits the power of the run's devices, or"
    " which steps ran.",
)
@click.option("--outlet", "outlets", multiple=True, metavar="NAME", help="Only this outlet or sensor. Default: all.")
@file_option(
    "--declaration",
    metavar="FILE",
    help="File with the meter's coverage and error (YAML), for its level: L1, L2, L3.",
)
@json_option
@collected_as("request", MeterRequest)
def command(request: MeterRequest, as_json: bool) -> None:
    """Add the readings of a power meter to a run: the CSV of a PDU or meter, or a Redfish telemetry dump.

    A CSV has a heading with a column "time" (ISO 8601, UTC without a zone, or seconds since 1970) and columns that end in a
    unit: W or kW for power; J, kJ, Wh or kWh for a counter of energy. A column "outlet" may name the outlet. A declaration has
    nodes, measured_nodes, random, compute, interconnect, others, location, error and meters, all optional.
    """
    from milabench.procurement.run_meters import import_meter

    imported = import_meter(request)
    click.echo(_as_json(imported) if as_json else _as_text(imported))


def _as_json(imported: ImportedMeter) -> str:
    record = imported.record.to_json()
    record["clock"]["ci95"] = imported.record.clock.ci95
    record["outlets"] = [
        {"name": outlet.name, "power": len(outlet.power), "energy": len(outlet.energy)}
        for outlet in imported.record.outlets
    ]
    more = {
        "path": str(imported.path),
        "new": imported.is_new,
        "unread": list(imported.unread),
        "of_devices": imported.of_devices,
    }
    return json.dumps({**record, **more}, indent=1)


def _as_text(imported: ImportedMeter) -> str:
    record = imported.record
    clock = record.clock
    readings = sum(max(len(outlet.power), len(outlet.energy)) for outlet in record.outlets)
    names = some_of([outlet.name for outlet in record.outlets], 8)
    lines = [
        f"{imported.path}: {'written' if imported.is_new else 'was imported before'}",
        f"readings: {readings} around the run, every {record.curve.interval_s:g} s, of {names}",
    ]
    if clock.correlation is None:
        lines.append(f"clock: {clock.offset_s:+g} s, as given")
    else:
        rival = "" if clock.rival is None else f", at the best other offset {clock.rival:.3f}"
        half = "" if clock.ci95 is None else f" ± {clock.ci95[1] - clock.offset_s:.2g} s (95 %)"
        lines.append(
            f"clock: {clock.offset_s:+.2f} s{half}, by the {clock.basis} of the run, correlation {clock.correlation:.3f}{rival}"
        )
    if abs(clock.offset_s) >= _DAY_S:
        lines.append("check: readings a day or more apart from the run may be of another run of the same work")
    if imported.of_devices is not None and imported.of_devices < _LEAST_OF_DEVICES:
        lines.append(
            f"check: the run's meters measured {imported.of_devices:.2f} times the devices' own reading: outlets"
            " are missing, or not of these nodes"
        )
    if imported.unread:
        lines.append(f"holes: without readings, and so not metered: {some_of(imported.unread, 5)}")
    if record.declared is None:
        lines.append("level: none: the meter's coverage is not declared (--declaration)")
    return "\n".join([*lines, *(f"note: {note}" for note in record.notes)])
