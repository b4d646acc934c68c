"""`milabench timing-audit`: how the way in which a model's call is timed changes what is read."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from milabench.errors import DONE, STEPS_FAILED, ConfigError, RecordError
from milabench.workflow.context import base_folder

if TYPE_CHECKING:
    from milabench.analysis.timing_audit import TimingAudit
    from milabench.events.rundir import Run

BENCHMARK = "timing_audit"
PASSED_ON = ("model", "batch", "warmup", "sync", "clock", "processes", "seed", "calls", "seconds", "threads")
# What the program does by itself; the suite's own benchmark is a smaller one.
DEFAULTS = {
    "batch": "1,8",
    "warmup": "0,50",
    "sync": "none,each,end",
    "processes": "5",
    "seconds": "1",
    "calls": "1000",
}
PROCESS_S = 300  # most that one process may take, as the program has it


@click.command("timing-audit", help="Show how the way of timing a model's call changes what is read.")
@click.option("--model", help="builtin:cnn (the default), torchvision:NAME, MODULE:FUNCTION or onnx:FILE.")
@click.option("--batch", metavar="N,...", help="Items in a call. Default: 1,8.")
@click.option("--warmup", metavar="N,...", help="Calls before the first timed one. Default: 0,50.")
@click.option("--sync", metavar="WORD,...", help="When the host waits for the device: none, each, end. Default: all.")
@click.option("--clock", metavar="WORD,...", help="wall, event; both are recorded. Default: both.")
@click.option("--processes", type=click.IntRange(1), help="Fresh processes for each combination. Default: 5.")
@click.option("--shuffle/--no-shuffle", default=True, help="Random order within each block of processes.")
@click.option("--seed", type=int, help="Of the order. Default: 1.")
@click.option("--calls", type=click.IntRange(1), help="Timed calls in a process, at most. Default: 1000.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="Time for them. Default: 1.")
@click.option("--threads", type=click.IntRange(1), help="Of the framework on the host. Default: as it decides.")
@click.option("--from", "from_run", metavar="RUN", help="Measure nothing: tell what this run found.")
@click.option("--base", type=click.Path(path_type=Path), envvar="MILABENCH_BASE", help="Default: ./results.")
@click.option("--use-current-env", is_flag=True, help="Measure in the active environment; install nothing.")
@click.option("--wait", is_flag=True, help="Wait for devices that another run holds.")
@click.option("--json", "as_json", is_flag=True, help="The audit as JSON.")
def command(
    from_run: str | None,
    base: Path | None,
    use_current_env: bool,
    wait: bool,
    as_json: bool,
    shuffle: bool,
    **chosen: Any,
) -> int:
    """Hand the command line's values on; see the help text above."""
    from milabench.events.rundir import find_run, latest_run

    folder = base_folder(base)
    code = DONE
    if from_run is None:
        given = {name: chosen[name] for name in PASSED_ON if chosen[name] is not None}
        code = run_audit(folder, given, shuffle=shuffle, use_current_env=use_current_env, wait=wait)
        run = latest_run(folder)
    else:
        run = find_run(folder, from_run)
    audit = audit_of(run)
    if audit is None:
        raise RecordError(f"{run.path}: no timing audit is recorded here; `milabench report {run.name}` tells what is")
    if as_json:
        click.echo(json.dumps(asdict(audit), indent=2))
    else:
        from milabench.report.timing import render

        click.echo(render(audit), nl=False)
    return max(code, STEPS_FAILED if audit.errors else DONE)


def run_audit(base: Path, given: Mapping[str, Any], *, shuffle: bool, use_current_env: bool, wait: bool) -> int:
    """Install what the experiment needs, if it is not there, and run it as the benchmark that it is; the exit code of the run."""
    from milabench.cli.verbs import verbs

    suite = ["--config", str(audit_suite_file()), "--select", BENCHMARK, "--base", str(base)]
    suite += ["--use-current-env"] if use_current_env else []
    # Standard output is for the audit: what the verbs below print on it is said elsewhere, or is in the run directory.
    with contextlib.redirect_stdout(io.StringIO()):
        verbs.main(["install", *suite], prog_name="milabench", standalone_mode=False)
        code = verbs.main(
            [
                "run",
                *suite,
                "--run-name",
                "timing-audit",
                *(["--wait"] if wait else []),
                *audit_overrides(given, shuffle),
            ],
            prog_name="milabench",
            standalone_mode=False,
        )
    return code if isinstance(code, int) else DONE


def audit_overrides(given: Mapping[str, Any], shuffle: bool) -> Iterator[str]:
    """What was asked for, as changes to the suite; what was not is the program's default, not the suite's smaller one."""
    argv: dict[str, str | bool] = {f"--{name}": str(value) for name, value in {**DEFAULTS, **given}.items()}
    if not shuffle:
        argv["--no-shuffle"] = True
    yield from ("-s", f"{BENCHMARK}.argv={json.dumps(argv)}")
    yield from ("-s", f"{BENCHMARK}.max_duration={PROCESS_S * 1000}")


def audit_suite_file() -> Path:
    """The suite that holds the experiment, beside this package. Raises ConfigError where only the package is installed."""
    path = Path(__file__).resolve().parents[3] / "config" / "small_systems.yaml"
    if not path.is_file():
        raise ConfigError(f"{path}: no such file; timing-audit measures with a checkout of the project, as `run` does")
    return path


def audit_of(run: Run) -> TimingAudit | None:
    """What the records of a run say; None when no process of an audit told anything."""
    from milabench.analysis.timing_audit import timing_audit
    from milabench.events.model import Data
    from milabench.events.replay import replay

    return timing_audit(event.data for event in replay(run) if isinstance(event, Data) and "audit" in event.data)
