"""Kinds of operators: a function, a method in place, a module that is constructed first, an optimizer, a copy."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, cast

from benchmate.ops.errors import OperatorFailed, OperatorSkipped
from benchmate.ops.interface import BoundOp, OperatorInterface, Passes, forward_only, function_passes, tensors_in
from benchmate.ops.types import Arguments, Call, Keywords, Tensor


class CallableOp(OperatorInterface):
    """A function of its arguments."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self._passes: Passes | None = None
        self._output: object = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self._passes = self.passes(args, kwargs)
        self._output = self._passes.forward()
        return self._output

    def create_grad(self) -> None:
        """Make the gradient of the last output. Raises OperatorFailed where nothing requires one."""
        assert self._passes is not None, "forward first"
        if reason := self._passes.make_gradient(self._output):
            raise OperatorFailed(reason)

    def backward(self) -> None:
        assert self._passes is not None, "forward first"
        self._passes.backward()

    def cleanup(self) -> None:
        self._passes = self._output = None

    def passes(self, args: Arguments, kwargs: Keywords) -> Passes:
        return function_passes(self.function, args, kwargs, self.parameters())


class UnaryOp(BoundOp):
    """A method of its first argument that changes it in place, without gradients."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self.method = method

    def passes(self, args: Arguments, kwargs: Keywords) -> Passes:
        if not args or not hasattr(args[0], self.method):
            raise OperatorFailed(f"{self.method} is a method: its first argument must be a tensor")
        reason = "an operator that changes its input in place, without gradients"
        reference = (lambda *args, **kwargs: self._bind(args, kwargs)(), args, kwargs)
        passes = forward_only(self._bind(args, kwargs), reason)
        return dataclasses.replace(passes, bind=self._bind, reference=reference)

    def _bind(self, args: Arguments, kwargs: Keywords) -> Call:
        tensor = cast("Tensor", args[0]).detach()
        return functools.partial(getattr(tensor, self.method), *args[1:], **kwargs)


class BuildableOp(CallableOp):
    """A module that is constructed from the build specification and then called."""

    def __init__(self, constructor: Callable[..., Any]) -> None:
        super().__init__(self._not_built)
        self.constructor = constructor
        self.module: Any = None

    def build(self, *args: Any, **kwargs: Any) -> None:
        self.module = self.constructor(*args, **kwargs).to(self.device)
        self.function = self.module

    def unbuild(self) -> None:
        self.module, self.function = None, self._not_built

    def parameters(self) -> list[Tensor]:
        return [] if self.module is None else list(self.module.parameters())

    def _not_built(self, *args: Any, **kwargs: Any) -> Any:
        raise OperatorFailed('it is constructed: the configuration needs a "build" ([] where it takes no arguments)')


class OptimizerOp(OperatorInterface):
    """One step of an optimizer; its build takes the list of parameters, whose gradients are drawn once."""

    def __init__(self, constructor: Callable[..., Any]) -> None:
        super().__init__()
        self.constructor = constructor
        self.optimizer: Any = None

    def build(self, *args: Any, **kwargs: Any) -> None:
        import torch

        parameters = [torch.nn.Parameter(tensor.detach().clone()) for tensor in args[0]]
        for parameter in parameters:
            # Not zeros: products of zeros need less power, and run faster.
            parameter.grad = torch.randn_like(parameter)
        self.optimizer = self.constructor(parameters, *args[1:], **kwargs)

    def unbuild(self) -> None:
        self.optimizer = None

    def parameters(self) -> list[Tensor]:
        """Return what a step reads: parameters, their gradients, the state kept for each."""
        if self.optimizer is None:
            return []
        tensors = []
        for parameter in (parameter for group in self.optimizer.param_groups for parameter in group["params"]):
            tensors += [parameter, parameter.grad, *tensors_in(dict(self.optimizer.state[parameter]))]
        return tensors

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self.optimizer is None:
            raise OperatorFailed('an optimizer is constructed: its "build" takes a genericlist of tensors')
        return self.optimizer.step(*args, **kwargs)


class CopyOp(BoundOp):
    """Copies its tensor argument in one direction; `pinned` (true) says whether the host's side is page-locked."""

    def __init__(self, direction: str) -> None:
        super().__init__()
        self.direction = direction

    def passes(self, args: Arguments, kwargs: Keywords) -> Passes:
        import torch

        pinned = bool(kwargs.pop("pinned", True))
        if len(args) != 1 or kwargs:
            raise OperatorFailed(f"copy.{self.direction} takes one tensor and pinned=true|false")
        source = cast("Tensor", args[0]).detach()
        moved_bytes = source.numel() * source.element_size()
        if self.direction == "device_to_device":
            target: Tensor = torch.empty_like(source)
            moved_bytes *= 2  # read and written
        elif source.device.type == "cpu":
            raise OperatorSkipped(
                f"copy.{self.direction} needs an accelerator; on a CPU there is copy.device_to_device"
            )
        else:
            host: Tensor = torch.empty(source.shape, dtype=source.dtype, pin_memory=pinned)
            host.copy_(source)
            source, target = (host, source) if self.direction == "host_to_device" else (source, host)
        # Page-locked memory is copied by the device on its own, so the host does not wait.
        return forward_only(
            lambda: target.copy_(source, non_blocking=pinned), "a copy has no backward pass here", moved_bytes
        )
