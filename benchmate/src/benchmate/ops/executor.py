"""An operator with an input: built, fed, timed in the requested modes, and described. Errors are outcomes."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass, field

from benchmate.memory import is_out_of_memory
from benchmate.ops import base, exec_modes, registry, roofline
from benchmate.ops.arguments import DefaultDataGenerator
from benchmate.ops.config_file import OperatorInput, OperatorSpec
from benchmate.ops.correctness import check_output
from benchmate.ops.device import torch_device
from benchmate.ops.interface import OperatorInterface, Passes, capture_passes, function_passes, tensors_in
from benchmate.ops.options import Options, as_options
from benchmate.ops.sampling import InputRotation, SampledTime, rotate_inputs, sample_calls
from benchmate.ops.statistics import Estimate, estimate

FORWARD = ("forward",)  # the passes whose work is known
ABOVE_PEAK = 2.0
"""Factor above the rate of a product or a copy here, beyond which the count of operations or bytes is wrong, or the time."""


@dataclass(kw_only=True)
class InputResult:
    """The result of an input. `metric` has the original's lists. `results` and `details` are for the format `rich`."""

    metric: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    results: list[base.JsonObject] = field(default_factory=list)
    details: base.JsonObject = field(default_factory=dict)
    status: str = "passed"
    error: dict[str, str] | None = None
    drawn: list[base.JsonObject] = field(default_factory=list)


