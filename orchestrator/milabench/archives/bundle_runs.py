"""Packs runs, with their numbers, reports and lock files, into a tamper-evident archive."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from milabench.archives.bundle import SUMMARY, Manifest, RunParts, create_bundle
from milabench.devices.regular_file import read_regular
from milabench.events.rundir import Run
from milabench.plan.ab import SIDES, side_name
from milabench.plan.model import STEP_DIRS
from milabench.report import markdown
from milabench.workflow.measured_runs import resolve_runs
from milabench.workflow.summaries import recompute_summary, summary_of

LOCK_FILES = {".requirements.txt": "requirements.txt", ".complete": "environment.json"}
"""An environment in an archive: its files with their names there."""
LOCKS = ".locks"


def bundle_runs(
    output: Path, base: Path | None, names: Sequence[str], *, key: Path | None = None, with_step_dirs: bool = False
) -> Manifest:
    """Write an archive of runs, signed with the SSH key `key`. `with_step_dirs`: with the folders of repeats.

    Raises NothingSelected and RecordError.
    """
    left_out = () if with_step_dirs else (STEP_DIRS,)
    parts = [replace(bundle_parts(run), left_out=left_out) for run in resolve_runs(base, names)]
    return create_bundle(output, parts, key)


def bundle_parts(run: Run) -> RunParts:
    """Return a run with its numbers, its report, and the locks of its environments as far as those still exist."""
    report = markdown.render([summary_of(run)])
    locks, notes = locks_of(run)
    return RunParts(
        run=run,
        computed={
            SUMMARY: json.dumps(recompute_summary(run), indent=1, sort_keys=True) + "\n",
            "report.md": report.replace(f"{run.path}/", ""),
        },
        locks=locks,
        notes=notes,
    )


def locks_of(run: Run) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Return the lock files of a run's environments, as their store kept them, and a note for each that is gone."""
    store = run.path.parent.parent / "venv" / ".store"
    locks: dict[str, bytes] = {}
    notes = []
    for group, name in sorted(recorded_folders(run.manifest.get("locks")).items()):
        # `gc` leaves them there of an environment that it removes.
        folder = store / name if (store / name).is_dir() else store / LOCKS / name
        try:
            for file, shown in LOCK_FILES.items():
                locks[f"{group}/{shown}"] = read_regular(folder / file)
        except OSError:
            notes.append(f"{run.name}: the environment {name} is gone, and its lock file with it")
    return locks, tuple(notes)


def recorded_folders(locks: object) -> dict[str, str]:
    """Return the names of the folders of a run's environments, by the `locks` of its manifest."""
    sides = tuple(side_name("", side) for side in SIDES)  # an A/B run may have two of one name
    return {
        str(group): f"{str(group).removesuffix(sides[0]).removesuffix(sides[1])}-{str(digest)[:16]}"
        for group, digest in (locks.items() if isinstance(locks, dict) else ())
    }
