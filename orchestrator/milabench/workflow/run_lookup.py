"""The runs that the verbs about runs speak of, and whether each is still going."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from milabench.analysis.run_status import RunStatus, run_status
from milabench.errors import NothingSelected, RecordError
from milabench.events.rundir import Run, find_run, latest_run, open_run
from milabench.execute.run_lock import Orchestrator, holder_of
from milabench.workflow.context import base_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHandle:
    """A run, how far it is, and who carries it out at this moment."""

    run: Run
    standing: RunStatus
    holder: Orchestrator | None

    @property
    def state(self) -> str:
        """`running`; the verdict; or `cut off` when it has neither an orchestrator nor an end."""
        if self.holder is not None:
            return "running"
        return self.standing.verdict or ("cut off" if self.run.journal else "not recorded")

    @property
    def is_detached(self) -> bool:
        """Whether it is carried out without a terminal at this moment."""
        return self.holder is not None and self.holder.detached


def run_handle(run: Run) -> RunHandle:
    """A run with what can be said of it."""
    return RunHandle(run=run, standing=run_status(run), holder=holder_of(run.path))


def resolve_run(base: Path | None, name: str | None) -> RunHandle:
    """The run of this name or path, else the latest. Raises NothingSelected and RecordError."""
    folder = base_folder(base)
    return run_handle(find_run(folder, name) if name is not None else latest_run(folder))


def all_runs(base: Path | None) -> list[RunHandle]:
    """Every run directory below a base, oldest first, also those that were cut off before anything was recorded."""
    folder = base_folder(base) / "runs"
    try:
        paths = [path for path in folder.iterdir() if path.is_dir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RecordError(f"{folder}: cannot be read: {error.strerror}") from None
    found = []
    for path in paths:
        try:
            found.append(run_handle(open_run(path)))
        except RecordError:
            continue  # somebody's folder, or a run that began no further
    return sorted(found, key=lambda each: (each.standing.began or 0.0, each.run.name))


def active_run(base: Path | None) -> RunHandle:
    """The one run below a base that is going on. Raises NothingSelected."""
    found = [each for each in all_runs(base) if each.holder is not None]
    if not found:
        raise NothingSelected(f"{base_folder(base) / 'runs'}: no run is going on here")
    if len(found) > 1:
        raise NothingSelected(f"several runs are going on: {', '.join(each.run.name for each in found)}; name one")
    return found[0]


def find_step(run: Run, name: str) -> str:
    """The step of a run with this id, file name, or benchmark's name when that has only one. Raises NothingSelected."""
    if name in run.files:
        return name
    near = [step for step, stem in run.files.items() if stem == name or step.startswith(f"{name}.")]
    if len(near) == 1:
        return near[0]
    known = near or list(run.files)
    more = f" and {len(known) - 8} more" if len(known) > 8 else ""
    what = "several steps are" if near else "no step is"
    raise NothingSelected(f"{run.name}: {what} called '{name}'; there are {', '.join(known[:8])}{more}")
