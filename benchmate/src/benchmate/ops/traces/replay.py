"""The replay of a trace: what can be carried out is, step by step, timed whole and operator by operator."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmate.ops.device import TorchDevice, torch_device
from benchmate.ops.errors import OperatorFailed, OpsError
from benchmate.ops.sampling import gc_paused
from benchmate.ops.traces import calls
from benchmate.ops.traces.graph import Graph, build_graph
from benchmate.ops.traces.plan import (
    Plan,
    PlannedCall,
    Slot,
    TensorView,
    build_plan,
    select_calls,
    slots_in,
    static_obstacle,
)
from benchmate.ops.traces.process_groups import ProcessGroups
from benchmate.ops.traces.replay_memory import DeviceMap, ReplayMemory, dtype_of
from benchmate.ops.traces.schema import INTEGERS, Node, Trace, tensor_refs

ROUNDS = 16  # of planning anew after an operator failed
EMPTY = ("aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::new_empty_strided")


@dataclass(kw_only=True)
class ReplayResult:
    """What a replay gave: seconds of each whole step, and of each call in each step that was timed call by call."""

    plan: Plan
    graph: Graph
    steps_s: list[float] = field(default_factory=list)
    calls_s: dict[int, list[float]] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    substituted: int = 0


@dataclass(slots=True, kw_only=True)
class _Ready:
    """One call as it is made in every step."""

    call: PlannedCall
    start: calls.Prepared
    is_collective: bool
    is_garbage: bool  # integers that nobody wrote yet: they must not become indices


class Replay:
    """A trace on a device of this machine. Raises OpsError when the device or the ranks are not there."""

    def __init__(self, trace: Trace, device: str, seed: int = 0) -> None:
        self.trace = trace
        self.graph = build_graph(trace)
        self.place: TorchDevice = torch_device(device)
        self.devices = DeviceMap(trace, device)
        self.groups = ProcessGroups(trace, self.graph, device)
        self.seed = seed
        self._obstacles: dict[int, str | None] = {}
        self._failed: dict[int, str] = {}
        self._works: dict[int, list[Any]] = {}

    def run(self, warmup: int, steps: int) -> ReplayResult:
        """Find what can be carried out, then time `steps` whole steps and as many call by call."""
        import torch

        # Some operators prepare a backward pass only where one may follow. No tensor here requires a gradient.
        has_backward = any("Backward" in node.name for node in self.trace.nodes)
        with torch.set_grad_enabled(has_backward), gc_paused():
            self._settle()
            try:
                return self._measured(warmup, steps)
            except RuntimeError as error:
                lines = str(error).strip().splitlines()
                raise OperatorFailed(
                    f"{self.trace.path}: what passed when it was tried failed in a later step: {lines[0] if lines else ''}"
                ) from error

    def _measured(self, warmup: int, steps: int) -> ReplayResult:
        for _ in range(warmup):
            self._step()
        found = ReplayResult(plan=self._plan, graph=self.graph, failed=dict(self._failed))
        for _ in range(steps):
            found.steps_s.append(self._whole_step_s())
        for _ in range(steps):
            for node, seconds in self._timed_step().items():
                found.calls_s.setdefault(node, []).append(seconds)
        found.substituted = len(self._memory.substitutes)
        return found

    def _settle(self) -> None:
        """Plan, try each call once, and plan anew around those that fail, until none does."""
        last = ""
        for _ in range(ROUNDS):
            selection = select_calls(self.trace, self.graph, self._obstacle)
            if not selection.calls:
                return self._nothing(selection.skipped)
            self._plan = build_plan(self.graph, selection)
            self._memory = ReplayMemory(self._plan, self.devices, _ranges(self.trace, self.graph), self.seed)
            self._expected = [self._expectation(view) for view in self._plan.views]
            self._standing: list[Any] = [None] * len(self._plan.views)  # tensors that are there in every step
            self._ready = [self._prepared(call) for call in self._plan.calls]
            failures = self._tried()
            if not self.groups.agreed(bool(failures)):
                return None
            for node, error in failures.items():
                last = error
                self._obstacles[node] = error
                if not self.graph.has_operators(node):
                    self._failed[node] = error
        raise OpsError(f"{self.trace.path}: operators go on failing after {ROUNDS} plans; the last: {last}")

    def _expectation(self, view: TensorView) -> tuple[tuple[int, ...], Any, int | None]:
        """(shape, element type, generation if its memory is needed) of what an operator has to give for a slot."""
        kept = view.generation if view.generation in self._plan.kept else None
        return view.ref.shape, dtype_of(view.ref.dtype), kept

    def _nothing(self, skipped: tuple[tuple[Node, str], ...]) -> None:
        why = f": {skipped[0][0].name}: {skipped[0][1]}" if skipped else ""
        raise OpsError(f"{self.trace.path}: no operator of it can be carried out{why}")

    def _obstacle(self, node: Node) -> str | None:
        if node.id not in self._obstacles:
            self._obstacles[node.id] = self._first_obstacle(node)
        return self._obstacles[node.id]

    def _first_obstacle(self, node: Node) -> str | None:
        if node.is_collective:
            return self.groups.obstacle(node)
        if reason := static_obstacle(node):
            return reason
        try:
            for ref in tensor_refs((node.inputs, node.outputs)):
                dtype_of(ref.dtype)
            calls.bind_operator(node, node.inputs, self.devices.of)
        except (OperatorFailed, OpsError) as error:
            return str(error)
        return None

    def _prepared(self, call: PlannedCall) -> _Ready:
        node = call.node
        if node.is_collective:
            start = calls.bind_function(self.groups.carried_out(node), call.arguments, self.devices.of)
        else:
            start = calls.bind_operator(node, call.arguments, self.devices.of)
        outputs = list(tensor_refs(node.outputs))
        is_garbage = node.name in EMPTY and bool(outputs) and outputs[0].dtype in INTEGERS
        return _Ready(call=call, start=start, is_collective=node.is_collective, is_garbage=is_garbage)

    def _tried(self) -> dict[int, str]:
        """One step in which each call may fail: {node: what it said}."""
        failures: dict[int, str] = {}

        def carefully(ready: _Ready, made: Callable[[], Any]) -> Any:
            try:
                result = made()
                self.place.synchronize()
            except Exception as error:  # an operator may raise whatever it likes: that is what is being found out
                lines = str(error).strip().splitlines()
                failures[ready.call.node.id] = f"{type(error).__name__}: {lines[0] if lines else ''}"
                return None
            return result

        self._step(carefully)
        return failures

    def _whole_step_s(self) -> float:
        self.place.synchronize()
        begin = time.perf_counter_ns()
        self._step()
        self.place.synchronize()
        return (time.perf_counter_ns() - begin) / 1e9

    def _timed_step(self) -> dict[int, float]:
        if self.place.has_events:
            return self._timed_by_events()
        taken: dict[int, float] = {}
        clock = time.perf_counter_ns

        def timed(ready: _Ready, made: Callable[[], Any]) -> Any:
            begin = clock()
            result = made()
            taken[ready.call.node.id] = (clock() - begin) / 1e9
            return result

        self._step(timed)
        return taken

    def _timed_by_events(self) -> dict[int, float]:
        pairs: dict[int, tuple[Any, Any]] = {}

        def timed(ready: _Ready, made: Callable[[], Any]) -> Any:
            begin, end = self.place.event(), self.place.event()
            begin.record()
            result = made()
            end.record()
            pairs[ready.call.node.id] = (begin, end)
            return result

        self._step(timed)
        self.place.synchronize()
        return {node: begin.elapsed_time(end) / 1e3 for node, (begin, end) in pairs.items()}

    def _step(self, carry_out: Callable[[_Ready, Callable[[], Any]], Any] | None = None) -> None:
        """All calls once, in order."""
        plan = self._plan
        slots = list(self._standing)
        storages: dict[int, Any] = {}
        for ready in self._ready:
            call = ready.call
            for number in call.reads:
                if slots[number] is None:
                    slots[number] = self._there(number, storages)
                if self._works:
                    self._wait(plan.views[number].generation)
            for number, limit in call.guards:
                # Not in place: an index may be a view in which elements share their memory.
                slots[number] = slots[number].clamp(0, limit - 1)
            made = ready.start(slots)
            result = made() if carry_out is None else carry_out(ready, made)
            if ready.is_collective:
                result = self._started(call, result)
            self._bind(call.results, result, slots, storages)
            if ready.is_garbage:
                self._blank(call, slots)
            for number in call.frees:
                slots[number] = None
            for number in call.forgets:
                storages.pop(number, None)
        self._wait(None)

    def _there(self, number: int, storages: Mapping[int, Any]) -> Any:
        """The tensor of a slot that no call returned: a view of what is there, else a substitute."""
        view = self._plan.views[number]
        if view.generation in self._plan.given:
            found = self._memory.view(view, self._memory.storages[view.generation])
            self._standing[number] = found
        else:
            found = self._memory.view(view, storages.get(view.generation))
        return found if found is not None else self._memory.substitute(number)

    def _bind(self, template: Any, result: Any, slots: list[Any], storages: dict[int, Any]) -> None:
        if len(template) == 1 and not isinstance(template[0], tuple):
            result = result[0] if isinstance(result, (tuple, list)) and result else result
            return self._bind_one(template[0], result, slots, storages)
        if isinstance(result, (tuple, list)):
            if len(template) == 1 and len(result) != 1:
                result = (result,)  # an operator that returns one list
            for one, value in zip(template, result, strict=False):
                if isinstance(one, tuple):
                    self._bind(one, value, slots, storages)
                else:
                    self._bind_one(one, value, slots, storages)
        return None

    def _bind_one(self, slot: Any, tensor: Any, slots: list[Any], storages: dict[int, Any]) -> None:
        if not isinstance(slot, Slot) or tensor is None:
            return
        number = slot.number
        shape, dtype, kept = self._expected[number]
        if getattr(tensor, "shape", None) != shape or tensor.dtype is not dtype:
            return  # its size depends on data, or its type on a number that was not recorded
        slots[number] = tensor
        if kept is not None:
            with contextlib.suppress(NotImplementedError, RuntimeError):  # some tensors have no storage
                storages[kept] = tensor.untyped_storage()

    def _blank(self, call: PlannedCall, slots: list[Any]) -> None:
        for template in call.results:
            if isinstance(template, Slot) and slots[template.number] is not None:
                slots[template.number].zero_()

    def _started(self, call: PlannedCall, result: Any) -> Any:
        """Note what a collective must be waited for, by the memory it works on; its result."""
        if result is None:
            return None
        works, value = result
        works = [work for work in works if work is not None]
        if works:
            touched = {self._plan.views[slot].generation for slot in (*call.reads, *slots_in(call.results))}
            for number in touched or {-1}:
                self._works.setdefault(number, []).extend(works)
        return value

    def _wait(self, generation: int | None) -> None:
        """Wait for the collectives on some memory, or for all."""
        for number in list(self._works) if generation is None else [generation]:
            for work in self._works.pop(number, ()):
                work.wait()


def _ranges(trace: Trace, graph: Graph) -> dict[int, tuple[int, int]]:
    """[low, high) of the integers in each generation, where the recorder noted it and it is no garbage."""
    found: dict[int, tuple[int, int]] = {}
    for node in trace.nodes:
        noted = node.attributes.get("tensor_range")
        if not noted:
            continue
        try:
            noted = json.loads(noted)
        except (TypeError, json.JSONDecodeError):
            continue
        refs = list(zip(tensor_refs(node.inputs), graph.read[node.id], strict=True))
        for place, (low, high) in noted.items():
            if int(place) < len(refs) and 0 <= low <= high < 2**31:
                found.setdefault(refs[int(place)][1], (int(low), int(high) + 1))
    return found


@contextlib.contextmanager
def joined_ranks(replay: Replay) -> Iterator[Replay]:
    """The replay, its ranks taken apart afterwards."""
    try:
        yield replay
    except BaseException:
        replay.groups.is_joined = False  # the others may be gone: there is nobody to meet
        raise
    replay.groups.leave()
