"""Values that remember where they were written: a tree of plain data with a place at every node, and the merge of
two such trees.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from milabench.errors import Problem

DYNAMIC: Final = 1
"""Flag: somewhere below there may be a `${...}` to resolve."""
PENDING: Final = 2
"""Flag: somewhere below there may be a `!delete` or an `{append: [...]}` that has not been applied yet."""


class Deleted(Enum):
    """The value of a key that is removed from the lower layers."""

    DELETED = "!delete"


DELETED: Final = Deleted.DELETED
Data: TypeAlias = Any
"""None, bool, int, float, str, DELETED, a dict of Located by key, or a list of Located."""


class SourceLocation(NamedTuple):
    """A source that was read: its name in messages, and the absolute folder to which its relative paths refer."""

    name: str
    folder: str


class Mark(NamedTuple):
    """A place in a source. Line and column count from 1, line 0 is the whole source (an option on the command line)."""

    source: SourceLocation
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.source.name}:{self.line}:{self.column}" if self.line else self.source.name


BUILT_IN: Final = Mark(SourceLocation("built-in default", ""), 0, 0)


class WrittenFloat(float):
    """A float in the notation `1e-5`, which YAML 1.1 takes for text: it counts as a number and prints as it was
    written.
    """

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> WrittenFloat:
        number = super().__new__(cls, text.replace("_", ""))
        number.text = text
        return number

    def __str__(self) -> str:
        return self.text

    def __format__(self, spec: str) -> str:
        return float.__format__(self, spec) if spec else self.text

    def __reduce__(self) -> tuple[type[WrittenFloat], tuple[str]]:
        return WrittenFloat, (self.text,)


@dataclass(slots=True, eq=False)
class Located:
    """A value, its place, and the values it replaced, nearest first.

    Treated as frozen once built. It is not declared so because a suite makes hundreds of thousands. `fresh`: this
    mapping hides the lower layers instead of merging into them. `raw`: the text before its interpolations were
    resolved. `formatted`: the values of a matrix were put into this text. `key`: the place of the key whose value
    this is.
    """

    value: Data
    mark: Mark
    replaced: tuple[Located, ...] = ()
    flags: int = 0
    fresh: bool = False
    raw: str | None = None
    formatted: bool = False
    key: Mark | None = None

    def holding(self, value: Data, flags: int) -> Located:
        """Return the same node with another value."""
        return Located(value, self.mark, self.replaced, flags, self.fresh, self.raw, self.formatted, self.key)


class MergeError(Exception):
    """Two values that cannot be merged. `keys` is the path to them, innermost first."""

    def __init__(self, low: Located, high: Located) -> None:
        super().__init__("two values cannot be merged")
        self.low = low
        self.high = high
        self.keys: list[str] = []

    def problem(self) -> Problem:
        """Return the message for the user."""
        return Problem(
            str(self.high.mark),
            ".".join(reversed(self.keys)),
            f"append needs a list to append to, got {display_value(self.low)}",
            "give the whole list",
            f"it would extend {display_value(self.low)}, set at {self.low.mark}",
        )


def mapping_at(children: dict[str, Located], mark: Mark) -> Located:
    """Return a mapping node. Its flags follow from its children."""
    flags = 0
    for child in children.values():
        flags |= child.flags
    if _is_append(children):
        flags |= PENDING
    return Located(children, mark, flags=flags)


def sequence(items: list[Located], mark: Mark) -> Located:
    """Return a list node. Its flags follow from its items."""
    flags = 0
    for item in items:
        flags |= item.flags
    return Located(items, mark, flags=flags)


def scalar(value: Data, mark: Mark) -> Located:
    """Return a leaf."""
    if type(value) is str:
        return Located(value, mark, flags=DYNAMIC if "${" in value else 0)
    return Located(value, mark, flags=PENDING if value is DELETED else 0)


def built_in(value: Data) -> Located:
    """Return the leaf of a value that no file gives."""
    return scalar(value, BUILT_IN)


def located(value: object, mark: Mark) -> Located:
    """Return plain data as a tree in which every node has the same place."""
    if isinstance(value, dict):
        return mapping_at({str(key): located(item, mark) for key, item in value.items()}, mark)
    if isinstance(value, list | tuple):
        return sequence([located(item, mark) for item in value], mark)
    return scalar(value, mark)


def plain(node: Located) -> Any:
    """Return the tree as plain data, without places. Nothing pending may be left in it."""
    value = node.value
    if type(value) is dict:
        return {key: plain(child) for key, child in value.items()}
    if type(value) is list:
        return [plain(child) for child in value]
    return value


def merge_documents(low: Located, high: Located) -> Located:
    """Return the two trees merged, `high` winning.

    Mapping into mapping: recursive. `{append: [...]}` over a list: concatenates. `!delete`: removes. Anything else
    replaces the lower value and remembers it. Deletions and appends that have met nothing yet stay in the tree (see
    `settled`), which makes merging associative. Raises MergeError where something is appended to a value that is not a list.
    """
    above = high.value
    below = low.value
    if type(above) is dict and not high.fresh:
        if _is_append(above):
            return _appended(low, high)
        if type(below) is dict and not _is_append(below):
            # What only one side has is shared, not copied: thousands of benchmarks inherit one template.
            children = below.copy()
            for key, child in above.items():
                old = children.get(key)
                if old is None:
                    children[key] = child
                    continue
                try:
                    children[key] = merge_documents(old, child)
                except MergeError as failure:
                    failure.keys.append(key)
                    raise
            flags = low.flags | high.flags
            return Located(children, high.mark, low.replaced, flags, low.fresh, key=high.key)
    # Fresh: a mapping that took the place of something else hides what lies below that too, when the two are merged
    # over a third tree. Without it, the order of merging would matter.
    replaced = (*high.replaced, low, *low.replaced)
    return Located(above, high.mark, replaced, high.flags, type(above) is dict, high.raw, high.formatted, high.key)


def settled(node: Located) -> Located:
    """Return the tree without deleted values, and with lists instead of appends to missing lists."""
    if not node.flags & PENDING:
        return node
    value = node.value
    flags = node.flags & ~PENDING
    if type(value) is dict:
        if _is_append(value):
            appended = settled(value["append"])
            return node.holding(appended.value, appended.flags)
        children = {key: settled(child) for key, child in value.items() if child.value is not DELETED}
        return node.holding(children, flags)
    if type(value) is list:
        items = [settled(child) for child in value if child.value is not DELETED]
        return node.holding(items, flags)
    return node.holding(None, flags)


def leaves(node: Located, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Located]]:
    """Yield every node of the tree with the keys that lead to it, a container before its items."""
    yield path, node
    value = node.value
    if type(value) is dict:
        for key, child in value.items():
            yield from leaves(child, (*path, key))
    elif type(value) is list:
        for index, child in enumerate(value):
            yield from leaves(child, (*path, str(index)))


def display_value(node: Located) -> str:
    """Return a value as messages show it: scalars as written in YAML, containers by their kind."""
    value = node.value
    if type(value) is dict:
        return "a mapping"
    if type(value) is list:
        return "a list"
    if value is DELETED:
        return "!delete"
    return shown_scalar(value)


def shown_scalar(value: object) -> str:
    """Return a scalar as messages show it, cut at 80 characters."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return repr(value if len(value) <= 80 else value[:77] + "...")
        case int() if value.bit_length() > 256:
            return "a very large integer"
        case _:
            return str(value)


