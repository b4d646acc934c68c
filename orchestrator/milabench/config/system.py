"""The system file as values: its nodes have names and addresses that can stand in paths and commands, and one is main."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from milabench.config.kinds import INVALID, ValueParser
from milabench.config.origin import Origins
from milabench.config.schema import SYSTEM, NodeConfig, SystemConfig
from milabench.config.source_map import Located, mapping_at, plain

_ALLOWED: Final = {
    "name": ("name of a node", re.compile(r"\w[\w.@:-]*")),
    "ip": ("address", re.compile(r"[\w:\[][\w.:%\[\]-]*")),
    "user": ("user", re.compile(r"(\w[\w.@+\\-]*\$?)?")),
    "proxy_jump": ("jump host", re.compile(r"([\w\[][\w.@:%,\[\]-]*)?")),
}


def parse_system(node: Located, parser: ValueParser, *, arch_is_given: bool) -> SystemConfig:
    """Return the system that `system:` describes, its main node first; problems are noted."""
    values = SYSTEM.values(node, "system", parser)
    if values is INVALID:
        return SystemConfig(origin=Origins(mapping_at({}, node.mark)))
    system: SystemConfig = SYSTEM.build(values, raw=plain(node), origin=Origins(node))
    nodes: tuple[NodeConfig, ...] = system.nodes
    if nodes:
        _check_nodes(nodes, node.value["nodes"], parser)
        if not any(entry.main for entry in nodes):
            nodes = (replace(nodes[0], main=True), *nodes[1:])
    return replace(
        system,
        arch=system.arch if arch_is_given else None,
        nodes=tuple(sorted(nodes, key=lambda entry: not entry.main)),
    )


def _check_nodes(nodes: Sequence[NodeConfig], located: Located, parser: ValueParser) -> None:
    items: list[Located] = located.value
    mains = [index for index, node in enumerate(nodes) if node.main]
    if len(mains) > 1:
        what = f"{len(mains)} nodes are main"
        parser.reject(items[mains[1]], f"system.nodes.{mains[1]}.main", what, "leave one")
    if not mains and len(nodes) > 1 and any("main" in item.value for item in items):
        what = f"none of {', '.join(node.name for node in nodes)} is main"
        hint = "set `main: true` on one; without any `main` it is the first"
        parser.reject(located, "system.nodes", what, hint)
    by_name: dict[str, int] = {}
    by_address: dict[tuple[str, int], int] = {}
    for index, (node, item) in enumerate(zip(nodes, items, strict=True)):
        path = f"system.nodes.{index}"
        _check_node(node, item, path, parser)
        other = by_name.setdefault(node.name, index)
        if other != index:
            what = f"two nodes are named {node.name!r}"
            parser.reject(item, f"{path}.name", what, f"the other is at {items[other].mark}")
        other = by_address.setdefault((node.ip, node.port), index)
        if other != index and nodes[other].name != node.name:
            what = f"{node.name!r} and {nodes[other].name!r} are one machine, {node.ip} port {node.port}"
            parser.reject(item, f"{path}.ip", what, f"the other is at {items[other].mark}")


def _check_node(node: NodeConfig, item: Located, path: str, parser: ValueParser) -> None:
    """Check that what becomes part of paths, markers and command lines holds nothing that means something else there."""
    prefix = f"{node.name}: " if node.name else ""
    for name, (noun, allowed) in _ALLOWED.items():
        text = getattr(node, name)
        if name in item.value and not allowed.fullmatch(text):
            what = f"{prefix}{text!r} is not a valid {noun}"
            hint = "use letters, digits and . _ - : @, and no - at its start"
            parser.reject(item.value[name], f"{path}.{name}", what, hint)
    if node.base and not node.base.startswith("/"):
        what = f"{prefix}{node.base!r} is not an absolute path"
        parser.reject(item.value.get("base") or item, f"{path}.base", what, "begin it with /")
