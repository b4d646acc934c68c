"""Differences between compared systems, from their manifests and records, the most likely causes first.

Nearness: a benchmark's own arguments, then its environment and its devices, then the machine, then how the run was made.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import pairwise, takewhile
from operator import is_
from typing import Any, Literal, get_args

from milabench.analysis.comparison_model import ComparisonRow, System
from milabench.analysis.host_load import busy_text
from milabench.analysis.score import Score
from milabench.analysis.summary_model import Summary
from milabench.events.values import as_mapping, mappings_in
from milabench.events.wire import parse_object

Area = Literal["benchmark", "environment", "device", "machine", "run"]
_NEAREST_FIRST: tuple[Area, ...] = get_args(Area)
_CHANGED = ("FASTER", "SLOWER", "DIFFERENT-BUT-SMALL", "INCONCLUSIVE")
_MOST_VALUE = 300  # characters of a value that are shown

# Keys that are no property: they name a place, or what was so at a moment, or what is reported elsewhere.
_PLACES = {"name", "ip", "hostname", "addresses", "index", "uuid", "serial", "pci", "url"}
_MOMENTS = {"time", "boot", "pid", "load", "runnable", "processes", "temperature", "memory_available_mib", "behind_s"}
_ELSEWHERE = {"disk", "shm_mib", "absent", "definition", "inherits", "tags"}
_NO_PROPERTY = frozenset(_PLACES | _MOMENTS | _ELSEWHERE)
_NO_CAUSE = re.compile(r"(?:^|[-_.])(?:seed|port|addr|address|host|hostname|endpoint|ip)s?$", re.IGNORECASE)
_ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b")
_OF_THE_RUN = ("version", "profile", "validations", "suite_file")
# What the line of differences names first; then come all others.
_FIRST_NAMED = (
    r"argv\..*(batch|precision|dtype)",
    r"(argv|server|client|command)\b",
    r"weight$",
    r"(torch|jax) version",
    r"(.*\.)?driver",
    r"lock file|program",
    r"number of|name$|arch$",
    r"profile$|version$",
)
_REQUESTS = ("serve", "client")
_WORK = ("argv", "command", "server", *_REQUESTS)
# Of a sweep: where and for how long it measures, and what it is judged by; not what a request is.
_SWEEP = frozenset(
    f"serve.{name}"
    for name in ("concurrency", "rate", "scenario", "slo", "requests", "rounds", "seconds", "warmup", "on_server_exit")
)
_NAMED = 8  # differences that the line names
_NAMED_BENCHES = 3
_NAMED_VALUE = 32  # characters of a value in the line
_DIGESTS = ("lock file", "program")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Something that is not the same on all systems: `values` in the order of the systems, None where it is not known.

    `benches` are the benchmarks that it concerns. Empty: all. `is_near`: any of those is not EQUIVALENT.
    """

    area: Area
    name: str
    values: tuple[str | None, ...]
    benches: tuple[str, ...] = ()
    is_near: bool = False


NO_DIFFERENCE = "nothing that was recorded"
Differences = Sequence[Difference] | None
"""The differences between systems. None where they were not asked for."""


def system_differences(systems: Sequence[System], rows: Sequence[ComparisonRow]) -> tuple[Difference, ...]:
    """Return everything known that differs, those first that concern a benchmark whose speed changed."""
    changed = {row.bench: _change(row) for row in rows}

    def nearness(difference: Difference) -> tuple[bool, int, float, str]:
        size = max((changed.get(bench, 0.0) for bench in difference.benches), default=0.0)
        return not difference.is_near, _NEAREST_FIRST.index(difference.area), -size, difference.name

    differences = (
        replace(difference, is_near=any(changed[bench] for bench in difference.benches or changed))
        for difference in all_differences(systems, list(changed))
    )
    return tuple(sorted(differences, key=nearness))


def _change(row: ComparisonRow) -> float:
    """Return by how much a benchmark's speed changed at most, also where it is left out of the comparison. 0: it did not."""
    first, changes = row.sides[0], [0.0]
    for side, contrast in zip(row.sides[1:], row.contrasts, strict=True):
        if contrast is not None:
            changes += [abs(contrast.ratio - 1)] if contrast.verdict in _CHANGED else []
        elif side.value is not None and first.value is not None and side.units == first.units:
            changes.append(abs(side.value / first.value - 1))
    return max(changes)


