"""What an operator does and whether it does it rightly: operations, bytes, the machine's measured peaks, a reference."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmate.ops.autograd import tensors_in
from benchmate.ops.device import TorchDevice

LARGEST_HOST_REFERENCE = 5e9  # operations: about a second in double precision on a few cores
TOLERANCE = {
    "float64": 1e-10,
    "float32": 1e-4,
    "float16": 1e-2,
    "bfloat16": 5e-2,
}  # of the largest value of the reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one call does: floating-point operations that are counted (matrix products, convolutions, attention; None where
    there are none), whether some are of a convolution, and the bytes of inputs, parameters and outputs, each once."""

    flops: int | None
    convolves: bool
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPeaks:
    """What this device reached here: a large matrix product in the dtype (None where it has none), and a copy."""

    flops_per_s: float | None
    bytes_per_s: float


def count_work(call: Callable[[], Any], read: Sequence[Any]) -> Work:
    """What one call does; `read` holds its tensors, arguments and parameters."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False, custom_mapping=_uncounted()) as counter:
        output = call()
    counted = counter.get_flop_counts().get("Global", {})
    return Work(
        flops=counter.get_total_flops() or None,
        convolves=any("convolution" in str(operation) for operation in counted),
        bytes=_storage_bytes([*read, output]),
    )


def may_use_tf32(found: Work, dtype: str, place: TorchDevice) -> bool:
    """Whether float32 may be rounded to TF32 in it: torch's settings differ for convolutions, where it may by default."""
    import torch

    if place.kind != "cuda" or dtype != "float32":
        return False
    allowed = torch.backends.cudnn.allow_tf32 if found.convolves else torch.backends.cuda.matmul.allow_tf32
    return bool(allowed)


@functools.cache
def _uncounted() -> dict[Any, Any]:
    """Operations that torch's counter leaves out: attention on a CPU."""
    import torch
    from torch.utils import flop_counter

    attention = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
    count = getattr(flop_counter, "sdpa_flop_count", None)
    if attention is None or count is None:
        return {}
    return {attention: lambda q, k, v, *args, **kwargs: count(q, k, v)}


def _storage_bytes(values: Any) -> int:
    """Bytes of the tensors' elements; views of one storage count once, by the largest."""
    sizes: dict[int, int] = {}
    for tensor in tensors_in(values):
        key = tensor.untyped_storage().data_ptr() if str(tensor.layout) == "torch.strided" else id(tensor)
        sizes[key] = max(sizes.get(key, 0), tensor.numel() * tensor.element_size())
    return sum(sizes.values())


@functools.lru_cache(maxsize=64)
def measure_peaks(place: TorchDevice, dtype: str, *, tf32: bool = False) -> MeasuredPeaks:
    """Measured once for each precision: the best of a few products and copies, long enough to fill the device."""
    import torch

    size = 1024 if place.kind == "cpu" else 8192
    copied = max(4 * place.cache_bytes, 1 << 26 if place.kind == "cpu" else 1 << 30)
    bytes_per_s = _copy_speed(min(copied, 1 << 30), place)
    element = getattr(torch, dtype, None)
    if element is None or not element.is_floating_point or element.itemsize == 1:
        return MeasuredPeaks(flops_per_s=None, bytes_per_s=bytes_per_s)
    a, b = (torch.randn(size, size, device=place.device).to(element) for _ in range(2))
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        flops_per_s = 2 * size**3 / _best_s(lambda: torch.mm(a, b), place)
    except RuntimeError:
        return MeasuredPeaks(flops_per_s=None, bytes_per_s=bytes_per_s)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    return MeasuredPeaks(flops_per_s=flops_per_s, bytes_per_s=bytes_per_s)


