"""`milabench driver`: run a task of a .cfg file, any command, and take its metrics from what it prints."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from milabench.cli.options import Extent, SuiteOptions, display_option, seconds_of
from milabench.errors import DONE, INTERRUPTED, RecordError, UsageError
from milabench.workflow.context import base_folder, warn_user

if TYPE_CHECKING:
    from milabench.analysis.memory_usage import Usage
    from milabench.config.tasks import ConfiguredTask

CONFIG = Path("task_config_template.cfg")
RESULT = "dlbenchmark_result.json"
FOREVER_S = 30 * 86400.0
_KIB = 1024.0
_USERS = ("PYTHONPATH", "OMP_NUM_THREADS")


@click.command("driver", help="Run a task of a .cfg file and write the metrics found in its log to a JSON file.")
@click.option("--task-name", metavar="T", help="Section of the file; what the names of the metrics begin with.")
@click.option("--num-gpus", type=click.IntRange(0), metavar="N", help="Accelerators. Default: as the section says.")
@click.option("--framework", metavar="F", help="Stands before the task in the names of the metrics.")
@click.option("--metrics-suffix", metavar="S", help="Stands behind them.")
@click.option("--epochs", type=click.IntRange(1), help="Replaces --epochs of the command.")
@click.option("--kvstore", help="Replaces --kvstore of the command.")
@click.option("--dtype", help="Replaces --dtype of the command.")
@click.option("--metrics-policy", metavar="SECTION", help="Take the metrics of this section, for --command-to-execute.")
@click.option("--command-to-execute", metavar="CMD", help="A line for the shell, in the place of the section's.")
@click.option("--data-set", metavar="NAME", help="Accepted, with a warning: nothing is downloaded here.")
@click.option(
    "--config",
    "--metrics-template",
    "config_file",
    type=click.Path(path_type=Path),
    envvar="MILABENCH_DRIVER_CONFIG",
    help=f"The file. Default: {CONFIG}.",
)
@click.option("--result", type=click.Path(path_type=Path, dir_okay=False), default=RESULT, show_default=True)
@click.option("--timeout", "timeout_s", callback=seconds_of, metavar="DURATION", help="End it after 90s, 30m, 4h.")
@click.option("--base", type=click.Path(path_type=Path), envvar="MILABENCH_BASE", help="Default: ./results.")
@click.option("--wait", is_flag=True, help="Wait for devices that another run holds.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON too.")
@display_option
def command(
    task_name: str | None,
    num_gpus: int | None,
    framework: str | None,
    metrics_suffix: str | None,
    metrics_policy: str | None,
    command_to_execute: str | None,
    data_set: str | None,
    config_file: Path | None,
    result: Path,
    timeout_s: float | None,
    base: Path | None,
    wait: bool,
    as_json: bool,
    display: str,
    **edits: Any,
) -> int:
    """Hand the command line's values on; see the help text above."""
    section = metrics_policy or task_name
    if section is None:
        raise UsageError("no task: give --task-name T, or --metrics-policy SECTION with --command-to-execute CMD")
    if (metrics_policy is None) != (command_to_execute is None):
        raise UsageError("--metrics-policy and --command-to-execute go together; give both, or only --task-name")
    if data_set is not None:
        warn_user(f"--data-set {data_set}: nothing is downloaded; the command finds its data itself")
    file = (config_file or CONFIG).absolute()
    task = task_with_command(file, section, command_to_execute, num_gpus, edits)
    name = MetricName(framework=framework, task=task_name or section, suffix=metrics_suffix)
    result.unlink(missing_ok=True)  # whatever becomes of this run, the file never tells of another one
    folder = base_folder(base)
    suite = suite_of(folder, file, section, task, name=name.task, timeout_s=timeout_s or FOREVER_S)
    code, path = run_task(suite, folder, wait=wait, display=display)
    if code != DONE:
        if code != INTERRUPTED:
            tell_failures(path)
        return code
    values = result_of(path, task, name)
    text = json.dumps(values, indent=4, allow_nan=False) + "\n"
    for each in (path / RESULT, result):
        write_file(each, text)
    click.echo(text if as_json else value_table(values), nl=False)
    print(f"driver: {result}, and the log, in {path}", file=sys.stderr)
    return DONE


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricName:
    """What the names of the metrics are made of: `[framework.]task.metric[.suffix]`."""

    framework: str | None
    task: str
    suffix: str | None

    def of(self, metric: str) -> str:
        """The full name of a metric."""
        return ".".join(part for part in (self.framework, self.task, metric, self.suffix) if part)


def task_with_command(
    file: Path, section: str, line: str | None, num_gpus: int | None, edits: Mapping[str, Any]
) -> ConfiguredTask:
    """The task with the command that will be run. Raises ConfigError for what is wrong with file or options."""
    from milabench.config.read import read_tasks
    from milabench.config.tasks import WORKERS, as_benchmark, edited, workers_of
    from milabench.errors import ConfigError, Problem

    task = read_tasks(file).task(section)
    if line is not None:
        task = replace(task, command=line, num_gpus=task.num_gpus if num_gpus is None else num_gpus)
    if not task.command:
        what = "it has metrics only, and no command_to_execute"
        way_out = f"give --metrics-policy {section} --command-to-execute CMD"
        raise ConfigError(Problem(where=task.where, path=task.name, what=what, way_out=way_out))
    as_benchmark(task, workers_of(os.environ.get(WORKERS, "")))
    return edited(task, num_gpus=num_gpus, **edits)


