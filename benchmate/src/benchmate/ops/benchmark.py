"""A run: every input of every operator of a configuration in order, a record each, and their counts."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmate.ops import config_file, records
from benchmate.ops.base import JsonMapping, JsonObject, OperatorSkipped, OpsError, UnknownOperator
from benchmate.ops.builtin import operator
from benchmate.ops.config_file import OperatorInput, OperatorSpec, iterate_inputs
from benchmate.ops.device import torch_device
from benchmate.ops.executor import InputResult, InputRunner
from benchmate.ops.interface import OperatorInterface
from benchmate.ops.options import Options, as_options
from benchmate.ops.profiler_batch import ProfilerBatches
from benchmate.ops.sampling import measurement_floor

logger = logging.getLogger("benchmate.ops")

# Rates of a result -> their unit, a thousand million times larger, for a person.
RATES = {
    "flop_per_s": "Gflop/s",
    "byte_per_s": "GB/s",
    "bus_byte_per_s": "GB/s on the bus",
    "alg_byte_per_s": "GB/s by size",
}
InputCallback = Callable[[OperatorInput, InputResult], None]
"""Called with every input and its result."""


class BenchmarkConfig:
    """A configuration to run with `run_options`, a mapping with the original's keys or Options."""

    def __init__(self, run_options: Options | JsonMapping) -> None:
        self.run_options, self.options = run_options, as_options(run_options)
        self.bench_config: tuple[OperatorSpec, ...] = ()

    def load(self, config: JsonMapping) -> BenchmarkConfig:
        """Take a configuration that is plain data. Raises OpsError when it is wrong."""
        self.bench_config = config_file.parse_operators(config)
        return self

    def load_json(self, text: str) -> BenchmarkConfig:
        """Take a configuration in JSON. Raises OpsError when it is wrong."""
        self.bench_config = config_file.parse_operators_text(text)
        return self

    def load_json_file(self, path: str | Path) -> BenchmarkConfig:
        """Read a configuration file. Raises OpsError when it is wrong."""
        self.bench_config = config_file.read_operators(str(path))
        return self


class Benchmark:
    """Runs a configuration. `counts` says afterwards how many inputs passed, failed and were skipped.

    `unknown` are the operators among the skipped whose names mean nothing.
    """

    def __init__(self, config: BenchmarkConfig, on_input: InputCallback | None = None) -> None:
        self.bench_config, self.run_options = config, config.run_options
        self.options, self.specs = config.options, config.bench_config
        self.on_input = on_input
        self.counts = {"passed": 0, "failed": 0, "skipped": 0}
        self.unknown: list[str] = []
        self._is_resumed = self.options.resume_op_run_id is None
        self._is_stopped = False

    def run(self) -> dict[str, int]:
        """Run it all and write records to `out_stream`. Raises OpsError, before anything runs, where nothing can."""
        options = self.options
        check_resume_ids(self.specs, options)
        operators = resolved(self.specs)
        self.unknown = [spec.name for spec, op in operators if isinstance(op, UnknownOperator)]
        seed_torch(options)
        floor = measurement_floor(torch_device(options.device)) if options.format == "rich" else None
        self._write(records.setup_record(options, floor))
        batches = ProfilerBatches(options, self._add_batch)
        for spec, op in operators:
            runner = InputRunner(spec, op, options)
            for operator_input in self._selected(spec):
                result = runner.run(operator_input)
                self.counts[result.status] += 1
                self._write(records.input_record(operator_input, result, options))
                _log(operator_input, result)
                if self.on_input is not None:
                    self.on_input(operator_input, result)
                if result.status == "passed":
                    batches.add(operator_input)
            batches.flush()
            if self._is_stopped:
                logger.info("stopped at %s", options.stop_op_run_id)
                break
        self._write(records.finish_record(self.counts))
        return self.counts

    def _selected(self, spec: OperatorSpec) -> Iterator[OperatorInput]:
        """Yield the inputs from `-r`, inclusive, to `-s`, exclusive."""
        options = self.options
        for operator_input in iterate_inputs(spec, options.device):
            self._is_resumed = self._is_resumed or operator_input.answers_to(options.resume_op_run_id or "")
            if (
                options.stop_op_run_id is not None
                and self._is_resumed
                and operator_input.answers_to(options.stop_op_run_id)
            ):
                self._is_stopped = True
                return
            if self._is_resumed:
                yield operator_input

    def _add_batch(self, record: JsonObject) -> None:
        if record.get("return_code"):
            self.counts["failed"] += 1
        self._write(record)

    def _write(self, record: JsonObject) -> None:
        if self.options.out_stream is not None:
            records.write_record(self.options.out_stream, record)


