"""Which operators of a trace are carried out, and on which tensors. Pure: what cannot be carried out, a caller says."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmate.ops.traces.graph import LOADING, Graph, step_window
from benchmate.ops.traces.index_bounds import index_bounds, passthrough_integers
from benchmate.ops.traces.schema import INTEGERS, Node, OpaqueValue, TensorRef, Trace, split_types, tensor_refs

# Why an operator cannot be carried out as it stands; None when it can.
Obstacle = Callable[[Node], str | None]

# Operators whose integers are indices by construction.
TRUSTED = (
    "aten::arange",
    "aten::argmax",
    "aten::argmin",
    "aten::max",
    "aten::max_pool2d",
    "aten::max_pool2d_with_indices",
    "aten::min",
    "aten::multinomial",
    "aten::nonzero",
    "aten::ones",
    "aten::randint",
    "aten::randperm",
    "aten::sort",
    "aten::topk",
    "aten::zeros",
    "aten::zeros_like",
)
ARITHMETIC = ("aten::add", "aten::sub", "aten::mul", "aten::div", "aten::true_divide")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The operators to carry out, in order, and those left out with the reason; `expanded` were replaced by what they called."""

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
    """One operator to carry out: its arguments and results with slots for tensors, and what nobody needs afterwards."""

    node: Node
    arguments: tuple[Any, ...]
    results: tuple[Any, ...]
    reads: tuple[int, ...]
    guards: tuple[tuple[int, int], ...] = ()  # (slot, bound) of indices that come from made-up data
    frees: tuple[int, ...] = ()
    forgets: tuple[int, ...] = ()  # generations


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
    """The obstacles that a node alone shows, without a torch that could try it."""
    if node.attributes.get("kernel_backend") == "triton":
        return "a compiled kernel whose code is not in the trace"
    if node.name == "aten::record_stream":
        return "bookkeeping of the allocator"
    if node.is_collective:
        return None
    if any(_is_opaque(value) for value, kind in zip(node.inputs, _kinds(node), strict=True) if "bool[" not in kind):
        return "an argument whose value is not in the trace"
    return None


def _kinds(node: Node) -> list[str]:
    """The types of a schema's arguments; of those that it does not tell, an empty text."""
    declared = split_types(node.schema.partition("(")[2].rpartition(") ->")[0])
    kinds = [one.strip() for one in declared if one.strip() != "*"]
    return (kinds + [""] * len(node.inputs))[: len(node.inputs)]


def _is_opaque(value: Any) -> bool:
    return isinstance(value, OpaqueValue) or (isinstance(value, tuple) and any(map(_is_opaque, value)))


def select_calls(trace: Trace, graph: Graph, obstacle: Obstacle = static_obstacle) -> Selection:
    """The outermost operators that can be carried out and that return all that later ones read.

    An operator is replaced by those it called when it has an obstacle, or when something that only they made is read later: a
    forward pass hides what its backward pass needs.
    """
    expanded: set[int] = set()
    while True:
        calls, skipped = _outermost(trace, graph, expanded, obstacle)
        hiding = {node for node in _hiding(graph, calls) if graph.has_operators(node)} - expanded
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
            skipped.extend((one, "loading of data") for one in graph.within(number)[1:] if one.is_operator)
            continue
        if node.is_operator and first <= number < end:
            reason = obstacle(node)
            if reason is None and number not in expanded:
                calls.append(node)
                continue
            if not graph.has_operators(number):
                skipped.append((node, reason or "replaced by what it called, which is nothing"))
                continue
        left.extend(reversed(graph.children.get(number, ())))
    return sorted(calls, key=lambda node: node.id), skipped


def _hiding(graph: Graph, calls: list[Node]) -> set[int]:
    """The calls that made, but did not return, what a later one reads."""
    starts = [node.id for node in calls]
    found = set()
    for node in calls:
        for number in graph.read[node.id]:
            birth = graph.generations[number].birth
            if birth is None:
                continue
            place = bisect.bisect_right(starts, birth) - 1
            maker = starts[place] if place >= 0 else None
            if maker is None or maker == node.id or birth > graph.last[maker]:
                continue
            if number not in graph.written[maker]:
                found.add(maker)
    return found


@dataclass(slots=True, kw_only=True)
class _Table:
    """Slots as they are handed out."""

    numbers: dict[tuple[Any, ...], int] = field(default_factory=dict)
    views: list[TensorView] = field(default_factory=list)

    def slot(self, generation: int, ref: TensorRef) -> int:
        # Without strides two tensors of one shape may differ: there the tensor's own number must tell them apart.
        key = (generation, ref.offset, ref.shape, ref.dtype, ref.tensor if ref.strides is None else ref.strides)
        number = self.numbers.setdefault(key, len(self.views))
        if number == len(self.views):
            self.views.append(TensorView(generation=generation, ref=ref))
        return number