def _is_append(children: dict[str, Located]) -> bool:
    # With another key beside it, `append` is a key like any other.
    if len(children) != 1:
        return False
    only = children.get("append")
    return only is not None and type(only.value) is list


def _appended(low: Located, high: Located) -> Located:
    extra = high.value["append"]
    below = low.value
    flags = low.flags | high.flags
    if type(below) is dict and _is_append(below):
        items = sequence([*below["append"].value, *extra.value], extra.mark)
        return Located({"append": items}, high.mark, low.replaced, flags, key=high.key)
    if type(below) is list:
        return Located(
            [*below, *extra.value], high.mark, (low, *low.replaced), flags & ~PENDING | extra.flags, key=high.key
        )
    if below is None or below is DELETED:
        return Located(extra.value, high.mark, (low, *low.replaced), extra.flags, key=high.key)
    raise MergeError(low, high)


# --- where a value comes from ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a value comes from: `where` is `file:line:column`, with the size that gave it, an option or a built-in default.

    `replaced`: place and value of everything that it replaced, nearest first. `interpolated`: its text before
    `${...}` was resolved, None where there was nothing to resolve.
    """

    where: str
    replaced: tuple[tuple[str, object], ...] = ()
    interpolated: str | None = None


class Origins(Mapping[str, Origin]):
    """The origin of every value of a benchmark by its dotted key (`argv.--lr`). Worked out when first asked for.

    `sizes` are the chosen sizes that were laid over it, with their values.
    """

    __slots__ = ("_by_key", "_node", "_sizes")

    def __init__(self, node: Located, sizes: Mapping[str, Located] = MappingProxyType({})) -> None:
        self._node = node
        self._sizes = sizes
        self._by_key: dict[str, Located] | None = None

    def _nodes(self) -> dict[str, Located]:
        if self._by_key is None:
            # Most commands never ask where a value comes from; the walk over all leaves is for those that do.
            self._by_key = {".".join(path): node for path, node in leaves(self._node) if path}
        return self._by_key

    def node(self, key: str) -> Located | None:
        """Return the value of a key as it is kept, with its place. None where it is missing."""
        children = self._node.value
        # Planning asks every benchmark for keys of its own: no walk for a name that leads no deeper.
        if "." not in key and type(children) is dict:
            found: Located | None = children.get(key)
            return found
        return self._nodes().get(key)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.node(key) is not None

    def __getitem__(self, key: str) -> Origin:
        node = self.node(key)
        if node is None:
            raise KeyError(key)
        # A mark alone says too little: all of an override on the command line has one, and so have an anchor and its aliases.
        written = ((size, *each) for size, tree in self._sizes.items() for each in leaves(tree))
        here = ((size, leaf) for size, path, leaf in written if ".".join(path) == key)
        size_of = {each.mark: size for size, leaf in here for each in (leaf, *leaf.replaced)}

        def place(mark: Mark) -> str:
            return f"{mark}, by the size {size_of[mark]}" if mark in size_of else str(mark)

        replaced = tuple((place(old.mark), _replaced_value(old)) for old in node.replaced)
        return Origin(where=place(node.mark), replaced=replaced, interpolated=node.raw)

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes())

    def __len__(self) -> int:
        return len(self._nodes())

    def data(self, key: str) -> Any:
        """Return a value as plain data, as it was written. None where it is missing."""
        node = self.node(key)
        return None if node is None else plain(node)

    def where(self, key: str) -> str:
        """Return the place of a value, or of the nearest container with a place. Empty where none is known."""
        while key:
            if (node := self.node(key)) is not None:
                return str(node.mark)
            key = key.rpartition(".")[0]
        return ""

    def problem(self, key: str, what: str, hint: str = "") -> Problem:
        """Return a problem with a value, at its place."""
        return Problem(self.where(key), key, what, hint)


def _replaced_value(node: Located) -> object:
    return DELETED.value if node.value is DELETED else plain(settled(node))