def differing_work(systems: Sequence[System], bench: str, *, is_served: bool = False) -> str:
    """Name the arguments of a benchmark that differ, with their values. Empty where they do not, or are not known.

    Where `is_served`, only the arguments of the sweep: all others belong to the servers, which are compared.
    """
    sizes = [size_of_bench(system, bench) for system in systems]
    # A size against a run that recorded none, of a suite without sizes: what it has in place of arguments counts too.
    parts = _REQUESTS if is_served else (*_WORK, "options", "plan") if len(set(sizes)) > 1 else _WORK
    return _differing_sizes(sizes) or _named(_unequal_work(systems, bench, parts))


def differing_requests(systems: Sequence[System], bench: str) -> str:
    """Name the differences in clients' requests to the servers of a benchmark, as `differing_work` does.

    Servers are compared, and a point of both sweeps is the same point whatever else they contain.
    """
    return _differing_sizes([size_of_bench(system, bench) for system in systems]) or _named(
        (name, values)
        for name, values in _unequal_work(systems, bench, _REQUESTS)
        if not name.startswith(tuple(_SWEEP))
    )


def _differing_sizes(sizes: Sequence[str]) -> str:
    """Name the sizes of a benchmark, each as `size_of_bench` returns it, where the known ones differ."""
    # Two sizes of one benchmark are two tasks, whatever their arguments say: data, environment or metrics may be others.
    is_one_task = len(set("/".join(filter(None, sizes)).split("/"))) <= 1
    return "" if is_one_task else f"size {_in_words(size or None for size in sizes)}"


def _named(unequal: Iterable[tuple[str, tuple[str | None, ...]]]) -> str:
    return ", ".join(f"{name.removeprefix('argv.')} {_in_words(values)}" for name, values in unequal)


def _unequal_work(
    systems: Sequence[System], bench: str, parts: Sequence[str]
) -> Sequence[tuple[str, tuple[str | None, ...]]]:
    if not all(knows_work(system, bench) for system in systems) or _share_records(systems, bench):
        return []
    return list(_unequal([_of_sessions(system, partial(_work, bench=bench, parts=parts)) for system in systems]))


def work_of(system: System, bench: str) -> Mapping[str, str]:
    """Return the work of a benchmark of a suite, as leaves by dotted name. Empty where it was not recorded.

    Its size, arguments, options and plan, the profile, the lock file and the program: the inputs of the digest of "the
    same suite".
    """
    if not knows_work(system, bench):
        return {}
    table = dict(_of_sessions(system, partial(_work, bench=bench, parts=(*_WORK, "options", "plan"))))
    table |= _of_sessions(system, partial(_environment, bench=bench))
    named = (("size", size_of_bench(system, bench)), ("profile", system.manifest.get("profile")))
    return table | {name: str(value) for name, value in named if value}


def different_values(tables: Sequence[Mapping[str, str]]) -> list[tuple[str, str]]:
    """Return the differences between some tables: each name with its values, `6.0.1 / 6.0.2`."""
    return [(name, _in_words(values)) for name, values in _unequal(tables)]


def differing_suite(systems: Sequence[System], bench: str) -> str:
    """Name in a line the differences of `work_of`, with their values. Empty without any, or where not known."""
    tables = [work_of(system, bench) for system in systems]
    named = [f"{name.removeprefix('argv.')} {_in_words(values)}" for name, values in _unequal(tables) if all(tables)]
    more = [f"{len(named) - _NAMED} more"] if len(named) > _NAMED else []
    return ", ".join([*named[:_NAMED], *more])


def size_of_bench(system: System, bench: str) -> str:
    """Return the size of a benchmark that a system measured, its sessions' sizes separated by slashes.

    Empty where none is recorded.
    """
    sizes = (str(_suite(session, bench).get("size") or "") for session in system.sessions)
    return "/".join(sorted({size for size in sizes if size}))


def unknown_work(systems: Sequence[System], bench: str) -> str:
    """Say in which of some systems the arguments of a benchmark are not recorded. Empty where they can be compared.

    Also empty where none of them could have been: two runs of milabench 1.3, or of another program.
    """
    unknown = [system for system in systems if not knows_work(system, bench)]
    if len(unknown) == len(systems) and all(session.is_checkable for each in unknown for session in each.sessions):
        return ""
    names = " and ".join(system.name for system in unknown)
    return f"its arguments are not recorded in {names}" if unknown else ""


