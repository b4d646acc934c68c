"""The sizes of a benchmark: its changes between a processor, a device, a node and a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from milabench.config.problems import Problems, did_you_mean
from milabench.config.source_map import DELETED, Located, built_in, display_value, mapping_at, settled
from milabench.errors import Problem

SIZES: Final = ("tiny", "device", "node", "cluster")
DEFAULT_SIZE: Final = "device"
SIZES_KEY: Final = "sizes"
SAME_IN_ALL: Final = ("inherits", "definition", "command", "driver", "task", "matrix", "job", "name", SIZES_KEY)
"""Keys that no size may have: it is the same program at all sizes."""
_LAID_OVER: Final[Mapping[str, tuple[str, ...]]] = {"node": ("device",), "cluster": ("device", "node")}


class ChosenSize(NamedTuple):
    """The requested size, the place that requests it, and all sizes of a benchmark.

    `layers` are laid over the benchmark in this order. `lacks`: the requested size is missing.
    """

    asked: Located
    sizes: Located
    layers: Mapping[str, Located] = {}
    lacks: Problem | None = None

    @property
    def size(self) -> str:
        """The size that is laid over the benchmark. Empty where the requested size is missing."""
        return "" if self.lacks is not None else str(self.asked.value)


def size_of(node: Located | None) -> Located:
    """Return the size that the file key `size` asks for. The default where it asks for none, or for one that is not known."""
    return node if node is not None and node.value in SIZES else built_in(DEFAULT_SIZE)


def layers_of(size: str) -> tuple[str, ...]:
    """Return the sizes that are laid over a benchmark for a size: `device` below `node`, both below `cluster`."""
    return (*_LAID_OVER.get(size, ()), size)


def split_sizes(node: Located) -> tuple[Located, Located | None]:
    """Return a description without its sizes, and the sizes."""
    if SIZES_KEY not in node.value:
        return node, None
    rest = {key: child for key, child in node.value.items() if key != SIZES_KEY}
    return node.holding(rest, mapping_at(rest, node.mark).flags), node.value[SIZES_KEY]


def settled_but_for_sizes(node: Located) -> Located:
    """Return a settled description, except for its sizes, whose deletions and appends cannot be applied yet."""
    rest, sizes = split_sizes(node)
    done = settled(rest)
    if sizes is None:
        return done
    return done.holding({**done.value, SIZES_KEY: sizes}, done.flags | sizes.flags)


def sizes_by_name(name: str, sizes: Located, problems: Problems) -> dict[str, Located]:
    """Return each size with its keys. A size without keys is empty. Problems are noted, and wrong entries left out."""
    if type(sizes.value) is not dict:
        if sizes.value is not None:
            what = f"expected a mapping from {', '.join(SIZES)} to keys, got {display_value(sizes)}"
            problems.note(sizes.mark, f"{name}.{SIZES_KEY}", what)
        return {}
    good: dict[str, Located] = {}
    for size, node in sizes.value.items():
        where = f"{name}.{SIZES_KEY}"
        if size not in SIZES:
            hint = did_you_mean(size, SIZES) or f"known: {', '.join(SIZES)}"
            problems.note(node.key or node.mark, where, f"unknown size {size!r}", hint)
        elif node.value is DELETED:
            continue
        elif node.value is None:
            good[size] = mapping_at({}, node.mark)
        elif type(node.value) is not dict:
            problems.note(node.mark, f"{where}.{size}", f"expected a mapping, got {display_value(node)}")
        else:
            good[size] = _without_fixed(f"{where}.{size}", node, problems)
    return good


def _without_fixed(path: str, node: Located, problems: Problems) -> Located:
    """Return a size without the keys that no size may have, which are noted."""
    kept = dict(node.value)
    for key in SAME_IN_ALL:
        if (child := kept.pop(key, None)) is not None:
            hint = "write it next to `sizes`, not inside: another program is another benchmark"
            problems.note(child.key or child.mark, path, f"{key!r} cannot differ between sizes", hint)
    return node if len(kept) == len(node.value) else node.holding(kept, node.flags)


def chosen_size(name: str, sizes: Located, asked: Located, problems: Problems) -> ChosenSize:
    """Return the size of a benchmark, with the values that it lays over it.

    Whether the benchmark needs the size is not known yet: that it is missing is no problem of the suite.
    """
    by_name, size = sizes_by_name(name, sizes, problems), str(asked.value)
    if type(sizes.value) is dict and (size not in sizes.value or sizes.value[size].value is DELETED):
        known = [known for known in SIZES if known in by_name]
        others = f"it has {', '.join(known)}" if known else "it has none"
        what = f"the size {size!r} is missing"
        return ChosenSize(asked, sizes, lacks=Problem(str(sizes.mark), f"{name}.{SIZES_KEY}", what, others))
    return ChosenSize(asked, sizes, {layer: by_name[layer] for layer in layers_of(size) if layer in by_name})
