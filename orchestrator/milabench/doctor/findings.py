"""Examines this machine, and whether the suite can run on it, and the machines of a system with their connections."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from milabench.config.schema import SystemConfig
from milabench.errors import UsageError
from milabench.events.shims import note_of
from milabench.execute.remote_host import connect_all
from milabench.execute.shims import shims_of
from milabench.facts.compare import NodeFinding, compare_nodes
from milabench.facts.model import Node
from milabench.facts.probe import this_machine
from milabench.plan.run import plan_run
from milabench.plan.system import is_local
from milabench.seams import handler, takes_part
from milabench.shown import counted, grouped, visible_line, wrapped
from milabench.workflow.context import read_context, read_suite_only
from milabench.workflow.environments import environment_folders
from milabench.workflow.files import base_folder
from milabench.workflow.node_query import HostReport, node_addresses, node_of, query_nodes
from milabench.workflow.options import CommandContext, Session, SuiteOptions
from milabench.workflow.preflight import TORCH_CUDA, driver_cuda, missing_environments, missing_preparations

LOW_DISK_GIB = 5


def diagnose(options: SuiteOptions, session: Session) -> list[NodeFinding]:
    """Check machine, base and suite. Raises ConfigError and NothingSelected for a suite that cannot be read."""
    return [*diagnose_machine(options.base), *check_suite(read_context(options, session))]


def diagnose_machine(base: Path | None) -> list[NodeFinding]:
    """Check machine and base, whatever is to run there."""
    found = [*check_machine(this_machine().answer())]
    if takes_part("doctor: slurm"):
        found.append(handler("doctor: slurm")(os.environ))
    return [*found, *check_base(base_folder(base))]


def findings_text(findings: Sequence[NodeFinding]) -> str:
    """Return whether a run is possible, and then each finding, of several machines below the names of their nodes."""
    width = max(len(finding.what) for finding in findings)
    bad = list(dict.fromkeys(finding.what for finding in findings if finding.state == "bad"))
    problems = f"a run is not possible yet, {counted(len(bad), 'problem')}: {', '.join(bad)}"
    lines = [problems if bad else "a run is possible"]
    by_node = grouped((finding.node, finding) for finding in sorted(findings, key=lambda finding: not finding.node))
    heading, indent = ("", "") if by_node.keys() == {""} else ("between nodes", "  ")
    for node, own in by_node.items():
        lines.append(node or heading)
        for finding in own:
            lines += wrapped(finding.says, f"{indent}{finding.state:4}  {finding.what.ljust(width)}  ")
    return "\n".join(map(visible_line, lines))  # nodes say some of it


def check_machine(node: Node) -> Iterator[NodeFinding]:
    """Check the processor, memory, accelerators and tools of this machine."""
    yield NodeFinding(what="system", state="ok", says=f"{node.hostname}: {node.os}, kernel {node.kernel}")
    yield NodeFinding(what="processor", state="ok", says=f"{node.cpu_model or 'unknown'}, {node.cpu_count} usable")
    yield NodeFinding(what="memory", state="ok", says=f"{node.memory_mib / 1024:.1f} GiB")
    for device in node.devices:
        says = f"{device.name}, {device.memory_mib / 1024:.0f} GiB, {device.uuid}"
        yield NodeFinding(what=f"{device.arch} {device.index}", state="ok", says=says)
    if not node.devices:
        reason = node.details.get("absent", {}).get("devices")
        why = f" ({reason})" if reason else ""
        yield NodeFinding(what="accelerator", state="note", says=f"none found, benchmarks run on the processor{why}")
    for device in node.details.get("lost") or ():
        says = f"does not answer: {device['lost']}. Reset it or reboot, or hide it with the visible-devices variable"
        yield NodeFinding(what=f"{device['arch']} {device['index']}", state="bad", says=says)
    for variable, value in (node.details.get("hidden_by") or {}).items():
        yield NodeFinding(what=variable, state="note", says=f"{value!r} selects among the accelerators of this machine")
    if node.devices and node.devices[0].arch != "cpu":
        yield from check_accelerated(node)
    load = node.details.get("load") or [0.0]
    busy = load[0] > max(1.0, 0.5 * node.cpu_count)
    noisy = ": other programs are running, numbers will be noisy" if busy else ""
    says = f"{load[0]:.2f} over the last minute{noisy}"
    yield NodeFinding(what="load", state="note" if busy else "ok", says=says)
    needs = {"uv": "environments are made with pip, which takes longer", "git": "programs from git cannot be fetched"}
    for tool, why in needs.items():
        # In an environment that is not activated, uv is beside the interpreter and not on PATH.
        path = shutil.which(tool) or shutil.which(tool, path=str(Path(sys.executable).parent))
        yield NodeFinding(what=tool, state="ok" if path else "note", says="found" if path else f"not found: {why}")


def check_accelerated(node: Node, include: str = sysconfig.get_path("include")) -> Iterator[NodeFinding]:
    """Check further needs of programs on the accelerators of this machine: Python's headers, and a driver that torch accepts."""
    if not Path(include, "Python.h").exists():
        says = f"no Python.h in {include}: torch.compile, Triton and vLLM compile with it. Install python3-dev"
        yield NodeFinding(what="headers", state="note", says=says)
    if off := [str(device.index) for device in node.devices if device.details.get("persistence") is False]:
        says = f"off for {', '.join(off)}: the driver starts again for each command, in seconds. `nvidia-smi -pm 1` keeps it"
        yield NodeFinding(what="persistence", state="note", says=says)
    if driver_cuda(node) < TORCH_CUDA:
        says = (
            f"{node.details.get('driver')} is made for CUDA {node.details['cuda']}, but torch of constraints/cuda.txt needs"
            f" CUDA {TORCH_CUDA} and would use the processor. Install a driver of 580 or later, or an older torch"
        )
        yield NodeFinding(what="driver", state="bad", says=says)


