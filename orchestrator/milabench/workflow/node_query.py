"""Queries the other machines of a system for their facts, and which of them share file systems."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from milabench.config.schema import SystemConfig
from milabench.errors import Unreachable, UsageError
from milabench.execute.file_sync import RemoteFiles, remote_files_of, storages
from milabench.execute.remote_host import RemoteHost
from milabench.execute.ssh import Address
from milabench.facts.allocated_nodes import Allocation
from milabench.facts.model import Node
from milabench.facts.probe import parse_facts
from milabench.plan.system import is_local
from milabench.workflow.files import base_folder
from milabench.workflow.options import Session, SuiteOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReport:
    """The facts of a machine, or why there are none.

    `behind_s` is by how much its clock is certainly behind ours (negative: ahead), 0 when the answer took longer than that.
    """

    facts: Mapping[str, Any] = field(default_factory=dict)
    behind_s: float = 0.0
    storage: str = ""
    why: str = ""


def node_addresses(
    system: SystemConfig, machine: Node, *, accept_new: bool = False, allocation: Allocation | None = None
) -> dict[str, Address]:
    """Return the addresses of the nodes that are not this machine, by name. Empty for nodes of a future job."""
    if allocation is not None:
        others = [node for node in allocation.nodes if node.job and node.name != allocation.here]
        return {node.name: Address(name=node.name, host=node.name, transport="srun", job=node.job) for node in others}
    return {
        entry.name: Address(
            name=entry.name,
            host=entry.ip,
            port=entry.port,
            user=entry.user,
            key=system.sshkey,
            known_hosts=system.known_hosts,
            transport=system.transport,
            proxy_jump=entry.proxy_jump,
            python=entry.python,
            accept_new=accept_new,
        )
        for entry in system.nodes
        if not is_local(entry, machine, system)
    }


def query_nodes(
    system: SystemConfig,
    machine: Node,
    options: SuiteOptions,
    session: Session,
    allocation: Allocation | None = None,
) -> dict[str, HostReport]:
    """Return the report of every other node, or why it does not answer. All are queried at the same time."""
    base = str(base_folder(options.base))
    addresses = node_addresses(system, machine, accept_new=options.accept_new_host_keys, allocation=allocation)
    bases = dict.fromkeys(addresses, base) | {entry.name: entry.base or base for entry in system.nodes}
    pool = session.hosts

    machines = [pool.machine(address) for address in addresses.values()]
    return pool.run(lambda: _query_all(machines, bases, Path(base))) if addresses else {}


async def _query_all(machines: Sequence[RemoteHost], bases: Mapping[str, str], here: Path) -> dict[str, HostReport]:
    async with remote_files_of(machines) as (files, why):
        answers = await asyncio.gather(*(_ask(remote, bases[name]) for name, remote in files.items()))
        reports = dict(zip(files, answers, strict=True))
        shared, unusable = await storages({name: files[name] for name in files if not reports[name].why}, bases, here)
    reports = {
        name: replace(report, storage=shared.get(name, name), why=report.why or unusable.get(name, ""))
        for name, report in reports.items()
    }
    return {machine.name: reports.get(machine.name) or HostReport(why=why[machine.name]) for machine in machines}


async def _ask(remote: RemoteFiles, base: str) -> HostReport:
    began = time.time()
    try:
        facts = await remote.facts(base)
    except Unreachable as error:
        return HostReport(why=str(error))
    ended, remote_time = time.time(), float(facts.get("time") or 0.0)
    behind_s = began - remote_time if remote_time < began else min(0.0, ended - remote_time)
    return HostReport(facts=facts, behind_s=behind_s)


def node_of(name: str, report: HostReport) -> Node:
    """Return the node that a machine's report describes."""
    node = parse_facts(report.facts, name=name)
    details = {**node.details, "behind_s": round(report.behind_s, 3)}
    return replace(node, local=False, storage=report.storage, details=details)


def answered_nodes(
    reports: Mapping[str, HostReport], options: SuiteOptions, allocation: Allocation | None
) -> dict[str, Node]:
    """Return the other nodes as they describe themselves. Raises Unreachable with a line for each that does not answer.

    Raises UsageError for nodes of an allocation that do not share the base.
    """
    if why := [report.why for report in reports.values() if report.why]:
        raise Unreachable("\nerror: ".join(why))
    nodes = {name: node_of(name, report) for name, report in reports.items()}
    if allocation is None:
        return nodes
    if apart := [node.name for node in nodes.values() if node.storage]:
        raise UsageError(
            f"{base_folder(options.base)}: is another folder on {', '.join(apart)}. The nodes of Slurm need a base on a file"
            " system that they share with this machine: choose it with --base"
        )
    return {name: reachable(node) for name, node in nodes.items()}


def reachable(node: Node) -> Node:
    """Return a node of an allocation with the address at which the others meet it."""
    return replace(node, ip=address_of(node))


def address_of(node: Node) -> str:
    """Return the address by which others reach a node: its name's, else the first that it reports, else its name."""
    own = node.details.get("addresses") or ()
    with contextlib.suppress(OSError):
        address = socket.gethostbyname(node.name)
        if address in own:
            return address
    return own[0] if own else node.name
