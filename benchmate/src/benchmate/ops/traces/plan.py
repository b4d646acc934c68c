"""The plan of a replay: which operators are carried out, and on which tensors. Pure: a caller names impossible operators."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmate.ops.traces.graph import LOADING, Graph, step_window
from benchmate.ops.traces.index_bounds import index_bounds, passthrough_integers
from benchmate.ops.traces.schema import INTEGERS, Node, OpaqueValue, TensorRef, Trace, Value, split_types, tensor_refs

# Why an operator cannot be carried out as it stands; None when it can.
Obstacle = Callable[[Node], str | None]

# Operators whose integers are indices by construction.
_INDICES = "arange argmax argmin max max_pool2d max_pool2d_with_indices min multinomial nonzero"
_BOUNDED = "ones randint randperm sort topk zeros zeros_like"
TRUSTED = frozenset(f"aten::{name}" for name in (*_INDICES.split(), *_BOUNDED.split()))
EMPTY = ("aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::new_empty_strided")
ARITHMETIC = ("aten::add", "aten::sub", "aten::mul", "aten::div", "aten::true_divide")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The operators to carry out, in order, and those left out with the reason.

    `expanded` were replaced by the operators that they called.
    """

    calls: tuple[Node, ...]
    skipped: tuple[tuple[Node, str], ...]
    expanded: frozenset[int]


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a tensor is kept during a replay."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorView:
    """The tensor of a slot: which memory, and how it lies in it."""

    generation: int
    ref: TensorRef


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCall:
    """An operator to carry out: its arguments and results with slots for tensors, and tensors that nobody needs afterwards."""

    node: Node
    arguments: tuple[object, ...]
    results: tuple[Slot | None, ...]  # nested lists walked through
    reads: tuple[int, ...]
    is_collective: bool
    zeroed: tuple[int, ...] = ()  # integers that nobody wrote yet: they must not become indices
    guards: tuple[tuple[int, int], ...] = ()  # (slot, bound) of indices that come from made-up data
    frees: tuple[int, ...] = ()
    forgets: tuple[int, ...] = ()  # generations

    @property
    def writes(self) -> list[int]:
        """The slots of its results."""
        return [slot.number for slot in self.results if slot is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A replay. `given` are the generations that are there before it begins, `bounds` those that hold indices, `kept` those
    whose memory is needed besides the tensors that operators return."""

    calls: tuple[PlannedCall, ...]
    views: tuple[TensorView, ...]
    given: frozenset[int]
    bounds: Mapping[int, int]
    kept: frozenset[int]
    sizes: Mapping[int, int]
    selection: Selection


def static_obstacle(node: Node) -> str | None:
    """Return the obstacle that a node alone shows, without a torch that could try it. None where it shows none."""
    if node.is_kernel:
        return "a compiled kernel whose code is not in the trace"
    if node.name == "aten::record_stream":
        return "bookkeeping of the allocator"
    if node.is_collective:
        return None
    if any(_is_opaque(value) for value, kind in zip(node.inputs, _kinds(node), strict=True) if "bool[" not in kind):
        return "an argument whose value is not in the trace"
    return None


def _kinds(node: Node) -> list[str]:
    """Return the types of a schema's arguments. An empty text where it does not tell."""
    declared = split_types(node.schema.partition("(")[2].rpartition(") ->")[0])
    kinds = [kind.strip() for kind in declared if kind.strip() != "*"]
    return (kinds + [""] * len(node.inputs))[: len(node.inputs)]


def _is_opaque(value: object) -> bool:
    return isinstance(value, OpaqueValue) or (isinstance(value, tuple) and any(map(_is_opaque, value)))


def select_calls(trace: Trace, graph: Graph, obstacle: Obstacle = static_obstacle) -> Selection:
    """Return the outermost operators that can be carried out and that return all that later ones read.

    An operator is replaced by those it called when it has an obstacle, or when something that only they made is read later: a
    forward pass hides inputs of its backward pass.
    """
    expanded: set[int] = set()
    while True:
        calls, skipped = _outermost(trace, graph, expanded, obstacle)
        # One that did its work itself cannot be replaced: what is missing after it will be made up.
        hiding = {node for node in _hiding(graph, calls) if graph.can_be_replaced(node)} - expanded
        if not hiding:
            return Selection(calls=tuple(calls), skipped=tuple(skipped), expanded=frozenset(expanded))
        expanded |= hiding


def _outermost(
    trace: Trace, graph: Graph, expanded: set[int], obstacle: Obstacle
) -> tuple[list[Node], list[tuple[Node, str]]]:
    first, end = step_window(trace)
    calls: list[Node] = []
    skipped: list[tuple[Node, str]] = []
    left = list(reversed(graph.roots))
    while left:
        number = left.pop()
        node = graph.nodes[number]
        if node.name.startswith(LOADING):
            skipped.extend((inner, "loading of data") for inner in graph.within(number)[1:] if inner.is_operator)
            continue
        if node.is_operator and first <= number < end:
            reason = obstacle(node)
            if reason is None and number not in expanded:
                calls.append(node)
                continue
            if not graph.can_be_replaced(number):
                skipped.append((node, reason or "replaced by the operators that it called, of which there are none"))
                continue
        elif node.is_compiled_region and not any(inner.is_kernel for inner in graph.within(number)):
            skipped.append((node, "compiled: work outside operators is not in the trace"))
        left.extend(reversed(graph.children.get(number, ())))
    return sorted(calls, key=lambda node: node.id), skipped


def _hiding(graph: Graph, calls: list[Node]) -> set[int]:
    """Return the calls that made, but did not return, a tensor that a later call reads."""
    starts = [node.id for node in calls]
    hiding = set()
    for node in calls:
        for number in graph.read[node.id]:
            birth = graph.generations[number].birth
            index = bisect.bisect_right(starts, birth) - 1 if birth is not None else -1
            # Made before the trace, before the first call, by the reader itself, or between two calls: nobody hides it.
            if birth is None or index < 0 or starts[index] == node.id or birth > graph.last[starts[index]]:
                continue
            if number not in graph.written[starts[index]]:
                hiding.add(starts[index])
    return hiding


SlotKey = tuple[object, ...]


@dataclass(slots=True, kw_only=True)
class _SlotTable:
    """Slots as they are handed out."""

    numbers: dict[SlotKey, int] = field(default_factory=dict)
    views: list[TensorView] = field(default_factory=list)

    def slot(self, generation: int, ref: TensorRef) -> int:
        # Without strides two tensors of one shape may differ: there the tensor's own number must tell them apart.
        key = (generation, ref.offset, ref.shape, ref.dtype, ref.tensor if ref.strides is None else ref.strides)
        number = self.numbers.setdefault(key, len(self.views))
        if number == len(self.views):
            self.views.append(TensorView(generation=generation, ref=ref))
        return number

    def assign(
        self, values: tuple[Value, ...], generations: Mapping[int, int], numbers: frozenset[int] = frozenset()
    ) -> tuple[tuple[object, ...], dict[int, int]]:
        """Return the values with slots for tensors, and the slot of each tensor by its `id`. `numbers` become numbers."""
        slots: dict[int, int] = {}

        def assign(value: object) -> object:
            if isinstance(value, tuple):
                return tuple(map(assign, value))
            if not isinstance(value, TensorRef):
                return value
            if id(value) in numbers:
                return 1 if value.dtype == "int64" else 0.5
            slots[id(value)] = self.slot(generations[id(value)], value)
            return Slot(slots[id(value)])

        return tuple(map(assign, values)), slots


def build_plan(graph: Graph, selection: Selection) -> Plan:
    """Return the work of a replay, call by call."""
    table = _SlotTable()
    calls: list[PlannedCall] = []
    given: set[int] = set()
    computed: set[int] = set()
    bound: set[int] = set()  # slots that hold a tensor by now
    kept: set[int] = set()
    limits = _index_limits(graph, selection.calls)
    safe: set[int] = set()  # generations of integers that were computed, and are indices by construction
    for node in selection.calls:
        read = graph.inputs(node)
        arguments, reads = table.assign(node.inputs, read, _python_numbers(graph, node))
        for number in reads.values():
            generation = table.views[number].generation
            # Read before anything wrote it: a parameter, a batch of data, a constant.
            if generation not in computed:
                given.add(generation)
            elif number not in bound:
                kept.add(generation)
            bound.add(number)
        guards = tuple(
            (reads[id(ref)], limit) for ref, limit in index_bounds(node) if read[id(ref)] not in given | safe
        )
        written = graph.outputs(node)
        results, writes = table.assign(node.outputs, written)
        bound |= set(writes.values())
        computed |= set(written.values()) - given
        safe |= _safe_integers(graph, node, given | safe)
        calls.append(
            PlannedCall(
                node=node,
                arguments=arguments,
                results=tuple(leaf if isinstance(leaf, Slot) else None for leaf in leaves(results)),
                reads=tuple(reads.values()),
                is_collective=node.is_collective,
                zeroed=tuple(writes[id(ref)] for ref in tensor_refs(node.outputs) if _is_garbage(node, ref)),
                guards=guards,
            )
        )
    sizes: dict[int, int] = {}
    for view in table.views:
        sizes[view.generation] = max(sizes.get(view.generation, 0), view.ref.end)
    return Plan(
        calls=tuple(_with_last_uses(calls, table.views, given)),
        views=tuple(table.views),
        given=frozenset(given),
        bounds={number: limit for number, limit in limits.items() if number in given},
        kept=frozenset(kept),
        sizes=sizes,
        selection=selection,
    )


def _is_garbage(node: Node, ref: TensorRef) -> bool:
    return node.name in EMPTY and ref.dtype in INTEGERS


def _python_numbers(graph: Graph, node: Node) -> frozenset[int]:
    """Return the arguments (their `id`) that were numbers of Python, recorded as tensors of double precision.

    Next to a tensor that has dimensions this makes no difference. Otherwise a tensor would decide the type of the result.
    """
    refs = list(tensor_refs(node.inputs))
    outputs = list(tensor_refs(node.outputs))
    if node.name not in ARITHMETIC or not outputs or any(ref.shape for ref in refs):
        return frozenset()
    generations = graph.inputs(node)
    return frozenset(
        id(ref)
        for ref in refs
        if ref.dtype in ("float64", "int64")
        and ref.dtype != outputs[0].dtype
        and graph.generations[generations[id(ref)]].birth is None
    )


def _safe_integers(graph: Graph, node: Node, safe: set[int]) -> set[int]:
    """Return the generations of integers that a call fills with nothing but indices."""
    written = graph.outputs(node)
    integers = {written[id(ref)] for ref in tensor_refs(node.outputs) if ref.dtype in INTEGERS}
    inputs, _ = passthrough_integers(node)
    read = graph.inputs(node)
    is_safe = node.name in TRUSTED or (inputs and all(read[id(ref)] in safe for ref in inputs))
    return integers if is_safe else set()


def _index_limits(graph: Graph, calls: tuple[Node, ...]) -> dict[int, int]:
    """Return how many elements each generation of indices may name, from its uses back to where the indices come from."""
    limits: dict[int, int] = {}
    # Backwards: a use bounds what comes before it, through copies and views that hold the same integers.
    for node in reversed(calls):
        read, written = graph.inputs(node), graph.outputs(node)
        inputs, outputs = passthrough_integers(node)
        uses = list(index_bounds(node))
        for limit in [limits[written[id(ref)]] for ref in outputs if written[id(ref)] in limits]:
            uses += [(ref, limit) for ref in inputs]
        for ref, limit in uses:
            number = read[id(ref)]
            limits[number] = min(limit, limits.get(number, limit))
    return limits


def _with_last_uses(calls: list[PlannedCall], views: list[TensorView], given: set[int]) -> list[PlannedCall]:
    """Return the calls, each with the tensors that are read for the last time in it or never afterwards."""
    used: set[int] = set()
    touched = set(given)
    ended = []
    # Seen from the end, the first use of a slot or of its memory is the last one.
    for call in reversed(calls):
        slots = {*call.reads, *call.writes} - used
        generations = {views[number].generation for number in slots}
        frees = tuple(number for number in slots if views[number].generation not in given)
        ended.append(dataclasses.replace(call, frees=frees, forgets=tuple(generations - touched)))
        used |= slots
        touched |= generations
    return ended[::-1]


def leaves(value: object) -> list[Any]:
    """Return the values that nested lists hold, in order."""
    return [leaf for item in value for leaf in leaves(item)] if isinstance(value, (list, tuple)) else [value]