make_default_benchmark = Benchmark  # its name in the original


def resolved(specs: Sequence[OperatorSpec]) -> list[tuple[OperatorSpec, OperatorInterface | OperatorSkipped]]:
    """Return each operator of a configuration, or why this machine cannot have it. Raises OpsError where no name is known."""

    def resolve(spec: OperatorSpec) -> OperatorInterface | OperatorSkipped:
        try:
            return operator(spec.name)
        except OperatorSkipped as skipped:
            return skipped
        except OpsError as error:
            return UnknownOperator(str(error))

    operators = [(spec, resolve(spec)) for spec in specs]
    unknown = [str(op) for _, op in operators if isinstance(op, UnknownOperator)]
    if unknown and len(unknown) == len(operators):
        raise OpsError(unknown[0])
    return operators


def check_resume_ids(specs: Sequence[OperatorSpec], options: Options) -> None:
    """Raise OpsError for an id of `-r` or `-s` that no input has."""
    for flag, name in (("-r", options.resume_op_run_id), ("-s", options.stop_op_run_id)):
        if name is None:
            continue
        inputs = itertools.chain.from_iterable(iterate_inputs(spec, options.device) for spec in specs)
        if not any(operator_input.answers_to(name) for operator_input in inputs):
            raise OpsError(f"{flag} {name}: no input has this id or hash. --expand prints them all")


def seed_torch(options: Options) -> None:
    """Seed torch's generator and set its number of threads, as the options say."""
    import torch

    torch.manual_seed(options.seed)
    if options.cpu_threads is not None:
        torch.set_num_threads(options.cpu_threads)


def init_pytorch(run_options: Options | JsonMapping) -> None:
    """Seed torch and set its threads for a program that uses the library. The name is the original's."""
    seed_torch(as_options(run_options))


def _log(operator_input: OperatorInput, result: InputResult) -> None:
    if error := result.error:
        words = [error["stage"], *filter(None, [error.get("why")]), error["message"]]
        logger.warning("%s: %s: %s", operator_input.run_id, result.status, ": ".join(words))
    for timed in result.results if result.status == "passed" else ():
        with contextlib.suppress(KeyError):
            logger.info("%s: %s", operator_input.run_id, describe_result(timed))


def describe_result(result: JsonMapping) -> str:
    """Return a line about a result, for a person."""
    text = f"{result['pass']} {result['mode']}: {format_seconds(result['value'])}"
    if result["half_width"] is not None:
        text += f" ± {result['half_width']:.2%}"
    text += f" (median of {result['samples']}"
    text += f" x {result['loops']}" if result["loops"] > 1 else ""
    text += f", best {format_seconds(result['min'])})"
    for key, unit in RATES.items():
        if key in result:
            text += f", {result[key] / 1e9:.4g} {unit}"
    if "peak_share" in result:
        text += f", {result['peak_share']:.0%} of the measured {result['peak_of']}"
    if result.get("launch_bound"):
        text += ", launch-bound"
    if result.get("converged") is False:
        text += ", unconverged"
    return text


def format_seconds(value: float) -> str:
    """Return a time in the unit that suits it."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= scale:
            return f"{value / scale:.4g} {unit}"
    return f"{value / 1e-9:.4g} ns"
