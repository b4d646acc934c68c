"""Queries the other machines of a system for their facts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from milabench.config.schema import SystemConfig
from milabench.errors import Unreachable
from milabench.execute.host_pool import HostReport, connect_all, query_all
from milabench.execute.ssh import Address
from milabench.facts.model import Node
from milabench.facts.probe import parse_facts
from milabench.plan.system import is_local
from milabench.workflow.files import base_folder
from milabench.workflow.options import SuiteOptions
from milabench.workflow.session import Session


def node_addresses(system: SystemConfig, machine: Node, *, accept_new: bool = False) -> dict[str, Address]:
    """Return how the nodes that are not this machine are reached, by name."""
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
        if not is_local(entry, machine, alone=len(system.nodes) == 1)
    }


def query_nodes(system: SystemConfig, machine: Node, options: SuiteOptions, session: Session) -> dict[str, HostReport]:
    """Return the report of every other node, or why it does not answer; all are queried at the same time."""
    base = str(base_folder(options.base))
    addresses = node_addresses(system, machine, accept_new=options.accept_new_host_keys)
    bases = {entry.name: entry.base or base for entry in system.nodes}
    pool = session.hosts

    async def query() -> dict[str, HostReport]:
        hosts, why = await connect_all([pool.machine(address) for address in addresses.values()])
        reports = await query_all(hosts, bases, Path(base))
        return {name: reports[name] if name in reports else HostReport(why=why[name]) for name in addresses}

    return pool.run(query) if addresses else {}


def node_of(name: str, report: HostReport) -> Node:
    """Return the node that a machine's report describes."""
    node = parse_facts(report.facts, name=name)
    details = {**node.details, "behind_s": round(report.behind_s, 3)}
    return replace(node, local=False, storage=report.storage, details=details)


def ask_nodes(system: SystemConfig, machine: Node, options: SuiteOptions, session: Session) -> dict[str, Node]:
    """Return the other nodes as they describe themselves. Raises Unreachable with a line for each that does not answer."""
    reports = query_nodes(system, machine, options, session)
    if why := [report.why for report in reports.values() if report.why]:
        raise Unreachable("\nerror: ".join(why))
    return {name: node_of(name, report) for name, report in reports.items()}
