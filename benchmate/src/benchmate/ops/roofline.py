"""The work of an operator (operations, bytes) and how near it comes to the measured peaks of this machine."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from benchmate.ops.base import Call, Tensor
from benchmate.ops.device import TorchDevice
from benchmate.ops.interface import tensors_in
from benchmate.ops.sampling import sample_calls
from benchmate.ops.statistics import StopRule


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The work of a call: counted floating-point operations (matrix products, convolutions, attention; None where
    there are none), whether some are of a convolution, and the bytes it reads and writes (`MemoryTraffic`); None where they
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
    return sample_calls("hot" if device.has_events else "end-to-end", call, device, rule).estimate.min


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


# Operations that read part of their first tensor, and the bytes of that part, from (arguments, result).
_GATHERS: dict[str, Callable[[tuple[Any, ...], Any], int]] = {
    **dict.fromkeys(("embedding", "gather", "index", "index_select", "take"), lambda _, result: _nbytes(result)),
    **dict.fromkeys(
        ("_embedding_bag", "_embedding_bag_forward_only"),
        lambda args, _: args[1].numel() * args[0][0].numel() * args[0].element_size(),
    ),
}
# Operations in place that change part of their first tensor: where their arguments have the values for it.
_SCATTERS = {
    **dict.fromkeys(("index_put_", "_index_put_impl_"), 2),
    **dict.fromkeys(("scatter_", "scatter_add_", "index_add_", "index_copy_", "scatter_reduce_"), 3),
}
# Operations in place that do not read what they overwrite.
_INDICES = ("torch.int32", "torch.int64")
_OVERWRITE = frozenset({"copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_"})


class MemoryTraffic:
    """Counts the bytes that the calls inside `recording()` have to read and write, as torch's dispatcher sees them.

    A tensor that was there before the call counts once for reading and once where it is changed. Returned tensors count once.
    Intermediate results do not count. Views move nothing. A gather counts the elements that it takes, not its whole table.
    """

    def __init__(self) -> None:
        self._read: dict[int, int] = {}
        self._written: dict[int, int] = {}
        self._seen: set[int] = set()
        self._made: set[int] = set()
        self.unknown = ""
        """The operation whose bytes nobody knows: it takes indices, and is none of torch's own."""

    def recording(self) -> AbstractContextManager[object]:
        """Return the context in which operations are counted."""
        from torch.utils._python_dispatch import TorchDispatchMode

        count = self._count

        class Recorder(TorchDispatchMode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                result = func(*args, **(kwargs or {}))
                count(func, args, kwargs or {}, result)
                return result

        return Recorder()

    def total(self, read: object, result: object) -> int:
        """Return the bytes moved, where `read` were the arguments and parameters. Untouched tensors count whole."""
        before = {_key(tensor): tensor for tensor in tensors_in(read)}
        unseen = sum(_nbytes(tensor) for key, tensor in before.items() if key not in self._seen)
        results = {_key(tensor): tensor for tensor in tensors_in(result)}
        made = sum(_nbytes(tensor) for key, tensor in results.items() if key not in before)
        return unseen + made + sum(self._read.values()) + sum(self._written.values())

    def _count(self, operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        namespace, _, name = operation._schema.name.partition("::")
        arguments = operation._schema.arguments
        given = {**{argument.name: value for argument, value in zip(arguments, args, strict=False)}, **kwargs}
        changed = [
            argument for argument in arguments if argument.alias_info is not None and argument.alias_info.is_write
        ]
        inputs = list(tensors_in(given))
        own = {_key(tensor) for tensor in inputs}
        new = {_key(tensor) for tensor in tensors_in(result)} - own
        self._seen |= own
        if not changed and not new:
            return  # a view
        self._made |= new
        if namespace not in ("aten", "prims") and any(str(tensor.dtype) in _INDICES for tensor in inputs):
            self.unknown = operation._schema.name
        part = _part(name, args, result)
        for argument in arguments:
            is_changed, is_first = argument in changed, argument is arguments[0]
            for tensor in tensors_in(given.get(argument.name)):
                size = _nbytes(tensor) if part is None or not is_first else min(part, _nbytes(tensor))
                if is_changed:
                    self._add(self._written, tensor, size)
                if not is_changed or not (argument.is_out or name in _OVERWRITE):
                    self._add(self._read, tensor, size)

    def _add(self, sizes: dict[int, int], tensor: Tensor, size: int) -> None:
        key = _key(tensor)
        if key not in self._made:
            sizes[key] = max(sizes.get(key, 0), size)


def _part(name: str, args: tuple[Any, ...], result: Any) -> int | None:
    """Return the bytes of its first tensor that an operation touches. None where it is the whole."""
    if name in _GATHERS:
        return _GATHERS[name](args, result)
    index = _SCATTERS.get(name)
    return _nbytes(args[index]) if index is not None and len(args) > index else None


def _key(tensor: Tensor) -> int:
    """Return the identity of a tensor's memory, which its views share."""
    return tensor.untyped_storage().data_ptr() if str(tensor.layout) == "torch.strided" else id(tensor)


def _nbytes(value: Any) -> int:
    """Return the bytes of the elements of tensors. Of an expanded tensor the existing ones."""
    sizes = (tensor.numel() * tensor.element_size() for tensor in tensors_in(value))
    limits = (
        tensor.untyped_storage().nbytes() if str(tensor.layout) == "torch.strided" else float("inf")
        for tensor in tensors_in(value)
    )
    return int(sum(map(min, sizes, limits)))
