"""The work of an operator (operations, bytes) and how near it comes to the measured peaks of this machine."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmate.ops.base import Call
from benchmate.ops.device import TorchDevice
from benchmate.ops.memory_traffic import MemoryTraffic
from benchmate.ops.sampling import sample_calls
from benchmate.ops.statistics import StopRule


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The work of a call: counted floating-point operations (matrix products, convolutions, attention; None where
    there are none), whether some are of a convolution, and the bytes it reads and writes (`memory_traffic`); None where they
    are not known, for the reason in `no_bytes`."""

    flops: int | None
    convolves: bool
    bytes: int | None
    no_bytes: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPeaks:
    """The rates of this device here: a large matrix product in the dtype (None where it has none), and a copy."""

    flops_per_s: float | None
    bytes_per_s: float


def count_work(call: Call, read: list[object]) -> Work:
    """Return the work of a call. `read` holds the tensors that it reads, arguments and parameters."""
    from torch.utils.flop_counter import FlopCounterMode

    traffic = MemoryTraffic()
    with FlopCounterMode(display=False, custom_mapping=_attention_flops()) as counter, traffic.recording():
        output = call()
    counted = counter.get_flop_counts().get("Global", {})
    return Work(
        flops=counter.get_total_flops() or None,
        convolves=any("convolution" in str(operation) for operation in counted),
        bytes=None if traffic.unknown else traffic.total(read, output),
        no_bytes=f"it is not known which bytes {traffic.unknown} touches" if traffic.unknown else "",
    )


def may_use_tf32(work: Work, dtype: str, device: TorchDevice) -> bool:
    """Whether float32 may be rounded to TF32 in it: torch's settings differ for convolutions, where it may by default."""
    import torch

    if device.kind != "cuda" or dtype != "float32":
        return False
    allowed = torch.backends.cudnn.allow_tf32 if work.convolves else torch.backends.cuda.matmul.allow_tf32
    return bool(allowed)


# Where each kind of attention has its argument `is_causal`. torch's counter leaves the one of a CPU out, and counts all pairs.
_IS_CAUSAL_AT = {
    "_scaled_dot_product_flash_attention": 4,
    "_scaled_dot_product_flash_attention_for_cpu": 4,
    "_scaled_dot_product_efficient_attention": 6,
    "_scaled_dot_product_cudnn_attention": 6,
}


@functools.cache
def _attention_flops() -> dict[object, Callable[..., Any]]:
    """Return how the operations of attention are counted: with a causal mask, those pairs alone that it leaves."""
    import torch
    from torch.utils.flop_counter import sdpa_flop_count

    def counter(place: int) -> Callable[..., Any]:
        def count(query: Any, key: Any, value: Any, *args: Any, is_causal: bool = False, **kwargs: Any) -> int:
            total = int(sdpa_flop_count(query, key, value))
            if not (is_causal or args[place - 3 : place - 2] == (True,)):
                return total
            rows, columns = query[-2], key[-2]
            square = min(rows, columns)
            pairs = square * (square + 1) // 2 + (rows - square) * columns
            return total * pairs // (rows * columns)

        return count

    found = {getattr(torch.ops.aten, name, None): counter(place) for name, place in _IS_CAUSAL_AT.items()}
    return {operation: count for operation, count in found.items() if operation is not None}


@functools.lru_cache(maxsize=64)
def measure_peaks(device: TorchDevice, dtype: str, *, tf32: bool = False) -> MeasuredPeaks:
    """Return the peaks, measured once for each precision: the best of a few products and copies that fill the device."""
    import torch

    size = 1024 if device.kind == "cpu" else 8192
    copied = max(4 * device.cache_bytes, 1 << 26 if device.kind == "cpu" else 1 << 30)
    bytes_per_s = _copy_speed(min(copied, 1 << 30), device)
    element = getattr(torch, dtype, None)
    if element is None or not element.is_floating_point or element.itemsize == 1:
        return MeasuredPeaks(flops_per_s=None, bytes_per_s=bytes_per_s)
    a, b = (torch.randn(size, size, device=device.device).to(element) for _ in range(2))
    # The peak is measured in the precision in which the operator may compute, then the program's own choice is put back.
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        flops_per_s = 2 * size**3 / _best_s(lambda: torch.mm(a, b), device)
    except RuntimeError:
        flops_per_s = None  # not every device multiplies every dtype
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    return MeasuredPeaks(flops_per_s=flops_per_s, bytes_per_s=bytes_per_s)


def _copy_speed(size: int, device: TorchDevice) -> float:
    """Return the bytes read and written in a second by a copy of `size` bytes, which are free again afterwards."""
    import torch

    source = torch.ones(size // 4, device=device.device)
    target = torch.empty_like(source)
    return 2 * size / _best_s(lambda: target.copy_(source), device)


def _best_s(call: Call, device: TorchDevice) -> float:
    rule = StopRule(samples=8, seconds=0.0, longest_s=0.25, every=4)
    return sample_calls("hot" if device.has_events else "end-to-end", call, device, rule).estimate.minimum


def share_of_peak(
    flops: int | None, moved: int | None, seconds: float, peaks: MeasuredPeaks
) -> tuple[float, str] | None:
    """Return (share, resource): how near a time is to the roofline of the measured peaks, by compute or by bandwidth.

    `moved` are the bytes that surely went to memory, None where they may have stayed in the cache. None where nothing can be
    compared.
    """
    shares = []
    if moved is not None:
        shares.append((moved / seconds / peaks.bytes_per_s, "bandwidth"))
    if flops is not None and peaks.flops_per_s is not None:
        shares.append((flops / seconds / peaks.flops_per_s, "compute"))
    return max(shares, default=None)
