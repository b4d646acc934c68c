"""`milabench doctor`: what this machine is, and whether the suite can run on it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from milabench.cli.options import SuiteOptions, suite_options
from milabench.workflow.context import base_folder, read_context

if TYPE_CHECKING:
    from milabench.facts.model import Node
    from milabench.workflow.context import CommandContext

LOW_DISK_GIB = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing looked at: fine, worth knowing, or in the way of a run."""

    what: str
    state: Literal["ok", "note", "bad"]
    says: str


@click.command("doctor", help="Say what this machine is and whether the suite can run on it.")
@suite_options(environment=True)
@click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")
def command(options: SuiteOptions, as_json: bool) -> int:
    """Hand the command line's values on; see the help text above."""
    from milabench.facts.probe import this_machine

    found = [*machine(this_machine().answer()), *base(base_folder(options.base))]
    inputs = read_context(options)
    found += suite(inputs, options)
    bad = sum(finding.state == "bad" for finding in found)
    if as_json:
        click.echo(json.dumps({"schema": 1, "findings": [asdict(finding) for finding in found]}, indent=1))
    else:
        width = max(len(finding.what) for finding in found)
        for finding in found:
            click.echo(f"{finding.state:4}  {finding.what.ljust(width)}  {finding.says}")
        click.echo(f"{bad} in the way of a run" if bad else "nothing in the way of a run")
    return 1 if bad else 0


def machine(node: Node) -> Iterator[Finding]:
    """The processor, memory, accelerators and tools of this machine."""
    yield Finding(what="system", state="ok", says=f"{node.hostname}: {node.os}, kernel {node.kernel}")
    yield Finding(what="processor", state="ok", says=f"{node.cpu_model or 'unknown'}, {node.cpu_count} usable")
    yield Finding(what="memory", state="ok", says=f"{node.memory_mib / 1024:.1f} GiB")
    if node.devices:
        for device in node.devices:
            yield Finding(
                what=f"{device.arch} {device.index}",
                state="ok",
                says=f"{device.name}, {device.memory_mib / 1024:.0f} GiB, {device.uuid}",
            )
    else:
        reason = node.details.get("absent", {}).get("devices")
        why = f" ({reason})" if reason else ""
        yield Finding(what="accelerator", state="note", says=f"none found{why}: benchmarks run on the processor")
    for device in node.details.get("lost") or ():
        yield Finding(
            what=f"{device['arch']} {device['index']}",
            state="bad",
            says=f"does not answer: {device['lost']}; reset it or reboot, or hide it with the visible-devices variable",
        )
    for variable, value in (node.details.get("hidden_by") or {}).items():
        yield Finding(what=variable, state="note", says=f"{value!r} chooses among the accelerators of this machine")
    load = node.details.get("load") or [0.0]
    busy = load[0] > max(1.0, 0.5 * node.cpu_count)
    yield Finding(
        what="load",
        state="note" if busy else "ok",
        says=f"{load[0]:.2f} runnable on average over a minute{': figures taken now will be noisy' if busy else ''}",
    )
    for tool, why in (
        ("uv", "environments are made with pip, which takes longer"),
        ("git", "programs from git cannot be fetched"),
    ):
        path = shutil.which(tool) or _beside_python(tool)
        yield Finding(what=tool, state="ok" if path else "note", says="found" if path else f"not found: {why}")


def _beside_python(tool: str) -> str | None:
    import sys

    return shutil.which(tool, path=str(Path(sys.executable).parent))


def base(folder: Path) -> Iterator[Finding]:
    """Whether the base can be written to and how much room there is."""
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    import os

    writable = os.access(existing, os.W_OK)
    yield Finding(
        what="base",
        state="ok" if writable else "bad",
        says=f"{folder}{'' if writable else f': {existing} is not writable'}",
    )
    free = shutil.disk_usage(existing).free / 2**30
    yield Finding(what="disk", state="ok" if free > LOW_DISK_GIB else "bad", says=f"{free:.0f} GiB free")


def suite(inputs: CommandContext, options: SuiteOptions) -> Iterator[Finding]:
    """Which of the selected benchmarks could run now, and what is missing for the others."""
    from milabench.plan.run import plan_run
    from milabench.workflow.preflight import missing_environments, missing_preparations

    plan = plan_run(inputs.benches, inputs.where)
    names = sorted({step.bench for step in plan.steps})
    yield Finding(what="suite", state="ok", says=f"{inputs.suite_file}: {len(names)} benchmarks can be placed here")
    for skip in plan.skipped:
        yield Finding(what=skip.bench, state="note", says=f"skipped: {skip.why}")
    environments = missing_environments(inputs)
    if environments:
        yield Finding(
            what="environments", state="bad", says=f"missing: {', '.join(environments)}; milabench install makes them"
        )
    else:
        yield Finding(what="environments", state="ok", says="all there")
        unprepared = missing_preparations(inputs, plan, options)
        yield Finding(
            what="data",
            state="bad" if unprepared else "ok",
            says=f"missing: {', '.join(unprepared)}; milabench prepare makes it" if unprepared else "all there",
        )
