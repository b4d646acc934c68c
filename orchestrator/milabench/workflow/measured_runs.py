"""The runs that have a summary: those in which something was measured, and which are over, by the last word about their jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from milabench import seams
from milabench.errors import NothingSelected, RecordError

if TYPE_CHECKING:
    from milabench.events.rundir import Run


METERS = "meters"
"""The folder of a run for its meters' measurements. Its records are not touched."""


def is_metered(run: Run) -> bool:
    """Return whether `milabench import-meter` added readings of a meter to a run."""
    return (run.path / METERS).is_dir()


def resolve_runs(base: Path | None, names: Sequence[str]) -> list[Run]:
    """Return the runs of these names or paths, each once. Without names the latest.

    Raises RecordError for an active run, NothingSelected for the record of an install or a preparation.
    """
    from milabench.workflow.run_lookup import resolve_run, run_handle

    runs: dict[Path, Run] = {}
    for name in names or (None,):
        handle = resolve_run(base, name)
        if handle.run.shares:
            handle = run_handle(with_ends(handle.run))
        run = handle.run
        if handle.is_active:
            raise RecordError(
                f"{run.name}: is still running ({handle.executed_by}). Wait for its end, or end it with "
                f"`milabench cancel {run.name}`"
            )
        require_measured(run)
        runs[run.path.resolve()] = run
    return list(runs.values())


def with_ends(run: Run, say: Callable[[str], object] = lambda _: None) -> Run:
    """Return a run as it is once the ends of its jobs are written down that nobody followed. See `follow_jobs.ask_about`."""
    if not run.shares or not seams.takes_part("ends of jobs"):
        return run
    asked: Run = seams.handler("ends of jobs")(run, say)[0]
    return asked


def require_measured(run: Run) -> None:
    """Raise NothingSelected for the record of an install or a preparation."""
    if run.phase != "run":
        raise NothingSelected(f"{run.path}: is the record of {run.phase}, in which nothing was measured")
