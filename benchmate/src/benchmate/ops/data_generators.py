"""Data generators: from the specification of arguments to tensors and scalars, seeded, with what was drawn at random."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

from benchmate.ops.argument_specs import DTYPES, check_arguments
from benchmate.ops.device import free_bytes
from benchmate.ops.errors import OperatorFailed
from benchmate.ops.interface import DataGenerator
from benchmate.ops.types import DType, Generator, JsonMapping, JsonObject, Keywords, Tensor

DEFAULT_GENERATOR = "PyTorch:DefaultDataGenerator"

FILLS = ("uniform", "normal", "zeros")
INTEGERS = (-10, 9)  # inclusive
UNSIGNED = (0, 9)
SAFE_SHARE = 0.95  # of what is free, for the inputs alone
SMALL_BYTES = 1 << 26  # inputs that need not be checked for whether they fit


class DefaultDataGenerator(DataGenerator):
    """Arguments of the documented types.

    `fill` is how floating-point tensors are filled: uniform in [0, 1), as the original does, standard normal, or zeros.
    After `get_data`, `drawn` lists what was drawn for `value_range`: {"path", "value"}. With `cache`, an argument whose
    specification is that of the call before is kept.
    """

    def __init__(self, cache: bool = False, *, seed: int | str | None = None, fill: str = "uniform") -> None:
        self.cache, self.fill = cache, fill
        self.drawn: list[JsonObject] = []
        self._random = random.Random(seed)
        self._kept: dict[str, tuple[object, object]] = {}

    def get_data(self, config: JsonMapping, device: str) -> tuple[list[object], Keywords]:
        """Return (args, kwargs).

        Raises OpsError for a specification that is wrong, OperatorFailed for one that does not fit here.
        """
        check_arguments(config, "input")
        _check_fits(config, device)
        self.drawn = []
        args = [self._kept_or_new(spec, device, f"args[{n}]") for n, spec in enumerate(config.get("args") or ())]
        kwargs = {
            name: self._kept_or_new(spec, device, f"kwargs.{name}")
            for name, spec in (config.get("kwargs") or {}).items()
        }
        return args, kwargs

    def _kept_or_new(self, spec: JsonMapping, device: str, path: str) -> object:
        if self.cache and path in self._kept and self._kept[path][0] == (spec, device):
            return self._kept[path][1]
        argument = self._make(spec, device, path)
        if self.cache:
            self._kept[path] = ((dict(spec), device), argument)
        return argument

    def _make(self, spec: JsonMapping, device: str, path: str) -> object:
        kind = spec["type"]
        if kind == "tensor":
            return self._tensor(spec, device)
        if kind in ("genericlist", "tuple"):
            items = [self._make(item, device, f"{path}.value[{n}]") for n, item in enumerate(spec["value"])]
            return items if kind == "genericlist" else tuple(items)
        if kind in ("int", "long", "float", "double"):
            return self._number(spec, path)
        if kind == "none":
            return None
        if kind in ("device", "dtype"):
            import torch

            return torch.device(spec["value"]) if kind == "device" else getattr(torch, DTYPES[spec["value"]])
        return spec.get("value", "")

    def _number(self, spec: JsonMapping, path: str) -> object:
        if "value" in spec:
            return spec["value"]
        low, high = spec["value_range"]
        value = self._random.randint(low, high) if spec["type"] in ("int", "long") else self._random.uniform(low, high)
        self.drawn.append({"path": path, "value": value})
        return value

    def _tensor(self, spec: JsonMapping, device: str) -> Tensor:
        import torch

        name, shape = DTYPES[spec["dtype"]], spec["shape"]
        dtype = getattr(torch, name, None)
        if dtype is None:
            raise OperatorFailed(f"this torch ({torch.__version__}) has no dtype {name}")
        generator = torch.Generator(device).manual_seed(self._random.getrandbits(63))
        if dtype.is_floating_point or dtype.is_complex:
            tensor = self._real(spec, shape, dtype, device, generator)
            tensor.requires_grad_(spec.get("requires_grad", True) and not name.startswith("float8"))
            return tensor
        if spec.get("requires_grad"):
            raise OperatorFailed(f"requires_grad: a tensor of {name} has no gradient; leave it out")
        if name == "bool":
            return torch.rand(shape, device=device, generator=generator) < 0.5
        low, high = spec.get("value_range") or (UNSIGNED if name.startswith("uint") else INTEGERS)
        return torch.randint(int(low), int(high) + 1, shape, device=device, generator=generator).to(dtype)

    def _real(self, spec: JsonMapping, shape: Sequence[int], dtype: DType, device: str, generator: Generator) -> Tensor:
        import torch

        bounds = spec.get("value_range")
        # Not every dtype has a random kernel; those that have none are filled as float32 and converted.
        drawn_as = dtype if dtype.itemsize > 1 else torch.float32
        if bounds is None and self.fill == "zeros":
            return torch.zeros(shape, dtype=dtype, device=device)
        if bounds is None and self.fill == "normal":
            return torch.randn(shape, dtype=drawn_as, device=device, generator=generator).to(dtype)
        tensor = torch.rand(shape, dtype=drawn_as, device=device, generator=generator)
        if bounds is not None:
            tensor = tensor * (bounds[1] - bounds[0]) + bounds[0]
        elif not shape:
            tensor = tensor * 20 - 10  # as the original fills a tensor without dimensions
        return tensor.to(dtype)


def tensor_bytes(spec: object) -> int:
    """Return the bytes of all tensors that a specification makes."""
    if isinstance(spec, Mapping):
        if spec.get("type") == "tensor":
            return math.prod(spec["shape"]) * _itemsize(spec["dtype"])
        return sum(map(tensor_bytes, spec.values()))
    return sum(map(tensor_bytes, spec)) if isinstance(spec, list) else 0


def _itemsize(name: str) -> int:
    import torch

    return int(getattr(torch, DTYPES[name], torch.float32).itemsize)


def _check_fits(config: JsonMapping, device: str) -> None:
    """Refuse what cannot fit before asking for it: an allocation that is granted and then touched kills the process."""
    needed = tensor_bytes(config)
    free = free_bytes(device) if needed >= SMALL_BYTES else None
    if free is not None and needed > SAFE_SHARE * free:
        raise OperatorFailed(
            f"out of memory: the inputs need {needed / 2**30:.1f} GiB, {device} has {free / 2**30:.1f} GiB free"
        )
