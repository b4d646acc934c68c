"""`python -m benchmate.ops run_batch -s NAME`: run a batch of inputs for an outside profiler, which is all that looks at it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmate.ops.arguments import require_object
from benchmate.ops.base import JsonMapping, OpsError, run_command
from benchmate.ops.benchmark import resolved, seed_torch
from benchmate.ops.config_file import OperatorInput, parse_operators
from benchmate.ops.executor import InputRunner
from benchmate.ops.json_files import parse_json, read_unpacked
from benchmate.ops.options import as_options
from benchmate.ops.profiler_batch import read_shared_memory


def main(argv: Sequence[str]) -> int:
    """Run the batch. Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmate.ops run_batch", description=__doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("-s", "--shm", metavar="NAME", help="the shared memory that holds the batch as JSON")
    source.add_argument("-f", "--file", metavar="FILE", help="a file that holds it")
    parser.add_argument("-v", "--verbose", action="store_true", help=argparse.SUPPRESS)  # the original's
    args = parser.parse_args(argv)
    return run_command(lambda: 1 if run_inputs(_read(args.shm, args.file)) else 0)


def run_inputs(batch: JsonMapping) -> int:
    """Run every input of a batch. Return how many failed. Raises OpsError for an incomplete batch."""
    missing = [key for key in ("op_name", "op_info", "run_options") if key not in batch]
    if missing:
        raise OpsError(f"batch: no {', '.join(map(repr, missing))}")
    name = batch["op_name"]
    [(spec, op)] = resolved(parse_operators({name: batch["op_info"]}, "batch"))
    options = as_options(batch["run_options"])
    seed_torch(options)
    runner = InputRunner(spec, op, options)
    # The original's older batches say build_id.
    config_id, _, build_id = str(batch.get("config_build_id", batch.get("build_id", "0|0"))).rpartition("|")
    config = spec.config[0]
    build = (config.get("build") or [None])[0]
    failed = 0
    for index, content in enumerate(config["input"]):
        input_id = content.pop("id", index)
        result = runner.run(OperatorInput(spec, int(config_id or 0), build_id, input_id, build, content))
        if result.status == "failed":
            failed += 1
            print(f"{name}|{input_id}: {result.error}", file=sys.stderr)
    return failed


def _read(memory: str | None, path: str) -> JsonMapping:
    text = read_unpacked(path, "-f takes a batch") if memory is None else read_shared_memory(memory)
    return require_object(parse_json(text, memory or path), memory or path, "a batch")
