"""Backward passes by torch's autograd: the gradient made outside, and no gradient accumulating from call to call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchmate.ops.interface import Passes

NOTHING = "no output depends on an input that requires a gradient"


def tensors_in(value: Any) -> Iterator[Any]:
    """The tensors inside nested lists, tuples and mappings, in order."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)


def autograd_passes(call: Callable[[], Any], leaves: Sequence[Any]) -> Passes:
    """The passes of a callable without arguments whose inputs and parameters that require gradients are `leaves`."""
    import torch

    pending: list[tuple[Any, ...]] = []

    def make_gradient(output: Any) -> str | None:
        outputs = [one for one in tensors_in(output) if one.grad_fn is not None]
        if not outputs:
            return NOTHING
        gradients = pending[0][1] if pending else []
        if [(one.shape, one.dtype) for one in gradients] != [(one.shape, one.dtype) for one in outputs]:
            gradients = [torch.ones_like(one) for one in outputs]
        for leaf in leaves:
            # As training steps do: a gradient is written, not added to the one of the call before.
            leaf.grad = None
        pending[:] = [(outputs, gradients)]
        return None

    def backward() -> None:
        torch.autograd.backward(*pending[0])

    def backward_again(output: Any) -> Callable[[], Any] | None:
        if make_gradient(output) is not None:
            return None
        outputs, gradients = pending[0]
        return functools.partial(torch.autograd.grad, outputs, leaves, gradients, retain_graph=True, allow_unused=True)

    return Passes(forward=call, make_gradient=make_gradient, backward=backward, backward_again=backward_again)


def leaf_tensors(*values: Any) -> list[Any]:
    """The tensors inside that are leaves of the graph and require a gradient."""
    return [one for one in tensors_in(list(values)) if one.requires_grad and one.is_leaf]
