"""Config iterators: from the `build` or `input` list of a configuration to one specification after another, with its id."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import Any

from benchmate.ops.macros import expand_spec
from benchmate.ops.types import JsonMapping

Identified = tuple[Any, Any]
"""An id, whose text is unique, and a specification; what both are is up to the iterator."""


class ConfigIterator(abc.ABC):
    """Yields (id, specification) for each entry of `configs[key]`; `configs` is one item of the operator's "config" list.

    A class of one's own takes these three arguments, yields ids whose text is unique, and is registered under a name with
    `register_config_iterator`.
    """

    def __init__(self, configs: JsonMapping, key: str, device: str) -> None:
        self.configs, self.key, self.device = configs, key, device

    def __iter__(self) -> Iterator[Identified]:
        return self

    @abc.abstractmethod
    def __next__(self) -> Identified:
        """Return the next (id, specification). Raises StopIteration after the last."""


class GeneratedConfigIterator(ConfigIterator):
    """One that is written as a generator."""

    def __init__(self, configs: JsonMapping, key: str, device: str) -> None:
        super().__init__(configs, key, device)
        self._specs = self.generate()

    @abc.abstractmethod
    def generate(self) -> Iterator[Identified]:
        """Yield every (id, specification)."""

    def __next__(self) -> Identified:
        return next(self._specs)

    def expand_all(self) -> Iterator[tuple[str, JsonMapping, JsonMapping]]:
        """Yield (id, specification, its expansion) for all that macros stand for; ids are `variant_combination`."""
        for variant, spec in enumerate(self.configs[self.key]):
            for combination, expanded in enumerate(expand_spec(spec.get("args") or (), spec.get("kwargs") or {})):
                yield f"{variant}_{combination}", spec, expanded


class DefaultConfigIterator(GeneratedConfigIterator):
    """Each specification as it stands; its id is its index in the list."""

    def generate(self) -> Iterator[Identified]:
        yield from enumerate(self.configs[self.key])


class RangeConfigIterator(GeneratedConfigIterator):
    """What the range macros of each specification stand for."""

    def generate(self) -> Iterator[Identified]:
        for number, spec, expanded in self.expand_all():
            yield number, {**spec, **{key: expanded[key] for key in expanded if key in spec}}


class DummyConfigIterator(DefaultConfigIterator):
    """The same as the default one, unchecked: for operators whose generator understands something else than arguments."""
