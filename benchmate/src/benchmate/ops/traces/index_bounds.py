"""Which integer arguments are indices, and into how many elements: what keeps a replay with made-up data inside its tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchmate.ops.traces.schema import Node, TensorRef, Value, tensor_refs

Bound = tuple[TensorRef, int]  # an index tensor, and the number of elements that it may name

Rule = Callable[[Node], Iterator[Bound]]

_SAME_VALUES = "_to_copy cat clone contiguous copy_ detach expand flatten pin_memory repeat reshape stack to view"
# Operators whose output holds the integers of their input: what bounds the one bounds the other.
PASSTHROUGH = frozenset(f"aten::{name}" for name in _SAME_VALUES.split())
_INDEX_TYPES = ("int64", "int32")


def index_bounds(node: Node) -> Iterator[Bound]:
    """Yield the index tensors of an operator."""
    rule = RULES.get(node.name)
    if rule is None:
        return
    try:
        yield from rule(node)
    except (IndexError, TypeError, AttributeError):  # arguments that the rule does not expect bound nothing
        return


def _tensor(value: Value) -> TensorRef:
    if not isinstance(value, TensorRef):
        raise TypeError
    return value


def _number(value: Value) -> int:
    if not isinstance(value, int):
        raise TypeError
    return value


def _into_rows(table: int, index: int) -> Rule:
    def rule(node: Node) -> Iterator[Bound]:
        yield _tensor(node.inputs[index]), _tensor(node.inputs[table]).shape[0]

    return rule


def _of_number(number: int, index: int) -> Rule:
    def rule(node: Node) -> Iterator[Bound]:
        yield _tensor(node.inputs[index]), _number(node.inputs[number])

    return rule


def _along(dimension: int, index: int) -> Rule:
    def rule(node: Node) -> Iterator[Bound]:
        shape = _tensor(node.inputs[0]).shape
        yield _tensor(node.inputs[index]), shape[_number(node.inputs[dimension])] if shape else 1

    return rule


def _gather_backward(node: Node) -> Iterator[Bound]:
    yield _tensor(node.inputs[3]), _tensor(node.inputs[1]).shape[_number(node.inputs[2])]


def _advanced(node: Node) -> Iterator[Bound]:
    shape = _tensor(node.inputs[0]).shape
    listed = node.inputs[1]
    dimension = 0
    for item in listed if isinstance(listed, tuple) else ():
        if isinstance(item, TensorRef) and item.dtype in _INDEX_TYPES:
            yield item, shape[dimension]
        # A mask stands for as many dimensions as it has.
        if isinstance(item, TensorRef) and item.dtype in ("bool", "uint8"):
            dimension += len(item.shape)
        else:
            dimension += 1


def _classes(scores: int, target: int) -> Rule:
    def rule(node: Node) -> Iterator[Bound]:
        shape = _tensor(node.inputs[scores]).shape
        yield _tensor(node.inputs[target]), shape[1] if len(shape) > 1 else shape[0]

    return rule


def _pooled(node: Node) -> Iterator[Bound]:
    plane = _tensor(node.inputs[1]).shape[-2:]
    yield _tensor(node.inputs[-1]), plane[0] * plane[1]


def _bags(node: Node) -> Iterator[Bound]:
    yield _tensor(node.inputs[1]), _tensor(node.inputs[0]).shape[0]
    yield _tensor(node.inputs[2]), _tensor(node.inputs[1]).shape[0] + 1


# Which rule each operator of aten follows.
_OPERATORS: tuple[tuple[Rule, str], ...] = (
    (_into_rows(0, 1), "embedding embedding_renorm_"),
    (_of_number(2, 1), "embedding_backward embedding_dense_backward embedding_sparse_backward"),
    (_bags, "embedding_bag _embedding_bag _embedding_bag_forward_only"),
    (_along(1, 2), "index_select index_add index_add_ index_copy index_copy_ index_fill index_fill_ gather"),
    (_along(1, 2), "scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_"),
    (_gather_backward, "gather_backward"),
    (_advanced, "index index_put index_put_ _index_put_impl_ _unsafe_index _unsafe_index_put"),
    (_of_number(1, 0), "one_hot"),
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
