"""Finds runs whose results are complete, and computes what stores and bundles keep of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milabench.errors import NothingSelected, RecordError

if TYPE_CHECKING:
    from milabench.events.rundir import Run
    from milabench.history.rows import RunRows


def resolve_runs(base: Path | None, names: Sequence[str]) -> list[Run]:
    """Return the runs of these names or paths, each once; without names the latest.

    Raises RecordError for an active one, NothingSelected for the record of an install or a preparation.
    """
    from milabench.workflow.run_lookup import resolve_run

    runs: dict[Path, Run] = {}
    for name in names or (None,):
        handle = resolve_run(base, name)
        run = handle.run
        if handle.holder is not None:
            raise RecordError(
                f"{run.name}: is still running (process {handle.holder.pid}); wait for its end, or end it with "
                f"`milabench cancel {run.name}`"
            )
        require_measured(run)
        runs[run.path.resolve()] = run
    return list(runs.values())


def require_measured(run: Run) -> None:
    """Raise NothingSelected for the record of an install or a preparation."""
    if run.phase != "run":
        raise NothingSelected(f"{run.path}: is the record of {run.phase}, in which nothing was measured")


def recompute_summary(run: Run) -> dict[str, Any]:
    """Compute a run's summary as JSON from its records alone; its paths are relative to its folder."""
    from milabench.analysis.summary import summarise
    from milabench.bundle.create import relative_logs
    from milabench.workflow.run_checks import checks_of

    value: dict[str, Any] = relative_logs(summarise(run, checks_of(run)).to_json(), str(run.path))
    return value


def run_identity(run: Run) -> str:
    """Return the hash of what was planned and when, which stays when the run is moved or resumed.

    A run of milabench 1.3 has no plan: its name and the beginning of its records identify it. Raises RecordError.
    """
    from milabench.events.rundir import MANIFEST

    digest = hashlib.sha256()
    try:
        if run.manifest:
            digest.update((run.path / MANIFEST).read_bytes())
        else:
            for path in sorted(run.path.glob("*.data")):
                with path.open("rb") as file:
                    digest.update(path.name.encode() + file.read(65536))
    except OSError as error:
        raise RecordError(f"{error.filename}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    return digest.hexdigest()[:32]


def run_rows(run: Run) -> RunRows:
    """Return the rows that a store or a table file holds of a run."""
    from milabench.bundle.create import relative_logs
    from milabench.history.rows import rows
    from milabench.workflow.summaries import summary_of

    summary = summary_of(run)
    return rows(summary, relative_logs(summary.to_json(), str(run.path)), run_identity(run))
