"""Run directories of milabench 1.3 and before: a `.data` file for each pack, voir's events in it, and no plan."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from milabench.analysis.json_codec import picked
from milabench.analysis.step_results import StepResult, planned_steps, step_result
from milabench.analysis.summary import described_system
from milabench.devices.regular_file import read_regular
from milabench.errors import RecordError
from milabench.events.names import encode_name
from milabench.events.rundir import MILABENCH13, Run, open_run
from milabench.events.values import as_mapping, finite_number
from milabench.history.importer import ForeignRun, ForeignStep, Importer, at, digest_of_pieces

_STAMP = re.compile(r"\.\d{4}-\d\d-\d\d_\d\d[-:_]\d\d[-:_]\d\d(?:[.:]\d+)?$")


def _can_read(source: Path) -> bool:
    """Return whether this is a folder with `.data` files."""
    return source.is_dir() and any(source.rglob("*.data"))


def _read_runs(source: Path, origin: str) -> tuple[list[ForeignRun], list[str]]:
    """Return the runs in the run directories at or below a folder, and the skipped parts."""
    runs: list[ForeignRun] = []
    notes: list[str] = []
    for folder in sorted({path.parent for path in source.rglob("*.data")}):
        run, left_out = _read_run(folder, origin)
        runs += [] if run is None else [run]
        notes += left_out
    return runs, notes


def _read_run(folder: Path, origin: str) -> tuple[ForeignRun | None, list[str]]:
    """Return the run in a folder and its skipped parts. Raises RecordError for other folders, and for our own runs."""
    run = open_run(folder)
    if run.manifest:
        unpack = "unpack it to a folder, and `milabench report --base FOLDER`"
        way = unpack if Path(origin).is_file() else f"`milabench report {shlex.quote(str(folder))}`"
        raise RecordError(f"{origin}: is a run of this milabench: {way} reads it directly")
    if run.phase != "run":
        return None, [f"{folder.name}: records of {run.phase}, not a benchmark"]
    notes: list[str] = []
    results: list[StepResult] = []
    for planned in planned_steps(run):
        result = step_result(run, planned)
        if _is_own(result):
            notes.append(f"{planned.id}: milabench's own remote commands, not a benchmark")
        else:
            results.append(result)
    if not results:
        return None, [*notes, f"{folder.name}: contains no benchmark"]
    measured = [result.measured for result in results]
    foreign = ForeignRun(
        name=_STAMP.sub("", folder.name),
        when=at(min((t for pack in measured if (t := _began(pack.start, pack.meta)) is not None), default=None)),
        format=MILABENCH13,
        origin=origin,
        version=next((v for pack in measured if (v := _version(pack.meta))), "1.3"),
        system=_system(described_system({}, measured), results),
        steps=[_step(run, result) for result in results],
        digest=digest_of_pieces((path.name, read_regular(path)) for path in folder.glob("*.data")),
    )
    return foreign, notes


def _is_own(result: StepResult) -> bool:
    """Return whether a pack is milabench talking to another machine: it calls itself remote and has no definition."""
    return result.step.bench == "remote" and result.measured.config.get("definition") in (".", None)


def _step(run: Run, result: StepResult) -> ForeignStep:
    source, config = result.step, result.measured.config
    stem = run.files[source.id]
    kept = ("name", "weight", "plan", "tags", "group", "install_group", "voir", "validation", "argv")
    planned: dict[str, Any] = {
        **picked(source, "tag", "repeat", "node", "devices"),
        "config": {"weight": source.weight, **{key: config[key] for key in kept if key in config}},
    }
    outputs = {ending: run.path / f"{stem}.{ending}" for ending in ("stdout", "stderr")}
    return ForeignStep(
        id=encode_name(source.id),
        bench=source.bench,
        planned=planned,
        outcome=result.outcome,
        why=result.why,
        detail=result.detail,
        records=run.path / f"{stem}.data",
        outputs={ending: path for ending, path in outputs.items() if path.is_file()},
    )


def _began(start: Mapping[str, object], meta: Mapping[str, object]) -> float | None:
    began = finite_number(start.get("time"))
    return finite_number(meta.get("date")) if began is None else began


def _version(meta: Mapping[str, object]) -> str:
    details = as_mapping(meta.get("milabench"))
    release = details.get("tag") or details.get("commit")
    return str(release or "")


def _system(system: Mapping[str, object], results: Iterable[StepResult]) -> Mapping[str, Any]:
    """Return the machine as its records describe it. With several nodes, those that the records name."""
    nodes = system.get("nodes")
    names = dict.fromkeys(result.step.node for result in results)
    if not isinstance(nodes, list) or not nodes or len(names) < 2:
        return system
    return {**system, "nodes": [{**nodes[0], "name": name} for name in names]}


MILABENCH13_RUNS = Importer(can_read=_can_read, read_runs=_read_runs)
