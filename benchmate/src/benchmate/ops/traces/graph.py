"""The call graph of a trace, and which memory each tensor really was. Sees only values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmate.ops.traces.schema import Node, TensorRef, Trace, tensor_refs

_ALLOCATE = "empty empty_like empty_strided new_empty new_empty_strided resize_"
_VIEW = "alias as_strided detach expand flatten permute reshape select slice squeeze t transpose unsqueeze view"
_RESOLVE = "resolve_conj resolve_neg"
IDLE = frozenset(f"aten::{name}" for name in f"{_ALLOCATE} {_VIEW} {_RESOLVE}".split())
LOADING = ("enumerate(DataLoader)", "dataloader")


@dataclass(slots=True, kw_only=True)
class Generation:
    """A life of a storage. A trace names a storage by a number that is reused once the storage is freed.

    `birth` is the node that allocated it, None when it was there before the trace or came from outside the trace.
    """

    number: int
    birth: int | None
    size: int = 0  # bytes, as far as tensors reach
    dtypes: set[str] = field(default_factory=set)

    def admit(self, ref: TensorRef) -> None:
        """Take a tensor in that lies in this memory."""
        self.size = max(self.size, ref.end)
        self.dtypes.add(ref.dtype)

    def holds(self, ref: TensorRef) -> bool:
        """Whether a tensor that an operator reads may be in it. A type that nobody wrote means other memory of the number."""
        # torch gives a number again once its storage is freed: in a small step one in six names memory of several types.
        if ref.dtype not in self.dtypes:
            return False
        return self.birth is None or ref.end <= self.size


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """The nodes of a trace as a forest in time. `read` and `written` hold the generation of each tensor in the order of
    `tensors_in`. `last` the greatest id within a node."""

    nodes: Mapping[int, Node]
    children: Mapping[int, tuple[int, ...]]
    roots: tuple[int, ...]
    last: Mapping[int, int]
    generations: tuple[Generation, ...]
    read: Mapping[int, tuple[int, ...]]
    written: Mapping[int, tuple[int, ...]]

    def inputs(self, node: Node) -> dict[int, int]:
        """Return the generation of each tensor that a node reads, by the `id` of the TensorRef."""
        return dict(zip(map(id, tensor_refs(node.inputs)), self.read[node.id], strict=True))

    def outputs(self, node: Node) -> dict[int, int]:
        """Return the generation of each tensor that a node gives, by the `id` of the TensorRef."""
        return dict(zip(map(id, tensor_refs(node.outputs)), self.written[node.id], strict=True))

    def within(self, node: int) -> list[Node]:
        """Return a node and all below it, in the order in which they began."""
        nodes, left = [], [node]
        while left:
            number = left.pop()
            nodes.append(self.nodes[number])
            left.extend(reversed(self.children.get(number, ())))
        return nodes

    def can_be_replaced(self, node: int) -> bool:
        """Whether this operator called operators that do its work. Those that only allocate and view leave the work to it."""
        return any(inner.is_operator and inner.name not in IDLE for inner in self.within(node)[1:])


def build_graph(trace: Trace) -> Graph:
    """Return the graph of a trace."""
    nodes = {node.id: node for node in trace.nodes}
    children: dict[int, list[int]] = {}
    roots = []
    for node in trace.nodes:
        # Whoever was still running when the recording ended is not in the file: those it called are roots.
        if node.parent == node.id or node.parent not in nodes or node.parent > node.id:
            roots.append(node.id)
        else:
            children.setdefault(node.parent, []).append(node.id)
    last: dict[int, int] = {}
    # Children have greater ids than their parents: one pass from the end knows all children before their parent.
    for number in sorted(nodes, reverse=True):
        last[number] = max([number, *(last[child] for child in children.get(number, ()))])
    generations, read, written = _follow_storages(trace, last)
    return Graph(
        nodes=nodes,
        children={node: tuple(called) for node, called in children.items()},
        roots=tuple(roots),
        last=last,
        generations=tuple(generations),
        read=read,
        written=written,
    )


def _follow_storages(
    trace: Trace, last: Mapping[int, int]
) -> tuple[list[Generation], dict[int, tuple[int, ...]], dict[int, tuple[int, ...]]]:
    """Follow each storage through time: operators read when they begin and have written when they end."""
    generations: list[Generation] = []
    current: dict[tuple[object, ...], Generation] = {}
    read: dict[int, tuple[int, ...]] = {}
    written: dict[int, tuple[int, ...]] = {}

    def born(ref: TensorRef, birth: int | None) -> Generation:
        life = Generation(number=len(generations), birth=birth)
        generations.append(life)
        current[_storage(ref)] = life
        return life

    def begins(node: Node) -> None:
        lives = []
        for ref in tensor_refs(node.inputs):
            life = current.get(_storage(ref))
            if life is None or not life.holds(ref):
                life = born(ref, None)
            life.admit(ref)
            lives.append(life.number)
        read[node.id] = tuple(lives)

    def ends(node: Node) -> None:
        given = {_storage(ref): life for ref, life in zip(tensor_refs(node.inputs), read[node.id], strict=True)}
        lives = []
        for ref in tensor_refs(node.outputs):
            key = _storage(ref)
            # Written in place, or a view of an input: the same memory lives longer.
            if key in given:
                life = generations[given[key]]
            else:
                known = current.get(key)
                # Memory born inside of this operator is what it returns; older memory of the same number was freed.
                is_own = known is not None and known.birth is not None and known.birth >= node.id
                life = known if is_own and known is not None else born(ref, node.id)
            life.admit(ref)
            lives.append(life.number)
        written[node.id] = tuple(lives)

    # Ids count up with time, so a node ends after the greatest id within it; of nodes that end together the inner ones end first.
    moments = [((node.id, 0, 0), begins, node) for node in trace.nodes]
    moments += [((last[node.id], 1, -node.id), ends, node) for node in trace.nodes]
    for _, happens, node in sorted(moments, key=lambda moment: moment[0]):
        happens(node)
    return generations, read, written


def _storage(ref: TensorRef) -> tuple[object, ...]:
    # Sparse tensors have no storage of their own, and all tensors without elements may have the same.
    return (ref.storage, ref.device) if ref.storage and ref.numel else ("tensor", ref.tensor)


def step_window(trace: Trace) -> tuple[int, float]:
    """Return the ids that are replayed: from the first mark of torch's profiler to the second; all, without two marks."""
    marks = [node.id for node in trace.nodes if "ProfilerStep#" in node.name]
    return (marks[0], marks[1]) if len(marks) > 1 else (0, float("inf"))
