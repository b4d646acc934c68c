"""The operators by name: the registered ones, any callable, module or optimizer of torch by its dotted name, any aten schema."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from benchmate.ops import registry
from benchmate.ops.autograd import autograd_passes, leaf_tensors
from benchmate.ops.errors import OperatorFailed, OpsError
from benchmate.ops.interface import OperatorInterface, Passes

UNARY = ("torch.add_", "torch.clamp_")
CALLABLES = [
    "torch.add",
    "torch.baddbmm",
    "torch.bmm",
    "torch.cat",
    "torch.matmul",
    "torch.mean",
    "torch.mm",
    "torch.mul",
    "torch.nn.functional.relu",
    "torch.reshape",
]
BUILDABLES = [
    "torch.nn.AdaptiveAvgPool2d",
    "torch.nn.Conv2d",
    "torch.nn.Dropout",
    "torch.nn.MaxPool2d",
    "torch.nn.ReLU",
    "torch.nn.Linear",
]
MODELS = {"pytorch.model.alex_net": "AlexNet", "pytorch.model.resnet": "ResNet50"}


class CallableOp(OperatorInterface):
    """A function of its arguments."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self._passes: Passes | None = None
        self._output: Any = None

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

    def passes(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Passes:
        # The partial is all that stands between the clock and the function.
        made = autograd_passes(self._bound(args, kwargs), leaf_tensors(list(args), kwargs, self.parameters()))
        return dataclasses.replace(made, reference=(self.function, args, kwargs), bind=self._bound)

    def _bound(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Callable[[], Any]:
        return functools.partial(self.function, *args, **kwargs)

    def parameters(self) -> list[Any]:
        """Tensors besides the arguments that a backward pass reaches."""
        return []


class UnaryOp(OperatorInterface):
    """A method of its first argument that changes it in place, without gradients."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self.method = method

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        import torch

        with torch.no_grad():
            return getattr(args[0], self.method)(*args[1:], **kwargs)

    def passes(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Passes:
        if not args or not hasattr(args[0], self.method):
            raise OperatorFailed(f"{self.method} is a method: its first argument must be a tensor")
        return Passes(
            forward=self._bound(args, kwargs),
            bind=self._bound,
            make_gradient=lambda _: "an operator that changes its input in place, without gradients",
            backward=lambda: None,
            reference=(
                lambda tensor, *more, **named: getattr(tensor.detach(), self.method)(*more, **named),
                args,
                kwargs,
            ),
        )

    def _bound(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Callable[[], Any]:
        return functools.partial(getattr(args[0].detach(), self.method), *args[1:], **kwargs)


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

    def parameters(self) -> list[Any]:
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

        parameters = [torch.nn.Parameter(one.detach().clone()) for one in args[0]]
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        self.optimizer = self.constructor(parameters, *args[1:], **kwargs)

    def unbuild(self) -> None:
        self.optimizer = None

    def parameters(self) -> list[Any]:
        """What a step reads: parameters, their gradients, the state kept for each."""
        if self.optimizer is None:
            return []
        parameters = [one for group in self.optimizer.param_groups for one in group["params"]]
        return [parameters, [one.grad for one in parameters], [dict(self.optimizer.state[one]) for one in parameters]]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self.optimizer is None:
            raise OperatorFailed('an optimizer is constructed: its "build" takes a genericlist of tensors')
        return self.optimizer.step(*args, **kwargs)


def operator(name: str) -> OperatorInterface:
    """The operator of that name, made when it is new. Raises OpsError for a name that means nothing, OperatorSkipped for one
    that this machine cannot have."""
    known = registry.op_map.get(name)
    if known is None:
        known = _by_name(name)
    elif not isinstance(known, OperatorInterface):
        known = known()
    registry.op_map[name] = known
    return known


def is_plausible(name: str) -> bool:
    """Whether a name could be an operator's, told without importing torch."""
    return name in registry.op_map or name.startswith(("torch.", "aten::", "prims::", "quantized::")) or "::" in name


def _by_name(name: str) -> OperatorInterface:
    if "::" in name:
        from benchmate.ops.aten import AtenOp

        return AtenOp(name)
    if name.startswith("torch.distributed."):
        from benchmate.ops.collectives import CollectiveOp

        return CollectiveOp(name.rpartition(".")[2])
    return _of_torch(name)


def _of_torch(name: str) -> OperatorInterface:
    import torch

    words = name.split(".")
    found: Any = torch if words[0] == "torch" and len(words) > 1 else None
    for place, word in enumerate(words[1:], 2):
        parent, found = found, getattr(found, word, None)
        if found is None:
            is_method = place == len(words) == 2 and callable(getattr(torch.Tensor, word, None))
            if is_method:
                return UnaryOp(word)
            hint = registry.did_you_mean(word, dir(parent)) if parent is not None else ""
            break
    else:
        hint = ""
    if found is None or not callable(found):
        hint = hint or registry.did_you_mean(name, registry.op_map)
        raise OpsError(f"unknown operator '{name}'{hint or '; --list-ops names those that are registered'}")
    if inspect.isclass(found) and issubclass(found, torch.nn.Module):
        return BuildableOp(found)
    if inspect.isclass(found) and issubclass(found, torch.optim.Optimizer):
        return OptimizerOp(found)
    return CallableOp(found)


def _lazily(name: str) -> Callable[[], OperatorInterface]:
    return functools.partial(_of_torch, name)


def _model(name: str) -> OperatorInterface:
    from benchmate.ops import models

    return BuildableOp(getattr(models, name))


def _copy(direction: str) -> OperatorInterface:
    from benchmate.ops.memory_copies import CopyOp

    return CopyOp(direction)


def _fbgemm() -> OperatorInterface:
    from benchmate.ops.fbgemm import SplitTableOp

    return SplitTableOp()


def register_known() -> None:
    """Register the names that come with the package; nothing is imported for them yet."""
    registry.register_operators({name: functools.partial(UnaryOp, name.rpartition(".")[2]) for name in UNARY})
    registry.register_operators({name: _lazily(name) for name in (*CALLABLES, *BUILDABLES)})
    registry.register_operators({name: functools.partial(_model, model) for name, model in MODELS.items()})
    registry.register_operator("SplitTableBatchedEmbeddingBagsCodegen", _fbgemm)
    for direction in ("host_to_device", "device_to_host", "device_to_device"):
        registry.register_operator(f"copy.{direction}", functools.partial(_copy, direction))


register_known()
