"""Writes a run directory before the run begins: its description, its plan, and later extensions of the plan."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from milabench.events.run_files import stem_of
from milabench.events.run_writer import RunWriter
from milabench.plan.model import Plan, Step
from milabench.redaction import mask_argument
from milabench.version import __version__
from milabench.workflow.files import writing
from milabench.workflow.options import CommandContext


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDescription:
    """The contents of a run directory in addition to the plan: the name, the sources of environments, the resolved suite.

    `phase` is by default the phase of the plan. Only runs of the phase `run` are reported when no run is named. `manifest` are
    further entries of the manifest: `resume` needs them to decide the same plan again. `seconds` is the expected duration of a
    repeat, by benchmark, as far as it is known. Displays show the time left from it.
    """

    name: str
    phase: str | None = None
    suite: Mapping[str, Any] = field(default_factory=dict)
    locks: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    manifest: Mapping[str, Any] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanExtension:
    """A longer plan, which begins with the steps of the executed plan, with its entries of the manifest and its messages."""

    plan: Plan
    manifest: Mapping[str, Any] = field(default_factory=dict)
    messages: tuple[str, ...] = ()


# Called with the run directory when all steps have ended, again after each extension; see `extend_plan` of `ExecutionSettings`.
ExtendPlan = Callable[[Path], PlanExtension | None]


def stems(steps: Iterable[Step]) -> dict[str, str]:
    """Return `{step id: stem}` for all the steps of a run: distinct, the nodes numbered in the order of their first step."""
    steps = tuple(steps)
    nodes = {name: number for number, name in enumerate(dict.fromkeys(step.node for step in steps))}
    repeated = {step.bench for step in steps if step.repeat}
    stem_of_step: dict[str, str] = {}
    taken: set[str] = set()
    for step in steps:
        repeat = step.repeat if step.bench in repeated else None
        node = nodes[step.node] if len(nodes) > 1 else None
        stem = base = stem_of(step.bench, tag=step.tag, repeat=repeat, node=node)
        again = 1
        while stem.lower() in taken:  # some file systems ignore case
            stem, again = f"{base}_{again}", again + 1
        taken.add(stem.lower())
        stem_of_step[step.id] = stem
    return stem_of_step


def with_stems(plan: Plan, files: Mapping[str, str]) -> Plan:
    """Return the plan with the file name of each step's records."""
    return replace(plan, steps=tuple(replace(step, stem=files[step.id]) for step in plan.steps))


def write_manifest(
    writer: RunWriter, plan: Plan, context: CommandContext, description: RunDescription, files: Mapping[str, str]
) -> None:
    """Write the plan of a new run, and journal its steps as planned. Raises RecordError."""
    manifest = {
        "phase": description.phase or plan.phase,
        "name": description.name,
        "created": datetime.now().astimezone().isoformat(timespec="seconds"),
        "version": __version__,
        # A manifest is copied and shown to others.
        "argv": ["milabench", *map(mask_argument, sys.argv[1:])],
        "cwd": str(Path.cwd()),
        "suite": dict(description.suite),
        "suite_file": str(context.suite_file),
        "system": dict(plan.system),
        **recorded_plan(plan),
        "files": dict(files),
        "seed": context.plan_context.seed,
        "profile": context.plan_context.profile.name,
        **({"precision": context.suite.precision} if context.suite.precision is not None else {}),
        **({"costs": dict(context.suite.system.costs)} if context.suite.system.costs else {}),
        **({"reference": context.suite.system.reference} if context.suite.system.reference else {}),
        "locks": dict(description.locks),
        **description.manifest,
    }
    with writing(writer.path):
        writer.write_manifest(manifest)
        writer.journal_all(planned_entries(plan.steps))


def recorded_plan(plan: Plan) -> dict[str, Any]:
    """Return the plan of a manifest."""
    value = plan.to_json()
    return {"plan": value, "plan_hash": value["hash"]}


def planned_entries(steps: Iterable[Step]) -> list[dict[str, object]]:
    """Return the entries of the journal for steps that are planned."""
    return [{"step": step.id, "attempt": 1, "state": "planned", "node": step.node} for step in steps]
