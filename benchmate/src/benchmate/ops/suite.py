"""Operators as a benchmark of a suite: the key `ops` of its configuration run on the step's device, each result a metric."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmate.ops.errors import OpsError
from benchmate.ops.executor import FORWARD

MODES = "hot"


def main(folder: str | Path) -> int:
    """Run what the suite says under `ops`; a file's name is taken from `folder`. Returns the exit code."""
    import benchmate
    from benchmate.ops.benchmark import Benchmark, describe_result
    from benchmate.session import current

    session = current()
    try:
        config = configured(session.config.values, Path(folder))
    except OpsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2

    def tell(one: Any, found: Any) -> None:
        if found.status != "passed":
            session.message(f"{one.run_id}: {found.status}: {(found.error or {}).get('message')}")
            return
        if found.more.get("correctness", {}).get("status") == "wrong":
            benchmate.fail("invalid", f"{one.run_id}: wrong output: {found.more['correctness']}")
        for result in found.results:
            print(f"{one.run_id}: {describe_result(result)}", flush=True)
            benchmate.metric(
                "time", result["value"], "s", "lower", **metric_details(one, result, found.more.get("reasons", ()))
            )

    try:
        counts = Benchmark(config, tell).run()
    except OpsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    session.finish()
    return 1 if counts["failed"] else 0


def suite_options(values: Mapping[str, Any]) -> Any:
    """Options from a benchmark's resolved configuration: the profile says how long each measurement may take, the keys `modes`,
    `backward`, `data`, `precision` and `device` the rest. Raises OpsError for a value that is wrong."""
    from benchmate.ops.options import ExecutionPass, Options, parse_modes
    from benchmate.ops.statistics import StopRule

    own = values.get("options") or {}
    window_s = float((values.get("measure") or {}).get("window_s", 3.0))
    default = StopRule()
    rule = StopRule(
        precision=float(own.get("precision") or default.precision),
        seconds=min(default.seconds, window_s / 6),
        longest_s=min(default.longest_s, window_s),
    )
    modes = parse_modes(str(own.get("modes") or MODES))
    return Options(
        device=str(own.get("device") or best_device()),
        pass_type=ExecutionPass.BACKWARD if own.get("backward") else ExecutionPass.FORWARD,
        modes=modes,
        warmup=int(own.get("warmup") or 1),
        iteration=int(own.get("iteration") or 30),
        format="rich",
        fill=str(own.get("data") or "normal"),
        rule=rule,
    )


def configured(values: Mapping[str, Any], folder: Path) -> Any:
    """What a benchmark's resolved configuration says to run, a BenchmarkConfig. Raises OpsError for what is wrong in it."""
    from benchmate.ops.benchmark import BenchmarkConfig

    config = BenchmarkConfig(suite_options(values))
    given = (values.get("options") or {}).get("ops")
    if isinstance(given, Mapping):
        return config.load(given)
    if not isinstance(given, str):
        raise OpsError("no operators: the suite needs 'ops: FILE.json', or the specifications themselves under 'ops'")
    return config.load_json_file(folder / given)


def metric_details(one: Any, result: Mapping[str, Any], doubts: Sequence[str] = ()) -> dict[str, Any]:
    """What a metric says besides its value. The headline is the geometric mean of the times of the forward passes.

    `reasons` are why its number is suspect: `doubts`, and that it is not known as precisely as asked.
    """
    reasons = [*doubts, *(["unconverged"] if result.get("converged") is False else [])]
    made: dict[str, Any] = {
        "case": one.operator,
        "part": result["pass"],
        "params": {"id": one.id, "mode": result["mode"]},
        "hash": one.hash,
        "ci95": result["ci95"],
        "samples": result["samples"],
        "main": result["pass"] in FORWARD,
        **({"reasons": reasons} if reasons else {}),
    }
    for key in ("converged", "launch_bound", "flop_per_s", "byte_per_s", "peak_share", "peak_of", "bus_byte_per_s"):
        if key in result:
            made[key] = result[key]
    return made


def best_device() -> str:
    """The accelerator that the step was given, else the CPU."""
    import torch

    for name in ("cuda", "xpu"):
        module = getattr(torch, name, None)
        if module is not None and module.is_available():
            return name
    return "cpu"
