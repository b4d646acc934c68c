"""Operators as a benchmark of a suite: the key `ops` of its configuration run on the step's device, each result a metric."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import benchmate
from benchmate.ops.base import JsonMapping, JsonObject, OpsError, import_torch
from benchmate.ops.benchmark import Benchmark, BenchmarkConfig, describe_result
from benchmate.ops.config_file import OperatorInput
from benchmate.ops.device import default_device
from benchmate.ops.executor import FORWARD, InputResult
from benchmate.ops.options import ExecutionPass, Options, parse_modes
from benchmate.ops.statistics import StopRule
from benchmate.session import current

DEFAULT_MODES = "hot"
COPIED_KEYS = ("converged", "launch_bound", "flop_per_s", "byte_per_s", "peak_share", "peak_of", "bus_byte_per_s")


def main(folder: str | Path) -> int:
    """Run the suite's `ops`. A file's name is relative to `folder`. Return the exit code."""
    session = current()
    try:
        import_torch()
        config = configured(session.config.values, Path(folder))
        benchmark = Benchmark(config, _report_input)
        counts = benchmark.run()
    except OpsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    session.finish()
    return 1 if counts["failed"] or benchmark.unknown else 0


def _report_input(operator_input: OperatorInput, result: InputResult) -> None:
    run_id = operator_input.run_id
    if result.status != "passed":
        error = result.error or {}
        text = f"{run_id}: {result.status}: {error.get('message')}"
        benchmate.fail(error["why"], text) if "why" in error else benchmate.message(text)
        return
    correctness = result.details.get("correctness", {})
    if correctness.get("status") == "wrong":
        benchmate.fail("invalid", f"{run_id}: wrong output: {correctness}")
    for timed in result.results:
        print(f"{run_id}: {describe_result(timed)}", flush=True)
        details = metric_details(operator_input, timed, result.details.get("reasons", ()))
        benchmate.metric("time", timed["value"], "s", "lower", **details)


def suite_options(values: JsonMapping) -> Options:
    """Return options from a benchmark's resolved configuration. Raises OpsError for a value that is wrong.

    The profile says how long each measurement may take, the keys `modes`, `backward`, `data`, `precision` and `device` the rest.
    """
    own = values.get("options") or {}
    window_s = float((values.get("measure") or {}).get("window_s", 3.0))
    default = StopRule()
    return Options(
        device=str(own.get("device") or default_device()),
        pass_type=ExecutionPass.BACKWARD if own.get("backward") else ExecutionPass.FORWARD,
        modes=parse_modes(str(own.get("modes") or DEFAULT_MODES)),
        warmup=int(own.get("warmup") or 1),
        iteration=int(own.get("iteration") or 30),
        format="rich",
        data=str(own.get("data") or "normal"),
        rule=StopRule(
            precision=float(own.get("precision") or default.precision),
            seconds=min(default.seconds, window_s / 6),
            longest_s=min(default.longest_s, window_s),
        ),
    )


def configured(values: JsonMapping, folder: Path) -> BenchmarkConfig:
    """Return the operators of a benchmark's resolved configuration. Raises OpsError for problems in it."""
    config = BenchmarkConfig(suite_options(values))
    operators = (values.get("options") or {}).get("ops")
    if isinstance(operators, Mapping):
        return config.load(operators)
    if not isinstance(operators, str):
        raise OpsError("no operators: the suite needs 'ops: FILE.json', or the specifications themselves under 'ops'")
    return config.load_json_file(folder / operators)


def metric_details(operator_input: OperatorInput, timed: JsonMapping, doubts: Sequence[str] = ()) -> JsonObject:
    """Return the details of a metric. The headline is the geometric mean of the times of the forward passes.

    `reasons` are why its number is suspect: `doubts`, and that it is less precise than requested.
    """
    reasons = [*doubts, *(["unconverged"] if timed.get("converged") is False else [])]
    details: JsonObject = {
        "case": operator_input.operator,
        "part": timed["pass"],
        "params": {"id": operator_input.id, "mode": timed["mode"]},
        "hash": operator_input.hash,
        "ci95": timed["ci95"],
        "samples": timed["samples"],
        "main": timed["pass"] in FORWARD,
        **({"reasons": reasons} if reasons else {}),
    }
    return details | {key: timed[key] for key in COPIED_KEYS if key in timed}
