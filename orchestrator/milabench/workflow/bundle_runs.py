"""Packs runs, with their numbers, reports and lock files, into a tamper-evident archive."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from milabench.bundle.create import SUMMARY, Manifest, RunParts, create_bundle
from milabench.devices.regular_file import read_regular
from milabench.events.rundir import Run
from milabench.plan.ab import SIDES, side_name
from milabench.plan.model import STEP_DIRS
from milabench.report import markdown
from milabench.version import __version__
from milabench.workflow.summaries import recompute_summary, resolve_runs, summary_of

_COMPLETE = ".complete"
_RENDERED = ".requirements.txt"


def bundle_runs(
    output: Path, base: Path | None, names: Sequence[str], *, key: Path | None = None, with_step_dirs: bool = False
) -> Manifest:
    """Write an archive of runs, signed with the SSH key `key`; `with_step_dirs` with what launches left in their folders.

    Raises NothingSelected and RecordError.
    """
    left_out = () if with_step_dirs else (STEP_DIRS,)
    parts = [replace(bundle_parts(run), left_out=left_out) for run in resolve_runs(base, names)]
    return create_bundle(output, parts, version=__version__, key=key)


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
    digests = run.manifest.get("locks")
    store = run.path.parent.parent / "venv" / ".store"
    locks: dict[str, bytes] = {}
    notes = []
    for group, digest in sorted(digests.items()) if isinstance(digests, dict) else ():
        name = group.removesuffix(side_name("", SIDES[0])).removesuffix(side_name("", SIDES[1]))
        folder = store / f"{name}-{str(digest)[:16]}"
        try:
            locks[f"{group}/requirements.txt"] = read_regular(folder / _RENDERED)
            locks[f"{group}/environment.json"] = read_regular(folder / _COMPLETE)
        except OSError:
            notes.append(f"{run.name}: the environment {group} ({str(digest)[:16]}) is gone: no lock file of it")
    return locks, tuple(notes)