class OpExecutor:
    """Runs an operator with arguments that are there already."""

    def __init__(self, name: str, op: OperatorInterface, run_options: Options | base.JsonMapping) -> None:
        self.name, self.op = name, op
        self.options = as_options(run_options)
        self.device = torch_device(self.options.device)

    def run(self, args: base.Arguments, kwargs: base.Keywords, run_id: str) -> dict[str, dict[str, list[float]]]:
        """Return the metrics, {"forward": {...}, "backward": {...}}. Passes on the operator's errors."""
        return self.measure(args, kwargs, run_id).metric

    def measure(self, args: base.Arguments, kwargs: base.Keywords, run_id: str) -> InputResult:
        """Return the metrics and, for the format `rich`, the results. Passes on the operator's errors."""
        result = InputResult()
        options = self.options
        if options.is_dry:
            return result
        plain = self.op.passes(args, kwargs)
        work = self._describe(plain, args, kwargs, result) if options.format == "rich" else None
        passes = self._transform(plain)
        if options.modes[0] in exec_modes.NAMES:
            self._count(passes, run_id, result)
        else:
            self._sample(passes, run_id, result)
        if work is not None:
            # What a backward pass does is not declared.
            for record in (record for record in result.results if record["pass"] in FORWARD):
                self._add_rates(record, work, plain.moved_bytes, _dtype([args, kwargs]))
            if any(record.get("peak_share", 0) > ABOVE_PEAK for record in result.results):
                result.details.setdefault("reasons", []).append("above-peak")
        return result

    def _describe(
        self, passes: Passes, args: base.Arguments, kwargs: base.Keywords, result: InputResult
    ) -> roofline.Work:
        """Find out work, correctness and memory, by a few calls before anything is timed."""
        device, details = self.device, result.details
        device.reset_peak()
        # Before the first call of anything else, which would leave its own peak behind.
        before = device.peak_bytes()
        passes.forward()
        device.synchronize()
        peak = device.peak_bytes()
        if peak is not None and before is not None:
            kind = "resident" if device.kind == "cpu" else "allocator"
            details["memory"] = {"kind": kind, "peak_B": peak, "over_inputs_B": max(0, peak - before)}
        work = roofline.count_work(passes.forward, [args, kwargs, self.op.parameters()])
        if passes.reference is None:
            details["correctness"] = {"status": "unchecked", "reason": "not a function of its arguments alone"}
        else:
            details["correctness"] = check_output(*passes.reference, work.flops, device)
        details["work"] = dataclasses.asdict(work)
        if self.options.data == "zeros":
            details["reasons"] = ["zeros"]
        return work

    def _transform(self, passes: Passes) -> Passes:
        """Return the passes compiled, or captured in CUDA graphs, where that is asked for."""
        if self.options.pt2_model and passes.reference is not None:
            import torch

            function, args, kwargs = passes.reference
            passes = function_passes(torch.compile(function), args, kwargs, self.op.parameters())
        if self.options.cuda_graph and self.device.is_cuda:
            return capture_passes(passes, self.options.has_backward)
        return passes

    def _count(self, passes: Passes, run_id: str, result: InputResult) -> None:
        """Time as many calls as asked for, in a mode of the original."""
        options, device = self.options, self.device
        mode = exec_modes.MODES[options.modes[0]]
        label = "forward_backward" if options.has_backward else "forward"
        for stage, count in (("warmup", options.warmup), ("measure", options.iteration)):
            if not count:
                continue
            with device.profiler_range(self.name, run_id, stage, label):
                times = mode(passes, count, options.has_backward, device, not options.cuda_l2_cache)
            lists = {"forward": times.forward}
            if times.no_backward is not None:
                result.details["no_backward"] = times.no_backward
            elif options.has_backward:
                lists["backward"] = times.backward
            for direction, measured in lists.items():
                metric = result.metric.setdefault(direction, {})
                metric[f"{stage}.time"] = measured.times_ms
                metric[f"{stage}.gpu.memory"] = measured.memory_mib
        for direction, metric in result.metric.items():
            if times_ms := metric.get("measure.time"):
                numbers = _numbers(estimate([time_ms / 1e3 for time_ms in times_ms]))
                result.results.append({"pass": direction, "mode": options.modes[0], **numbers, "loops": 1})

    def _sample(self, passes: Passes, run_id: str, result: InputResult) -> None:
        """Time calls until their median is known, in our modes."""
        options, device = self.options, self.device
        for _ in range(options.warmup):
            passes.forward()
        device.synchronize()

        def sample(direction: str, mode: str, call: base.Call, rotation: InputRotation | None = None) -> None:
            in_turn = () if rotation is None else rotation.calls
            with device.profiler_range(self.name, run_id, "measure", direction):
                times = sample_calls(mode, call, device, options.rule, self.op.agree, in_turn)
            record = _record(mode, direction, times)
            if rotation is not None:
                record["inputs"] = {"copies": len(rotation.calls), "bytes": rotation.total_bytes}
            result.results.append(record)

        rotation = None
        # What is no function of its arguments, such as a captured graph, always reads the same memory.
        if "cold" in options.modes and passes.reference is not None:
            function, args, kwargs = passes.reference
            rotation = rotate_inputs(
                lambda args, kwargs: functools.partial(function, *args, **kwargs), args, kwargs, device
            )
        for mode in options.modes:
            sample("forward", mode, passes.forward, rotation if mode == "cold" else None)
        if not options.has_backward:
            return
        output = passes.forward()
        again = passes.backward_again(output) if passes.backward_again is not None else None
        if again is None:
            result.details["no_backward"] = passes.make_gradient(output) or (
                "its backward pass runs once after each forward. The modes discrete and continuous_events time that"
            )
            return
        for mode in options.modes:
            sample("backward", mode, again)

    def _add_rates(self, record: base.JsonObject, work: roofline.Work, moved_bytes: int | None, dtype: str) -> None:
        """Add rates and shares of the peaks to the record of a forward pass."""
        seconds = record["value"]
        if work.flops is not None:
            record["flop_per_s"] = work.flops / seconds
        bandwidths = self.op.bandwidths(seconds)
        if bandwidths is not None:
            record |= bandwidths
            return
        total_bytes = work.bytes if moved_bytes is None else moved_bytes
        if total_bytes:
            record["byte_per_s"] = total_bytes / seconds
        if self.options.has_peaks and (total_bytes or work.flops):
            # What fits into the cache stays there from call to call, unless it is evicted.
            is_in_memory = total_bytes and (record["mode"] == "cold" or total_bytes > self.device.cache_bytes)
            tf32 = roofline.may_use_tf32(work, dtype, self.device)
            peaks = roofline.measure_peaks(self.device, dtype, tf32=tf32)
            share = roofline.share_of_peak(work.flops, total_bytes if is_in_memory else None, seconds, peaks)
            if share is not None:
                record["peak_share"], bound = share
                record["peak_of"] = f"{bound} (tf32)" if tf32 and bound == "compute" else bound


