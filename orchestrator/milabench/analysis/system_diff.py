"""What is not the same on systems that are compared, from their manifests and records; the nearest to what changed first.

Nearness: a benchmark's own arguments, then its environment and its devices, then the machine, then how the run was made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from milabench.analysis.compare import Comparison, System
from milabench.events.values import as_mapping, mappings_in

Area = Literal["benchmark", "environment", "device", "machine", "run"]
_NEAREST_FIRST: tuple[Area, ...] = get_args(Area)
_CHANGED = ("FASTER", "SLOWER", "DIFFERENT-BUT-SMALL", "INCONCLUSIVE")
_MOST_VALUE = 300  # characters of a value that are shown

# Keys that name a location or a time rather than a property, or that are reported elsewhere.
_NO_PROPERTY = frozenset(
    ("name", "ip", "hostname", "index", "uuid", "pci", "time", "load", "disk", "absent", "shm_mib")
)
_NO_PROPERTY |= {"memory_available_mib", "temperature", "processes", "serial", "definition", "tags", "url", "inherits"}
_NO_PROPERTY |= {"pid", "boot"}
_OF_THE_RUN = ("version", "profile", "validations", "seed", "suite_file")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Something that is not the same on all systems: `values` in the order of the systems, None where it is not known.

    `benches` are the benchmarks that it concerns; empty: all. `is_near`: one of those is not EQUIVALENT.
    """

    area: Area
    name: str
    values: tuple[str | None, ...]
    benches: tuple[str, ...] = ()
    is_near: bool = False


Differences = Sequence[Difference] | None
"""The differences between systems; None where they were not asked for."""


def system_differences(systems: Sequence[System], comparison: Comparison) -> tuple[Difference, ...]:
    """Return everything known that differs, those first that concern a benchmark whose speed changed."""
    changed = {
        row.bench: max(
            (abs(contrast.ratio - 1) for contrast in row.contrasts if contrast and contrast.verdict in _CHANGED),
            default=0.0,
        )
        for row in comparison.rows
    }
    merged: dict[tuple[Area, str, tuple[str | None, ...]], list[str]] = {}
    of_benchmarks: Mapping[Area, Callable[[System, str], Mapping[str, str]]]
    of_benchmarks = {"benchmark": _arguments, "environment": _environment}
    for row in comparison.rows:
        for area, of_bench in of_benchmarks.items():
            tables = [of_bench(system, row.bench) for system in systems]
            if all(tables):  # a benchmark missing from a run is reported as excluded
                for name, values in _unequal(tables):
                    merged.setdefault((area, name, values), []).append(row.bench)
    differences = [
        Difference(
            area=area, name=name, values=values, benches=tuple(benches), is_near=any(changed.get(b) for b in benches)
        )
        for (area, name, values), benches in merged.items()
    ]
    of_systems: Mapping[Area, Callable[[System], Mapping[str, str]]]
    of_systems = {"device": _devices, "machine": _machine, "run": _run}
    differences += [
        Difference(area=area, name=name, values=values, is_near=any(changed.values()))
        for area, of_system in of_systems.items()
        for name, values in _unequal([of_system(system) for system in systems])
    ]

    def nearness(difference: Difference) -> tuple[bool, int, float, str]:
        size = max((changed.get(bench, 0.0) for bench in difference.benches), default=0.0)
        return not difference.is_near, _NEAREST_FIRST.index(difference.area), -size, difference.name

    return tuple(sorted(differences, key=nearness))


def _unequal(tables: Sequence[Mapping[str, str]]) -> Iterable[tuple[str, tuple[str | None, ...]]]:
    for name in dict.fromkeys(name for table in tables for name in table):
        values = tuple(table.get(name) for table in tables)
        if len(set(values)) > 1:
            yield name, values


def _arguments(system: System, bench: str) -> dict[str, str]:
    """Return the resolved benchmark as the manifest has it, and what its steps were given."""
    table = _flat(as_mapping(as_mapping(system.manifest.get("suite")).get(bench)))
    step = _first_step(system, bench)
    for name, value in as_mapping(step.get("env")).items():
        if name == "OMP_NUM_THREADS":
            table[f"env.{name}"] = str(value)
    table |= _flat(as_mapping(as_mapping(step.get("config")).get("measure")), "measure.")
    return table


def _environment(system: System, bench: str) -> dict[str, str]:
    """Return the digest of the lock and of the program, of the group whose environment the benchmark ran in."""
    group = str(as_mapping(as_mapping(system.manifest.get("suite")).get(bench)).get("install_group") or "")
    lock = as_mapping(system.manifest.get("locks")).get(group)
    program = as_mapping(system.manifest.get("programs")).get(bench)
    return {**({"lock file": str(lock)[:12]} if lock else {}), **({"program": str(program)[:12]} if program else {})}


def _first_step(system: System, bench: str) -> Mapping[str, Any]:
    steps = mappings_in(as_mapping(system.manifest.get("plan")).get("steps"))
    return next((step for step in steps if step.get("bench") == bench), {})


def _devices(system: System) -> dict[str, str]:
    table = _joined(_flat(device) for device in system.summary.accelerators)
    devices = [device for node in _nodes(system) for device in mappings_in(node.get("devices"))]
    counted = [device for device in devices if device.get("arch") != "cpu"]
    if counted:
        table["number of devices"] = str(len(counted))
        table.setdefault("name", ", ".join(dict.fromkeys(str(device.get("name")) for device in counted)))
    return table


def _machine(system: System) -> dict[str, str]:
    nodes = _nodes(system)
    table = _joined(
        _flat(as_mapping(node.get("details")))
        | _flat({key: value for key, value in node.items() if key not in ("devices", "details")})
        for node in nodes
    )
    if nodes:
        table["number of nodes"] = str(len(nodes))
    arch = system.summary.system.get("arch")
    return {
        **({"arch": str(arch)} if arch else {}),
        **table,
        **{f"{k} version": v for k, v in system.summary.software.items()},
    }


def _joined(tables: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return every property of several devices or nodes with all the values that it has."""
    values_of: dict[str, dict[str, None]] = {}
    for table in tables:
        for name, value in table.items():
            values_of.setdefault(name, {})[value] = None
    return {name: ", ".join(values) for name, values in values_of.items()}


def _run(system: System) -> dict[str, str]:
    return _flat({name: system.manifest[name] for name in _OF_THE_RUN if name in system.manifest})


def _nodes(system: System) -> list[Mapping[str, Any]]:
    return mappings_in(system.summary.system.get("nodes"))


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return the leaves of nested mappings by dotted name, as short text; nothing that is empty."""
    leaves: dict[str, str] = {}
    for name, item in value.items():
        if name in _NO_PROPERTY or item in (None, "", [], {}):
            continue
        if isinstance(item, Mapping):
            leaves |= _flat(item, f"{prefix}{name}.")
        else:
            text = ", ".join(map(str, item)) if isinstance(item, list | tuple) else str(item)
            leaves[prefix + str(name)] = text if len(text) <= _MOST_VALUE else text[:_MOST_VALUE] + "..."
    return leaves
