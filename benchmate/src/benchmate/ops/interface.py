"""What an operator is: built once for several inputs, called forward, and backward with a gradient made outside the timing."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmate.ops.types import Arguments, Call, JsonMapping, JsonObject, Keywords, Tensor

Bind = Callable[[Arguments, Keywords], Call]
"""The call of an operator with other arguments."""


@dataclass(frozen=True, kw_only=True)
class Passes:
    """The calls that are timed for one input.

    `forward()` returns the output. `make_gradient(output)` prepares a backward pass and is not timed; it returns None, or
    the reason why there is no backward pass. `backward()` runs once after each forward. `backward_again(output)`, where there
    is one, returns a backward pass that can be repeated after one forward, or None. `reference` is
    the bare callable with its arguments, for a check of the output; `bind(args, kwargs)` is `forward` of other arguments, None
    where it is no function of them. `moved_bytes` is what one forward moves, where its tensors do not tell.
    """

    forward: Call
    make_gradient: Callable[[object], str | None]
    backward: Call
    backward_again: Callable[[object], Call | None] | None = None
    reference: tuple[Callable[..., object], Arguments, Keywords] | None = None
    bind: Bind | None = None
    moved_bytes: int | None = None


def forward_only(forward: Call, reason: str, moved_bytes: int | None = None) -> Passes:
    """Return the passes of an operator without a backward pass, for the reason given."""
    return Passes(forward=forward, make_gradient=lambda _: reason, backward=lambda: None, moved_bytes=moved_bytes)


class OperatorInterface(abc.ABC):
    """An operator of the registry; a subclass overrides what it needs.

    One instance serves the whole process: `build` replaces what the last `build` made.
    """

    def __init__(self) -> None:
        self.device = "cpu"

    def build(self, *args: Any, **kwargs: Any) -> None:  # noqa: B027
        """Make what the inputs of one build share."""

    def unbuild(self) -> None:  # noqa: B027
        """Forget what `build` made: another build, or none, comes next."""

    def cleanup(self) -> None:  # noqa: B027
        """Let go of what one input left behind; what `build` made stays."""

    @abc.abstractmethod
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run once; return the output."""

    def create_grad(self) -> None:  # noqa: B027
        """Make the gradient of the last output."""

    def backward(self) -> None:  # noqa: B027
        """Run the backward pass of the last forward."""

    def parameters(self) -> list[Tensor]:
        """Return tensors besides the arguments that a call reads and a backward pass may reach."""
        return []

    def agree(self, value: float) -> float:
        """Return the largest value of all ranks that call this operator together; without ranks, the value."""
        return value

    def bandwidths(self, seconds: float) -> dict[str, float] | None:
        """Return rates by name for a call of that duration, in place of bytes a second of its tensors; None for those."""
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


class DataGenerator:
    """Makes the arguments of a call. One's own is a class with this method, registered with `register_data_generator`."""

    def get_data(self, config: JsonMapping, device: str) -> tuple[Arguments, Keywords]:
        """Return (args, kwargs) for one build or input specification."""
        raise NotImplementedError


def drawn_values(generator: DataGenerator) -> list[JsonObject]:
    """Return what a generator has drawn at random for its last data, where it keeps account of that."""
    return list(getattr(generator, "drawn", ()))
