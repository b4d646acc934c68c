"""Which integer arguments are indices, and into how many elements: what keeps a replay with made-up data inside its tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchmate.ops.traces.schema import Node, TensorRef, Value, tensor_refs

Bound = tuple[TensorRef, int]  # an index tensor, and the number of elements that it may name

# Operators that hand integers on as they are: what bounds their output bounds their input.
PASSTHROUGH = (
    "aten::_to_copy",
    "aten::cat",
    "aten::clone",
    "aten::contiguous",
    "aten::copy_",
    "aten::detach",
    "aten::expand",
    "aten::flatten",
    "aten::pin_memory",
    "aten::repeat",
    "aten::reshape",
    "aten::stack",
    "aten::to",
    "aten::view",
)


def index_bounds(node: Node) -> Iterator[Bound]:
    """The index tensors of an operator."""
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


def _into_rows(table: int, index: int) -> Callable[[Node], Iterator[Bound]]:
    def rule(node: Node) -> Iterator[Bound]:
        yield _tensor(node.inputs[index]), _tensor(node.inputs[table]).shape[0]

    return rule


def _of_number(number: int, index: int) -> Callable[[Node], Iterator[Bound]]:
    def rule(node: Node) -> Iterator[Bound]:
        yield _tensor(node.inputs[index]), _number(node.inputs[number])

    return rule


def _along(dimension: int, index: int) -> Callable[[Node], Iterator[Bound]]:
    def rule(node: Node) -> Iterator[Bound]:
        shape = _tensor(node.inputs[0]).shape
        yield _tensor(node.inputs[index]), shape[_number(node.inputs[dimension])] if shape else 1

    return rule


def _gather_backward(node: Node) -> Iterator[Bound]:
    yield _tensor(node.inputs[3]), _tensor(node.inputs[1]).shape[_number(node.inputs[2])]


def _advanced(node: Node) -> Iterator[Bound]:
    shape = _tensor(node.inputs[0]).shape
    listed = node.inputs[1]
    place = 0
    for one in listed if isinstance(listed, tuple) else ():
        if isinstance(one, TensorRef) and one.dtype in ("int64", "int32"):
            yield one, shape[place]
        place += len(one.shape) if isinstance(one, TensorRef) and one.dtype in ("bool", "uint8") else 1


def _classes(scores: int, target: int) -> Callable[[Node], Iterator[Bound]]:
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


RULES: dict[str, Callable[[Node], Iterator[Bound]]] = {
    "aten::embedding": _into_rows(0, 1),
    "aten::embedding_renorm_": _into_rows(0, 1),
    "aten::embedding_backward": _of_number(2, 1),
    "aten::embedding_dense_backward": _of_number(2, 1),
    "aten::embedding_sparse_backward": _of_number(2, 1),
    "aten::embedding_bag": _bags,
    "aten::_embedding_bag": _bags,
    "aten::_embedding_bag_forward_only": _bags,
    "aten::index_select": _along(1, 2),
    "aten::index_add": _along(1, 2),
    "aten::index_add_": _along(1, 2),
    "aten::index_copy": _along(1, 2),
    "aten::index_copy_": _along(1, 2),
    "aten::index_fill": _along(1, 2),
    "aten::index_fill_": _along(1, 2),
    "aten::gather": _along(1, 2),
    "aten::gather_backward": _gather_backward,
    "aten::scatter": _along(1, 2),
    "aten::scatter_": _along(1, 2),
    "aten::scatter_add": _along(1, 2),
    "aten::scatter_add_": _along(1, 2),
    "aten::scatter_reduce": _along(1, 2),
    "aten::scatter_reduce_": _along(1, 2),
    "aten::index": _advanced,
    "aten::index_put": _advanced,
    "aten::index_put_": _advanced,
    "aten::_index_put_impl_": _advanced,
    "aten::_unsafe_index": _advanced,
    "aten::_unsafe_index_put": _advanced,
    "aten::one_hot": _of_number(1, 0),
    "aten::cross_entropy_loss": _classes(0, 1),
    "aten::nll_loss": _classes(0, 1),
    "aten::nll_loss_nd": _classes(0, 1),
    "aten::nll_loss2d": _classes(0, 1),
    "aten::nll_loss_forward": _classes(0, 1),
    "aten::nll_loss2d_forward": _classes(0, 1),
    "aten::nll_loss_backward": _classes(1, 2),
    "aten::nll_loss2d_backward": _classes(1, 2),
    "aten::max_pool2d_with_indices_backward": _pooled,
}


def passthrough_integers(node: Node) -> tuple[tuple[TensorRef, ...], tuple[TensorRef, ...]]:
    """(integer inputs, integer outputs) of an operator that hands them on as they are."""
    if node.name not in PASSTHROUGH:
        return (), ()
    given = tuple(one for one in tensor_refs(node.inputs) if one.dtype in ("int64", "int32"))
    made = tuple(one for one in tensor_refs(node.outputs) if one.dtype in ("int64", "int32"))
    return given, made
