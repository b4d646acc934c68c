"""Runs the timing experiment, which is a benchmark, and reads its result."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from milabench.errors import RecordError, UsageError
from milabench.events.model import Data
from milabench.events.runs_folder import find_run
from milabench.execute.retry_policy import RetryPolicy
from milabench.following.recorded_events import replay
from milabench.plan.model import Step
from milabench.timing_audit.analysis import TimingAudit, timing_audit
from milabench.workflow.context import read_context
from milabench.workflow.device_use import require_free_devices
from milabench.workflow.files import base_folder, shipped_suite
from milabench.workflow.install import install
from milabench.workflow.options import AuditRequest, Extent, InstallSettings, Session, SuiteOptions
from milabench.workflow.run_suite import RunSettings, execute_runs, prepare_runs

BENCHMARK = "timing_audit"
SMALLER = ("batch", "warmup", "sync", "processes", "seconds")
"""The options that the suite's own benchmark gives, for a smaller experiment than the program's own."""
PROCESS_S = 300  # most that one process may take, as the program has it


def run_audit(factors: Mapping[str, Any], request: AuditRequest, session: Session) -> tuple[TimingAudit, int]:
    """Install the experiment's requirements, run it, and return its result with the exit code of the run.

    Raises UsageError for a missing model, before anything is measured, and the errors of `install` and `run`.
    """
    factors = {**factors, **model_location(factors.get("model"), Path.cwd())}
    suite = shipped_suite("small_systems")
    options = SuiteOptions(
        config_file=suite, select=BENCHMARK, base=request.base, use_current_env=request.use_current_env, ask_nodes=True
    )
    require_free_devices(read_context(options, session, warn=False), wait=request.wait)
    install(options, session, InstallSettings(as_default=False))
    options = replace(options, overrides=tuple(audit_overrides(factors, request.shuffle)))
    settings = RunSettings(retry=RetryPolicy(wait=request.wait), as_default=False)
    prepared = prepare_runs(options, Extent(run_name="timing-audit"), settings, session)
    require_model(prepared.plans[0].planned.plan.steps[0])
    ((path, code),) = execute_runs(prepared, session)
    return read_audit(str(path), request.base), code


def model_location(model: str | None, folder: Path) -> dict[str, str]:
    """Return the factor that says where a model's module or file is: the user's folder, not the step's.

    Raises UsageError for a file that is not there.
    """
    kind, _, name = (model or "").partition(":")
    if kind == "onnx" and not (folder / name).is_file():
        raise UsageError(f"--model {model}: no such file in {folder}")
    return {"folder": str(folder)} if model else {}


def require_model(step: Step) -> None:
    """Have the step's program find and import its model, once, in its environment. Raises UsageError with its message."""
    # On another machine or in a container, where we cannot look, the step itself fails with the same line.
    if step.container is not None or not Path(step.argv[0]).is_file():
        return
    env = {**os.environ, **{name: value for name, value in step.env.items() if "@" not in value}}
    done = subprocess.run([*step.argv, "--check"], env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"--model: exit code {done.returncode}"]
        raise UsageError(lines[-1].removeprefix("error: "))


def audit_overrides(factors: Mapping[str, object], shuffle: bool) -> Iterator[str]:
    """Return the overrides of the suite for these factors. Others get the program's default, not the suite's smaller one."""
    argv: dict[str, str | bool | None] = {f"--{name}": None for name in SMALLER}
    argv |= {f"--{name}": str(value) for name, value in factors.items()}
    if not shuffle:
        argv["--no-shuffle"] = True
    yield f"{BENCHMARK}.argv={json.dumps(argv)}"
    yield f"{BENCHMARK}.max_duration={PROCESS_S * 1000}"


def read_audit(name: str, base: Path | None) -> TimingAudit:
    """Return the audit in a run's records. Raises RecordError when it is not an audit, NothingSelected when there is no run."""
    run = find_run(base_folder(base), name)
    audit = timing_audit(event.data for _, event in replay(run) if isinstance(event, Data) and "audit" in event.data)
    if audit is None:
        raise RecordError(
            f"{run.path}: no timing audit is recorded here. `milabench report {run.name}` shows its results"
        )
    return audit
