"""`milabench nodes`: whether the machines of a system can be reached and are fit for a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from milabench.cli.options import SuiteOptions, suite_options
from milabench.errors import DONE, UNREACHABLE, UsageError

if TYPE_CHECKING:
    from milabench.config.schema import SystemConfig
    from milabench.execute.host_pool import HostReport
    from milabench.facts.compare import NodeFinding
    from milabench.facts.model import Node


@click.group("nodes", help="Look after the machines of a system.")
def command() -> None:
    """Hold the commands about nodes."""


@command.command("check", help="Say whether every node of the system file can be reached and is fit for a run.")
@suite_options(selection=False, nodes=True)
@click.option(
    "--no-links", is_flag=True, help="Leave out the connections between nodes, which are measured one by one."
)
@click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")
def check_nodes(options: SuiteOptions, no_links: bool, as_json: bool) -> int:
    """Hand the command line's values on; see the help text above."""
    from milabench.facts.probe import this_machine
    from milabench.plan.system import is_local
    from milabench.workflow.context import base_folder, read_suite_only
    from milabench.workflow.remote_nodes import findings_of, query_nodes

    local = this_machine().answer()
    suite, _ = read_suite_only(options)
    system = suite.system
    if not system.nodes:
        raise UsageError("no nodes: give a system file that has some with --system FILE or MILABENCH_SYSTEM")
    base = str(base_folder(options.base))
    told = query_nodes(system, local, base, accept_new=options.accept_new_host_keys)
    here = next((entry for entry in system.nodes if is_local(entry, local, alone=len(system.nodes) == 1)), None)
    found = findings_of(system, told, _renamed(local, here.name) if here is not None else None, base)
    links = {} if no_links else measured_links(system, local, told, options)
    if as_json:
        click.echo(json.dumps(described(system, told, found, links), indent=1))
    else:
        print_findings(found, links)
    return UNREACHABLE if any(each.state == "bad" for each in found) else DONE


def _renamed(node: Node, name: str) -> Node:
    from dataclasses import replace

    return replace(node, name=name)


def measured_links(
    system: SystemConfig, local: Node, told: Mapping[str, HostReport], options: SuiteOptions
) -> dict[str, Mapping[str, Any]]:
    """What the connections between the other nodes are like, each to the next."""
    from milabench.execute.host_pool import connect_all, link_speeds
    from milabench.workflow.remote_nodes import host_pool, node_addresses

    wanted = node_addresses(system, local, accept_new=options.accept_new_host_keys)
    able = [address for name, address in wanted.items() if not told[name].why]
    if len(able) < 2:
        return {}

    by = host_pool()

    async def measure() -> dict[str, Mapping[str, Any]]:
        machines, _ = await connect_all([by.machine(address) for address in able])
        return await link_speeds([(machine, machine.address.host) for machine in machines.values()])

    return by.run(measure)


def described(
    system: SystemConfig,
    told: Mapping[str, HostReport],
    found: Sequence[NodeFinding],
    links: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """Everything that was found out, for a program."""
    return {
        "schema": 1,
        "nodes": [
            {
                "name": entry.name,
                "ip": entry.ip,
                "reached": entry.name not in told or not told[entry.name].why,
                "facts": dict(told[entry.name].facts) if entry.name in told else {},
                "behind_s": round(told[entry.name].behind_s, 3) if entry.name in told else 0.0,
                "shares": told[entry.name].storage if entry.name in told else "",
            }
            for entry in system.nodes
        ],
        "findings": [asdict(each) for each in found],
        "links": dict(links),
    }


def print_findings(found: Sequence[NodeFinding], links: Mapping[str, Mapping[str, Any]]) -> None:
    """The table for a person: a block for each node, what differs between them, and their connections."""
    names = dict.fromkeys(each.node for each in found if each.node)
    width = max(len(each.what) for each in found)
    for name in [*names, ""]:
        of_it = [each for each in found if each.node == name]
        if of_it:
            click.echo(name or "between nodes")
        for each in of_it:
            click.echo(f"  {each.state:4}  {each.what.ljust(width)}  {each.says}")
    if links:
        click.echo("links")
    for pair, seen in links.items():
        if "error" in seen:
            click.echo(f"  note  {pair.ljust(width)}  {seen['error']}")
        else:
            speed = seen["bytes_per_s"] * 8 / 1e9
            click.echo(
                f"  ok    {pair.ljust(width)}  {seen['round_trip_s'] * 1e6:.0f} us there and back, {speed:.1f} Gbit/s"
            )
    bad = sum(each.state == "bad" for each in found)
    click.echo(f"{bad} in the way of a run" if bad else "nothing in the way of a run")