class InputRunner:
    """The inputs of an operator in sequence. An object is built once for the inputs that share it."""

    def __init__(self, spec: OperatorSpec, op: OperatorInterface | base.OperatorSkipped, options: Options) -> None:
        self.spec, self.op, self.options = spec, op, options
        self._built: tuple[int, object] | None = None
        self._build_error: Exception | None = None

    def run(self, operator_input: OperatorInput) -> InputResult:
        """Return the result of an input. Never raises for an operator's errors."""
        op, stage = self.op, "build"
        if isinstance(op, base.OperatorSkipped):
            return InputResult(status="skipped", error=_describe_error(op, "import"))
        drawn: list[base.JsonObject] = []
        try:
            self._build(op, operator_input)
            if self.options.is_dry:
                return InputResult()
            stage = "data"
            args, kwargs, drawn = self._make_data(self.spec.input_data_generator, operator_input, operator_input.input)
            stage = "run"
            result = OpExecutor(self.spec.name, op, self.options).measure(args, kwargs, operator_input.run_id)
            result.drawn = drawn
        except base.OperatorSkipped as skipped:
            return InputResult(status="skipped", error=_describe_error(skipped, stage), drawn=drawn)
        except Exception as error:  # an operator may raise whatever it likes: that is its outcome, and the run goes on
            result = InputResult(status="failed", error=_describe_error(error, stage), drawn=drawn)
            del error  # its traceback holds the tensors that are to be freed
            if torch_device(self.options.device).is_cuda:
                import torch

                torch.cuda.empty_cache()  # the next input is to have what a failed allocation left
        finally:
            op.cleanup()
        return result

    def _build(self, op: OperatorInterface, operator_input: OperatorInput) -> None:
        key = (operator_input.config_id, operator_input.build_id)
        # Inputs of one build come one after another; the object and its parameters stay the same for them.
        if self._built != key:
            self._built, self._build_error = key, None
            op.device = self.options.device
            op.unbuild()
            if operator_input.build is not None:
                try:
                    generator = self.spec.build_data_generator or ""
                    args, kwargs, _ = self._make_data(generator, operator_input, operator_input.build)
                    op.build(*args, **kwargs)
                except Exception as error:  # every input of this build fails of it
                    self._build_error = error
        if self._build_error is not None:
            raise self._build_error

    def _make_data(
        self, name: str, operator_input: OperatorInput, spec: base.JsonMapping
    ) -> tuple[base.Arguments, base.Keywords, list[base.JsonObject]]:
        make_generator = registry.find_data_generator(name, operator_input.operator)
        options = self.options
        is_default = make_generator is DefaultDataGenerator
        # By the hash of what runs: an input has the same data wherever it stands, alone or resumed.
        seeded = {"seed": f"{options.seed}|{operator_input.hash}", "fill": options.data} if is_default else {}
        generator = make_generator(**seeded)
        args, kwargs = generator.get_data(spec, options.device)
        return args, kwargs, list(getattr(generator, "drawn", ()))  # what was drawn at random, of generators that tell


def _describe_error(error: BaseException, stage: str) -> dict[str, str]:
    message = str(error) if isinstance(error, (base.OperatorFailed, base.OperatorSkipped)) else base.first_line(error)
    description = {"type": type(error).__name__, "message": message, "stage": stage}
    if is_out_of_memory(error):
        description["why"] = "out-of-memory"
    return description


def _record(mode: str, direction: str, times: SampledTime) -> base.JsonObject:
    record: base.JsonObject = {
        "pass": direction,
        "mode": mode,
        **_numbers(times.estimate),
        "loops": times.loops,
        "clock": times.clock,
        "elapsed_s": times.elapsed_s,
        "converged": times.is_converged,
    }
    if times.enqueue_s is not None:
        record |= {"enqueue_s": times.enqueue_s, "launch_bound": times.is_launch_bound}
    return record


def _numbers(estimated: Estimate) -> base.JsonObject:
    numbers = dataclasses.asdict(estimated)
    named = {"estimator": "median", "value": numbers.pop("median"), "units": "s", "half_width": estimated.half_width}
    return {**named, **numbers}


def _dtype(values: object) -> str:
    """Return the dtype of the first floating-point tensor among the arguments, as torch spells it."""
    dtypes = (tensor.dtype for tensor in tensors_in(values) if tensor.dtype.is_floating_point)
    return str(next(dtypes, "float32")).removeprefix("torch.")
