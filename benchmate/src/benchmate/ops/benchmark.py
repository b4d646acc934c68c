"""A run: every input of every operator of a configuration in order, one record each, and what they came to."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmate.ops import operators, records
from benchmate.ops.config_file import (
    OperatorInput,
    OperatorSpec,
    iterate_inputs,
    parse_operators,
    parse_operators_text,
    read_operators,
)
from benchmate.ops.errors import OperatorSkipped, OpsError
from benchmate.ops.executor import InputResult, InputRunner
from benchmate.ops.interface import OperatorInterface
from benchmate.ops.options import Options, as_options

logger = logging.getLogger("benchmate.ops")

Watch = Callable[[OperatorInput, InputResult], None]


class BenchmarkConfig:
    """A configuration to run with `run_options`, a mapping with the original's keys or Options."""

    def __init__(self, run_options: Options | Mapping[str, Any]) -> None:
        self.run_options = as_options(run_options)
        self.bench_config: tuple[OperatorSpec, ...] = ()

    def load(self, config: Mapping[str, Any]) -> BenchmarkConfig:
        """Take a configuration that is plain data. Raises OpsError when it is wrong."""
        self.bench_config = parse_operators(config)
        return self

    def load_json(self, text: str) -> BenchmarkConfig:
        """Take a configuration in JSON. Raises OpsError when it is wrong."""
        self.bench_config = parse_operators_text(text)
        return self

    def load_json_file(self, path: str | Path) -> BenchmarkConfig:
        """Read a configuration file. Raises OpsError when it is wrong."""
        self.bench_config = read_operators(str(path))
        return self


class Benchmark:
    """Runs a configuration; `counts` says afterwards how many inputs passed, failed and were skipped."""

    def __init__(self, config: BenchmarkConfig, watch: Watch | None = None) -> None:
        self.options, self.specs = config.run_options, config.bench_config
        self.watch = watch
        self.counts = {"passed": 0, "failed": 0, "skipped": 0}
        self._is_resumed = self.options.resume_id is None
        self._is_stopped = False

    def run(self) -> dict[str, int]:
        """Run it all and write records to `out_stream`. Raises OpsError, before anything runs, for what is not known."""
        options = self.options
        check_resume_ids(self.specs, options)
        found = resolved(self.specs)
        _prepare_torch(options)
        self._write(records.setup_record(options, self._floor()))
        batches = self._batches()
        for spec, op in found:
            runner = InputRunner(spec, op, options)
            for one in self._chosen(spec):
                measured = runner.run(one)
                self.counts[measured.status] += 1
                self._write(records.input_record(one, measured, options))
                _log(one, measured)
                if self.watch is not None:
                    self.watch(one, measured)
                if batches is not None and measured.status == "passed":
                    batches.add(one)
            if batches is not None:
                batches.flush()
            if self._is_stopped:
                logger.info("stopped at %s", options.stop_id)
                break
        self._write(records.finish_record(self.counts))
        return self.counts

    def _chosen(self, spec: OperatorSpec) -> Iterator[OperatorInput]:
        """The inputs from the one of `-r`, with it, to the one of `-s`, without it."""
        options = self.options
        for one in iterate_inputs(spec, options.device):
            self._is_resumed = self._is_resumed or one.answers_to(options.resume_id or "")
            if options.stop_id is not None and self._is_resumed and one.answers_to(options.stop_id):
                self._is_stopped = True
                return
            if self._is_resumed:
                yield one

    def _floor(self) -> dict[str, float] | None:
        if self.options.format != "rich":
            return None
        from benchmate.ops.device import torch_device
        from benchmate.ops.sampling import measurement_floor

        return measurement_floor(torch_device(self.options.device))

    def _batches(self) -> Any:
        if not (self.options.ncu.is_on or self.options.nsys.is_on):
            return None
        from benchmate.ops.profiler_batch import ProfilerBatches

        return ProfilerBatches(self.options, self._batch_done)

    def _batch_done(self, made: dict[str, Any]) -> None:
        if made.get("return_code"):
            self.counts["failed"] += 1
        self._write(made)

    def _write(self, made: dict[str, Any]) -> None:
        if self.options.out_stream is not None:
            records.write_record(self.options.out_stream, made)


def make_default_benchmark(config: BenchmarkConfig) -> Benchmark:
    """The benchmark that runs a configuration."""
    return Benchmark(config)


def resolved(specs: Sequence[OperatorSpec]) -> list[tuple[OperatorSpec, OperatorInterface | OperatorSkipped]]:
    """Each operator of a configuration, or why this machine cannot have it. Raises OpsError for a name that means nothing."""
    found: list[tuple[OperatorSpec, OperatorInterface | OperatorSkipped]] = []
    for spec in specs:
        try:
            found.append((spec, operators.operator(spec.name)))
        except OperatorSkipped as skipped:
            found.append((spec, skipped))
    return found


def check_resume_ids(specs: Sequence[OperatorSpec], options: Options) -> None:
    """Raise OpsError for an id of `-r` or `-s` that no input has."""
    for flag, name in (("-r", options.resume_id), ("-s", options.stop_id)):
        if name is not None and not any(
            one.answers_to(name) for spec in specs for one in iterate_inputs(spec, options.device)
        ):
            raise OpsError(f"{flag} {name}: no input has this id or hash; --expand prints them all")


def _prepare_torch(options: Options) -> None:
    import torch

    torch.manual_seed(options.seed)
    if options.threads is not None:
        torch.set_num_threads(options.threads)


def _log(one: OperatorInput, measured: InputResult) -> None:
    if measured.status != "passed":
        error = measured.error or {}
        logger.warning("%s: %s: %s: %s", one.run_id, measured.status, error.get("stage"), error.get("message"))
        return
    for result in measured.results:
        with contextlib.suppress(KeyError):
            logger.info("%s: %s", one.run_id, describe_result(result))


def describe_result(result: Mapping[str, Any]) -> str:
    """One line about a result, for a person."""
    text = f"{result['pass']} {result['mode']}: {format_seconds(result['value'])}"
    if result["half_width"] is not None:
        text += f" ± {result['half_width']:.2%}"
    text += f" (median of {result['samples']}"
    text += f" x {result['loops']}" if result["loops"] > 1 else ""
    text += f", best {format_seconds(result['min'])})"
    if "flop_per_s" in result:
        text += f", {result['flop_per_s'] / 1e9:.4g} Gflop/s"
    for key, name in (
        ("byte_per_s", "GB/s"),
        ("bus_byte_per_s", "GB/s on the bus"),
        ("alg_byte_per_s", "GB/s by size"),
    ):
        if key in result:
            text += f", {result[key] / 1e9:.4g} {name}"
    if "peak_share" in result:
        text += f", {result['peak_share']:.0%} of the measured {result['peak_of']}"
    if result.get("launch_bound"):
        text += ", launch-bound"
    if result.get("converged") is False:
        text += ", unconverged"
    return text


def format_seconds(value: float) -> str:
    """A time in the unit that suits it."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= scale:
            return f"{value / scale:.4g} {unit}"
    return f"{value / 1e-9:.4g} ns"
