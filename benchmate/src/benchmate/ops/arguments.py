"""Arguments of operators: the types that a configuration may have, checked before anything runs, and made into tensors.

Arguments are seeded, and random draws are noted.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmate.ops.base import DType, Generator, JsonMapping, JsonObject, Keywords, OperatorFailed, OpsError, Tensor
from benchmate.ops.config_iterators import META, has_macros
from benchmate.ops.device import free_bytes
from benchmate.ops.interface import DataGenerator
from benchmate.ops.registry import spelling_hint

DEFAULT_GENERATOR = "PyTorch:DefaultDataGenerator"

FILLS = ("uniform", "normal", "zeros")
SIGNED_RANGE = (-10, 9)  # inclusive
UNSIGNED_RANGE = (0, 9)
SAFE_SHARE = 0.95  # of what is free, for the inputs alone
SMALL_BYTES = 1 << 26  # inputs that need not be checked for whether they fit

_FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
FLOATS = ("float16", "float32", "float64", "bfloat16", *_FLOAT8)
INTEGERS = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")
# Names of element types in a configuration -> names in torch.
DTYPES = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "int": "int32",
    "long": "int64",
    "short": "int16",
    **{name: name for name in (*FLOATS, *INTEGERS, "bool", "complex64", "complex128")},
}


@dataclass(frozen=True, slots=True)
class Expected:
    """The Python types that a value of JSON may have, and their name for a person."""

    types: tuple[type, ...]
    text: str

    def fits(self, value: object) -> bool:
        """Whether a value has any of the types. True and false are no numbers."""
        # In Python true is an instance of int.
        return isinstance(value, self.types) and (bool in self.types or not isinstance(value, bool))


WHOLE_NUMBER = Expected((int,), "a whole number")
NUMBER = Expected((int, float), "a number")
NUMBERS = {"int": WHOLE_NUMBER, "long": WHOLE_NUMBER, "float": NUMBER, "double": NUMBER}
SCALARS = {
    **NUMBERS,
    "bool": Expected((bool,), "true or false"),
    "str": Expected((str,), "a string"),
    "device": Expected((str,), "a device such as 'cpu'"),
}
LISTS = ("genericlist", "tuple")
TYPES = (*SCALARS, "none", "dtype", *LISTS, "tensor")


def require_object(value: object, where: str, text: str) -> JsonMapping:
    """Return a value that is an object. Raises OpsError for another. `text` names the expected content."""
    if not isinstance(value, Mapping):
        raise OpsError(f"{where}: expected {text}, got {json_kind(value)}")
    return value


def require_list(value: object, where: str, text: str = "a list") -> list[Any]:
    """Return a value that is a list. Raises OpsError for another. `text` names the expected content."""
    if not isinstance(value, list):
        raise OpsError(f"{where}: expected {text}, got {json_kind(value)}")
    return value


Warn = Callable[[str], object]
"""Called with odd parts of a specification that are still passed on."""


def _ignore(_: str) -> None:
    """Say nothing: odd parts were reported when the configuration was read."""


def check_arguments(spec: object, where: str, *, is_ranged: bool = False, warn: Warn = _ignore) -> None:
    """Check a build or input specification. Raises OpsError that names the value which is wrong."""
    spec = require_object(spec, where, "an object with 'args' and 'kwargs'")
    args = require_list(spec.get("args", []), f"{where}.args")
    kwargs = require_object(spec.get("kwargs", {}), f"{where}.kwargs", "an object")
    if not is_ranged and has_macros(spec):
        raise OpsError(f'{where}: has a macro, which needs "RangeConfigIterator" as iterator')
    for number, argument in enumerate(args):
        _check_argument(argument, f"{where}.args[{number}]", warn)
    for name, argument in kwargs.items():
        _check_argument(argument, f"{where}.kwargs.{name}", warn)


def _check_argument(spec: object, where: str, warn: Warn) -> None:
    spec = require_object(spec, where, "an object with 'type'")
    kind = spec.get("type")
    if kind not in TYPES:
        hint = spelling_hint(str(kind), TYPES) or f". Known: {', '.join(TYPES)}"
        raise OpsError(f"{where}.type: unknown type {kind!r}{hint}")
    for macro in META:
        require_list(spec.get(macro) or [], f"{where}.{macro}")
    for macro in ("__range__", "__list__"):
        for attribute in map(str, spec.get(macro) or ()):
            if not isinstance(spec.get(attribute), list):
                raise OpsError(f"{where}.{attribute}: expected a list, because {macro} names it")
    if kind == "tensor":
        _check_tensor(spec, where)
    elif kind in LISTS:
        items = require_list(spec.get("value"), f"{where}.value", "a list of arguments")
        for number, item in enumerate(items):
            _check_argument(item, f"{where}.value[{number}]", warn)
    elif kind == "dtype":
        for name in _values(spec, "value"):
            _check_dtype(name, f"{where}.value")
    elif kind in SCALARS:
        _check_scalar(spec, where, warn)


def _check_scalar(spec: JsonMapping, where: str, warn: Warn) -> None:
    kind = spec["type"]
    expected, is_number = SCALARS[kind], kind in NUMBERS
    bounds = spec.get("value_range") if is_number else None
    if bounds is not None:
        _check_bounds(bounds, expected, where)
    if "value" not in spec:
        # A string may be left out: it is empty then; a device: it is that of the run.
        if bounds is None and kind not in ("str", "device"):
            raise OpsError(f"{where}: {kind} needs 'value'{' or ' + repr('value_range') if is_number else ''}")
    elif is_number and "value" in (spec.get("__range__") or ()):
        _check_range(spec["value"], expected, f"{where}.value")
    else:
        for value in _values(spec, "value"):
            problem = f"{where}.value: expected {expected.text}, got {value!r}"
            # The original hands any number to the operator, and its own configurations have such.
            if is_number and NUMBER.fits(value) and not expected.fits(value):
                warn(f"{problem}, which is passed on as it is")
            elif not expected.fits(value):
                raise OpsError(problem)


def _check_tensor(spec: JsonMapping, where: str) -> None:
    for key in ("dtype", "shape"):
        if key not in spec:
            raise OpsError(f"{where}: tensor needs '{key}'")
    for name in _values(spec, "dtype"):
        _check_dtype(name, f"{where}.dtype")
    for rule in spec.get("__copy__") or ():
        _check_copy(rule, where)
    _check_shapes(spec, where)
    requires_grad = spec.get("requires_grad")
    if requires_grad is not None and not isinstance(requires_grad, bool):
        raise OpsError(f"{where}.requires_grad: expected true or false, got {requires_grad!r}")
    if spec.get("value_range") is not None:
        _check_bounds(spec["value_range"], NUMBER, where)


def _check_shapes(spec: JsonMapping, where: str) -> None:
    shapes = spec["shape"] if "shape" in (spec.get("__list__") or ()) else [spec["shape"]]
    for shape in shapes:
        sizes = require_list(shape, f"{where}.shape", "a list of sizes")
        # What a copy fills in after expansion may hold any number before, by custom -1.
        copied = {rule["shape"][0] % max(1, len(sizes)) for rule in spec.get("__copy__") or () if "shape" in rule}
        for number, size in enumerate(sizes):
            if isinstance(size, list) and "shape" in (spec.get("__range__") or ()):
                _check_range(size, WHOLE_NUMBER, f"{where}.shape[{number}]")
            elif not WHOLE_NUMBER.fits(size) or (size < 0 and number not in copied):
                raise OpsError(f"{where}.shape[{number}]: expected a size, got {size!r}")


def _check_copy(rule: object, where: str) -> None:
    for value in rule.values() if isinstance(rule, Mapping) else [None]:
        match value:
            case [int(), [int(), int()]]:
                continue
            case _:
                raise OpsError(
                    f"{where}.__copy__: expected {{attribute: [own element, [argument, its element]]}}, got {rule!r}"
                )


def _check_dtype(name: object, where: str) -> None:
    if not isinstance(name, str) or name not in DTYPES:
        hint = spelling_hint(str(name), DTYPES) or f". Known: {', '.join(DTYPES)}"
        raise OpsError(f"{where}: unknown dtype {name!r}{hint}")


def _check_range(bounds: Any, expected: Expected, where: str) -> None:
    fits = isinstance(bounds, list) and len(bounds) in (2, 3) and all(map(expected.fits, bounds))
    if not fits or (len(bounds) == 3 and bounds[2] == 0):
        raise OpsError(f"{where}: expected [first, last, step], each {expected.text} and no step of 0, got {bounds!r}")


def _check_bounds(bounds: Any, expected: Expected, where: str) -> None:
    if not isinstance(bounds, list) or len(bounds) != 2 or not all(map(expected.fits, bounds)):
        raise OpsError(f"{where}.value_range: expected [min, max], each {expected.text}, got {bounds!r}")
    if bounds[0] > bounds[1]:
        raise OpsError(f"{where}.value_range: min {bounds[0]!r} is above max {bounds[1]!r}")


def _values(spec: JsonMapping, key: str) -> Sequence[object]:
    """Return the values of an attribute: several where a macro lists them."""
    is_listed = any(key in (spec.get(macro) or ()) for macro in ("__range__", "__list__"))
    values: Sequence[object] = spec[key] if is_listed else [spec.get(key)]
    return values


def json_kind(value: object) -> str:
    """Return the kind of a JSON value, in words."""
    if value is None:
        return "nothing"
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), type(value).__name__)


class DefaultDataGenerator(DataGenerator):
    """Arguments of the documented types.

    `fill` is how floating-point tensors are filled: uniform in [0, 1), as the original does, standard normal, or zeros.
    After `get_data`, `drawn` lists the values drawn for `value_range`: {"path", "value"}. With `cache`, an argument whose
    specification equals the previous call's is kept.
    """

    def __init__(self, cache: bool = False, *, seed: int | str | None = None, fill: str = "uniform") -> None:
        self.cache, self.fill = cache, fill
        self.drawn: list[JsonObject] = []
        self._random = random.Random(seed)
        self._kept: dict[str, tuple[object, object]] = {}

    def get_data(self, config: JsonMapping, device: str) -> tuple[list[object], Keywords]:
        """Return (args, kwargs).

        Raises OpsError for a wrong specification, OperatorFailed for a specification that does not fit here.
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
        if kind in NUMBERS:
            return self._number(spec, path)
        if kind == "none":
            return None
        if kind in ("device", "dtype"):
            import torch

            return (
                torch.device(spec.get("value", device)) if kind == "device" else getattr(torch, DTYPES[spec["value"]])
            )
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
            raise OperatorFailed(f"requires_grad: a tensor of {name} has no gradient. Leave it out")
        if name == "bool":
            return torch.rand(shape, device=device, generator=generator) < 0.5
        low, high = spec.get("value_range") or (UNSIGNED_RANGE if name.startswith("uint") else SIGNED_RANGE)
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
        low, high = bounds or ((0, 1) if shape else (-10, 10))  # as the original fills a tensor without dimensions
        tensor = torch.rand(shape, dtype=drawn_as, device=device, generator=generator)
        return tensor.mul_(high - low).add_(low).to(dtype)


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
    """Refuse sizes that cannot fit before allocation: an allocation that is granted and then touched kills the process."""
    # The check of free memory takes longer than many inputs, so small ones do without.
    needed = tensor_bytes(config)
    free = free_bytes(device) if needed >= SMALL_BYTES else None
    if free is not None and needed > SAFE_SHARE * free:
        raise OperatorFailed(
            f"out of memory: the inputs need {needed / 2**30:.1f} GiB, {device} has {free / 2**30:.1f} GiB free"
        )
