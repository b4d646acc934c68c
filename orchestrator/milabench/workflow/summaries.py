"""The summary of a run: the one kept beside its records while it is still made of them, else a new one, which is kept."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milabench.errors import RecordError

if TYPE_CHECKING:
    from milabench.analysis.step_results import CourseOf
    from milabench.analysis.summary_model import Summary
    from milabench.events.rundir import Run

# Raised whenever a summary of the same records would say something else: summaries of before are then made again.
ANALYSIS = 2
_ENDINGS = (".data", ".stdout", ".stderr")
_NAMES = ("manifest.json", "journal.jsonl")


def summary_of(run: Run, validations: str | None = None, course: CourseOf | None = None) -> Summary:
    """What a run came to. `validations` are the checks that are asked for, which a kept summary does not have.

    Where the records are read, `course` sees them, too.

    Raises RecordError when its records cannot be read.
    """
    from milabench.analysis.summary import summarise
    from milabench.workflow.run_checks import checks_of

    if validations is not None:
        return summarise(run, checks_of(run, validations), course)
    kept = _kept(run)
    if kept is not None:
        return kept
    before = stat_digest(run.path)
    summary = summarise(run, checks_of(run), course)
    # A run that goes on changes, and that of another program is not ours to write into.
    if run.is_ended and run.manifest and run.journal:
        store_summary(run, summary, before)
    return summary


def store_summary(run: Run, summary: Summary, stat: str) -> None:
    """Write the summary beside the records that it was made of; where that cannot be, it is made anew every time.

    `stat` is the digest of before they were read.
    """
    from milabench.events.rundir import RunWriter

    writer = RunWriter(run.path)
    with contextlib.suppress(OSError):
        writer.write_summary({**summary.to_json(), "made_of": summary_sources(run.path, stat)})
    writer.close()


def summary_sources(path: Path, stat: str) -> dict[str, Any]:
    """What tells whether a summary is still that of the records: by their sizes and times, else by their contents."""
    return {"analysis": ANALYSIS, "stat": stat, "content": content_digest(path)}


def stat_digest(path: Path) -> str:
    """A digest of names, sizes and times of the files that a summary is made of."""
    lines = []
    for entry in _files(path):
        status = entry.stat()
        lines.append(f"{entry.name}\0{status.st_size}\0{status.st_mtime_ns}\n")
    return hashlib.sha256("".join(sorted(lines)).encode("utf-8", "surrogateescape")).hexdigest()


def content_digest(path: Path) -> str:
    """A digest of the names and contents of the same files: a copy or a checkout has other times and the same contents."""
    whole = hashlib.sha256()
    for entry in sorted(_files(path), key=lambda each: each.name):
        with Path(entry.path).open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        whole.update(f"{entry.name}\0{content}\n".encode("utf-8", "surrogateescape"))
    return whole.hexdigest()


def _kept(run: Run) -> Summary | None:
    """The summary beside the records, if it is theirs; None where there is none, or one of other records or another version."""
    import msgspec

    from milabench.analysis.summary_io import summary_from_json
    from milabench.events.rundir import SUMMARY

    if not run.is_ended:
        return None
    try:
        told = msgspec.json.decode((run.path / SUMMARY).read_bytes(), type=dict[str, Any])
        made = told.get("made_of")
        if not isinstance(made, dict) or made.get("analysis") != ANALYSIS:
            return None
        if made.get("stat") != stat_digest(run.path) and made.get("content") != content_digest(run.path):
            return None
        return _at(run, summary_from_json(told, run.manifest))
    except (OSError, ValueError, msgspec.MsgspecError, RecordError):
        return None


def _at(run: Run, summary: Summary) -> Summary:
    """The summary with its logs where the run lies now, under the name that it has now."""
    from dataclasses import replace

    def moved(log: str | None) -> str | None:
        return None if log is None else str(run.path / Path(log).name)

    benches = tuple(
        replace(
            bench,
            failures=tuple(replace(one, log=moved(one.log)) for one in bench.failures),
            flaky=tuple(
                replace(one, others=tuple(replace(each, log=moved(each.log)) for each in one.others))
                for one in bench.flaky
            ),
        )
        for bench in summary.benchmarks
    )
    return replace(summary, run=run.name, benchmarks=benches)


def _files(path: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.name in _NAMES or entry.name.endswith(_ENDINGS):
                    yield entry
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from None
