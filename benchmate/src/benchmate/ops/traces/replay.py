"""The replay of a trace: possible operators run step by step, timed as a whole and singly."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

from benchmate.memory import is_out_of_memory
from benchmate.ops.base import Call, Event, OperatorFailed, OpsError, Storage, Tensor, Work, first_line
from benchmate.ops.device import torch_device
from benchmate.ops.sampling import gc_paused
from benchmate.ops.traces import replay_calls as calls
from benchmate.ops.traces.collectives import ProcessGroups
from benchmate.ops.traces.graph import Graph, build_graph
from benchmate.ops.traces.plan import Plan, PlannedCall, build_plan, leaves, select_calls, static_obstacle
from benchmate.ops.traces.replay_calls import ReplayMemory, dtype_of, map_devices
from benchmate.ops.traces.schema import Node, Trace, tensor_refs

MAX_PLANS = 16  # plans, each around the operators that failed under the one before


@dataclass(kw_only=True)
class ReplayResult:
    """The result of a replay: seconds of each whole step, and of each call in each step that was timed call by call."""

    plan: Plan
    graph: Graph
    steps_s: list[float] = field(default_factory=list)
    calls_s: dict[int, list[float]] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    substituted: int = 0


Around = Callable[[PlannedCall, Call], object]
"""Make a call, and measure or guard it."""


Say = Callable[[str], object]
"""Called with the next activity of a replay."""


class Replay:
    """A trace on a device of this machine. Raises OpsError when the device or the ranks are not there."""

    def __init__(self, trace: Trace, device: str, seed: int = 0, say: Say = str) -> None:
        self.trace, self._say = trace, say
        say("following its memory")
        self.graph = build_graph(trace)
        self.device = torch_device(device)
        self.device_of = map_devices(trace, device)
        self.groups = ProcessGroups(trace, self.graph, device)
        self.seed = seed
        self._obstacles: dict[int, str | None] = {}
        self._failed: dict[int, str] = {}
        self._works: dict[int, list[Work]] = {}  # collectives on their way, by the memory they work on

    def run(self, warmup: int, steps: int) -> ReplayResult:
        """Find the possible operators, then time `steps` whole steps and as many call by call."""
        import torch

        # Some operators prepare a backward pass only where one may follow. No tensor here requires a gradient.
        has_backward = any("Backward" in node.name for node in self.trace.nodes)
        with torch.set_grad_enabled(has_backward), gc_paused():
            try:
                self._find_plan()
            except RuntimeError as error:
                raise OperatorFailed(f"{self.trace.path}: {_describe(error)}") from error
            try:
                result = self._measure(warmup, steps)
            except RuntimeError as error:
                raise OperatorFailed(
                    f"{self.trace.path}: an operator that passed its trial failed in a later step: {_describe(error)}"
                ) from error
        # Not after an error: the other ranks may be gone, and nobody would come to the barrier.
        self.groups.leave()
        return result

    def _measure(self, warmup: int, steps: int) -> ReplayResult:
        for number in range(warmup):
            self._say(f"step {number + 1} of {warmup} before timing")
            self._step()
        result = ReplayResult(plan=self._plan, graph=self.graph, failed=dict(self._failed))
        for number in range(steps):
            self._say(f"timed step {number + 1} of {steps}")
            self.device.synchronize()
            begin = time.perf_counter_ns()
            self._step()
            self.device.synchronize()
            result.steps_s.append((time.perf_counter_ns() - begin) / 1e9)
        for number in range(steps):
            self._say(f"step {number + 1} of {steps} timed call by call")
            for node, seconds in self._time_calls().items():
                result.calls_s.setdefault(node, []).append(seconds)
        result.substituted = len(self._memory.substitutes)
        return result

    def _find_plan(self) -> None:
        """Plan, try each call once, and plan again around those that fail, until none does."""
        last = ""
        for number in range(MAX_PLANS):
            self._say(f"plan {number + 1}")
            selection = select_calls(self.trace, self.graph, self._obstacle)
            if not selection.calls:
                why = "".join(f": {node.name}: {reason}" for node, reason in selection.skipped[:1])
                raise OpsError(f"{self.trace.path}: none of its operators can run{why}")
            self._plan = build_plan(self.graph, selection)
            self._memory = ReplayMemory(self._plan, self.device_of, _ranges(self.trace, self.graph), self.seed)
            # What an operator has to give for a slot; the generation only where its memory is needed.
            self._expected = [
                (
                    view.ref.shape,
                    dtype_of(view.ref.dtype),
                    view.generation if view.generation in self._plan.kept else None,
                )
                for view in self._plan.views
            ]
            self._standing: calls.Slots = [None] * len(self._plan.views)  # tensors that are there in every step
            self._ready = [(call, self._bind(call)) for call in self._plan.calls]
            failures = self._try_calls(f"of {len(self._ready)} of plan {number + 1}")
            # A rank that planned again alone would leave the others waiting in their collectives.
            if not self.groups.any_rank(bool(failures)):
                return
            for node, error in failures.items():
                last = error
                self._obstacles[node] = error
                if not self.graph.can_be_replaced(node):
                    self._failed[node] = error
        raise OpsError(f"{self.trace.path}: operators go on failing after {MAX_PLANS} plans. The last failure: {last}")

    def _obstacle(self, node: Node) -> str | None:
        if node.id not in self._obstacles:
            self._obstacles[node.id] = self._find_obstacle(node)
        return self._obstacles[node.id]

    def _find_obstacle(self, node: Node) -> str | None:
        if node.is_collective:
            return self.groups.obstacle(node)
        if reason := static_obstacle(node):
            return reason
        try:
            for ref in tensor_refs((node.inputs, node.outputs)):
                dtype_of(ref.dtype)
            calls.bind_operator(node, node.inputs, self.device_of)
        except (OperatorFailed, OpsError) as error:
            return str(error)
        return None

    def _bind(self, call: PlannedCall) -> calls.BindSlots:
        if call.is_collective:
            return calls.bind_function(self.groups.starter(call.node), call.arguments, self.device_of)
        return calls.bind_operator(call.node, call.arguments, self.device_of)

    def _try_calls(self, among: str) -> dict[int, str]:
        """Make a step in which each call may fail. Return {node: its error}."""
        failures: dict[int, str] = {}
        numbers = itertools.count(1)

        def guarded(planned: PlannedCall, call: Call) -> object:
            self._say(f"trying call {next(numbers)} {among}")
            try:
                result = call()
                self.device.synchronize()
            except Exception as error:  # an operator may raise whatever it likes: that is what is being found out
                failures[planned.node.id] = _describe(error)
                return None
            return result

        self._step(guarded)
        return failures

    def _time_calls(self) -> dict[int, float]:
        pairs: dict[int, tuple[Event, Event]] = {}

        def timed(planned: PlannedCall, call: Call) -> object:
            # Waiting for the device after each call would time the launch too, and leave the queue empty for the next.
            ((begin, end),) = self.device.event_pairs(1)
            begin.record()
            result = call()
            end.record()
            pairs[planned.node.id] = (begin, end)
            return result

        self._step(timed)
        self.device.synchronize()
        return {node: begin.elapsed_time(end) / 1e3 for node, (begin, end) in pairs.items()}

    def _step(self, around: Around | None = None) -> None:
        """Make all calls once, in order."""
        views = self._plan.views
        slots = list(self._standing)
        storages: dict[int, Storage] = {}
        for planned, bind in self._ready:
            for number in planned.reads:
                if slots[number] is None:
                    slots[number] = self._recall(number, storages)
                # As late as it may be, so that communication and computation overlap as they did in the recorded program.
                if self._works:
                    self._wait(views[number].generation)
            for number, limit in planned.guards:
                # Not in place: an index may be a view in which elements share their memory.
                slots[number] = cast("Tensor", slots[number]).clamp(0, limit - 1)
            call = bind(slots)
            result = call() if around is None else around(planned, call)
            if planned.is_collective and result is not None:
                result = self._note_works(planned, cast("tuple[list[Work | None], object]", result))
            self._store(planned, result, slots, storages)
            # Whoever reads them before they are written would otherwise take garbage for indices, and fall out of a tensor.
            for number in planned.zeroed:
                if (tensor := slots[number]) is not None:
                    tensor.zero_()
            for number in planned.frees:
                slots[number] = None
            for number in planned.forgets:
                storages.pop(number, None)
        # A step ends with nothing on its way: the next one is timed from its own begin.
        for generation in list(self._works):
            self._wait(generation)

    def _recall(self, number: int, storages: Mapping[int, Storage]) -> Tensor:
        """Return the tensor of a slot that no call returned: a view of the memory that is there, else a substitute."""
        view = self._plan.views[number]
        if view.generation in self._plan.given:
            tensor = self._memory.view(view, self._memory.storages[view.generation])
            self._standing[number] = tensor
        else:
            tensor = self._memory.view(view, storages.get(view.generation))
        return tensor if tensor is not None else self._memory.substitute(number)

    def _store(self, call: PlannedCall, result: object, slots: calls.Slots, storages: dict[int, Storage]) -> None:
        """Put the tensors of a result into the slots of its call."""
        for slot, tensor in zip(call.results, leaves(result), strict=False):
            if slot is None or tensor is None:
                continue
            shape, dtype, kept = self._expected[slot.number]
            if getattr(tensor, "shape", None) != shape or tensor.dtype is not dtype:
                continue  # its size depends on data, or its type on a number that was not recorded
            slots[slot.number] = tensor
            if kept is not None:
                with contextlib.suppress(NotImplementedError, RuntimeError):  # some tensors have no storage
                    storages[kept] = tensor.untyped_storage()

    def _note_works(self, call: PlannedCall, started: tuple[list[Work | None], object]) -> object:
        """Note the handle to wait for a collective, by its memory. Return its result."""
        works = [work for work in started[0] if work is not None]
        if works:
            touched = {self._plan.views[slot].generation for slot in (*call.reads, *call.writes)}
            for number in touched or {-1}:
                self._works.setdefault(number, []).extend(works)
        return started[1]

    def _wait(self, generation: int) -> None:
        """Wait for the collectives on some memory."""
        for work in self._works.pop(generation, ()):
            work.wait()


def _describe(error: BaseException) -> str:
    kind = "out-of-memory" if is_out_of_memory(error) else type(error).__name__
    return f"{kind}: {first_line(error)}"


def _ranges(trace: Trace, graph: Graph) -> dict[int, tuple[int, int]]:
    """Return [low, high) of the integers in each generation, where the recorder noted it and it is no garbage."""
    ranges: dict[int, tuple[int, int]] = {}
    for node in trace.nodes:
        refs = list(zip(tensor_refs(node.inputs), graph.read[node.id], strict=True))
        with contextlib.suppress(TypeError, json.JSONDecodeError):
            for index, (low, high) in json.loads(node.attributes.get("tensor_range") or "{}").items():
                if int(index) < len(refs) and 0 <= low <= high < 2**31:
                    ranges.setdefault(refs[int(index)][1], (int(low), int(high) + 1))
    return ranges
