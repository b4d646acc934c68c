"""Runs a task of a .cfg file, which is any command, and extracts its metrics from its output."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from milabench.analysis.log_child import log_fold
from milabench.analysis.log_metrics import metrics_of
from milabench.config.interpolate import escaped
from milabench.config.schema import FILE_KEYS
from milabench.devices.regular_file import read_regular
from milabench.driver.memory_usage import MemoryFold, Usage
from milabench.driver.tasks import WORKERS, ConfiguredTask, as_nodes, edited, read_tasks, verbatim, workers_of
from milabench.errors import DONE, INTERRUPTED, ConfigError, Problem, RecordError, UsageError
from milabench.events.model import Config, Line
from milabench.events.removal import remove
from milabench.events.rundir import open_run
from milabench.execute.retry_policy import RetryPolicy
from milabench.redaction import is_searchable, secret_names
from milabench.workflow.files import base_folder, write_file
from milabench.workflow.options import Extent, Session, SuiteOptions
from milabench.workflow.run_suite import RunSettings, execute_runs, prepare_runs
from milabench.workflow.summaries import summary_of

CONFIG = Path("task_config_template.cfg")
RESULT = "dlbenchmark_result.json"
FOREVER_S = 30 * 86400.0
_KIB = 1024.0
_USER_VARIABLES = ("PYTHONPATH", "OMP_NUM_THREADS")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """Which task of which file is run, and how it is changed. See the options of `milabench driver`.

    `epochs`, `kvstore` and `dtype` replace options of the command.
    """

    config_file: Path | None = None
    task_name: str | None = None
    metrics_policy: str | None = None
    command_line: str | None = None
    num_gpus: int | None = None
    framework: str | None = None
    metrics_suffix: str | None = None
    epochs: int | None = None
    kvstore: str | None = None
    dtype: str | None = None
    timeout_s: float | None = None

    @property
    def name(self) -> str | None:
        """The task in the names of its metrics."""
        return self.task_name or self.metrics_policy

    def full_name(self, metric: str) -> str:
        """Return the name of a metric in the result: `[framework.]task.metric[.suffix]`."""
        return ".".join(part for part in (self.framework, self.name, metric, self.metrics_suffix) if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """How a task ended: the exit code, the run directory, and its metrics under their full names when it passed."""

    exit_code: int
    path: Path
    metrics: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the metrics as the text of a file."""
        return json.dumps(self.metrics, indent=4, allow_nan=False) + "\n"


def run_task(options: TaskOptions, result: Path, base: Path | None, session: Session, *, wait: bool) -> TaskResult:
    """Run a task, and write its metrics to the file `result` and next to its records when it passes.

    Raises UsageError and ConfigError for options and files that contradict themselves, RecordError.
    """
    section = options.metrics_policy or options.task_name
    if section is None:
        raise UsageError("no task: give --task-name T, or --metrics-policy SECTION with --command-to-execute CMD")
    if (options.metrics_policy is None) != (options.command_line is None):
        raise UsageError("--metrics-policy and --command-to-execute go together. Give both, or only --task-name")
    file = (options.config_file or CONFIG).absolute()
    task = task_with_command(file, section, options)
    clear_result(result)
    folder = base_folder(base)
    suite = SuiteOptions(config_file=write_suite(folder, file, section, task, options), base=folder)
    settings, extent = RunSettings(retry=RetryPolicy(wait=wait), as_default=False), Extent(repeat=1, run_name="driver")
    ((path, code),) = execute_runs(prepare_runs(suite, extent, settings, session), session)
    if code not in (DONE, INTERRUPTED):
        report_failures(path, session)
    if code != DONE:
        return TaskResult(exit_code=code, path=path)
    finished = TaskResult(exit_code=DONE, path=path, metrics=metrics_of_run(path, task, options, session))
    for file in (path / RESULT, result):
        write_file(file, finished.to_json())
    return finished


def clear_result(file: Path) -> None:
    """Remove the result of an earlier run, so that its metrics are not taken for ours. Raises UsageError for another file."""
    if not file.is_file():  # a pipe or a device, which is written into
        return
    try:
        content = read_regular(file)
        value = json.loads(content or b"{}")
        is_result = isinstance(value, dict) and all(isinstance(number, int | float) for number in value.values())
    except (OSError, ValueError):
        is_result = False
    if not is_result:
        raise UsageError(f"--result {file}: exists, and is no result of `milabench driver`. Choose another name")
    remove(file.resolve())