def _copy_speed(size: int, place: TorchDevice) -> float:
    """Bytes read and written in a second by a copy of `size` bytes."""
    import torch

    source = torch.ones(size // 4, device=place.device)
    target = torch.empty_like(source)
    return 2 * size / _best_s(lambda: target.copy_(source), place)


def _best_s(call: Callable[[], Any], place: TorchDevice) -> float:
    from benchmate.ops.sampling import sample_calls
    from benchmate.ops.statistics import StopRule

    rule = StopRule(samples=8, seconds=0.0, longest_s=0.25, every=4)
    return sample_calls("hot" if place.has_events else "end-to-end", call, place, rule).estimate.minimum


def share_of_peak(
    flops: int | None, moved: int | None, seconds: float, found: MeasuredPeaks
) -> tuple[float, str] | None:
    """(share, of what): how near a time is to the roofline of the measured peaks; of compute or of bandwidth.

    `moved` are the bytes that surely went to memory, None where they may have stayed in the cache. None where nothing can be
    compared.
    """
    shares = []
    if moved is not None:
        shares.append((moved / seconds / found.bytes_per_s, "bandwidth"))
    if flops is not None and found.flops_per_s is not None:
        shares.append((flops / seconds / found.flops_per_s, "compute"))
    return max(shares, default=None)


def check_output(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], flops: int | None, place: TorchDevice
) -> dict[str, Any]:
    """Compare one call with the same in double precision on the same device.

    {"status": "correct" | "wrong" | "unchecked", "error"?: the largest difference as a share of the reference's largest
    value, "tolerance"?, "reason"?}. What cannot be compared is unchecked, with the reason.
    """
    import torch

    if place.kind == "cpu" and (flops or 0) > LARGEST_HOST_REFERENCE:
        return _unchecked("a reference in double precision would take seconds")
    try:
        with torch.no_grad():
            first, second = (_outputs(function(*_cloned(args), **_cloned(kwargs))) for _ in range(2))
            if any(not _same(one, two) for one, two in zip(first, second, strict=True)):
                return _unchecked("two calls with the same input differ: random")
            exact = copy.deepcopy(function).double() if isinstance(function, torch.nn.Module) else function
            expected = _outputs(exact(*_doubled(args), **_doubled(kwargs)))
    except Exception as error:  # not every operator has double precision; it is measured all the same
        return _unchecked(
            f"no reference: {type(error).__name__}: {str(error).splitlines()[0][:120] if str(error) else ''}"
        )
    if not first or len(first) != len(expected):
        return _unchecked("no tensor in the output")
    return _compared(first, expected)


def _compared(found: list[Any], expected: list[Any]) -> dict[str, Any]:
    import torch

    worst, tolerance = 0.0, 0.0
    for one, other in zip(found, expected, strict=True):
        if one.shape != other.shape:
            return {"status": "wrong", "reason": f"shape {list(one.shape)}, the reference has {list(other.shape)}"}
        if not one.dtype.is_floating_point:
            continue
        tolerance = max(tolerance, TOLERANCE.get(str(one.dtype).removeprefix("torch."), 0.2))
        finite = torch.isfinite(other)
        if bool((torch.isnan(one) & ~torch.isnan(other)).any()):
            return {"status": "wrong", "reason": "nan where the reference has a number"}
        scale = other[finite].abs().max().item() if bool(finite.any()) else 0.0
        difference = (one.double() - other)[finite]
        difference = difference[torch.isfinite(difference)]
        if difference.numel():
            worst = max(worst, difference.abs().max().item() / (scale or 1.0))
    if not tolerance:
        return _unchecked("no floating-point output")
    return {"status": "correct" if worst <= tolerance else "wrong", "error": worst, "tolerance": tolerance}


def _same(one: Any, two: Any) -> bool:
    """Whether two outputs are equal element by element, not-a-number included."""
    return one.shape == two.shape and bool(((one == two) | ((one != one) & (two != two))).all())  # noqa: PLR0124


def _unchecked(reason: str) -> dict[str, Any]:
    return {"status": "unchecked", "reason": reason}


def _outputs(value: Any) -> list[Any]:
    return [one.detach() for one in tensors_in(value)]


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return change(value.detach())
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(item, change) for item in value)
    if isinstance(value, dict):
        return {key: _mapped(item, change) for key, item in value.items()}
    return value


def _cloned(value: Any) -> Any:
    return _mapped(value, lambda tensor: tensor.clone())


def _doubled(value: Any) -> Any:
    return _mapped(value, lambda tensor: tensor.double() if tensor.dtype.is_floating_point else tensor.clone())
