"""What verbs do with the other machines of a system: ask what they are, give them benchmarks, see what is missing."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from milabench.errors import ConfigError, MilabenchError, Unreachable
from milabench.execute.file_sync import RemoteFiles
from milabench.execute.host_pool import HostPool, HostReport, connect_all, query_all, remote_files_of
from milabench.execute.remote_host import RemoteHost
from milabench.execute.ssh import Address
from milabench.facts.compare import NodeFinding, compare_nodes
from milabench.facts.model import Node
from milabench.facts.probe import parse_facts
from milabench.plan.context import dirs_at, folder_on
from milabench.plan.system import is_local

if TYPE_CHECKING:
    from milabench.cli.options import SuiteOptions
    from milabench.config.schema import SystemConfig
    from milabench.plan.model import Plan
    from milabench.workflow.context import CommandContext

OnNode = Callable[[Node, RemoteFiles, RemoteHost], Awaitable[None]]


def host_pool() -> HostPool:
    """The machines that this command reaches: whatever it does with one goes over one connection, ended with the command."""
    context = click.get_current_context(silent=True)
    if context is None:  # called by a program, which ends with it
        return HostPool()
    root = context.find_root()
    if _REACH not in root.meta:
        root.meta[_REACH] = made = HostPool()
        root.call_on_close(made.close)
    return cast(HostPool, root.meta[_REACH])


_REACH = "milabench.workflow.remote_nodes"


def node_addresses(system: SystemConfig, local: Node, *, accept_new: bool = False) -> dict[str, Address]:
    """How the nodes that are not this machine are reached, by name."""
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
        if not is_local(entry, local, alone=len(system.nodes) == 1)
    }


def query_nodes(system: SystemConfig, local: Node, base: str, *, accept_new: bool = False) -> dict[str, HostReport]:
    """What every other node says of itself, or why it says nothing; all are asked at the same time."""
    wanted = node_addresses(system, local, accept_new=accept_new)
    bases = {entry.name: entry.base or base for entry in system.nodes}

    by = host_pool()

    async def ask() -> dict[str, HostReport]:
        machines, why = await connect_all([by.machine(address) for address in wanted.values()])
        told = await query_all(machines, bases, Path(base))
        return {name: told[name] if name in told else HostReport(why=why[name]) for name in wanted}

    return by.run(ask) if wanted else {}


def node_of(name: str, told: HostReport) -> Node:
    """What a machine said of itself, as a node."""
    made = parse_facts(told.facts, name=name)
    details = {**made.details, "behind_s": round(told.behind_s, 3)}
    return replace(made, local=False, storage=told.storage, details=details)


def ask_nodes(system: SystemConfig, local: Node, base: str, *, accept_new: bool = False) -> dict[str, Node]:
    """The other nodes as they say they are. Raises Unreachable with a line for each that does not answer."""
    told = query_nodes(system, local, base, accept_new=accept_new)
    if why := [said.why for said in told.values() if said.why]:
        raise Unreachable("\nerror: ".join(why))
    return {name: node_of(name, said) for name, said in told.items()}


def remote_nodes(inputs: CommandContext) -> tuple[Node, ...]:
    """The nodes that are not this machine."""
    return tuple(node for node in inputs.where.facts.nodes if not node.local)


def first_of_storages(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """One node for each file system."""
    found: dict[str, Node] = {}
    for node in nodes:
        found.setdefault(node.storage, node)
    return tuple(found.values())


def require_healthy(inputs: CommandContext, options: SuiteOptions) -> None:
    """Raise Unreachable with everything on the nodes that is in the way of a run, unless it is to be ignored."""
    if not remote_nodes(inputs):
        return
    bad = [each for each in compare_nodes(inputs.where.facts.nodes, base=inputs.where.dirs.base) if each.state == "bad"]
    if not bad:
        return
    if options.ignore_node_checks:
        for each in bad:
            print(f"warning: {each}", file=sys.stderr)
        return
    told = "\nerror: ".join(map(str, bad))
    raise Unreachable(f"{told}\n       run all the same with --ignore-node-checks")


def is_needed_here(inputs: CommandContext) -> bool:
    """Whether environments and data are made on this machine: for itself, or for a node that shares its file system."""
    return any(not node.storage for node in inputs.where.facts.nodes)


def on_nodes(inputs: CommandContext, options: SuiteOptions, do: OnNode, nodes: Sequence[Node] | None = None) -> None:
    """Do something on these nodes at the same time: one of each file system, unless given. Raises what `do` raises, together."""
    nodes = first_of_storages(remote_nodes(inputs)) if nodes is None else nodes
    if not nodes:
        return
    wanted = node_addresses(inputs.where.system, inputs.here, accept_new=options.accept_new_host_keys)

    by = host_pool()

    async def work() -> list[MilabenchError]:
        machines, why = await connect_all([by.machine(wanted[node.name]) for node in nodes])
        async with remote_files_of(list(machines.values())) as (desks, closed):
            able = [node for node in nodes if node.name in desks]
            made = (do(node, desks[node.name], machines[node.name]) for node in able)
            done = await asyncio.gather(*made, return_exceptions=True)
        for each in done:
            if isinstance(each, BaseException) and not isinstance(each, MilabenchError):
                raise each
        lost = [Unreachable(text) for text in (*why.values(), *closed.values())]
        return [*lost, *(each for each in done if isinstance(each, MilabenchError))]

    if failed := by.run(work):
        raise type(failed[0])("\nerror: ".join(map(str, failed)))


def remote_paths_exist(
    inputs: CommandContext, options: SuiteOptions, wanted: Mapping[str, Sequence[str]], *, give: bool = True
) -> set[tuple[str, str]]:
    """Which of the paths `wanted` on each node exist, as (node, path); `give`: every node gets the benchmarks' folders first.

    Raises Unreachable.
    """
    found: set[tuple[str, str]] = set()
    nodes = remote_nodes(inputs)
    givers = {node.name for node in first_of_storages(nodes)} if give else set()

    async def look(node: Node, desk: RemoteFiles, _: RemoteHost) -> None:
        if node.name in givers:
            await upload_definitions(inputs, node, desk)
        paths = wanted.get(node.name, ())
        there = await desk.look(paths) if paths else ()
        found.update((node.name, path) for path, is_there in zip(paths, there, strict=True) if is_there)

    on_nodes(inputs, options, look, [node for node in nodes if node.name in givers or wanted.get(node.name)])
    return found


async def upload_definitions(inputs: CommandContext, node: Node, desk: RemoteFiles) -> None:
    """Give a node the folders of the selected benchmarks. Raises Unreachable, ConfigError for two that would be one there."""
    given: dict[str, str] = {}
    for bench in inputs.benches:
        folder = folder_on(node, bench, inputs.where)
        if folder == bench.folder or not isinstance(bench.config.definition, Path):
            continue
        if given.setdefault(folder, bench.folder) != bench.folder:
            what = f"{bench.folder} and {given[folder]} would be one folder on {node.name}"
            raise ConfigError(f"{bench.config.name}: {what}: {folder}; rename one of them")
    for place, folder in given.items():
        await desk.send(Path(folder), place)


def copy_folders(inputs: CommandContext, options: SuiteOptions) -> None:
    """Copy the folders that `system.sync` names, data and cache, to every other file system; what else is there stays.

    Raises Unreachable.
    """
    here = inputs.where.dirs
    wanted = [
        name for name in ("data", "cache") if name in inputs.where.system.sync and Path(getattr(here, name)).is_dir()
    ]

    async def copy(node: Node, desk: RemoteFiles, _: RemoteHost) -> None:
        for name in wanted if node.storage else ():
            there = getattr(dirs_at(inputs.where, node), name)
            await desk.send(Path(getattr(here, name)), there, keep=True, thorough=False)

    if wanted:
        on_nodes(inputs, options, copy)


def interpreters(inputs: CommandContext, plan: Plan) -> dict[str, list[str]]:
    """The interpreters that the plan needs on other nodes; of each file system one node is asked."""
    nodes = {node.name: node for node in remote_nodes(inputs)}
    first = {node.storage: node.name for node in reversed(list(nodes.values()))}
    wanted: dict[str, list[str]] = {}
    for step in plan.steps:
        if step.node in nodes and step.venv:
            paths = wanted.setdefault(first[nodes[step.node].storage], [])
            if f"{step.venv}/bin/python" not in paths:
                paths.append(f"{step.venv}/bin/python")
    return wanted


def findings_of(
    system: SystemConfig, told: Mapping[str, HostReport], local: Node | None, base: str
) -> list[NodeFinding]:
    """What can be said of nodes that were asked, those that said nothing among them."""
    nodes = ([local] if local is not None else []) + [
        node_of(name, said) for name, said in told.items() if not said.why
    ]
    silent = [
        NodeFinding(node=name, what="reach", state="bad", says=said.why.removeprefix(f"{name}: "))
        for name, said in told.items()
        if said.why
    ]
    bases = {entry.name: entry.base for entry in system.nodes}
    return [*silent, *compare_nodes(nodes, base=base, bases=bases)]
