"""The summary of a run: read from the file next to its records while these are unchanged, else computed and stored there."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import structs

from milabench.analysis.json_codec import to_json_value
from milabench.analysis.summary_io import Sources, sources_of, summary_from_bytes
from milabench.devices.regular_file import open_regular, read_regular
from milabench.errors import RecordError, os_reason
from milabench.events.run_files import SUMMARY, is_journal_or_manifest
from milabench.events.run_writer import RunWriter
from milabench.events.wire import dump, parse_object
from milabench.redaction import mask_data
from milabench.seams import features_left_out

if TYPE_CHECKING:
    from milabench.analysis.step_results import CourseOf, SupersededAttempt
    from milabench.analysis.summary_model import BenchSummary, Failure, Summary
    from milabench.events.rundir import Run

# Incremented whenever the same records would give another summary: stored ones are then computed again.
ANALYSIS_VERSION = 12
_ENDINGS = (".data", ".stdout", ".stderr")
_Logged = TypeVar("_Logged", "Failure", "SupersededAttempt")


def recompute_summary(run: Run) -> dict[str, Any]:
    """Compute a run's summary as JSON from its records alone. Its paths are relative to its folder."""
    value: dict[str, Any] = relative_logs(computed_summary(run).to_json(), str(run.path))
    return value


def computed_summary(run: Run, validations: str | None = None, course: CourseOf | None = None) -> Summary:
    """Compute the summary of a run from its records alone. Raises RecordError when they cannot be read."""
    from milabench.analysis.summary import summarise
    from milabench.workflow.run_checks import checks_of

    return summarise(run, checks_of(run, validations), course)


def summary_of(run: Run, validations: str | None = None, course: CourseOf | None = None) -> Summary:
    """Return the summary of a run. `validations` are checks other than the run's own, which no stored summary has.

    `course` observes the records where they are read.

    Raises RecordError when its records cannot be read.
    """
    if validations is not None:
        return computed_summary(run, validations, course)
    stored = _read_stored(run)
    if stored is not None:
        return stored
    # From before: what is written while the records are read makes the stored summary out of date.
    before = stat_digest(run.path)
    summary = computed_summary(run, course=course)
    # An active run changes, and the run of another program is not ours to write into.
    if run.is_ended and run.manifest and run.journal:
        with contextlib.suppress(OSError):  # where it cannot be written, it is computed every time
            store_summary(run.path, summary, before)
    return summary


def relative_logs(summary: object, folder: str) -> Any:
    """Rewrite paths in the run's folder as relative ones: a bundle is read on another machine."""
    return with_replaced(summary, f"{folder.rstrip('/')}/", "")


def with_replaced(value: object, old: str, new: str) -> Any:
    """Return plain data with a piece of text replaced in all of its values."""
    match value:
        case dict():
            return {key: with_replaced(own, old, new) for key, own in value.items()}
        case list():
            return [with_replaced(own, old, new) for own in value]
        case str():
            return value.replace(old, new)
        case _:
            return value


def store_summary(path: Path, summary: Summary, stat: str) -> None:
    """Write the summary next to its records, with digests of them that show later whether it is up to date.

    `stat` is the digest of sizes and times from before the records were read. Nothing is written where a feature is left out,
    whose section it may lack. Raises OSError.
    """
    if features_left_out():
        return
    value = mask_data(summary.to_json())  # as it will be written
    sources = Sources(analysis=ANALYSIS_VERSION, stat=stat, content=content_digest(path), summary=_digest_of(value))
    with contextlib.closing(RunWriter(path)) as writer:
        writer.write_summary({**value, "made_of": to_json_value(sources)})


def _digest_of(summary: Mapping[str, object]) -> str:
    """Return a digest of the summary itself: an altered summary is computed again."""
    return hashlib.sha256(dump(summary)).hexdigest()


def stat_digest(path: Path) -> str:
    """Return a digest of names, sizes and times of the files that a summary is computed from."""
    lines = []
    for entry in _files(path):
        status = entry.stat()
        lines.append(f"{entry.name}\0{status.st_size}\0{status.st_mtime_ns}\n")
    return hashlib.sha256("".join(sorted(lines)).encode("utf-8", "surrogateescape")).hexdigest()


def content_digest(path: Path) -> str:
    """Return a digest of the names and contents of the same files: a copy has other times and the same contents."""
    # Only read where sizes or times differ: after a copy or an unpacked archive the contents are still the same.
    whole = hashlib.sha256()
    for entry in sorted(_files(path), key=lambda entry: entry.name):
        with open_regular(entry.path) as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        whole.update(f"{entry.name}\0{content}\n".encode("utf-8", "surrogateescape"))
    return whole.hexdigest()


def _read_stored(run: Run) -> Summary | None:
    """Return the stored summary. None where it is missing, or belongs to other records or another version."""
    # The summary of an active run is about other records a second later.
    if not run.is_ended:
        return None
    try:
        content = read_regular(run.path / SUMMARY)
        return _relocated(run, summary_from_bytes(content, run.manifest)) if _is_up_to_date(content, run) else None
    except (OSError, ValueError, RecursionError, RecordError):
        return None


def _is_up_to_date(content: bytes, run: Run) -> bool:
    """Return whether this version computed the stored summary, from these records, and nobody altered it since."""
    sources = sources_of(content)
    if sources.analysis != ANALYSIS_VERSION or not _is_as_digested(content, sources.summary):
        return False
    return sources.stat == stat_digest(run.path) or sources.content == content_digest(run.path)


def _is_as_digested(content: bytes, digest: str) -> bool:
    """Return whether a stored summary has a digest, that of the bytes as they were written, or of the same in other bytes."""
    before_sources = hashlib.sha256(memoryview(content)[: max(0, content.rfind(b',"made_of":'))])
    before_sources.update(b"}")
    if before_sources.hexdigest() == digest:
        return True
    value = parse_object(content)
    return _digest_of({name: own for name, own in value.items() if name != "made_of"}) == digest


def _relocated(run: Run, summary: Summary) -> Summary:
    """Return the summary with the name of the run and the paths of its logs as they are now."""

    def of_bench(bench: BenchSummary) -> BenchSummary:
        if not bench.failures and not bench.flaky:
            return bench
        flaky = tuple(replace(each, others=tuple(map(at_home, each.others))) for each in bench.flaky)
        return structs.replace(bench, failures=tuple(map(at_home, bench.failures)), flaky=flaky)

    def at_home(failure: _Logged) -> _Logged:
        return failure if failure.log is None else replace(failure, log=str(run.path / Path(failure.log).name))

    return structs.replace(summary, run=run.name, benchmarks=tuple(map(of_bench, summary.benchmarks)))


def _files(path: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if is_journal_or_manifest(entry.name) or entry.name.endswith(_ENDINGS):
                    yield entry
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {os_reason(error)}") from None
