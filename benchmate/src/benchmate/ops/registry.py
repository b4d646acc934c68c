"""The names of operators, config iterators and data generators that a configuration may use. builtin.py fills it."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from benchmate.ops.base import OpsError
from benchmate.ops.config_iterators import ConfigIterator, DefaultConfigIterator
from benchmate.ops.interface import DataGenerator, OperatorInterface

T = TypeVar("T")

ENTRY_POINTS = "benchmate.ops"

OperatorSource = OperatorInterface | Callable[[], OperatorInterface]

op_map: dict[str, OperatorSource] = {}
"""Operators by name. A callable that takes nothing makes the operator when it is first asked for."""
config_iterator_map: dict[str, Callable[..., ConfigIterator]] = {}
data_generator_map: dict[str, Callable[..., DataGenerator]] = {}


def register_operator(name: str, operator: OperatorSource) -> None:
    """Add an operator: an instance, or a function that makes it. Raises ValueError when the name is taken."""
    _add(op_map, "operator", name, operator)


def register_operators(operators: Mapping[str, OperatorSource]) -> None:
    """Add several operators. Raises ValueError at the first name that is taken."""
    for name, operator in operators.items():
        register_operator(name, operator)


def register_config_iterator(name: str, iterator_class: Callable[..., ConfigIterator]) -> None:
    """Add a config iterator. Raises ValueError when the name is taken."""
    _add(config_iterator_map, "config iterator", name, iterator_class)


def register_data_generator(name: str, generator_class: Callable[..., DataGenerator]) -> None:
    """Add a data generator: a class with `get_data(config, device) -> (args, kwargs)`. Raises ValueError when taken."""
    _add(data_generator_map, "data generator", name, generator_class)


def find_config_iterator(name: str | None, where: str) -> Callable[..., ConfigIterator]:
    """Return the config iterator of a name, the default without a name. Raises OpsError for an unregistered name."""
    if name is None:
        return DefaultConfigIterator
    return _find(config_iterator_map, "config iterator", name, where)


def find_data_generator(name: str, where: str) -> Callable[..., DataGenerator]:
    """Return the data generator of a name. Raises OpsError for an unregistered name."""
    return _find(data_generator_map, "data generator", name, where)


def import_modules(names: Iterable[str]) -> None:
    """Import the modules of `--import`, which register their contents. Raises OpsError when any cannot be imported."""
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:
            raise OpsError(f"--import {name}: {type(error).__name__}: {error}") from error


def import_entry_points() -> list[str]:
    """Import the entries of installed packages in the group `benchmate.ops`. Return a line for each that failed."""
    from importlib.metadata import entry_points

    failures = []
    for point in entry_points(group=ENTRY_POINTS):
        try:
            loaded = point.load()
            if callable(loaded):
                loaded()
        except Exception as error:  # whatever somebody else's package raises: it costs its operators, not the run
            failures.append(f"entry point {point.name}: {type(error).__name__}: {error}")
    return failures


def spelling_hint(name: str, known: Iterable[str]) -> str:
    """Return a hint after a wrong name. Empty when no known name is close."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f". Did you mean '{close[0]}'?" if close else ""


def _add(table: dict[str, T], kind: str, name: str, value: T) -> None:
    if name in table:
        raise ValueError(f"{kind} '{name}' is registered already")
    table[name] = value


def _find(table: Mapping[str, T], kind: str, name: str, where: str) -> T:
    if name not in table:
        hint = spelling_hint(name, table) or f". Known: {', '.join(sorted(table))}"
        raise OpsError(f"{where}: unknown {kind} '{name}'{hint}")
    return table[name]
