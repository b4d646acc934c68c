"""From a recorded operator to a call of this torch: the overload found by its schema, arguments where that wants them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from benchmate.ops.aten import parse_schema
from benchmate.ops.errors import OperatorFailed
from benchmate.ops.traces.plan import Slot
from benchmate.ops.traces.schema import DeviceRef, Node, OpaqueValue
from benchmate.ops.types import Call, OpOverload, Tensor

MASK_LENGTH = 3  # gradients of a convolution, a norm: the operators that take a mask of the gradients wanted
Slots = list["Tensor | None"]
"""The tensors of a step by the number of their slot."""
BindSlots = Callable[[Slots], Call]
"""Put the slots' tensors into the arguments; return the call, ready to be made and timed."""


def find_overload(schema_text: str) -> OpOverload:
    """Return the operator of a schema. Raises OperatorFailed where this torch has none."""
    import torch

    schema = parse_schema(schema_text)
    namespace, _, name = schema.name.partition("::")
    overload_name = schema.overload_name or "default"
    try:
        return getattr(getattr(getattr(torch.ops, namespace), name), overload_name)
    except (AttributeError, RuntimeError):
        raise OperatorFailed(f"torch {torch.__version__} has no {schema.name}.{overload_name}") from None


def bind_operator(node: Node, arguments: Sequence[object], device_of: Callable[[str], str]) -> BindSlots:
    """Return how to call the operator of a node.

    Raises OperatorFailed for an operator that this torch does not have, or whose arguments it wants otherwise.
    """
    overload = find_overload(node.schema)
    recorded = parse_schema(node.schema).arguments
    named = dict(zip((argument.name for argument in recorded), arguments, strict=False))
    positional: list[object] = []
    keywords: dict[str, object] = {}
    for argument in overload._schema.arguments:
        if argument.name in named:
            value = _constant(named[argument.name], str(argument.type), device_of)
        elif argument.has_default_value():
            value = argument.default_value
        else:
            raise OperatorFailed(f"this torch wants an argument '{argument.name}' that was not recorded")
        if not argument.kwarg_only:
            positional.append(value)
        elif argument.name in named:
            keywords[argument.name] = value
    return _bind_slots(overload, positional, keywords)


def bind_function(
    function: Callable[..., object], arguments: Sequence[object], device_of: Callable[[str], str]
) -> BindSlots:
    """Return how to call any function of the recorded arguments by position."""
    return _bind_slots(function, [_constant(argument, "", device_of) for argument in arguments], {})


def _bind_slots(function: Callable[..., object], positional: list[object], keywords: dict[str, object]) -> BindSlots:
    values = [*positional, *keywords.values()]
    count = len(positional)
    # Found once: the call is made anew in every step, and what is done there is timed with it.
    flat = [(index, value.number) for index, value in enumerate(values) if isinstance(value, Slot)]
    nested = [(index, value) for index, value in enumerate(values) if _has_slots(value)]

    def bind(slots: Slots) -> Call:
        filled = list(values)
        for index, number in flat:
            filled[index] = slots[number]
        for index, value in nested:
            filled[index] = _fill_slots(value, slots)
        if not keywords:
            return functools.partial(function, *filled)
        return functools.partial(function, *filled[:count], **dict(zip(keywords, filled[count:], strict=True)))

    return bind


def _has_slots(value: object) -> bool:
    return isinstance(value, (list, tuple)) and any(isinstance(item, Slot) or _has_slots(item) for item in value)


def _fill_slots(value: object, slots: Slots) -> object:
    if isinstance(value, Slot):
        return slots[value.number]
    return [_fill_slots(item, slots) for item in value] if isinstance(value, (list, tuple)) else value


def _constant(value: object, kind: str, device_of: Callable[[str], str]) -> object:
    if isinstance(value, DeviceRef):
        import torch

        return torch.device(device_of(value.name))
    if isinstance(value, tuple):
        return [_constant(item, "", device_of) for item in value]
    if isinstance(value, OpaqueValue):
        # Old schemas did not write lists of booleans; those are masks of the gradients wanted.
        return [True] * MASK_LENGTH if "bool" in kind else None
    return value
