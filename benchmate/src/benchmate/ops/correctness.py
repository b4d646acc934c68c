"""Whether an operator computes the right thing: a call compared with the same in double precision."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from benchmate.ops.base import Arguments, JsonObject, Keywords, Tensor, first_line
from benchmate.ops.device import TorchDevice
from benchmate.ops.interface import map_tensors, tensors_in

LARGEST_HOST_REFERENCE = 5e9  # operations: about a second in double precision on a few cores
# By dtype, as a share of the largest value of the reference.
TOLERANCE = {"float64": 1e-10, "float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}


def check_output(
    function: Callable[..., object], args: Arguments, kwargs: Keywords, flops: int | None, device: TorchDevice
) -> JsonObject:
    """Compare a call with the same in double precision on the same device.

    {"status": "correct" | "wrong" | "unchecked", "error"?: the largest difference as a share of the reference's largest
    value, "tolerance"?, "reason"?}. Results that cannot be compared are unchecked, with the reason.
    """
    import torch

    if device.kind == "cpu" and (flops or 0) > LARGEST_HOST_REFERENCE:
        return _unchecked("a reference in double precision would take seconds")
    try:
        with torch.no_grad():
            first, second = (_outputs(function(*_cloned(args), **_cloned(kwargs))) for _ in range(2))
            if len(first) != len(second) or not all(map(_is_same, first, second)):
                return _unchecked("two calls with the same input differ: random")
            exact = copy.deepcopy(function).double() if isinstance(function, torch.nn.Module) else function
            expected = _outputs(exact(*_doubled(args), **_doubled(kwargs)))
    except Exception as error:  # not every operator has double precision; it is measured all the same
        return _unchecked(f"no reference: {type(error).__name__}: {first_line(error)[:120]}")
    if not first or len(first) != len(expected):
        return _unchecked("no tensor in the output")
    return _compare(first, expected)


def _compare(actual: list[Tensor], expected: list[Tensor]) -> JsonObject:
    import torch

    worst, tolerance = 0.0, 0.0
    for output, reference in zip(actual, expected, strict=True):
        if output.shape != reference.shape:
            shapes = f"shape {list(output.shape)}, the reference has {list(reference.shape)}"
            return {"status": "wrong", "reason": shapes}
        if not output.dtype.is_floating_point:
            continue
        tolerance = max(tolerance, TOLERANCE.get(str(output.dtype).removeprefix("torch."), 0.2))
        finite = torch.isfinite(reference)
        if bool((torch.isnan(output) & ~torch.isnan(reference)).any()):
            return {"status": "wrong", "reason": "nan where the reference has a number"}
        scale = torch.masked_select(reference, finite).abs().max().item() if bool(finite.any()) else 0.0
        difference = torch.masked_select(torch.sub(output.double(), reference), finite)
        difference = difference[torch.isfinite(difference)]
        if difference.numel():
            worst = max(worst, difference.abs().max().item() / (scale or 1.0))
    if not tolerance:
        return _unchecked("no floating-point output")
    return {"status": "correct" if worst <= tolerance else "wrong", "error": worst, "tolerance": tolerance}


def _is_same(left: Tensor, right: Tensor) -> bool:
    """Whether two outputs are equal element by element, not-a-number included."""
    import torch

    if left.shape != right.shape:
        return False
    are_nan = torch.ne(left, left) & torch.ne(right, right)
    return bool((torch.eq(left, right) | are_nan).all())


def _unchecked(reason: str) -> JsonObject:
    return {"status": "unchecked", "reason": reason}


def _outputs(value: object) -> list[Tensor]:
    return [tensor.detach() for tensor in tensors_in(value)]


def _cloned(value: Any) -> Any:
    return map_tensors(value, lambda tensor: tensor.detach().clone())


def _doubled(value: Any) -> Any:
    return map_tensors(_cloned(value), lambda tensor: tensor.double() if tensor.dtype.is_floating_point else tensor)
