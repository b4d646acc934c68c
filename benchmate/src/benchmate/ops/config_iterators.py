"""Config iterators: from the `build` or `input` list of a configuration to one specification after another, with its id."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping
from typing import Any

from benchmate.ops.macros import expand_spec

DEFAULT = "DefaultConfigIterator"


class ConfigIterator(abc.ABC):
    """Yields (id, specification) for each entry of `configs[key]`; `configs` is one item of the operator's "config" list.

    A class of one's own takes these three arguments, yields ids whose text is unique, and is registered under a name with
    `register_config_iterator`.
    """

    def __init__(self, configs: Mapping[str, Any], key: str, device: str) -> None:
        self.configs, self.key, self.device = configs, key, device

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return self

    @abc.abstractmethod
    def __next__(self) -> tuple[Any, Any]:
        """The next (id, specification). Raises StopIteration after the last."""


class _Prepared(ConfigIterator):
    def __init__(self, configs: Mapping[str, Any], key: str, device: str) -> None:
        super().__init__(configs, key, device)
        self._specs = self._all()

    @abc.abstractmethod
    def _all(self) -> Iterator[tuple[Any, Any]]: ...

    def __next__(self) -> tuple[Any, Any]:
        return next(self._specs)


class DefaultConfigIterator(_Prepared):
    """Each specification as it stands; its id is its place in the list."""

    def _all(self) -> Iterator[tuple[Any, Any]]:
        yield from enumerate(self.configs[self.key])


class RangeConfigIterator(_Prepared):
    """What the range macros of each specification stand for; ids are `place_combination`."""

    def _all(self) -> Iterator[tuple[Any, Any]]:
        for place, spec in enumerate(self.configs[self.key]):
            for combination, one in enumerate(expand_spec(spec.get("args") or (), spec.get("kwargs") or {})):
                yield f"{place}_{combination}", {**spec, **{key: one[key] for key in one if key in spec}}


class DummyConfigIterator(DefaultConfigIterator):
    """The same, unchecked: for operators whose generator understands something else than arguments."""
