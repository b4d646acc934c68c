"""What an operator is: built once for several inputs, called forward, and backward with a gradient made outside the timing."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Passes:
    """The calls that are timed for one input.

    `forward()` returns the output. `make_gradient(output)` prepares a backward pass and is not timed; it returns None, or
    the reason why there is no backward pass. `backward()` runs once after each forward. `backward_again(output)`, where there
    is one, gives a backward pass that can be repeated after one forward, or None. `reference` is
    the bare callable with its arguments, for a check of the output; `bind(args, kwargs)` is `forward` of other arguments, None
    where it is no function of them. `moved_bytes` is what one forward moves where tensors do not tell.
    """

    forward: Callable[[], Any]
    make_gradient: Callable[[Any], str | None]
    backward: Callable[[], Any]
    backward_again: Callable[[Any], Callable[[], Any] | None] | None = None
    reference: tuple[Callable[..., Any], Sequence[Any], dict[str, Any]] | None = None
    bind: Callable[[Sequence[Any], dict[str, Any]], Callable[[], Any]] | None = None
    moved_bytes: int | None = None


class OperatorInterface(abc.ABC):
    """An operator of the registry; it leaves empty what it does not need.

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
        """Run once; returns the output."""

    def create_grad(self) -> None:  # noqa: B027
        """Make the gradient of the last output."""

    def backward(self) -> None:  # noqa: B027
        """Run the backward pass of the last forward."""

    def passes(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Passes:
        """The calls to time for these arguments."""

        def make_gradient(_: Any) -> str | None:
            if type(self).backward is OperatorInterface.backward:
                return "this operator has no backward pass"
            self.create_grad()
            return None

        return Passes(
            forward=functools.partial(self.forward, *args, **kwargs),
            make_gradient=make_gradient,
            backward=self.backward,
        )
