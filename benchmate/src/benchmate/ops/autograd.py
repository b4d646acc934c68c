"""Backward passes by torch's autograd: the gradient made outside, and no gradient accumulating from call to call."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from benchmate.ops.interface import Passes
from benchmate.ops.types import Call, Tensor

NO_GRADIENT = "no output depends on an input that requires a gradient"


def tensors_in(value: object) -> Iterator[Tensor]:
    """Yield the tensors inside nested lists, tuples and mappings, in order."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)


def autograd_passes(call: Call, leaves: Sequence[Tensor]) -> Passes:
    """Return the passes of a callable without arguments whose inputs and parameters that require gradients are `leaves`."""
    import torch

    pending: list[tuple[list[Tensor], list[Tensor]]] = []  # of the last forward: outputs and their gradients

    def make_gradient(output: object) -> str | None:
        outputs = [tensor for tensor in tensors_in(output) if tensor.grad_fn is not None]
        if not outputs:
            return NO_GRADIENT
        gradients = pending[0][1] if pending else []
        if [(grad.shape, grad.dtype) for grad in gradients] != [(out.shape, out.dtype) for out in outputs]:
            gradients = [torch.ones_like(out) for out in outputs]
        for leaf in leaves:
            # As training steps do: a gradient is written, not added to the one of the call before.
            leaf.grad = None
        pending[:] = [(outputs, gradients)]
        return None

    def backward() -> None:
        torch.autograd.backward(*pending[0])

    def backward_again(output: object) -> Call | None:
        if make_gradient(output) is not None:
            return None
        outputs, gradients = pending[0]
        return functools.partial(torch.autograd.grad, outputs, leaves, gradients, retain_graph=True, allow_unused=True)

    return Passes(forward=call, make_gradient=make_gradient, backward=backward, backward_again=backward_again)


def leaf_tensors(*values: object) -> list[Tensor]:
    """Return the tensors inside that are leaves of the graph and require a gradient."""
    return [tensor for tensor in tensors_in(list(values)) if tensor.requires_grad and tensor.is_leaf]
