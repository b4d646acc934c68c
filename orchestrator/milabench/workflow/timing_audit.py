"""Runs the timing experiment, which is a benchmark, and reads the result of a run of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from milabench.analysis.timing_audit import TimingAudit, timing_audit
from milabench.errors import RecordError
from milabench.events.model import Data
from milabench.events.replay import replay
from milabench.events.rundir import find_run
from milabench.execute.retry_policy import RetryPolicy
from milabench.workflow.files import base_folder, shipped_suite
from milabench.workflow.install import install
from milabench.workflow.options import AuditRequest, Extent, Session, SuiteOptions
from milabench.workflow.run_suite import RunSettings, execute_runs, prepare_runs

BENCHMARK = "timing_audit"
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


def run_audit(factors: Mapping[str, Any], request: AuditRequest, session: Session) -> tuple[TimingAudit, int]:
    """Install what the experiment needs, run it, and return its result with the exit code of the run.

    Raises what `install` and `run` raise.
    """
    suite = shipped_suite("small_systems")
    options = SuiteOptions(
        config_file=suite, select=BENCHMARK, base=request.base, use_current_env=request.use_current_env, ask_nodes=True
    )
    install(options, session)
    options = replace(options, overrides=tuple(audit_overrides(factors, request.shuffle)))
    settings = RunSettings(retry=RetryPolicy(wait=request.wait))
    ((path, code),) = execute_runs(prepare_runs(options, Extent(run_name="timing-audit"), settings, session), session)
    return read_audit(str(path), request.base), code


def audit_overrides(factors: Mapping[str, Any], shuffle: bool) -> Iterator[str]:
    """Return the overrides of the suite for these factors; others get the program's default, not the suite's smaller one."""
    argv: dict[str, str | bool] = {f"--{name}": str(value) for name, value in {**DEFAULTS, **factors}.items()}
    if not shuffle:
        argv["--no-shuffle"] = True
    yield f"{BENCHMARK}.argv={json.dumps(argv)}"
    yield f"{BENCHMARK}.max_duration={PROCESS_S * 1000}"


def read_audit(name: str, base: Path | None) -> TimingAudit:
    """Return the audit in a run's records. Raises RecordError when it is not an audit, NothingSelected when there is no run."""
    run = find_run(base_folder(base), name)
    audit = timing_audit(event.data for _, event in replay(run) if isinstance(event, Data) and "audit" in event.data)
    if audit is None:
        raise RecordError(f"{run.path}: no timing audit is recorded here; `milabench report {run.name}` shows what is")
    return audit
