"""Finds integer arguments that are indices, and their bounds, to keep a replay with made-up data inside its tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from benchmate.ops.traces.schema import Node, TensorRef, tensor_refs

Rule = Callable[[Sequence[Any]], Iterable[tuple[Any, Any]]]
"""From an operator's inputs to (index tensor, number of elements that it may name)."""

_SAME_VALUES = "_to_copy cat clone contiguous copy_ detach expand flatten pin_memory repeat reshape stack to view"
# Operators whose output holds the integers of their input: what bounds the one bounds the other.
PASSTHROUGH = frozenset(f"aten::{name}" for name in _SAME_VALUES.split())
_INDEX_TYPES = ("int64", "int32")


def index_bounds(node: Node) -> Iterator[tuple[TensorRef, int]]:
    """Yield (index tensor, number of elements that it may name) of an operator."""
    rule = RULES.get(node.name)
    try:
        for ref, limit in rule(node.inputs) if rule is not None else ():
            if isinstance(ref, TensorRef) and isinstance(limit, int):
                yield ref, limit
    except (IndexError, TypeError, AttributeError):  # arguments that the rule does not expect bound nothing
        return


def _rows(table: int, index: int) -> Rule:
    return lambda inputs: [(inputs[index], inputs[table].shape[0])]


def _number(number: int, index: int) -> Rule:
    return lambda inputs: [(inputs[index], inputs[number])]


def _along(tensor: int, dimension: int, index: int) -> Rule:
    # A tensor without dimensions has one element, whatever the dimension given.
    return lambda inputs: [(inputs[index], inputs[tensor].shape[inputs[dimension]] if inputs[tensor].shape else 1)]


def _classes(scores: int, target: int) -> Rule:
    # Scores are (batch, classes, ...), or the classes alone.
    return lambda inputs: [(inputs[target], inputs[scores].shape[:2][-1])]


def _pooled(inputs: Sequence[Any]) -> Iterable[tuple[Any, Any]]:
    return [(inputs[-1], math.prod(inputs[1].shape[-2:]))]


def _bags(inputs: Sequence[Any]) -> Iterable[tuple[Any, Any]]:
    return [(inputs[1], inputs[0].shape[0]), (inputs[2], inputs[1].shape[0] + 1)]


def _advanced(inputs: Sequence[Any]) -> Iterable[tuple[Any, Any]]:
    dimension = 0
    for item in inputs[1]:
        if isinstance(item, TensorRef) and item.dtype in _INDEX_TYPES:
            yield item, inputs[0].shape[dimension]
        # A mask stands for as many dimensions as it has.
        is_mask = isinstance(item, TensorRef) and item.dtype in ("bool", "uint8")
        dimension += len(item.shape) if is_mask else 1


# Which rule each operator of aten follows.
_OPERATORS: tuple[tuple[Rule, str], ...] = (
    (_rows(0, 1), "embedding embedding_renorm_"),
    (_number(2, 1), "embedding_backward embedding_dense_backward embedding_sparse_backward"),
    (_bags, "embedding_bag _embedding_bag _embedding_bag_forward_only"),
    (_along(0, 1, 2), "index_select index_add index_add_ index_copy index_copy_ index_fill index_fill_ gather"),
    (_along(0, 1, 2), "scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_"),
    (_along(1, 2, 3), "gather_backward"),
    (_advanced, "index index_put index_put_ _index_put_impl_ _unsafe_index _unsafe_index_put"),
    (_number(1, 0), "one_hot"),
    (_classes(0, 1), "cross_entropy_loss nll_loss nll_loss_nd nll_loss2d nll_loss_forward nll_loss2d_forward"),
    (_classes(1, 2), "nll_loss_backward nll_loss2d_backward"),
    (_pooled, "max_pool2d_with_indices_backward"),
)
RULES = {f"aten::{name}": rule for rule, names in _OPERATORS for name in names.split()}


def passthrough_integers(node: Node) -> tuple[tuple[TensorRef, ...], tuple[TensorRef, ...]]:
    """Return (integer inputs, integer outputs) of an operator whose outputs hold the values of its inputs."""
    if node.name not in PASSTHROUGH:
        return (), ()
    inputs, outputs = (
        tuple(ref for ref in tensor_refs(values) if ref.dtype in _INDEX_TYPES) for values in (node.inputs, node.outputs)
    )
    return inputs, outputs
