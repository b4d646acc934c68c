"""Kinds of operators: a function, a method in place, a module built first, an optimizer, a copy, a dispatcher's operator."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable
from typing import Any, cast

from benchmate.ops.base import (
    Arguments,
    FunctionSchema,
    Keywords,
    OperatorFailed,
    OperatorSkipped,
    OpOverload,
    OpOverloadPacket,
    OpsError,
    Tensor,
    first_line,
)
from benchmate.ops.interface import BoundOp, OperatorInterface, Passes, forward_only, function_passes, tensors_in
from benchmate.ops.registry import spelling_hint


class CallableOp(BoundOp):
    """A function of its arguments."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

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
        # The partial is all that stands between the clock and the method.
        function, args = getattr(type(args[0]), self.method), [cast("Tensor", args[0]).detach(), *args[1:]]
        reason = "an operator that changes its input in place, without gradients"
        passes = forward_only(functools.partial(function, *args, **kwargs), reason)
        return dataclasses.replace(passes, reference=(function, args, kwargs))


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
    """A step of an optimizer. Its build takes the list of parameters, whose gradients are drawn once."""

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
        """Return the inputs of a step: parameters, their gradients, the state kept for each."""
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
    """Copies its tensor argument in a given direction. `pinned` (true) says whether the host's side is page-locked."""

    def __init__(self, direction: str) -> None:
        super().__init__()
        self.direction = direction

    def passes(self, args: Arguments, kwargs: Keywords) -> Passes:
        import torch

        pinned = bool(kwargs.pop("pinned", True))
        if len(args) != 1 or kwargs:
            raise OperatorFailed(f"copy.{self.direction} takes a single tensor and pinned=true|false")
        source = cast("Tensor", args[0]).detach()
        moved_bytes = source.numel() * source.element_size()
        if self.direction == "device_to_device":
            target: Tensor = torch.empty_like(source)
            moved_bytes *= 2  # read and written
        elif source.device.type == "cpu":
            raise OperatorSkipped(
                f"copy.{self.direction} needs an accelerator. On a CPU there is copy.device_to_device"
            )
        else:
            host: Tensor = torch.empty(source.shape, dtype=source.dtype, pin_memory=pinned)
            host.copy_(source)
            source, target = (host, source) if self.direction == "host_to_device" else (source, host)
        # Page-locked memory is copied by the device on its own, so the host does not wait.
        return forward_only(
            lambda: target.copy_(source, non_blocking=pinned), "a copy has no backward pass here", moved_bytes
        )


def parse_schema(text: str) -> FunctionSchema:
    """Return the schema that a text is. Raises OperatorFailed for another text."""
    import torch

    try:
        return torch._C.parse_schema(text)
    except RuntimeError as error:
        raise OperatorFailed(f"not a schema: {text!r}: {str(error).strip().splitlines()[0]}") from None


# Packages whose import registers the operators of a namespace.
PACKAGES = {"fbgemm": "fbgemm_gpu", "torchaudio": "torchaudio", "torchvision": "torchvision"}


def find_packet(name: str) -> OpOverloadPacket:
    """Return the operator of the dispatcher, with all its overloads, of a name `namespace::name`.

    Raises OperatorSkipped where its package cannot be imported, OpsError where there is none of that name.
    """
    import torch

    namespace, _, short = name.partition("::")
    if namespace in PACKAGES:
        try:
            importlib.import_module(PACKAGES[namespace])
        except Exception as error:  # a missing package, a library built for another torch, a driver that is not there
            reason = f"{PACKAGES[namespace]} cannot be imported: {type(error).__name__}: {first_line(error)}"
            raise OperatorSkipped(reason) from error
    operators = getattr(torch.ops, namespace)
    packet: OpOverloadPacket | None = getattr(operators, short, None) if short else None
    if packet is None:
        hint = spelling_hint(short, dir(operators))
        raise OpsError(f"unknown operator '{name}': torch {torch.__version__} has none of that name{hint}")
    return packet


class AtenOp(CallableOp):
    """`namespace::name` or `namespace::name.overload`. A build argument holds the schema of the overload.

    Without either, the overload is the first whose schema takes the arguments. Keyword-only arguments may be given by name or,
    as the original wants them, in the place where the schema has them. Missing arguments have their defaults.
    """

    def __init__(self, name: str) -> None:
        self.name, _, overload = name.partition(".")
        self._schema: FunctionSchema | None = None
        packet = find_packet(self.name)
        if overload and overload not in packet.overloads():
            raise OpsError(f"unknown overload '{name}'. Known: {', '.join(packet.overloads())}")
        super().__init__(packet)
        self._packet, self._overload = packet, overload

    def build(self, *args: Any, **kwargs: Any) -> None:
        """Take the schema, where it is given. Raises OperatorFailed for a schema that torch does not have."""
        if not args:
            return
        parsed = parse_schema(args[0] if isinstance(args[0], str) else "")
        if parsed.name != self.name:
            raise OperatorFailed(f"the schema belongs to {parsed.name}, not to {self.name}")
        self._schema = parsed

    def unbuild(self) -> None:
        self._schema = None

    def passes(self, args: Arguments, kwargs: Keywords) -> Passes:
        self.function, positional, named = self._find_overload(args, kwargs)
        return super().passes(positional, named)

    def _find_overload(self, args: Arguments, kwargs: Keywords) -> tuple[OpOverload, list[object], Keywords]:
        """Return the overload, and the arguments as it takes them."""
        import torch

        known = self._packet.overloads()
        wanted = self._schema.overload_name or "default" if self._schema is not None else self._overload
        if wanted:
            if wanted not in known:
                raise OperatorFailed(f"{self.name} has no overload {wanted!r}. Known: {', '.join(known)}")
            overload = getattr(self._packet, wanted)
            return overload, *_split_by_schema(overload._schema, args, kwargs)
        reason = ""
        for name in known:
            try:
                positional, named = _split_by_schema(getattr(self._packet, name)._schema, args, kwargs)
                # The one that torch itself takes in a call from Python.
                resolved = torch._C._jit_resolve_packet(self.name, *positional, **named)
            except (OperatorFailed, RuntimeError) as error:
                reason = " ".join(str(error).split())[:500]
            else:
                return getattr(self._packet, resolved), positional, named
        raise OperatorFailed(f"no overload of {self.name} takes these arguments: {reason}")


def _split_by_schema(schema: FunctionSchema, args: Arguments, kwargs: Keywords) -> tuple[list[object], Keywords]:
    """Return the arguments split where the schema's keyword-only ones begin."""
    declared = schema.arguments
    if len(args) > len(declared):
        raise OperatorFailed(f"{schema.name} takes {len(declared)} arguments, got {len(args)}")
    positional: list[object] = []
    named = dict(kwargs)
    for argument, value in zip(declared, args, strict=False):
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            positional.append(value)
    return positional, named
