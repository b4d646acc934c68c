"""The models that an audit can time: a built-in one, torchvision's, a function of yours, an ONNX file."""

from __future__ import annotations

import functools
import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmate.ops.base import Call

if TYPE_CHECKING:
    import torch

BUILT_IN = "builtin:cnn"
EXPECTED = f"{BUILT_IN}, torchvision:NAME, MODULE:FUNCTION or onnx:FILE"


class ModelError(Exception):
    """A model that cannot be made; the text says which, why and a hint."""


def make_call(spec: str, batch: int, device: str) -> Call:
    """Return a function that runs the model once on `batch` items, already on `device`; its result is what the model gave.

    `MODULE:FUNCTION` is called with the batch size and the device's name, and gives what to call: a function without
    arguments, or a pair of a function and its arguments. Weights are random everywhere: they do not change the time.
    Raises ModelError.
    """
    kind, separator, name = spec.partition(":")
    if not separator or not kind or not name:
        raise ModelError(f"model {spec!r}: expected {EXPECTED}")
    if spec == BUILT_IN:
        return _built_in(batch, device)
    if kind == "builtin":
        raise ModelError(f"model {spec}: the only built-in model is {BUILT_IN}")
    if kind == "torchvision":
        return _torchvision(name, batch, device)
    if kind == "onnx":
        return _onnx(Path(name), batch, device)
    return _of_user(kind, name, batch, device)


def _built_in(batch: int, device: str) -> Call:
    """Return the call of a convolutional network with residual blocks on images of 64 x 64: a few ms of a core for one."""
    import torch
    from torch import nn

    class Residual(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(),
                nn.Conv2d(width, width, 3, padding=1, bias=False),
                nn.BatchNorm2d(width),
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x + self.body(x))

    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1),
        *(Residual(32) for _ in range(4)),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        *(Residual(64) for _ in range(4)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )
    return _inference(model, torch.randn(batch, 3, 64, 64), device)


def _torchvision(name: str, batch: int, device: str) -> Call:
    import torch

    try:
        import torchvision
    except ImportError as error:
        raise ModelError(f"model torchvision:{name}: torchvision cannot be imported: {error}") from error
    torch.manual_seed(0)
    try:
        model = torchvision.models.get_model(name, weights=None)
    except ValueError as error:
        raise ModelError(f"model torchvision:{name}: {error}; torchvision.models.list_models() names them") from error
    return _inference(model, torch.randn(batch, 3, 224, 224), device)


def _inference(model: torch.nn.Module, images: torch.Tensor, device: str) -> Call:
    import torch

    model, images = model.eval().to(device), images.to(device)

    def call() -> object:
        with torch.inference_mode():
            return model(images)

    return call


def _of_user(module: str, name: str, batch: int, device: str) -> Call:
    sys.path.insert(0, "")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ModelError(f"model {module}:{name}: {error}") from error
    model = function(batch, device)
    if isinstance(model, tuple) and len(model) == 2 and callable(model[0]):
        return functools.partial(model[0], *model[1])
    if not callable(model):
        kind = type(model).__name__
        raise ModelError(
            f"model {module}:{name}: expected a function, or a pair of a function and its arguments, got {kind}"
        )
    return model


def _onnx(path: Path, batch: int, device: str) -> Call:
    try:
        import numpy as np
        import onnxruntime
    except ImportError as error:
        raise ModelError(f"model onnx:{path}: {error}; install onnxruntime") from error
    if not path.is_file():
        raise ModelError(f"model onnx:{path}: no such file")
    accelerated = ["CUDAExecutionProvider"] if device == "cuda" else []
    session = onnxruntime.InferenceSession(str(path), providers=[*accelerated, "CPUExecutionProvider"])
    generator = np.random.default_rng(0)
    inputs = {}
    for model_input in session.get_inputs():
        if model_input.type != "tensor(float)":
            what = f"input {model_input.name} is {model_input.type}"
            raise ModelError(f"model onnx:{path}: {what}; only float inputs can be made up")
        shape = [batch, *model_input.shape[1:]] if model_input.shape else []
        if not all(isinstance(size, int) for size in shape):
            problem = f"input {model_input.name} has open sizes {model_input.shape} beyond the first"
            raise ModelError(f"model onnx:{path}: {problem}")
        inputs[model_input.name] = generator.standard_normal(shape, dtype=np.float32)
    return lambda: session.run(None, inputs)
