"""One operator with one input: built, fed, timed in the modes asked for, and described; what goes wrong is an outcome."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmate.ops import exec_modes, profiler_ranges, registry, roofline
from benchmate.ops.autograd import autograd_passes, leaf_tensors, tensors_in
from benchmate.ops.config_file import OperatorInput, OperatorSpec
from benchmate.ops.device import torch_device
from benchmate.ops.errors import OperatorFailed, OperatorSkipped
from benchmate.ops.interface import OperatorInterface, Passes
from benchmate.ops.options import Options, as_options
from benchmate.ops.rotating_inputs import InputRotation, rotate_inputs
from benchmate.ops.sampling import SampledTime, sample_calls
from benchmate.ops.statistics import estimate

FORWARD = ("forward",)  # whose work is known


@dataclass(kw_only=True)
class InputResult:
    """What one input gave. `metric` has the original's lists; the rest is for the format `rich`."""

    metric: dict[str, Any] = field(default_factory=dict)
    results: list[dict[str, Any]] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)
    status: str = "passed"
    error: dict[str, str] | None = None
    drawn: list[dict[str, Any]] = field(default_factory=list)


class OpExecutor:
    """Runs one operator with arguments that are there already."""

    def __init__(self, name: str, op: OperatorInterface, run_options: Options | Mapping[str, Any]) -> None:
        self.name, self.op = name, op
        self.options = as_options(run_options)
        self.place = torch_device(self.options.device)

    def run(self, args: Sequence[Any], kwargs: dict[str, Any], run_id: str) -> dict[str, Any]:
        """The metrics, {"forward": {...}, "backward": {...}}. Passes on what the operator raises."""
        return self.measured(args, kwargs, run_id).metric

    def measured(self, args: Sequence[Any], kwargs: dict[str, Any], run_id: str) -> InputResult:
        """The metrics and, for the format `rich`, the results. Passes on what the operator raises."""
        found = InputResult()
        options = self.options
        if options.is_dry:
            return found
        plain = self.op.passes(args, kwargs)
        rich = options.format == "rich"
        work = self._described(plain, args, kwargs, found) if rich else None
        passes = self._as_asked(plain)
        if options.modes[0] in exec_modes.NAMES:
            self._counted(passes, run_id, found)
        else:
            self._sampled(passes, args, kwargs, run_id, found)
        if rich:
            dtype = _dtype([args, kwargs])
            for result in found.results:
                self._derived(result, work, plain.moved_bytes, dtype)
        return found

    def _described(
        self, passes: Passes, args: Sequence[Any], kwargs: dict[str, Any], found: InputResult
    ) -> roofline.Work:
        """Work, correctness and memory, by a few calls before anything is timed."""
        place = self.place
        place.reset_peak()
        before = place.peak_bytes()
        passes.forward()
        place.synchronize()
        peak = place.peak_bytes()
        if peak is not None and before is not None:
            kind = "allocator" if place.is_cuda else "resident"
            found.more["memory"] = {"kind": kind, "peak_B": peak, "over_inputs_B": max(0, peak - before)}
        parameters = getattr(self.op, "parameters", list)
        work = roofline.count_work(passes.forward, [args, kwargs, parameters()])
        if passes.reference is None:
            found.more["correctness"] = {"status": "unchecked", "reason": "not a function of its arguments alone"}
        else:
            found.more["correctness"] = roofline.check_output(*passes.reference, work.flops, place)
        found.more["work"] = dataclasses.asdict(work)
        if self.options.fill == "zeros":
            found.more.setdefault("reasons", []).append("zeros")
        return work

    def _as_asked(self, passes: Passes) -> Passes:
        """The passes compiled, or captured in CUDA graphs, where that is asked for."""
        if self.options.is_compiled and passes.reference is not None:
            import torch

            function, args, kwargs = passes.reference
            parameters = getattr(self.op, "parameters", list)
            compiled = torch.compile(function)

            def bind(args: Sequence[Any], kwargs: dict[str, Any]) -> Callable[[], Any]:
                return functools.partial(compiled, *args, **kwargs)

            made = autograd_passes(bind(args, kwargs), leaf_tensors(list(args), kwargs, parameters()))
            passes = dataclasses.replace(made, bind=bind)
        if self.options.is_graphed and self.place.is_cuda:
            from benchmate.ops.cuda_graphs import capture_passes

            return capture_passes(passes, self.options.has_backward)
        return passes

    def _counted(self, passes: Passes, run_id: str, found: InputResult) -> None:
        options, place = self.options, self.place
        mode = exec_modes.MODES[options.modes[0]]
        direction = "forward_backward" if options.has_backward else "forward"
        for stage, count in (("warmup", options.warmup), ("measure", options.iteration)):
            if not count:
                continue
            with profiler_ranges.profiler_range(place, self.name, run_id, stage, direction):
                timed = mode(passes, count, options.has_backward, place, not options.is_cache_kept)
            forward = found.metric.setdefault("forward", {})
            forward[f"{stage}.time"] = timed.forward
            forward[f"{stage}.gpu.memory"] = timed.forward_memory
            if options.has_backward and timed.no_backward is None:
                backward = found.metric.setdefault("backward", {})
                backward[f"{stage}.time"] = timed.backward
                backward[f"{stage}.gpu.memory"] = timed.backward_memory
            elif timed.no_backward is not None:
                found.more["no_backward"] = timed.no_backward
        for direction, lists in found.metric.items():
            if times := lists.get("measure.time"):
                found.results.append(_result_of_list(direction, options.modes[0], [time / 1e3 for time in times]))

    def _sampled(
        self, passes: Passes, args: Sequence[Any], kwargs: dict[str, Any], run_id: str, found: InputResult
    ) -> None:
        options, place = self.options, self.place
        for _ in range(options.warmup):
            output = passes.forward()
        place.synchronize()
        for mode in options.modes:
            turns = self._turns(passes, args, kwargs) if mode == "cold" else None
            with profiler_ranges.profiler_range(place, self.name, run_id, "measure", "forward"):
                result = _result(mode, "forward", self._one(mode, passes.forward, turns.calls if turns else ()))
            if turns is not None:
                result["inputs"] = {"copies": len(turns.calls), "bytes": turns.total_bytes}
            found.results.append(result)
        if not options.has_backward:
            return
        output = passes.forward()
        again = passes.backward_again(output) if passes.backward_again is not None else None
        if again is None:
            found.more["no_backward"] = passes.make_gradient(output) or (
                "its backward pass runs once after each forward; the modes discrete and continuous_events time that"
            )
            return
        for mode in options.modes:
            with profiler_ranges.profiler_range(place, self.name, run_id, "measure", "backward"):
                found.results.append(_result(mode, "backward", self._one(mode, again)))

    def _turns(self, passes: Passes, args: Sequence[Any], kwargs: dict[str, Any]) -> InputRotation | None:
        """Copies of the inputs for a cold call; None where it is no function of its arguments, or a graph that was captured."""
        return None if passes.bind is None else rotate_inputs(passes.bind, args, kwargs, self.place)

    def _one(self, mode: str, call: Callable[[], Any], in_turn: Sequence[Callable[[], Any]] = ()) -> SampledTime:
        agree = getattr(self.op, "agree", None)
        more = {} if agree is None else {"agree": agree}
        return sample_calls(mode, call, self.place, self.options.rule, in_turn=in_turn, **more)

    def _derived(self, result: dict[str, Any], work: roofline.Work | None, moved: int | None, dtype: str) -> None:
        """Rates and shares of the peaks, of forward passes: what a backward pass does is not declared."""
        if work is None or result["pass"] not in FORWARD:
            return
        seconds = result["value"]
        if work.flops is not None:
            result["flop_per_s"] = work.flops / seconds
        bandwidths = getattr(self.op, "bandwidths", None)
        if bandwidths is not None:
            result |= bandwidths(seconds)
            return
        total = work.bytes if moved is None else moved
        if not total:
            return
        result["byte_per_s"] = total / seconds
        if self.options.has_peaks:
            # What fits into the cache stays there from call to call, unless it is thrown out.
            is_in_memory = result["mode"] == "cold" or total > self.place.cache_bytes
            tf32 = roofline.may_use_tf32(work, dtype, self.place)
            peaks = roofline.measure_peaks(self.place, dtype, tf32=tf32)
            share = roofline.share_of_peak(work.flops, total if is_in_memory else None, seconds, peaks)
            if share is not None:
                result["peak_share"], of = share
                result["peak_of"] = f"{of} (tf32)" if tf32 and of == "compute" else of


