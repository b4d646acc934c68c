"""Works on the other machines of a system: sends them folders, finds which paths exist there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from milabench.errors import ConfigError, MilabenchError, Unreachable
from milabench.execute.inventory import COMPLETE
from milabench.facts.compare import compare_nodes
from milabench.facts.model import Node
from milabench.plan.context import definition_on, dirs_at
from milabench.plan.model import Plan
from milabench.shown import grouped
from milabench.workflow.options import CommandContext

if TYPE_CHECKING:
    from milabench.execute.file_sync import RemoteFiles
    from milabench.execute.remote_host import RemoteHost

    OnNode = Callable[[Node, RemoteFiles, RemoteHost], Awaitable[None]]


def remote_nodes(context: CommandContext) -> tuple[Node, ...]:
    """Return the nodes that are not this machine and can be reached, without nodes of a future job."""
    allocated = context.allocation.nodes if context.allocation is not None else ()
    stated = {node.name for node in allocated if not node.job}
    return tuple(node for node in context.nodes if not node.local and node.name not in stated)


def first_of_storages(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return a node for each file system."""
    return tuple(own[0] for own in grouped((node.storage, node) for node in nodes).values())


def require_healthy(context: CommandContext) -> None:
    """Raise Unreachable with everything on the nodes that prevents a run, unless the options say to ignore it."""
    if not remote_nodes(context):
        return
    findings = compare_nodes(context.nodes, base=context.dirs.base, is_allocated=context.allocation is not None)
    bad = [finding for finding in findings if finding.state == "bad"]
    if context.options.ignore_node_checks:
        for finding in bad:
            context.session.warn(str(finding))
    elif bad:
        lines = "\nerror: ".join(map(str, bad))
        raise Unreachable(f"{lines}\n       run all the same with --ignore-node-checks")


def is_needed_here(context: CommandContext) -> bool:
    """Return whether environments and data are needed on this machine: for itself, or for a node that shares its files."""
    return any(not node.storage for node in context.nodes)


def on_nodes(context: CommandContext, do: OnNode, nodes: Sequence[Node] | None = None) -> None:
    """Call `do` for these nodes concurrently. Default: a node of each file system. Raises the errors of `do` together."""
    nodes = first_of_storages(remote_nodes(context)) if nodes is None else nodes
    if not nodes:
        return
    import asyncio  # for whoever has other machines, as the rest of it

    from milabench.execute.file_sync import remote_files_of
    from milabench.workflow.node_query import node_addresses

    addresses = node_addresses(
        context.system,
        context.machine,
        accept_new=context.options.accept_new_host_keys,
        allocation=context.allocation,
    )
    pool = context.session.hosts

    async def work() -> list[MilabenchError]:
        hosts = {node.name: pool.machine(addresses[node.name]) for node in nodes}
        async with remote_files_of(list(hosts.values())) as (files, why):
            reached = [node for node in nodes if node.name in files]
            calls = (do(node, files[node.name], hosts[node.name]) for node in reached)
            # An error on one node must not leave the work on the others half done.
            results = await asyncio.gather(*calls, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, MilabenchError):
                raise result
        lost = [Unreachable(text) for text in why.values()]
        return [*lost, *(result for result in results if isinstance(result, MilabenchError))]

    if errors := pool.run(work):
        # There is one exit code: that of the first.
        raise type(errors[0])("\nerror: ".join(map(str, errors)))


def remote_paths_exist(
    context: CommandContext, wanted: Mapping[str, Sequence[str]], *, upload: bool = True
) -> set[tuple[str, str]]:
    """Return which of the paths `wanted` on each node exist, as (node, path).

    `upload`: first send every file system the benchmarks' folders. Raises Unreachable.
    """
    # One visit per node for everything that is asked of it: each costs a round trip, and the first a connection.
    existing: set[tuple[str, str]] = set()
    nodes = remote_nodes(context)
    receivers = {node.name for node in first_of_storages(nodes)} if upload else set()

    async def look(node: Node, files: RemoteFiles, _: RemoteHost) -> None:
        if node.name in receivers:
            await upload_definitions(context, node, files)
        paths = wanted.get(node.name, ())
        exist = await files.look(paths) if paths else ()
        existing.update((node.name, path) for path, does in zip(paths, exist, strict=True) if does)

    on_nodes(context, look, [node for node in nodes if node.name in receivers or wanted.get(node.name)])
    return existing


async def upload_definitions(context: CommandContext, node: Node, files: RemoteFiles) -> None:
    """Send a node the folders of the selected benchmarks, and of modules that they share.

    Raises Unreachable, ConfigError for two folders with the same remote name.
    """
    folders: dict[str, str] = {}
    for bench in context.benches:
        if not isinstance(bench.config.definition, Path):
            continue
        for folder in (bench.folder, bench.modules):
            remote = definition_on(node, bench, folder, context.plan_context)
            if remote == folder:
                continue
            if folders.setdefault(remote, folder) != folder:
                what = f"{folder} and {folders[remote]} would be the same folder on {node.name}"
                raise ConfigError(f"{bench.config.name}: {what}: {remote}. Rename a folder")
    for remote, folder in folders.items():
        await files.send(Path(folder), remote)


def copy_folders(context: CommandContext) -> None:
    """Copy the folders that `system.sync` names, data and cache, to every other file system. Extra files there stay.

    Raises Unreachable.
    """
    local = {name: Path(getattr(context.dirs, name)) for name in ("data", "cache") if name in context.system.sync}

    async def copy(node: Node, files: RemoteFiles, _: RemoteHost) -> None:
        dirs = dirs_at(context.plan_context, node)
        for name, folder in local.items() if node.storage else ():
            if folder.is_dir():
                await files.send(folder, getattr(dirs, name), keep=True, thorough=False)

    if any(folder.is_dir() for folder in local.values()):
        on_nodes(context, copy)


def environment_marks(context: CommandContext, plan: Plan) -> dict[str, list[str]]:
    """Return the files by which the plan's environments are known on other nodes, by the first node of each file system.

    For an environment that milabench made, the mark that is written last. For any other, its interpreter.
    """
    mark = COMPLETE if context.plan_context.environments else "bin/python"
    nodes = {node.name: node for node in remote_nodes(context)}
    first = {node.storage: node.name for node in first_of_storages(list(nodes.values()))}
    used = [step for step in plan.steps if step.node in nodes and step.venv]
    return grouped(dict.fromkeys((first[nodes[step.node].storage], f"{step.venv}/{mark}") for step in used))
