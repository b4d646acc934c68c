"""The JSON that nccl-tests (and rccl-tests) write with `--output-file`/`-J`: a collective, many message sizes."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

from milabench.devices.regular_file import read_regular
from milabench.errors import RecordError, os_reason
from milabench.events import wire
from milabench.events.model import Data, End, Event, Message, Meta, Start
from milabench.events.names import encode_name
from milabench.events.stored_json import Whole, from_json_value
from milabench.events.values import as_mapping, finite_number
from milabench.history.importer import ForeignRun, ForeignStep, Importer, at, digest_of_pieces

FORMAT = "nccl-tests"
_CASES = ("out_of_place", "in_place")
MAX_BYTES = 256 * 2**20
# Which one depends on the version of the tests.
_TIMES = ("%Y-%m-%d %H:%M:%S", "%Y%m%d %H:%M:%S", "%a %b %d %H:%M:%S %Y")
# what a result says -> our metric, its units, which direction is better
_NUMBERS = {
    "bus_bw": ("busbw", "GB/s", "higher"),
    "alg_bw": ("algbw", "GB/s", "higher"),
    "time": ("time", "us", "lower"),
}


class _Device(Struct):
    device: Whole | None = None
    hostname: str | None = None
    device_info: str | None = None


class _Config(Struct):
    devices: list[_Device] | None = None


class _Output(Struct):
    results: list[dict[str, Any]]
    average_bus_bandwidth: Any
    args: list[str] | None = None
    errors: list[Any] | None = None
    config: _Config | None = None
    devices: list[_Device] | None = None


def _read_json(path: Path) -> Mapping[str, object]:
    """Read the JSON of a file. Raises RecordError, with line and column, when nccl-tests did not write it."""
    try:
        value = json.loads(read_regular(path, MAX_BYTES))
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {os_reason(error)}") from None
    except json.JSONDecodeError as error:
        what = f"is not JSON ({error.msg.lower()}). nccl-tests closes the file at its end"
        raise RecordError(f"{path}:{error.lineno}:{error.colno}: {what}") from None
    except (ValueError, RecursionError):
        raise RecordError(f"{path}: is not JSON") from None
    output = as_mapping(value)
    try:
        from_json_value(_Output, output)
    except ValueError as error:
        raise RecordError(f"{path}: is not output of nccl-tests: {error}") from None
    return output


def _can_read(source: Path) -> bool:
    """Return whether this is a file, of whatever name, or a folder with JSON files."""
    return source.is_file() or any(source.rglob("*.json"))


def _read_runs(source: Path, origin: str) -> tuple[list[ForeignRun], list[str]]:
    """Return a run of the results in a file, or in all JSON files of a folder. Raises RecordError for other JSON."""
    paths = [source] if source.is_file() else sorted(source.rglob("*.json"))
    files = [(path.name, _read_json(path)) for path in paths]
    steps, repeats = [], Counter[str]()
    for file, value in files:
        bench = _bench(value, file)
        # Several files of one collective are its replicates.
        steps.append(_step(value, bench, repeats[bench]))
        repeats[bench] += 1
    # The environment that nccl-tests writes down is left out: it may hold anything.
    kept = [(file, json.dumps({**value, "env": []}, sort_keys=True).encode()) for file, value in files]
    run = ForeignRun(
        name=source.stem if source.is_file() else source.name,
        when=min((_when(value.get("start_time")) for _, value in files), default=at(None)),
        format=FORMAT,
        origin=origin,
        version=FORMAT,
        system=_system([value for _, value in files]),
        steps=steps,
        digest=digest_of_pieces(kept),
    )
    return [run], []


def _step(value: Mapping[str, Any], bench: str, repeat: int) -> ForeignStep:
    identity = encode_name(f"{bench}.R{repeat}")
    wrong = _wrong(value)
    errors = [str(error) for error in value.get("errors") or () if error and error != "no error"]
    outcome, why, detail = "passed", "", ""
    if wrong:
        outcome, why, detail = "failed", "wrong", f"{wrong:g} wrong values"
    elif not value.get("results"):
        outcome, why, detail = "failed", "no-data", errors[0] if errors else "no result"
    events: list[Event] = [
        Meta(step=identity, data={"nccl": value.get("nccl_version"), "config": dict(as_mapping(value.get("config")))}),
        Start(step=identity, data={"command": list(value.get("args") or ()), "time": None}),
        *(Data(step=identity, data=measurement) for measurement in _measurements(value)),
        *(Message(step=identity, text=error) for error in errors),
        End(step=identity, outcome=outcome, why=why or None, detail=detail, return_code=None),  # type: ignore[arg-type]
    ]
    when = _when(value.get("start_time")).timestamp()
    planned = {
        "tag": "",
        "repeat": repeat,
        "node": "local",
        "devices": sorted({device["device"] for device in _devices(value)}),
        "config": {"name": bench, "weight": 1.0, "plan": {"method": "multigpu"}},
    }
    return ForeignStep(
        id=identity,
        bench=bench,
        planned=planned,
        outcome=outcome,
        why=why,
        detail=detail,
        records=b"".join(wire.encode(event, t=when) for event in events),
    )


def _measurements(value: Mapping[str, Any]) -> Iterable[dict[str, object]]:
    """Yield the mean bus bandwidth that the tool reports, which is the benchmark's number, then each message size's."""
    average = finite_number(as_mapping(value.get("average_bus_bandwidth")).get("bandwidth"))
    if average is not None:
        yield {"metric": "busbw_average", "value": average, "units": "GB/s", "direction": "higher", "main": True}
    for result in value.get("results") or ():
        fields = as_mapping(result)
        params = {key: fields[key] for key in ("size", "count", "type", "redop", "root") if fields.get(key) is not None}
        for case in _CASES:
            numbers = as_mapping(fields.get(case))
            for key, (metric, units, direction) in _NUMBERS.items():
                number = finite_number(numbers.get(key))
                if number is not None:
                    about = {"metric": metric, "value": number, "units": units, "direction": direction}
                    yield {**about, "case": case, "params": params}


def _wrong(value: Mapping[str, Any]) -> float:
    counted = finite_number(as_mapping(value.get("out_of_bounds")).get("count")) or 0.0
    cases = [as_mapping(result).get(case) for result in value.get("results") or () for case in _CASES]
    return counted or math.fsum(finite_number(as_mapping(case).get("nwrong")) or 0.0 for case in cases)


def _devices(value: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the devices that have an index. Where they are listed depends on the version."""
    listed = as_mapping(value.get("config")).get("devices") or value.get("devices") or ()
    return [device for device in map(as_mapping, listed) if isinstance(device.get("device"), int)]