def arguments_in(manifest: Mapping[str, object], bench: str) -> str:
    """Return the work of a benchmark in a manifest, as JSON text of its leaves. Empty where it is missing."""
    system = System(name="", summary=Summary(verdict="passed", benchmarks=(), score=Score()), manifest=manifest)
    return json.dumps(_work(system, bench, _WORK), sort_keys=True) if _suite(system, bench) else ""


def own_arguments(asked: str, beside: Sequence[str]) -> str:
    """Name the arguments of a benchmark that differ from any of `beside`, each as `arguments_in` returns it."""
    if asked and all(beside):
        tables = [parse_object(text.encode()) for text in (asked, *beside)]
        return _named((name, values[:1]) for name, values in _unequal(tables))
    return "arguments not recorded" if any(beside) and not asked else ""


def knows_work(system: System, bench: str) -> bool:
    """Return whether the arguments of a benchmark were recorded in all sessions of a system."""
    return all(_suite(session, bench) for session in system.sessions)


def difference_line(systems: Sequence[System], benches: Sequence[str]) -> str:
    """Return the differences in a line, the likeliest causes first."""
    differences = all_differences(systems, benches)
    if any(difference.name == "profile" for difference in differences):  # which the measuring follows from
        differences = [d for d in differences if not d.name.startswith("measure.")]

    def rank(difference: Difference) -> int:
        return next(
            (at for at, named in enumerate(_FIRST_NAMED) if re.match(named, difference.name)), len(_FIRST_NAMED)
        )

    phrases = [_phrase(difference, len(benches)) for difference in sorted(differences, key=rank)]
    if len(phrases) > _NAMED:
        phrases = [*phrases[:_NAMED], f"{len(phrases) - _NAMED} more (--why)"]
    unknown = [system.name for system in systems if not system.manifest.get("suite")]
    known = "; ".join(phrases) or ("" if unknown else NO_DIFFERENCE)
    not_recorded = f"arguments and locks of {', '.join(unknown)} are not recorded" if unknown else ""
    return "; ".join(filter(None, (known, not_recorded)))


def _phrase(difference: Difference, benches: int) -> str:
    named = difference.benches[:_NAMED_BENCHES] if len(difference.benches) < benches else ()
    more = f" and {len(difference.benches) - len(named)} more" if named and len(difference.benches) > len(named) else ""
    of = f" ({', '.join(named)}{more})" if named else ""
    values = "" if difference.name in _DIGESTS else f" {_in_words(difference.values)}"
    return f"{difference.name.removeprefix('argv.')}{values}{of}"


def _in_words(values: Iterable[str | None]) -> str:
    texts = ("none" if value is None else " ".join(value.split()) for value in values)
    return " / ".join(text if len(text) <= _NAMED_VALUE else text[:_NAMED_VALUE] + "..." for text in texts)


def all_differences(systems: Sequence[System], benches: Sequence[str]) -> list[Difference]:
    """Return everything known that differs, in the order of the records, without ranking."""
    merged: dict[tuple[Area, str, tuple[str | None, ...]], list[str]] = {}
    of_benchmarks: Mapping[Area, Callable[..., Mapping[str, str]]]
    of_benchmarks = {"benchmark": _arguments, "environment": _environment}
    for bench in benches:
        for area, of_bench in of_benchmarks.items():
            if area == "benchmark" and _share_records(systems, bench):
                continue
            known = (_of_sessions(system, partial(of_bench, bench=bench)) for system in systems)
            tables = list(takewhile(bool, known))
            if len(tables) == len(systems):  # a benchmark missing from a run is reported as excluded
                for name, values in _unequal(tables):
                    merged.setdefault((area, name, values), []).append(bench)
    differences = [
        Difference(area=area, name=name, values=values, benches=tuple(concerned))
        for (area, name, values), concerned in merged.items()
    ]
    of_systems: Mapping[Area, Callable[[System], Mapping[str, str]]]
    of_systems = {"device": _devices, "machine": _machine, "run": _run}
    return differences + [
        Difference(area=area, name=name, values=values)
        for area, of_system in of_systems.items()
        for name, values in _unequal([_of_sessions(system, of_system) for system in systems])
    ]


