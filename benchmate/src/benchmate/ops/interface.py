"""The interface of an operator: built once for several inputs, with its timed passes, by autograd or in CUDA graphs."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmate.ops.base import Arguments, Call, JsonMapping, Keywords, OperatorFailed, Tensor, first_line

NO_GRADIENT = "no output depends on an input that requires a gradient"
WARM_UP_CALLS = 3  # calls before a capture, which choose algorithms and fill the allocator


@dataclass(frozen=True, kw_only=True)
class Passes:
    """The timed calls for an input.

    `forward()` returns the output. `make_gradient(output)` prepares a backward pass and is not timed. It returns None, or
    the reason why there is no backward pass. `backward()` runs once after each forward. `backward_again(output)`, where there
    is one, returns a backward pass that can be repeated after a forward, or None. `reference` is
    the bare callable with its arguments, to check its output or call it with others, None where it is no function of them.
    `moved_bytes` is a forward's traffic, where its tensors do not show it.
    """

    forward: Call
    make_gradient: Callable[[object], str | None]
    backward: Call
    backward_again: Callable[[object], Call | None] | None = None
    reference: tuple[Callable[..., object], Arguments, Keywords] | None = None
    moved_bytes: int | None = None


def forward_only(forward: Call, reason: str, moved_bytes: int | None = None) -> Passes:
    """Return the passes of an operator without a backward pass, for the reason given."""
    return Passes(forward=forward, make_gradient=lambda _: reason, backward=lambda: None, moved_bytes=moved_bytes)


def tensors_in(value: object) -> Iterator[Tensor]:
    """Yield the tensors inside nested lists, tuples and mappings, in order."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from tensors_in(item)


def autograd_passes(call: Call, leaves: Sequence[Tensor]) -> Passes:
    """Return the passes of a callable without arguments whose inputs and parameters that require gradients are `leaves`.

    The gradient is made outside the timing, and no gradient accumulates from call to call.
    """
    import torch

    pending: list[tuple[list[Tensor], list[Tensor]]] = []  # of the last forward: outputs and their gradients

    def make_gradient(output: object) -> str | None:
        outputs = [tensor for tensor in tensors_in(output) if tensor.grad_fn is not None]
        if not outputs:
            return NO_GRADIENT
        # Kept from the call before where shapes are the same: they are ones, whichever call they are for.
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


def map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return nested lists, tuples and mappings with each tensor changed."""
    import torch

    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, list) or type(value) is tuple:
        return type(value)(map_tensors(item, change) for item in value)
    if isinstance(value, dict):
        return {key: map_tensors(item, change) for key, item in value.items()}
    return value


def function_passes(
    function: Callable[..., object], args: Arguments, kwargs: Keywords, parameters: Sequence[Tensor]
) -> Passes:
    """Return the passes of a function of its arguments. Gradients go to the leaves among them and among its parameters."""
    leaves = [tensor for tensor in tensors_in([*args, kwargs, *parameters]) if tensor.requires_grad and tensor.is_leaf]
    # The partial is all that stands between the clock and the function.
    passes = autograd_passes(functools.partial(function, *args, **kwargs), leaves)
    return dataclasses.replace(passes, reference=(function, args, kwargs))


def capture_passes(passes: Passes, has_backward: bool) -> Passes:
    """Return the same passes as replays of graphs. Raises OperatorFailed where a pass cannot be captured."""
    replay, output = _captured(passes.forward)
    replay_backward: Call | None = None
    reason = None
    if has_backward:
        again = passes.backward_again(output) if passes.backward_again is not None else None
        if again is None:
            reason = passes.make_gradient(output) or "its backward pass cannot be repeated, so it cannot be captured"
        else:
            replay_backward, _ = _captured(again)

    return Passes(
        forward=replay,
        make_gradient=lambda _: reason,
        backward=replay_backward or (lambda: None),
        backward_again=lambda _: replay_backward,
        moved_bytes=passes.moved_bytes,
    )


def _captured(call: Call) -> tuple[Call, object]:
    import torch

    # A capture needs its warm-up on a stream of its own: torch's documentation of graphs says so.
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.stream(side):
            for _ in range(WARM_UP_CALLS):
                call()
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph):
            output = call()
    except RuntimeError as error:
        raise OperatorFailed(f"cannot be captured in a CUDA graph: {first_line(error)}") from error
    return graph.replay, output


class OperatorInterface(abc.ABC):
    """An operator of the registry. A subclass overrides the methods that it needs.

    A single instance serves the whole process: `build` replaces the result of the last `build`.
    """

    def __init__(self) -> None:
        self.device = "cpu"

    def build(self, *args: Any, **kwargs: Any) -> None:  # noqa: B027
        """Make the common object of a build's inputs."""

    def unbuild(self) -> None:  # noqa: B027
        """Forget the result of `build`: another build, or none, comes next."""

    def cleanup(self) -> None:  # noqa: B027
        """Release an input's leftovers. The result of `build` stays."""

    @abc.abstractmethod
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run once. Return the output."""

    def create_grad(self) -> None:  # noqa: B027
        """Make the gradient of the last output."""

    def backward(self) -> None:  # noqa: B027
        """Run the backward pass of the last forward."""

    def parameters(self) -> list[Tensor]:
        """Return tensors besides the arguments that a call reads and a backward pass may reach."""
        return []

    def agree(self, value: float) -> float:
        """Return the largest value of all ranks that call this operator together. Without ranks, the value."""
        return value

    def bandwidths(self, seconds: float) -> dict[str, float] | None:
        """Return rates by name for a call of that duration, in place of bytes a second of its tensors. None for those."""
        return None

    def passes(self, args: Arguments, kwargs: Keywords) -> Passes:
        """Return the calls to time for these arguments."""

        def make_gradient(_: object) -> str | None:
            if type(self).backward is OperatorInterface.backward:
                return "this operator has no backward pass"
            self.create_grad()
            return None

        return Passes(
            forward=functools.partial(self.forward, *args, **kwargs),
            make_gradient=make_gradient,
            backward=self.backward,
        )


class BoundOp(OperatorInterface):
    """An operator whose `passes` says all. To run it once is their forward pass."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.passes(args, kwargs).forward()


class DataGenerator:
    """Makes the arguments of a call.

    A user's generator is a class with this method, registered with `register_data_generator`.
    """

    def get_data(self, config: JsonMapping, device: str) -> tuple[Arguments, Keywords]:
        """Return (args, kwargs) for a build or input specification."""
        raise NotImplementedError