def build_plan(graph: Graph, selection: Selection) -> Plan:
    """What a replay does, call by call."""
    table = _Table()
    calls: list[PlannedCall] = []
    given: set[int] = set()
    made: set[int] = set()
    bound: set[int] = set()  # slots that hold a tensor by now
    kept: set[int] = set()
    limits = _limits(graph, selection.calls)
    safe: set[int] = set()
    for node in selection.calls:
        arguments, reads = _slotted(node.inputs, graph.read[node.id], table, _numbers(graph, node))
        for number in reads:
            generation = table.views[number].generation
            if generation not in made:
                given.add(generation)
            elif number not in bound:
                kept.add(generation)
            bound.add(number)
        guards = tuple(
            (table.numbers[_key(graph, node, ref)], limit)
            for ref, limit in index_bounds(node)
            if _generation(graph, node, ref) not in given | safe
        )
        results, writes = _slotted(node.outputs, graph.written[node.id], table)
        for number in writes:
            generation = table.views[number].generation
            if generation not in given:
                made.add(generation)
            bound.add(number)
        safe |= _safe(graph, node, given | safe)
        calls.append(PlannedCall(node=node, arguments=arguments, results=results, reads=tuple(reads), guards=guards))
    sizes: dict[int, int] = {}
    for view in table.views:
        sizes[view.generation] = max(sizes.get(view.generation, 0), view.ref.end)
    return Plan(
        calls=tuple(_with_ends(calls, table.views, given)),
        views=tuple(table.views),
        given=frozenset(given),
        bounds={number: limit for number, limit in limits.items() if number in given},
        kept=frozenset(kept),
        sizes=sizes,
        selection=selection,
    )


def _numbers(graph: Graph, node: Node) -> frozenset[int]:
    """The arguments (their `id`) that were numbers of Python, which the recorder shows as tensors of double precision.

    Beside tensors with dimensions that makes no difference; beside others a tensor would decide the type of the result.
    """
    refs = list(tensor_refs(node.inputs))
    outputs = list(tensor_refs(node.outputs))
    if node.name not in ARITHMETIC or not outputs or any(ref.shape for ref in refs):
        return frozenset()
    return frozenset(
        id(ref)
        for ref, number in zip(refs, graph.read[node.id], strict=True)
        if ref.dtype in ("float64", "int64")
        and ref.dtype != outputs[0].dtype
        and graph.generations[number].birth is None
    )


def _slotted(
    values: tuple[Any, ...], generations: tuple[int, ...], table: _Table, numbers: frozenset[int] = frozenset()
) -> tuple[tuple[Any, ...], list[int]]:
    left = iter(generations)
    used: list[int] = []

    def slotted(value: Any) -> Any:
        if isinstance(value, TensorRef):
            generation = next(left)
            if id(value) in numbers:
                return 1 if value.dtype == "int64" else 0.5
            used.append(table.slot(generation, value))
            return Slot(used[-1])
        return tuple(map(slotted, value)) if isinstance(value, tuple) else value

    return tuple(map(slotted, values)), used


def _generation(graph: Graph, node: Node, ref: TensorRef) -> int:
    refs = list(tensor_refs(node.inputs))
    return graph.read[node.id][next(place for place, one in enumerate(refs) if one is ref)]


def _key(graph: Graph, node: Node, ref: TensorRef) -> tuple[Any, ...]:
    last = ref.tensor if ref.strides is None else ref.strides
    return (_generation(graph, node, ref), ref.offset, ref.shape, ref.dtype, last)


def _safe(graph: Graph, node: Node, safe: set[int]) -> set[int]:
    """The generations of integers that a call fills with nothing but indices."""
    outputs = zip(tensor_refs(node.outputs), graph.written[node.id], strict=True)
    integers = {number for ref, number in outputs if ref.dtype in INTEGERS}
    if node.name in TRUSTED:
        return integers
    given, _ = passthrough_integers(node)
    if given and all(_generation(graph, node, ref) in safe for ref in given):
        return integers
    return set()


def _limits(graph: Graph, calls: tuple[Node, ...]) -> dict[int, int]:
    """How many elements each generation of indices may name, from the operators that use them back to where they come from."""
    limits: dict[int, int] = {}

    def lower(number: int, limit: int) -> None:
        limits[number] = min(limit, limits.get(number, limit))

    for node in reversed(calls):
        for ref, limit in index_bounds(node):
            lower(_generation(graph, node, ref), limit)
        given, made = passthrough_integers(node)
        if given and made:
            outputs = dict(zip(map(id, tensor_refs(node.outputs)), graph.written[node.id], strict=True))
            for limit in [limits[outputs[id(ref)]] for ref in made if outputs[id(ref)] in limits]:
                for ref in given:
                    lower(_generation(graph, node, ref), limit)
    return limits


def _with_ends(calls: list[PlannedCall], views: list[TensorView], given: set[int]) -> list[PlannedCall]:
    """The calls, each with what is read for the last time in it or never after it."""
    ends: dict[int, int] = {}
    lives: dict[int, int] = {}
    for place, call in enumerate(calls):
        for number in (*call.reads, *slots_in(call.results)):
            ends[number] = lives[views[number].generation] = place
    frees: dict[int, list[int]] = {}
    forgets: dict[int, list[int]] = {}
    for number, place in ends.items():
        if views[number].generation not in given:
            frees.setdefault(place, []).append(number)
    for generation, place in lives.items():
        if generation not in given:
            forgets.setdefault(place, []).append(generation)
    return [
        dataclasses.replace(call, frees=tuple(frees.get(place, ())), forgets=tuple(forgets.get(place, ())))
        for place, call in enumerate(calls)
    ]


def slots_in(value: Any) -> list[int]:
    """The numbers of the slots in a value, lists walked through."""
    if isinstance(value, Slot):
        return [value.number]
    return [number for item in value for number in slots_in(item)] if isinstance(value, tuple) else []
