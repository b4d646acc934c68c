"""Data classes that start fast: the standard library's fields, with methods that are not compiled while a module is imported.

The standard library compiles six functions for each class at every start, for which a command with 150 classes pays as much
as for five bare interpreters, and calls few of them. Here a class has an `__init__` of its own from its first instance on, and
shares the rest with all others. What its users see is the same, except `__dataclass_params__`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(
        *,
        frozen: bool = False,
        slots: bool = False,
        kw_only: bool = False,
        repr: bool = True,  # noqa: A002  the name that callers know
        eq: bool = True,
    ) -> Callable[[type], type]:
        """Do what `dataclasses.dataclass` does, at the first use where that can wait; methods written by hand stay."""

        def with_methods(plain: type) -> type:
            plain.__doc__ = plain.__doc__ or plain.__name__  # else its signature is computed, as its documentation
            by_hand = {name for name, value in vars(plain).items() if value is not None}
            fields_only = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)
            made = fields_only(plain)
            for name, method in _methods(made, frozen=frozen, slots=slots, has_repr=repr, has_eq=eq):
                if name not in by_hand:
                    setattr(made, name, method)
            return made

        return with_methods


_set = object.__setattr__  # also of what is frozen
_NO_VALUE: Any = dataclasses.MISSING


class _Made:
    """What stands for a value that a default factory makes."""

    def __repr__(self) -> str:
        return "<factory>"


_MADE = _Made()


def _methods(cls: Any, *, frozen: bool, slots: bool, has_repr: bool, has_eq: bool) -> Iterator[tuple[str, Any]]:
    yield "__init__", _first_init(cls, frozen=frozen)
    yield "__signature__", _SIGNATURE
    if has_repr:
        yield "__repr__", _repr
    if has_eq:
        values = _values_of(tuple(field.name for field in dataclasses.fields(cls) if field.compare))
        yield (
            "__eq__",
            lambda self, other: values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented,
        )
        yield "__hash__", (lambda self: hash(values(self))) if frozen else None
    if frozen:
        yield from (("__setattr__", _refuse_to_assign), ("__delattr__", _refuse_to_delete))
    if frozen and slots:
        yield from (("__getstate__", _state), ("__setstate__", _set_state))


def _first_init(cls: Any, *, frozen: bool) -> Callable[..., None]:
    """Return an `__init__` that puts the true one in its place."""

    def complete() -> None:
        cls.__init__ = _compiled_init(cls, frozen=frozen)

    def first_init(self: Any, *args: Any, **kwargs: Any) -> None:
        complete()
        cls.__init__(self, *args, **kwargs)

    first_init.complete = complete  # type: ignore[attr-defined]
    return first_init


def _compiled_init(cls: Any, *, frozen: bool) -> Callable[..., None]:
    """Return the `__init__` of a class: a parameter for each field, those by position first, then `__post_init__`."""
    fields = dataclasses.fields(cls)
    names: dict[str, Any] = {"__set": _set, "__MADE": _MADE}
    parameters = [_parameter(field, names) for field in fields if field.init and not field.kw_only]
    if by_name := [_parameter(field, names) for field in fields if field.init and field.kw_only]:
        parameters += ["*", *by_name]
    lines = [_assignment(field, names, frozen=frozen) for field in fields]
    if hasattr(cls, "__post_init__"):
        lines.append("__self.__post_init__()")
    head, body = ", ".join(["__self", *parameters]), "; ".join(filter(None, lines)) or "pass"
    exec(f"def __init__({head}): {body}", names)  # noqa: S102  of names that are identifiers, as the standard library does
    init: Any = names["__init__"]
    init.__module__, init.__qualname__ = cls.__module__, f"{cls.__qualname__}.__init__"
    init.__annotations__ = {**{field.name: field.type for field in fields if field.init}, "return": None}
    return init  # type: ignore[no-any-return]


def _parameter(field: dataclasses.Field[Any], names: dict[str, Any]) -> str:
    if field.default is not _NO_VALUE:
        names[f"__default_{field.name}"] = field.default
        return f"{field.name}=__default_{field.name}"
    return f"{field.name}=__MADE" if field.default_factory is not _NO_VALUE else field.name


def _assignment(field: dataclasses.Field[Any], names: dict[str, Any], *, frozen: bool) -> str:
    """Return the statement that sets a field; empty for one that `__post_init__` sets."""
    name, make = field.name, f"__make_{field.name}"
    if field.default_factory is not _NO_VALUE:
        names[make] = field.default_factory
        value = f"{make}() if {name} is __MADE else {name}" if field.init else f"{make}()"
    elif not field.init and field.default is _NO_VALUE:
        return ""
    elif not field.init:
        names[make] = field.default
        value = make
    else:
        value = name
    return f"__set(__self, {name!r}, {value})" if frozen else f"__self.{name} = {value}"


def _values_of(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """Return what returns the values of these attributes, as a tuple however many they are."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


@recursive_repr()
def _repr(self: Any) -> str:
    values = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{self.__class__.__qualname__}({', '.join(values)})"


def _refuse_to_assign(_: Any, name: str, __: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(_: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    """Return what is copied and pickled: Python's own way assigns to attributes, which is refused."""
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, values: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), values, strict=True):
        _set(self, field.name, value)


class _Signature:
    """The signature of a class, for documentation: that of its true `__init__`."""

    def __get__(self, _: object, owner: Any) -> Any:
        import inspect

        init = owner.__init__
        if hasattr(init, "complete"):
            init.complete()
        signature = inspect.signature(owner.__init__)
        return signature.replace(parameters=[*signature.parameters.values()][1:])


_SIGNATURE = _Signature()