def task_with_command(file: Path, section: str, options: TaskOptions) -> ConfiguredTask:
    """Return the task with the command that will be run. Raises ConfigError for problems of the file or the options."""
    task = read_tasks(file).task(section)
    if options.command_line is not None:
        num_gpus = task.num_gpus if options.num_gpus is None else options.num_gpus
        task = replace(task, command=options.command_line, num_gpus=num_gpus)
    if not task.command:
        what = "it has metrics only, and no command_to_execute"
        hint = f"give --metrics-policy {section} --command-to-execute CMD"
        raise ConfigError(Problem(task.where, task.name, what, hint))
    as_nodes(task, "", workers_of(os.environ.get(WORKERS, "")))  # as the suite will read it
    return edited(task, num_gpus=options.num_gpus, epochs=options.epochs, kvstore=options.kvstore, dtype=options.dtype)


def write_suite(base: Path, file: Path, section: str, task: ConfiguredTask, options: TaskOptions) -> Path:
    """Write a suite of this task under the base, and return its path."""
    benchmark = {
        "driver": escaped(str(file)),
        "task": escaped(section),
        "command": by_variables(escaped(verbatim(task.command))),
        "shell": True,
        "cwd": escaped(str(Path.cwd())),
        "max_duration": options.timeout_s or FOREVER_S,
        # Set by the user for the command; a benchmark of a suite would not get them.
        "env": {key: escaped(verbatim(os.environ[key])) for key in _USER_VARIABLES if key in os.environ},
    }
    name = bench_name(options.name or section, "driver")
    return written_suite(base / "driver", name, {name: benchmark})


def bench_name(text: str, kind: str) -> str:
    """Return a text as the name of a benchmark and its files, the `kind` before it where a suite would not take it for a name."""
    name = re.sub(r"[^\w .+-]", "_", text).strip(" .")
    is_name = name and not name.startswith("_") and name not in FILE_KEYS
    return name if is_name else f"{kind}.{name}".rstrip(".")


def written_suite(folder: Path, name: str, suite: Mapping[str, object]) -> Path:
    """Write a suite that a run can be resumed with, and return its path: the same file for the same suite."""
    text = json.dumps(suite, indent=1) + "\n"  # JSON is YAML, and quotes everything
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    path = folder / f"{name}-{digest}.yaml"
    write_file(path, text)
    return path


def by_variables(command: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return a command in a suite with `${oc.env:NAME}` for the secrets of the environment in it: no file holds them."""
    for name in secret_names(environ):
        value = environ[name]
        if is_searchable(value) and not set("{}$") & set(value):
            command = command.replace(value, f"${{oc.env:{name}}}")
    return command


def report_failures(path: Path, session: Session) -> None:
    """Report why the task did not pass, and where its log is."""
    try:
        summary = summary_of(open_run(path))
    except RecordError:
        return  # reported when it was written
    failures = [failure for bench in summary.benchmarks for failure in bench.failures]
    # What was cancelled was so because of another, if there is one.
    for failure in [failure for failure in failures if failure.why != "cancelled"] or failures[:1]:
        log = f"; {failure.log}" if failure.log else ""
        session.error(f"{failure.step}: {failure.why}: {failure.detail}{log}")


def metrics_of_run(path: Path, task: ConfiguredTask, options: TaskOptions, session: Session) -> dict[str, float]:
    """Return the metrics of a run, with its memory, under their full names. Warn of metrics that could not be read.

    Processor memory is in KiB, device memory in MiB, as readers of the file expect.
    """
    run = open_run(path)
    memory, log = MemoryFold(), log_fold(())
    for event in (event for step in run.files for event in run.batches(step)):
        match event:
            case Line(text=text, pipe=pipe):
                log.observe(text, pipe)
            case Config(data=data):
                log = log_fold(metrics_of(data))
            case _:
                memory.observe(event)
    metrics = {series.metric.name: series.value for series in log.series() if series.value is not None}
    metrics |= memory_metrics("cpu_memory_usage", memory.host, _KIB, mean_name="cpu_memory_usage")
    if memory.host is None:
        session.warn("cpu_memory_usage: the task ended before its memory was read")
    if task.num_gpus:
        devices = memory.devices(task.num_gpus)
        metrics |= memory_metrics("gpu_memory_usage", devices, 1.0)
        if devices is None:
            session.warn(f"gpu_memory_usage: no device reported its memory, and {task.num_gpus} GPUs were requested")
        elif not memory.is_of_tree:
            session.warn("gpu_memory_usage: devices do not report it by process here. The number is the whole device's")
    metrics["uptime_in_seconds"] = float(Path("/proc/uptime").read_text().split()[0])
    return {options.full_name(metric): value for metric, value in metrics.items()}


def memory_metrics(what: str, usage: Usage | None, unit: float, mean_name: str = "") -> dict[str, float]:
    """Return mean, standard deviation and maximum of memory, in `unit`s of a MiB. Nothing where none was read."""
    if usage is None:
        return {}
    names = (mean_name or f"{what}_mean", f"{what}_std", f"{what}_max")
    return dict(zip(names, (usage.mean * unit, usage.std * unit, usage.max * unit), strict=True))
