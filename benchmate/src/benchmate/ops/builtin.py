"""Operators, config iterators and data generators that come with the package, and any other operator of torch by its name.

Importing this module registers them by name. Torch is imported when an operator is asked for.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from benchmate.ops import registry
from benchmate.ops.arguments import DEFAULT_GENERATOR, DefaultDataGenerator
from benchmate.ops.base import OpsError
from benchmate.ops.collectives import CollectiveOp
from benchmate.ops.config_iterators import DefaultConfigIterator, DummyConfigIterator, RangeConfigIterator
from benchmate.ops.fbgemm import SplitTableInputGenerator, SplitTableInputIterator, SplitTableOp
from benchmate.ops.interface import OperatorInterface
from benchmate.ops.operators import AtenOp, BuildableOp, CallableOp, CopyOp, OptimizerOp, UnaryOp
from benchmate.ops.registry import op_map, spelling_hint

UNARY = ("torch.add_", "torch.clamp_")
FUNCTIONS = ("add", "baddbmm", "bmm", "cat", "matmul", "mean", "mm", "mul", "nn.functional.relu", "reshape")
MODULES = ("AdaptiveAvgPool2d", "Conv2d", "Dropout", "MaxPool2d", "ReLU", "Linear")
OF_TORCH = (*(f"torch.{name}" for name in FUNCTIONS), *(f"torch.nn.{name}" for name in MODULES))
MODELS = {"pytorch.model.alex_net": "AlexNet", "pytorch.model.resnet": "ResNet50"}
COPY_DIRECTIONS = ("host_to_device", "device_to_host", "device_to_device")
SPLIT_TABLE = "SplitTableBatchedEmbeddingBagsCodegen"


def operator(name: str) -> OperatorInterface:
    """Return the operator of a name, made when it is first asked for.

    Raises OpsError for a name that means nothing, OperatorSkipped for an operator that this machine cannot have.
    """
    registered = op_map.get(name, functools.partial(_by_name, name))
    op_map[name] = op = registered if isinstance(registered, OperatorInterface) else registered()
    return op


def is_plausible(name: str) -> bool:
    """Whether a name could be an operator's, without importing torch."""
    return name in op_map or name.startswith("torch.") or "::" in name


def _by_name(name: str) -> OperatorInterface:
    if "::" in name:
        return AtenOp(name)
    if name.startswith("torch.distributed."):
        return CollectiveOp(name.rpartition(".")[2])
    import torch

    first, *attributes = name.split(".")
    target: Any = torch if first == "torch" and attributes else None
    hint = ""
    for attribute in attributes if target is not None else ():
        parent, target = target, getattr(target, attribute, None)
        if target is None:
            if parent is torch and len(attributes) == 1 and callable(getattr(torch.Tensor, attribute, None)):
                return UnaryOp(attribute)
            hint = spelling_hint(attribute, dir(parent))
            break
    if not _is_function_of_torch(target):
        hint = hint or spelling_hint(name, op_map) or ". --list-ops names those that are registered"
        raise OpsError(f"unknown operator '{name}'{hint}")
    if inspect.isclass(target) and issubclass(target, torch.nn.Module):
        return BuildableOp(target)
    if inspect.isclass(target) and issubclass(target, torch.optim.Optimizer):
        return OptimizerOp(target)
    return CallableOp(target)


def _is_function_of_torch(value: object) -> bool:
    """Return whether it can be called, and is not an import of torch's own, such as torch.os.system."""
    return callable(value) and (getattr(value, "__module__", None) or "torch").startswith("torch")


def _model(name: str) -> OperatorInterface:
    from benchmate.ops import models

    return BuildableOp(getattr(models, name))


def _register() -> None:
    factories: dict[str, Callable[[], OperatorInterface]] = {
        **{name: functools.partial(UnaryOp, name.rpartition(".")[2]) for name in UNARY},
        **{name: functools.partial(_by_name, name) for name in OF_TORCH},
        **{name: functools.partial(_model, model) for name, model in MODELS.items()},
        **{f"copy.{direction}": functools.partial(CopyOp, direction) for direction in COPY_DIRECTIONS},
        SPLIT_TABLE: SplitTableOp,
    }
    for name, factory in factories.items():
        registry.register_operator(name, factory)
    for iterator in (DefaultConfigIterator, RangeConfigIterator, DummyConfigIterator):
        registry.register_config_iterator(iterator.__name__, iterator)
    registry.register_config_iterator(f"{SPLIT_TABLE}InputIterator", SplitTableInputIterator)
    registry.register_data_generator(DEFAULT_GENERATOR, DefaultDataGenerator)
    registry.register_data_generator(f"{SPLIT_TABLE}InputDataGenerator", SplitTableInputGenerator)


_register()