class InputRunner:
    """The inputs of one operator, one after another; an object is built once for the inputs that share it."""

    def __init__(self, spec: OperatorSpec, op: OperatorInterface | OperatorSkipped, options: Options) -> None:
        self.spec, self.op, self.options = spec, op, options
        self._built: tuple[int, Any] | None = None
        self._build_error: Exception | None = None
        self._executor = None if isinstance(op, OperatorSkipped) else OpExecutor(spec.name, op, options)

    def run(self, one: OperatorInput) -> InputResult:
        """What one input gave; never raises for what an operator does."""
        if isinstance(self.op, OperatorSkipped):
            return InputResult(status="skipped", error=_error(self.op, "import"))
        stage = "build"
        drawn: list[dict[str, Any]] = []
        try:
            self._build(one)
            if self.options.is_dry:
                return InputResult()
            stage = "data"
            args, kwargs, drawn = self._data(self.spec.input_data_generator, one, one.input)
            stage = "run"
            assert self._executor is not None
            found = self._executor.measured(args, kwargs, one.run_id)
            found.drawn = drawn
        except OperatorSkipped as skipped:
            return InputResult(status="skipped", error=_error(skipped, stage), drawn=drawn)
        except Exception as error:  # an operator may raise whatever it likes: that is its outcome, and the run goes on
            found = InputResult(status="failed", error=_error(error, stage), drawn=drawn)
            del error
            self._free()
        finally:
            self.op.cleanup()
        return found

    def _build(self, one: OperatorInput) -> None:
        key = (one.config_id, one.build_id)
        if self._built != key:
            self._built, self._build_error = key, None
            assert not isinstance(self.op, OperatorSkipped)
            self.op.device = self.options.device
            self.op.unbuild()
            if one.build is not None:
                try:
                    args, kwargs, _ = self._data(self.spec.build_data_generator or "", one, one.build)
                    self.op.build(*args, **kwargs)
                except Exception as error:
                    self._build_error = error
        if self._build_error is not None:
            raise self._build_error

    def _data(
        self, name: str, one: OperatorInput, spec: Any
    ) -> tuple[Sequence[Any], dict[str, Any], list[dict[str, Any]]]:
        maker = registry.find_data_generator(name, one.operator)
        options = self.options
        is_ours = name == "PyTorch:DefaultDataGenerator"
        generator = maker(seed=f"{options.seed}|{one.hash}", fill=options.fill) if is_ours else maker()
        args, kwargs = generator.get_data(spec, options.device)
        return args, kwargs, list(getattr(generator, "drawn", ()))

    def _free(self) -> None:
        """Give back what a failed allocation left, so that the next input has it."""
        if self._executor is not None and self._executor.place.is_cuda:
            import torch

            torch.cuda.empty_cache()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on whatever device."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or "out of memory" in text or "can't allocate memory" in text