def _bench(value: Mapping[str, object], file: str) -> str:
    """Return `all_reduce_perf`: the program's name, else the file's."""
    args = value.get("args")
    program = str(args[0]) if isinstance(args, list) and args else ""
    return Path(program).name or Path(file).stem


def _system(values: Sequence[Mapping[str, object]]) -> Mapping[str, Any]:
    """Return the hosts and devices that took part. The device names come from the files."""
    hosts: dict[str, dict[int, dict[str, Any]]] = {}
    for value in values:
        for device in _devices(value):
            index, name = device["device"], str(device.get("device_info") or "")
            hosts.setdefault(str(device.get("hostname") or ""), {})[index] = {"index": index, "name": name}
    names = " ".join(device["name"] for devices in hosts.values() for device in devices.values())
    nodes = [
        {"name": host or "local", "hostname": host, "devices": [devices[index] for index in sorted(devices)]}
        for host, devices in hosts.items()
    ]
    return {"arch": "rocm" if "AMD" in names else "cuda", "nodes": nodes}


def _when(value: object) -> datetime:
    for form in _TIMES:
        try:
            return datetime.strptime(str(value), form).replace(tzinfo=UTC)
        except ValueError:
            continue
    return at(None)


NCCL_TESTS = Importer(can_read=_can_read, read_runs=_read_runs)