def _of_sessions(system: System, of_session: Callable[[System], Mapping[str, str]]) -> Mapping[str, str]:
    return _joined(of_session(session) for session in system.sessions) if system.later else of_session(system)


def _unequal(tables: Sequence[Mapping[str, str]]) -> Iterable[tuple[str, tuple[str | None, ...]]]:
    for name in dict.fromkeys(name for table in tables for name in table):
        values = tuple(table.get(name) for table in tables)
        if len(set(values)) > 1:
            yield name, values


def sharing_records(systems: Sequence[System], bench: str) -> list[bool]:
    """Return for each system whether it shares a record of a benchmark with the first, so that nothing that is made of
    it differs.

    A comparison of many runs keeps equal parts of their manifests once. Equal values are not enough: 1 and 1.0 are two words.
    """
    if systems[0].later:
        return [False] * len(systems)
    first = _records(systems[0], bench)
    return [not system.later and _are_the_same(first, _records(system, bench)) for system in systems]


def _share_records(systems: Sequence[System], bench: str) -> bool:
    return all(sharing_records(systems, bench))


def _records(system: System, bench: str) -> tuple[list[object], tuple[str, ...]]:
    """Return the inputs of `_work` and `_arguments`: settings, and folders with variables."""
    steps = system.steps.get(bench, [])
    env = as_mapping(steps[0].get("env")) if steps else {}
    settings = [_suite(system, bench), *[step.get("config") for step in steps]]
    base = as_mapping(system.manifest.get("options")).get("base")
    return settings, (str(base), str(env.get("MILABENCH_DIR_DATA")), str(env.get("OMP_NUM_THREADS")))


def _are_the_same(one: tuple[list[object], tuple[str, ...]], other: tuple[list[object], tuple[str, ...]]) -> bool:
    return len(one[0]) == len(other[0]) and all(map(is_, one[0], other[0])) and one[1] == other[1]


def _work(system: System, bench: str, parts: Sequence[str]) -> dict[str, str]:
    """Return the arguments and other requests of a benchmark: as declared, a batch size by device as applied."""
    suite = _suite(system, bench)
    declared = {part: value for part in parts if (value := suite.get(part))}
    flat = {name: _without_folder(value, bench) for name, value in _flat(declared).items()}
    if endpoint := as_mapping(declared.get("serve")).get("endpoint"):  # a kind of request, and no address
        flat["serve.endpoint"] = str(endpoint)
    return _neutral(system, bench, flat, "auto_batch(")


def _without_folder(text: str, bench: str) -> str:
    """Return an argument without the folder that a benchmark writes to: the folder is not part of its work."""
    for folder in ("{milabench_extra}", f"{{base}}/extra/{bench}", "@{step_dir}"):
        text = text.replace(folder, "{step_dir}")
    return text


def _arguments(system: System, bench: str) -> dict[str, str]:
    """Return the resolved benchmark as the manifest has it, and the values of its steps."""
    # Of keys that older runs lack, only what changes a measurement is a difference.
    suite = {key: value for key, value in _suite(system, bench).items() if key != "keep_step_dir" and value != ""}
    table = _neutral(system, bench, _flat(suite), "{", "auto(", "auto_batch(", "expr(")
    table = {name: _without_folder(text, bench) for name, text in table.items()}
    for step in system.steps.get(bench, [])[:1]:
        if (threads := as_mapping(step.get("env")).get("OMP_NUM_THREADS")) is not None:
            table["env.OMP_NUM_THREADS"] = str(threads)
        table |= _flat(as_mapping(as_mapping(step.get("config")).get("measure")), "measure.")
    return table


def _suite(system: System, bench: str) -> Mapping[str, Any]:
    return as_mapping(as_mapping(system.manifest.get("suite")).get(bench))


def _neutral(system: System, bench: str, table: Mapping[str, str], *templates: str) -> dict[str, str]:
    """Return arguments without parts that tell machines apart. Arguments with any of these marks as applied in the steps."""

    def is_template(text: str) -> bool:
        return any(mark in text for mark in templates)

    steps = system.steps.get(bench, []) if any(map(is_template, table.values())) else []
    table = {
        name: (_came_to(steps, name.rpartition("argv.")[2]) if is_template(text) else "") or text
        for name, text in table.items()
    }
    for base in _bases(system, steps):
        table = {name: text.replace(base, "{base}") for name, text in table.items()}
    return {name: _ADDRESS.sub("{address}", text) for name, text in table.items()}


