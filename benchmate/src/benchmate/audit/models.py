"""The models that an audit can time: a built-in model, torchvision's, a function of yours, an ONNX file."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from benchmate.ops.base import Call

if TYPE_CHECKING:
    import torch

BUILT_IN = "builtin:cnn"
EXPECTED = f"{BUILT_IN}, torchvision:NAME, MODULE:FUNCTION or onnx:FILE"


class ModelError(Exception):
    """A model that cannot be made. The text says which, why and a hint."""


Maker = Callable[[int, str], Call]
"""Make the call of a model for a batch size and a device's name."""


def find_model(spec: str, folder: Path) -> Maker:
    """Return the function that calls a model, once all its needs are found and imported.

    The call runs the model once on a batch that is on the device already. Its result is the model's.
    `MODULE:FUNCTION` is called with the batch size and the device's name, and returns the function to call: without
    arguments, or a pair of a function and its arguments. Modules and files are looked for in `folder` first. Weights are
    random everywhere: they do not change the time. Raises ModelError, as the maker does.
    """
    kind, separator, name = spec.partition(":")
    if not separator or not kind or not name:
        raise ModelError(f"model {spec!r}: expected {EXPECTED}")
    if spec == BUILT_IN:
        return _built_in
    if kind == "builtin":
        raise ModelError(f"model {spec}: the only built-in model is {BUILT_IN}")
    if kind == "torchvision":
        return _torchvision(name)
    if kind == "onnx":
        return _onnx(folder / name)
    return _of_user(kind, name, folder)


def _built_in(batch: int, device: str) -> Call:
    """Return the call of a convolutional network with residual blocks on images of 64 x 64: a few ms of a core for each."""
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


def _torchvision(name: str) -> Maker:
    try:
        import torch
        import torchvision
    except ImportError as error:
        raise ModelError(f"model torchvision:{name}: torchvision cannot be imported: {error}") from error
    try:
        build = torchvision.models.get_model_builder(name)
    except ValueError as error:
        raise ModelError(f"model torchvision:{name}: {error}. torchvision.models.list_models() names them") from error

    def make(batch: int, device: str) -> Call:
        torch.manual_seed(0)
        return _inference(build(weights=None), torch.randn(batch, 3, 224, 224), device)

    return make


def _inference(model: torch.nn.Module, images: torch.Tensor, device: str) -> Call:
    import torch

    model, images = model.eval().to(device), images.to(device)

    def call() -> object:
        with torch.inference_mode():
            return model(images)

    return call


def _of_user(module: str, name: str, folder: Path) -> Maker:
    sys.path.insert(0, str(folder))
    try:
        function = getattr(importlib.import_module(module), name)
    except (Exception, SystemExit) as error:  # a module may raise whatever it likes while it is imported
        kind = "" if isinstance(error, (ImportError, AttributeError)) else f"{type(error).__name__}: "
        raise ModelError(f"model {module}:{name}: {kind}{' '.join(str(error).split())} (looked in {folder})") from error

    def make(batch: int, device: str) -> Call:
        model = function(batch, device)
        if isinstance(model, tuple) and len(model) == 2 and callable(model[0]):
            return functools.partial(model[0], *model[1])
        if not callable(model):
            kind = type(model).__name__
            raise ModelError(
                f"model {module}:{name}: expected a function, or a pair of a function and its arguments, got {kind}"
            )
        return model

    return make


def _onnx(path: Path) -> Maker:
    try:
        import onnxruntime
    except ImportError as error:
        raise ModelError(f"model onnx:{path}: {error}. Install onnxruntime") from error
    if not path.is_file():
        raise ModelError(f"model onnx:{path}: no such file")

    def make(batch: int, device: str) -> Call:
        import numpy as np

        accelerated = ["CUDAExecutionProvider"] if device == "cuda" else []
        try:
            session = onnxruntime.InferenceSession(str(path), providers=[*accelerated, "CPUExecutionProvider"])
        except Exception as error:  # its errors share no class of their own
            raise ModelError(f"model onnx:{path}: {' '.join(str(error).split())}") from error
        generator = np.random.default_rng(0)
        inputs = {}
        for model_input in session.get_inputs():
            if model_input.type != "tensor(float)":
                what = f"input {model_input.name} is {model_input.type}"
                raise ModelError(f"model onnx:{path}: {what}. Only float inputs can be generated")
            shape = [batch, *model_input.shape[1:]] if model_input.shape else []
            if not all(isinstance(size, int) for size in shape):
                problem = f"input {model_input.name} has open sizes {model_input.shape} beyond the first"
                raise ModelError(f"model onnx:{path}: {problem}")
            inputs[model_input.name] = generator.standard_normal(shape, dtype=np.float32)
        return lambda: session.run(None, inputs)

    make(1, "cpu")  # a file that is no model is refused here too
    return make
