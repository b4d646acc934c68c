"""`milabench size`: the largest batch size of a benchmark that fits, found by running it."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from milabench.cli.completion_hooks import benchmark_names
from milabench.cli.options import SuiteOptions, display_option, suite_options
from milabench.errors import DONE, INTERRUPTED, STEPS_FAILED, UsageError

if TYPE_CHECKING:
    from milabench.plan.sizing import Observation
    from milabench.workflow.context import CommandContext


@click.command("size", help="Find the largest batch size of BENCH that fits: doubling, then bisecting, by running it.")
@suite_options(selection=False, environment=True)
@click.argument("bench", shell_complete=benchmark_names)
@click.option("--min", "least", type=click.IntRange(1), default=1, show_default=True, help="Smallest size to try.")
@click.option("--max", "most", type=click.IntRange(1), help="Largest size to try. Default: until it does not fit.")
@click.option("--save", type=click.Path(path_type=Path, dir_okay=False), help="Add what was observed to this file.")
@click.option(
    "--wait",
    is_flag=True,
    envvar="MILABENCH_WAIT",
    help="Wait while another run measures on these devices, instead of refusing.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")
@display_option
def command(
    options: SuiteOptions,
    bench: str,
    least: int,
    most: int | None,
    save: Path | None,
    wait: bool,
    as_json: bool,
    display: str,
) -> int:
    """Hand the command line's values on; see the help text above."""
    from milabench.plan.sizing import largest_fitting
    from milabench.workflow.context import read_context
    from milabench.workflow.planning import plan_single_suite
    from milabench.workflow.preflight import require_ready

    if most is not None and most < least:
        raise UsageError(f"--max {most} is less than --min {least}")
    options = replace(options, select=bench)
    inputs = read_context(options, repeats=1, profile="quick")
    if len(inputs.benches) != 1:
        names = ", ".join(ready.config.name for ready in inputs.benches)
        raise UsageError(f"size works on one benchmark; '{bench}' selects {names}")
    plan = plan_single_suite(inputs)
    sizes = {step.config["batch_size"] for step in plan.steps if "batch_size" in step.config}
    if len(sizes) != 1:
        raise UsageError(f"{bench}: has no batch size to choose; write it as auto_batch(N) in its argv")
    require_ready(inputs, plan, options)
    name = inputs.benches[0].config.name
    search = largest_fitting(min(sizes), least=least, most=most, apart=inputs.where.sizer.options.multiple or 1)
    tried: dict[int, Observation | None] = {}
    try:
        for size in search_sizes(search, tried):
            override = f"system.options.sizer.batch_size={size}"
            at_size = replace(options, overrides=(*options.overrides, override))
            read = read_context(at_size, repeats=1, profile="quick", warn=lambda text: None)
            tried[size] = try_size(read, size, display=display, wait=wait)
    except _Ended as end:
        return end.code
    finally:
        if save is not None and (observed := [each for each in tried.values() if each is not None]):
            from milabench.workflow.scaling_files import save_observations

            save_observations(save, {name: observed})
    return print_result(name, tried, as_json=as_json)


def search_sizes(search: Generator[int, bool, int | None], tried: Mapping[int, Observation | None]) -> Iterator[int]:
    """The sizes to try, one after the other; what came of each stands in `tried` before the next is asked for."""
    try:
        size = next(search)
        while True:
            yield size
            size = search.send(tried[size] is not None)
    except StopIteration:
        return


class _Ended(Exception):
    """The search cannot go on; with this exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def try_size(inputs: CommandContext, size: int, *, display: str, wait: bool) -> Observation | None:
    """Run the benchmark with this batch size: what was observed, None where it does not fit. Ends the search for all else."""
    from milabench.execute.api import Failed, Passed
    from milabench.plan.sizing import Observation
    from milabench.workflow.execution import RunDescription, execute_plan, failure_reason
    from milabench.workflow.planning import plan_single_suite, suite_values
    from milabench.workflow.preflight import environment_records
    from milabench.workflow.scaling_files import observed_batch_sizes

    plan = plan_single_suite(inputs)
    locks, packages = environment_records(inputs)
    recording = RunDescription(name="size", phase="size", suite=suite_values(inputs), locks=locks, packages=packages)
    carried = execute_plan(plan, inputs, recording, display=display, wait=wait)
    if carried.done.interrupted:
        raise _Ended(INTERRUPTED)
    outcomes = carried.done.outcomes
    if any(isinstance(outcome, Failed) and outcome.why == "out-of-memory" for outcome in outcomes.values()):
        print(f"size: {size} does not fit", file=sys.stderr)
        return None
    for step, outcome in outcomes.items():
        if not isinstance(outcome, Passed):
            reason = f"{failure_reason(outcome)}; records in {carried.path}"
            print(f"error: {step}: failed with batch size {size}: {reason}", file=sys.stderr)
            raise _Ended(STEPS_FAILED)
    found = [each for observations in observed_batch_sizes(carried.path, plan).values() for each in observations]
    seen = found[0] if found else Observation(batch_size=size)
    print(f"size: {size} fits{observation_text(seen)}", file=sys.stderr)
    return seen


def observation_text(seen: Observation) -> str:
    """What was observed, after a comma; nothing where nothing was."""
    parts = [f"{seen.memory_mib:.0f} MiB"] if seen.memory_mib is not None else []
    parts += [f"{seen.rate:.4g}/s"] if seen.rate is not None else []
    return "".join(f", {part}" for part in parts)


def print_result(bench: str, tried: Mapping[int, Observation | None], *, as_json: bool) -> int:
    """Print the result; the exit code says whether anything fits."""
    largest = max((size for size, seen in tried.items() if seen is not None), default=None)
    # Everything that was tried fitted: there was a bound, and it was reached.
    bound = " (--max)" if largest == max(tried) else ""
    if as_json:
        attempts = [
            {"batch_size": size, "fits": seen is not None, **(seen.to_json() if seen is not None else {})}
            for size, seen in sorted(tried.items())
        ]
        click.echo(json.dumps({"schema": 1, "bench": bench, "largest": largest, "tried": attempts}, indent=1))
    elif largest is None:
        print(f"error: {bench}: not even a batch size of {min(tried)} fits", file=sys.stderr)
    else:
        click.echo(f"{bench}: the largest batch size that fits is {largest}{bound}")
    return DONE if largest is not None else STEPS_FAILED
