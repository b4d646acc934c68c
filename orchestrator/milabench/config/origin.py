"""Where the values of a benchmark come from: files, lines and columns, and what they replaced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from milabench.config.source_map import DELETED, Located, Mark, leaves, plain, settled


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a value comes from.

    `replaced`: place and value of everything that it replaced, nearest first. `interpolated`: its text before
    `${...}` was resolved, None where there was nothing to resolve. Line 0: not a place in a file but an option or a
    built-in default.
    """

    file: str
    line: int
    column: int
    replaced: tuple[tuple[str, Any], ...] = ()
    interpolated: str | None = None

    @property
    def where(self) -> str:
        """`file:line:column`, or the option."""
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


class Origins(Mapping[str, Origin]):
    """The origin of every value of a benchmark by its dotted key (`argv.--lr`); worked out when first asked for."""

    __slots__ = ("_by_key", "_node")

    def __init__(self, node: Located) -> None:
        self._node = node
        self._by_key: dict[str, Located] | None = None

    def _nodes(self) -> dict[str, Located]:
        if self._by_key is None:
            self._by_key = {".".join(path): node for path, node in leaves(self._node) if path}
        return self._by_key

    def __getitem__(self, key: str) -> Origin:
        return origin_of(self._nodes()[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes())

    def __len__(self) -> int:
        return len(self._nodes())

    def where(self, key: str) -> str:
        """Return the place of a value, or of the nearest container that has one; empty where nothing is known."""
        nodes = self._nodes()
        while key and key not in nodes:
            key = key.rpartition(".")[0]
        return str(nodes[key].mark) if key else ""

    def __copy__(self) -> Origins:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Origins:
        return self


def origin_of(node: Located) -> Origin:
    """Return the origin of one located value."""
    mark: Mark = node.mark
    return Origin(
        file=mark.source.name,
        line=mark.line,
        column=mark.column,
        replaced=tuple((str(old.mark), _replaced_value(old)) for old in node.replaced),
        interpolated=node.raw,
    )


def _replaced_value(node: Located) -> Any:
    return DELETED.value if node.value is DELETED else plain(settled(node))
