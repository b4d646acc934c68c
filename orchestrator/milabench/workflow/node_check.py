"""Checks whether the machines of a system can be reached and are fit for a run, and measures their connections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from milabench.config.schema import SystemConfig
from milabench.errors import UsageError
from milabench.execute.host_pool import HostReport, connect_all, link_speeds
from milabench.facts.compare import NodeFinding, compare_nodes
from milabench.facts.model import Node
from milabench.facts.probe import this_machine
from milabench.plan.system import is_local
from milabench.workflow.context import read_suite_only
from milabench.workflow.files import base_folder
from milabench.workflow.node_query import node_addresses, node_of, query_nodes
from milabench.workflow.options import SuiteOptions
from milabench.workflow.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCheck:
    """The result of checking the nodes of a system; `links` are their connections, `{"a -> b": {...}}`."""

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
    suite, _ = read_suite_only(options)
    system = suite.system
    if not system.nodes:
        raise UsageError("no nodes: give a system file that has some with --system FILE or MILABENCH_SYSTEM")
    base = str(base_folder(options.base))
    reports = query_nodes(system, machine, base, session, accept_new=options.accept_new_host_keys)
    local = [
        replace(machine, name=entry.name)
        for entry in system.nodes
        if is_local(entry, machine, alone=len(system.nodes) == 1)
    ][:1]
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
) -> dict[str, Mapping[str, Any]]:
    """Return the round trip and bandwidth between the other nodes, from each to the next."""
    addresses = node_addresses(system, machine, accept_new=options.accept_new_host_keys)
    reached = [address for name, address in addresses.items() if not reports[name].why]
    if len(reached) < 2:
        return {}
    pool = session.hosts

    async def measure() -> dict[str, Mapping[str, Any]]:
        hosts, _ = await connect_all([pool.machine(address) for address in reached])
        return await link_speeds([(host, host.address.host) for host in hosts.values()])

    return pool.run(measure)