def check_base(folder: Path) -> Iterator[NodeFinding]:
    """Check whether the base can be written to and how much room it has."""
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    writable = os.access(existing, os.W_OK)
    problem = "" if writable else f": {existing} is not writable"
    yield NodeFinding(what="base", state="ok" if writable else "bad", says=f"{folder}{problem}")
    free = shutil.disk_usage(existing).free / 2**30
    is_enough = free > LOW_DISK_GIB
    hint = "" if is_enough else ". `milabench gc` shows what is unused"
    yield NodeFinding(what="disk", state="ok" if is_enough else "bad", says=f"{free:.0f} GiB free{hint}")


def check_suite(context: CommandContext) -> Iterator[NodeFinding]:
    """Check which of the selected benchmarks could run now, and the missing parts of the others."""
    plan = plan_run(context.benches, context.plan_context)
    names = {step.bench for step in plan.steps}
    yield NodeFinding(
        what="suite", state="ok", says=f"{context.suite_file}: {counted(len(names), 'benchmark')} can run here"
    )
    for skip in plan.skipped:
        yield NodeFinding(what=skip.bench, state="note", says=f"skipped: {skip.why}")
    environments = missing_environments(context)
    yield _completeness("environments", environments)
    for group, folder in environment_folders(context).items():
        for shim in shims_of(str(Path(context.dirs.venv, folder))):
            yield NodeFinding(what=f"environment {group}", state="note", says=note_of(shim))
    if not environments:
        yield _completeness("data", missing_preparations(context, plan))


def _completeness(what: str, missing: tuple[str, ...]) -> NodeFinding:
    if not missing:
        return NodeFinding(what=what, state="ok", says="complete")
    return NodeFinding(what=what, state="bad", says=f"missing: {', '.join(missing)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCheck:
    """The result of checking the nodes of a system. `links` are their connections, `{"a -> b": {...}}`."""

    system: SystemConfig
    reports: Mapping[str, HostReport]
    findings: tuple[NodeFinding, ...]
    links: Mapping[str, Mapping[str, Any]]

    def to_json(self) -> dict[str, Any]:
        """Return everything, for a program."""
        return {
            "schema": 1,
            "nodes": [
                {
                    "name": entry.name,
                    "ip": entry.ip,
                    "reached": not report.why,
                    "facts": dict(report.facts),
                    "behind_s": round(report.behind_s, 3),
                    "shares": report.storage,
                }
                for entry in self.system.nodes
                for report in (self.reports.get(entry.name, HostReport()),)
            ],
            "findings": [asdict(finding) for finding in self.findings],
            "links": dict(self.links),
        }


def check_nodes(options: SuiteOptions, session: Session, *, with_links: bool = True) -> NodeCheck:
    """Query all nodes of the system file. Raises UsageError where it has none."""
    machine = this_machine().answer()
    system = read_suite_only(options).system
    if not system.nodes:
        raise UsageError("no nodes: give a system file that has some with --system FILE or MILABENCH_SYSTEM")
    base = str(base_folder(options.base))
    reports = query_nodes(system, machine, options, session)
    local = [replace(machine, name=entry.name) for entry in system.nodes if is_local(entry, machine, system)][:1]
    nodes = [*local, *(node_of(name, report) for name, report in reports.items() if not report.why)]
    silent = (
        NodeFinding(node=name, what="reach", state="bad", says=report.why.removeprefix(f"{name}: "))
        for name, report in reports.items()
        if report.why
    )
    bases = {entry.name: entry.base for entry in system.nodes}
    return NodeCheck(
        system=system,
        reports=reports,
        findings=(*silent, *compare_nodes(nodes, base=base, bases=bases)),
        links=measure_links(system, machine, reports, options, session) if with_links else {},
    )


def measure_links(
    system: SystemConfig, machine: Node, reports: Mapping[str, HostReport], options: SuiteOptions, session: Session
) -> dict[str, Mapping[str, object]]:
    """Return the round trip and bandwidth between the other nodes, from each to the next."""
    addresses = node_addresses(system, machine, accept_new=options.accept_new_host_keys)
    reached = [address for name, address in addresses.items() if not reports[name].why]
    if len(reached) < 2:
        return {}
    from milabench.doctor.links import link_speeds  # what reads the answers takes tens of milliseconds to import

    pool = session.hosts

    async def measure() -> dict[str, Mapping[str, Any]]:
        hosts, _ = await connect_all([pool.machine(address) for address in reached])
        return await link_speeds(list(hosts.values()))

    return pool.run(measure)