def suite_of(base: Path, file: Path, section: str, task: ConfiguredTask, *, name: str, timeout_s: float) -> Path:
    """A suite of this one task, kept under the base so that the run can be gone on with; the same for the same task."""
    from milabench.config.interpolate import escaped
    from milabench.config.schema import FILE_KEYS
    from milabench.config.tasks import verbatim

    bench = re.sub(r"[^\w .+-]", "_", name).lstrip(".")
    bench = bench if bench and not bench.startswith("_") and bench not in FILE_KEYS else f"driver.{bench}"
    about = {
        "driver": escaped(str(file)),
        "task": escaped(section),
        "command": escaped(verbatim(task.command)),
        "shell": True,
        "cwd": escaped(str(Path.cwd())),
        "max_duration": timeout_s,
        # What the user set for the command, and a benchmark of a suite would not see.
        "env": {key: escaped(verbatim(os.environ[key])) for key in _USERS if key in os.environ},
    }
    text = json.dumps({bench: about}, indent=1) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    path = base / "driver" / f"{bench}-{digest}.yaml"
    write_file(path, text)
    return path


def run_task(suite: Path, base: Path, *, wait: bool, display: str) -> tuple[int, Path]:
    """Run the suite once, as `milabench run` does: the exit code, and the run directory."""
    from milabench.checks.registry import parse_checks as checks_chosen
    from milabench.cli.run import finish_run, prepare_request
    from milabench.workflow.execution import RetryPolicy, execute_plan
    from milabench.workflow.planning import describe_run
    from milabench.workflow.request import expand_requests

    options = SuiteOptions(config_file=suite, base=base)
    (request,) = expand_requests(options, Extent(repeat=1), run_name="driver", stamp="", seed=int(time.time()))
    each = prepare_request(request, None)
    recording = describe_run(each.decision, validations=checks_chosen("all"))
    effort = RetryPolicy(wait=wait)
    carried = execute_plan(each.decision.plan, each.decision.request.inputs, recording, display=display, effort=effort)
    return finish_run(carried), carried.path


def tell_failures(path: Path) -> None:
    """Say why the task did not pass, and where its log is."""
    try:
        summary = json.loads((path / "summary.json").read_bytes())
    except (OSError, ValueError):
        return  # what is wrong with it was said when it was written
    for bench in summary["benchmarks"]:
        for failure in bench["failures"]:
            print(f"error: {failure['step']}: {failure['why']}: {failure['detail']}; {failure['log']}", file=sys.stderr)


def result_of(path: Path, task: ConfiguredTask, name: MetricName) -> dict[str, float]:
    """The metrics of a run, with what memory it took, under their full names; says what could not be read.

    Processor memory in KiB, device memory in MiB, as readers of the file expect.
    """
    from milabench.analysis.log_metrics import LogFold, metrics_of
    from milabench.analysis.memory_usage import MemoryFold
    from milabench.events.model import Config, Line
    from milabench.events.rundir import open_run

    run = open_run(path)
    memory, log = MemoryFold(), LogFold(())
    for event in (event for step in run.files for event in run.batches(step)):
        match event:
            case Line(text=text, pipe=pipe):
                log.observe(text, pipe)
            case Config(data=data):
                log = LogFold(metrics_of(data))
            case _:
                memory.observe(event)
    found = {one.metric.name: one.value for one in log.series() if one.value is not None}
    found |= memory_usage("cpu_memory_usage", memory.host, _KIB, mean_name="cpu_memory_usage")
    if memory.host is None:
        warn_user("cpu_memory_usage: the task ended before its memory was read")
    if task.num_gpus:
        devices = memory.devices(task.num_gpus)
        found |= memory_usage("gpu_memory_usage", devices, 1.0)
        if devices is None:
            warn_user(f"gpu_memory_usage: no device told its memory, for {task.num_gpus} GPUs asked for")
        elif not memory.is_of_tree:
            warn_user("gpu_memory_usage: devices do not tell it by process here; it is that of the whole device")
    found["uptime_in_seconds"] = float(Path("/proc/uptime").read_text().split()[0])
    return {name.of(metric): value for metric, value in found.items()}


def memory_usage(what: str, seen: Usage | None, unit: float, mean_name: str = "") -> dict[str, float]:
    """Mean, standard deviation and maximum of memory, in `unit`s of a MiB; nothing where nothing was seen."""
    if seen is None:
        return {}
    names = (mean_name or f"{what}_mean", f"{what}_std", f"{what}_max")
    return dict(zip(names, (seen.mean * unit, seen.std * unit, seen.max * unit), strict=True))


def value_table(values: Mapping[str, float]) -> str:
    """A line for each value."""
    width = max(map(len, values))
    return "".join(f"{name:<{width}}  {value:.10g}\n" for name, value in values.items())


def write_file(path: Path, text: str) -> None:
    """Write a file, and its folder. Raises RecordError when that cannot be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:
        raise RecordError(f"{path}: cannot be written: {error.strerror}") from None