def _error(error: BaseException, stage: str) -> dict[str, str]:
    lines = str(error).strip().splitlines()
    found = {"type": type(error).__name__, "message": lines[0] if lines else "", "stage": stage}
    if isinstance(error, (OperatorFailed, OperatorSkipped)):
        found["message"] = str(error)
    if is_out_of_memory(error):
        found["why"] = "out-of-memory"
    return found


def _result_of_list(direction: str, mode: str, seconds: list[float]) -> dict[str, Any]:
    found = estimate(seconds)
    return {"pass": direction, "mode": mode, **_numbers(found), "loops": 1}


def _result(mode: str, direction: str, found: SampledTime) -> dict[str, Any]:
    made: dict[str, Any] = {
        "pass": direction,
        "mode": mode,
        **_numbers(found.estimate),
        "loops": found.loops,
        "clock": found.clock,
        "elapsed_s": found.elapsed_s,
        "converged": found.is_converged,
    }
    if found.enqueue_s is not None:
        made |= {"enqueue_s": found.enqueue_s, "launch_bound": found.is_launch_bound}
    return made


def _numbers(found: Any) -> dict[str, Any]:
    return {
        "estimator": "median",
        "value": found.median,
        "units": "s",
        "ci95": None if found.interval is None else list(found.interval),
        "half_width": found.half_width,
        "samples": found.count,
        "min": found.minimum,
        "mad": found.mad,
        "p95": found.p95,
    }


def _dtype(values: Any) -> str:
    """The dtype of the first floating-point tensor among the arguments, as torch spells it."""
    for tensor in tensors_in(values):
        if tensor.dtype.is_floating_point:
            return str(tensor.dtype).removeprefix("torch.")
    return "float32"
