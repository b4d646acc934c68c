"""From a recorded operator to a call of this torch: the overload found by its schema, arguments put where it wants them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from benchmate.ops.errors import OperatorFailed
from benchmate.ops.traces.plan import Slot
from benchmate.ops.traces.schema import DeviceRef, Node, OpaqueValue

MASK = 3  # gradients of a convolution, a norm: the operators that take such a mask
Environment = list[Any]
Prepared = Callable[[Environment], Callable[[], Any]]


def find_overload(schema: str) -> Any:
    """The operator of a schema. Raises OperatorFailed where this torch has none."""
    import torch

    try:
        parsed = torch._C.parse_schema(schema)
    except RuntimeError as error:
        raise OperatorFailed(f"not a schema: {str(error).strip().splitlines()[0]}") from None
    namespace, _, name = parsed.name.partition("::")
    try:
        return getattr(getattr(getattr(torch.ops, namespace), name), parsed.overload_name or "default")
    except (AttributeError, RuntimeError):
        raise OperatorFailed(
            f"torch {torch.__version__} has no {parsed.name}.{parsed.overload_name or 'default'}"
        ) from None


def bind_operator(node: Node, arguments: Sequence[Any], device_of: Callable[[str], str]) -> Prepared:
    """A function that takes the slots' tensors and gives the call, ready to be made and timed.

    Raises OperatorFailed for an operator that this torch does not have, or whose arguments it wants otherwise.
    """
    import torch

    function = find_overload(node.schema)
    declared = function._schema.arguments
    named = dict(zip((one.name for one in torch._C.parse_schema(node.schema).arguments), arguments, strict=False))
    positional: list[Any] = []
    keywords: list[str] = []
    by_keyword: list[Any] = []
    for argument in declared:
        if argument.name not in named:
            if not argument.has_default_value():
                raise OperatorFailed(
                    f"torch {torch.__version__} wants an argument '{argument.name}' that was not recorded"
                )
            if not argument.kwarg_only:
                positional.append(argument.default_value)
            continue
        value = _constant(named[argument.name], str(argument.type), device_of)
        if argument.kwarg_only:
            keywords.append(argument.name)
            by_keyword.append(value)
        else:
            positional.append(value)
    return _maker(function, positional, keywords, by_keyword)


def bind_function(function: Any, arguments: Sequence[Any], device_of: Callable[[str], str]) -> Prepared:
    """The same for any function of the recorded arguments by position."""
    return _maker(function, [_constant(one, "", device_of) for one in arguments], [], [])


def _maker(function: Any, positional: list[Any], keywords: list[str], by_keyword: list[Any]) -> Prepared:
    values = [*positional, *by_keyword]
    count = len(positional)
    flat = [(place, value.number) for place, value in enumerate(values) if isinstance(value, Slot)]
    nested = [(place, value) for place, value in enumerate(values) if _has_slots(value)]

    def ready(slots: Environment) -> Callable[[], Any]:
        made = list(values)
        for place, number in flat:
            made[place] = slots[number]
        for place, value in nested:
            made[place] = _listed(value, slots)
        if not keywords:
            return functools.partial(function, *made)
        return functools.partial(function, *made[:count], **dict(zip(keywords, made[count:], strict=True)))

    return ready


def _has_slots(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and any(isinstance(one, Slot) or _has_slots(one) for one in value)


def _listed(value: Any, slots: Environment) -> Any:
    if isinstance(value, Slot):
        return slots[value.number]
    return [_listed(one, slots) for one in value] if isinstance(value, (list, tuple)) else value


def _constant(value: Any, kind: str, device_of: Callable[[str], str]) -> Any:
    if isinstance(value, DeviceRef):
        import torch

        return torch.device(device_of(value.name))
    if isinstance(value, tuple):
        return [_constant(one, "", device_of) for one in value]
    if isinstance(value, OpaqueValue):
        # Old schemas did not write lists of booleans; those are masks of the gradients wanted.
        return [True] * MASK if "bool" in kind else None
    return value
