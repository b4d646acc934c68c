"""Config iterators: from the `build` or `input` list of a configuration to its specifications in sequence, with their ids.

Macros are inclusive ranges, lists and copies. Their products never hold all their combinations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from benchmate.ops.base import JsonMapping, JsonObject, OpsError

Identified = tuple[Any, Any]
"""An id, whose text is unique, and a specification. The iterator decides both."""

META = ("__range__", "__list__", "__copy__")


class full_range:  # noqa: N801  (the name, and that it is called like a function, are the original's)
    """Numbers from `first` to `last`, both included where the step reaches it. A negative step counts down.

    Integers stay integers. It can be iterated again and again. Raises ValueError for a step of zero.
    """

    def __init__(self, first: float, last: float, step: float = 1) -> None:
        if step == 0:
            raise ValueError("a range has a step other than 0")
        self.first, self.last, self.step = first, last, step

    def __iter__(self) -> Iterator[float]:
        # The small share of a step forgives what binary fractions lose: 0.1 to 0.5 by 0.1 has five numbers.
        count = math.floor((self.last - self.first) / self.step + 1e-9) + 1
        return (self.first + index * self.step for index in range(count))


class IterableList:
    """A list that can be iterated again and again: the choices of an attribute."""

    def __init__(self, values: Sequence[object]) -> None:
        self.values = values

    def __iter__(self) -> Iterator[object]:
        return iter(self.values)


class ListProduct:
    """All combinations of the items of a list, the last item varying fastest. An item that is no iterable is a constant.

    Strings and mappings count as constants. Every combination is a list of its own.
    """

    def __init__(self, values: Sequence[object]) -> None:
        self.values = values

    def __iter__(self) -> Iterator[list[object]]:
        return map(list, _product(list(map(_choices, self.values))))


class TableProduct:
    """All combinations of the values of a mapping, in the order of its keys, the last key varying fastest."""

    def __init__(self, table: Mapping[str, object]) -> None:
        self.table = table

    def __iter__(self) -> Iterator[dict[str, object]]:
        for values in _product(list(map(_choices, self.table.values()))):
            yield dict(zip(self.table, values, strict=True))


def expand_spec(args: Sequence[JsonMapping], kwargs: Mapping[str, JsonMapping]) -> Iterator[JsonObject]:
    """Yield every {"args", "kwargs"} from the macros of a specification, free of macros.

    Positional arguments vary slower than keyword arguments, and in both the last varies fastest.
    """
    choices = list(map(argument_variants, (*args, *kwargs.values())))
    copies = [spec.get("__copy__") or () for spec in args]
    for combination in _product(choices):
        positional = cast("list[JsonMapping]", list(combination[: len(args)]))
        for index, rules in enumerate(copies):
            for rule in rules:
                positional[index] = _copy_attributes(positional, index, rule)
        yield {"args": positional, "kwargs": dict(zip(kwargs, combination[len(args) :], strict=True))}


def argument_variants(spec: JsonMapping) -> Iterable[JsonObject]:
    """Return every argument from an argument specification, free of `__range__` and `__list__`."""
    return TableProduct({key: _attribute(spec, key) for key in spec if key not in META})


def has_macros(spec: object) -> bool:
    """Whether a specification, or a nested one, carries a macro."""
    if isinstance(spec, Mapping):
        return any(key in META for key in spec) or any(has_macros(value) for value in spec.values())
    return isinstance(spec, list) and any(has_macros(item) for item in spec)


def _attribute(spec: JsonMapping, key: str) -> Iterable[object]:
    """Return the values of an attribute: several where a macro, or an item of its list, has several."""
    value, kind = spec[key], spec.get("type")
    if key in (spec.get("__list__") or ()):
        return cast("Iterable[object]", value)
    if kind in ("genericlist", "tuple") and key == "value":
        return ListProduct(list(map(argument_variants, value)))
    if key not in (spec.get("__range__") or ()):
        return (value,)
    if kind == "tensor" and key == "shape":
        return ListProduct([full_range(*size) if isinstance(size, list) else size for size in value])
    if kind in ("int", "long", "float", "double") and key == "value":
        return full_range(*value)
    return cast("Iterable[object]", value)


def _choices(value: object) -> Iterable[object]:
    return value if isinstance(value, Iterable) and not isinstance(value, (str, Mapping)) else (value,)


def _product(choices: Sequence[Iterable[object]]) -> Iterator[tuple[object, ...]]:
    """Yield combinations, the last varying fastest. Holds an iterator for each position, however many combinations there are."""
    # itertools.product holds all choices of every position. In halves: nested one by one they would be too deep.
    if len(choices) < 2:
        yield from ((value,) for value in choices[0]) if choices else [()]
        return
    middle = len(choices) // 2
    for first in _product(choices[:middle]):
        for rest in _product(choices[middle:]):
            yield (*first, *rest)


def _copy_attributes(args: Sequence[JsonMapping], index: int, rule: JsonMapping) -> JsonObject:
    """Return the argument at `index` with elements of others: {attribute: [own element, [argument, its element]]}."""
    changed = dict(args[index])
    for attribute, (element, (source, source_element)) in rule.items():
        try:
            values = list(changed[attribute])
            values[element] = args[source][attribute][source_element]
        except (KeyError, IndexError, TypeError) as error:
            raise OpsError(
                f"args[{index}].__copy__: {attribute}[{element}] from args[{source}].{attribute}[{source_element}]: "
                f"{error}. Both arguments need that element"
            ) from None
        changed[attribute] = values
    return changed


class ConfigIterator:
    """Yields (id, specification) for each entry of `configs[key]`. `configs` is an item of the operator's "config" list.

    A user's class takes these three arguments, overrides `generate` or `__next__`, yields ids whose text is unique, and is
    registered under a name with `register_config_iterator`.
    """

    def __init__(self, configs: JsonMapping, key: str, device: str) -> None:
        self.configs, self.key, self.device = configs, key, device
        self._specs = self.generate()

    def __iter__(self) -> Iterator[Identified]:
        return self

    def __next__(self) -> Identified:
        """Return the next (id, specification). Raises StopIteration after the last."""
        return next(self._specs)

    def generate(self) -> Iterator[Identified]:
        """Yield every (id, specification): each specification as it stands, its id its index in the list."""
        yield from enumerate(self.configs[self.key])

    def expand_all(self) -> Iterator[tuple[str, JsonMapping, JsonMapping]]:
        """Yield (id, specification, its expansion) for all expansions of macros. Ids are `variant_combination`."""
        for variant, spec in enumerate(self.configs[self.key]):
            for combination, expanded in enumerate(expand_spec(spec.get("args") or (), spec.get("kwargs") or {})):
                yield f"{variant}_{combination}", spec, expanded


class DefaultConfigIterator(ConfigIterator):
    """Each specification as it stands."""


class RangeConfigIterator(ConfigIterator):
    """The expansions of each specification's range macros."""

    def generate(self) -> Iterator[Identified]:
        for number, spec, expanded in self.expand_all():
            yield number, {**spec, **{key: expanded[key] for key in expanded if key in spec}}


class DummyConfigIterator(DefaultConfigIterator):
    """The same as the default iterator, unchecked: for operators whose generator understands something else than arguments."""