def _bases(system: System, steps: Sequence[Mapping[str, object]]) -> list[str]:
    """Return the folders that a run, and the first of these steps, kept its data below, the longest first."""
    bases = {str(as_mapping(system.manifest.get("options")).get("base") or "")}
    bases |= {posixpath.dirname(str(as_mapping(step.get("env")).get("MILABENCH_DIR_DATA") or "")) for step in steps[:1]}
    return sorted(bases - {"", "/"}, key=lambda base: (-len(base), base))


def _came_to(steps: Iterable[Mapping[str, object]], option: str) -> str:
    """Return the values that an option has in the steps' arguments. Empty where it has none."""
    found = set()
    for step in steps:
        argv = as_mapping(step.get("config")).get("argv")
        words = [str(word) for word in argv] if isinstance(argv, list) else []
        found |= {value for word, value in pairwise(words) if word == option}
        found |= {word.removeprefix(f"{option}=") for word in words if word.startswith(f"{option}=")}
    return ", ".join(sorted(found))


def _environment(system: System, bench: str) -> dict[str, str]:
    """Return the digest of the lock and of the program, of the group whose environment the benchmark ran in."""
    group = str(_suite(system, bench).get("install_group") or "")
    locks = as_mapping(system.manifest.get("locks"))
    # The sides of an A/B run, `digits@A`, may have two environments of one name: `torch@A` and `torch@B`.
    lock = locks.get(group) or locks.get(f"{group}@{bench.rpartition('@')[2]}")
    program = as_mapping(system.manifest.get("programs")).get(bench)
    return {**({"lock file": str(lock)[:12]} if lock else {}), **({"program": str(program)[:12]} if program else {})}


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
        | _flat({"busy when the run began": busy_text(node)})
        for node in nodes
    )
    if nodes:
        table["number of nodes"] = str(len(nodes))
    arch = system.summary.system.get("arch")
    return {
        **({"arch": str(arch)} if arch else {}),
        **table,
        # Earlier versions listed them in the order of the steps, which is shuffled.
        **{f"{k} version": ", ".join(sorted(v.split(", "))) for k, v in system.summary.software.items()},
    }


def _joined(tables: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return every property of several devices or nodes with all the values that it has."""
    values_of: dict[str, dict[str, None]] = {}
    for table in tables:
        for name, value in table.items():
            values_of.setdefault(name, {})[value] = None
    return {name: ", ".join(sorted(values)) for name, values in values_of.items()}


def _run(system: System) -> dict[str, str]:
    known = {"version": system.summary.version, "profile": system.summary.profile, **system.manifest}
    table = _flat({name: known[name] for name in _OF_THE_RUN if name in known})
    return {name: posixpath.basename(text) if name == "suite_file" else text for name, text in table.items()}


def _nodes(system: System) -> list[Mapping[str, Any]]:
    return mappings_in(system.summary.system.get("nodes"))


@lru_cache(maxsize=1 << 12)
def _is_no_property(name: str) -> bool:
    return name in _NO_PROPERTY or _NO_CAUSE.search(name) is not None


@lru_cache(maxsize=1 << 12)
def _is_argument(path: str) -> bool:
    return re.search(r"(?:^|\.)(?:argv|command)\b", path) is not None


def _flat(value: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    """Return the leaves of nested mappings by dotted name, as short text, without empty values and places.

    The order of words matters in arguments only.
    """
    leaves: dict[str, str] = {}
    for name, item in value.items():
        path = f"{prefix}{name}"
        is_argument = _is_argument(path)
        if _is_no_property(str(name)) or item in (None, [], {}) or (item == "" and not is_argument):
            continue
        if isinstance(item, Mapping):
            leaves |= _flat(item, f"{path}.")
        else:
            words = list(map(str, item)) if isinstance(item, list | tuple) else [str(item)]
            text = ", ".join(words if is_argument else sorted(words))
            leaves[path] = text if len(text) <= _MOST_VALUE else text[:_MOST_VALUE] + "..."
    return leaves
