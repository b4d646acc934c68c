"""Options of a suite as words of a command line, and the nodes of a benchmark in the order of their ranks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any

Node = Mapping[str, Any]


def assemble_options(options: Mapping[str, Any] | Sequence[Any]) -> list[Any]:
    """Return the words of `argv`: a list as it is. A mapping as positional words, then options in the order given.

    In a mapping null leaves an option out, true gives its name alone, a list is joined with commas, and the list
    under `--` is put in as words. Raises ValueError for false.
    """
    if not isinstance(options, Mapping):
        return list(options)
    positional: list[Any] = []
    words: list[Any] = []
    for name, value in options.items():
        if value is None:
            continue
        if value is True:
            (words if name.startswith("-") else positional).append(name)
        elif value is False:
            raise ValueError(f"{name}: false. Write null to leave an option out")
        elif name == "--":
            words += value
        else:
            words += [name, ",".join(map(str, value)) if isinstance(value, list) else str(value)]
    return positional + words


def select_nodes(nodes: Iterable[Node], n: int) -> list[Node]:
    """Return at most `n` nodes, and at least one, the main node first."""
    return sorted(nodes, key=lambda node: not node.get("main", False))[: max(1, n)]


def enumerate_rank(nodes: Iterable[Node]) -> Iterator[tuple[int, Node]]:
    """Yield (rank, node) in the order given. The main node has rank 0."""
    ranks = iter(range(1, 1 << 30))
    for node in nodes:
        yield (0 if node.get("main", False) else next(ranks)), node


def deprecated(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with a DeprecationWarning at each call."""

    @wraps(function)
    def warned(*args: Any, **options: Any) -> Any:
        warnings.warn(f"{function.__name__} is deprecated", DeprecationWarning, stacklevel=2)
        return function(*args, **options)

    return warned
