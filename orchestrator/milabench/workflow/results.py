"""The runs that verbs about results speak of, with what they came to; a run that is still going has no results yet."""

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
    """The runs of these names or paths, each once; without names the latest.

    Raises RecordError for one that is still going, NothingSelected for the record of an install or a preparation.
    """
    from milabench.workflow.run_lookup import resolve_run

    found: dict[Path, Run] = {}
    for name in names or (None,):
        each = resolve_run(base, name)
        if each.holder is not None:
            raise RecordError(
                f"{each.run.name}: is still going (process {each.holder.pid}); wait for its end, or end it with "
                f"`milabench cancel {each.run.name}`"
            )
        if each.run.phase != "run":
            raise NothingSelected(f"{each.run.path}: is the record of {each.run.phase}, in which nothing was measured")
        found[each.run.path.resolve()] = each.run
    return list(found.values())


def recompute_summary(run: Run) -> dict[str, Any]:
    """A run's summary as JSON, from its records and from nothing that was computed before; its paths relative to its folder."""
    from milabench.analysis.summary import summarise
    from milabench.bundle.create import relative_logs
    from milabench.workflow.run_checks import checks_of

    value: dict[str, Any] = relative_logs(summarise(run, checks_of(run)).to_json(), str(run.path))
    return value


def run_identity(run: Run) -> str:
    """What tells a run from every other, also when it was moved or gone on with: the hash of what was planned and when.

    A run of milabench 1.3 planned nothing: its name and the beginning of its records stand for it.
    """
    from milabench.events.rundir import MANIFEST

    found = hashlib.sha256()
    try:
        if run.manifest:
            found.update((run.path / MANIFEST).read_bytes())
        else:
            for path in sorted(run.path.glob("*.data")):
                with path.open("rb") as file:
                    found.update(path.name.encode() + file.read(65536))
    except OSError as error:
        raise RecordError(f"{error.filename}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    return found.hexdigest()[:32]


def run_rows(run: Run) -> RunRows:
    """The rows that a store or a table file holds of a run."""
    from milabench.bundle.create import relative_logs
    from milabench.history.rows import rows
    from milabench.workflow.summaries import summary_of

    summary = summary_of(run)
    return rows(summary, relative_logs(summary.to_json(), str(run.path)), run_identity(run))
