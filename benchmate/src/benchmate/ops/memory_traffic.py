"""The bytes that a call has to read and write, from the operations that torch's dispatcher sees.

A tensor that was there before the call counts once for reading and once where it is changed. Returned tensors count once.
Intermediate results do not count. Views move nothing. A gather counts the elements that it takes, not its whole table.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from benchmate.ops.base import Tensor
from benchmate.ops.interface import tensors_in

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
    """Counts the bytes of the calls inside `recording()`."""

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
