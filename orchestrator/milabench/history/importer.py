"""Converts runs of other programs to run directories. Records are copied as written, except that secrets are masked."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from milabench.analysis.json_codec import JsonKey
from milabench.devices.regular_file import read_regular
from milabench.errors import RecordError
from milabench.events.run_files import MANIFEST
from milabench.events.run_writer import RunWriter, create_run
from milabench.events.rundir import open_run
from milabench.redaction import mask_assignments, mask_bytes
from milabench.workflow.files import writing


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignStep:
    """A step of a foreign run: what else its entry for the plan has, its outcome, its records and its output.

    A file is read only while it is copied: a run may be larger than the memory.
    """

    id: str
    bench: str
    planned: Mapping[str, Any]
    outcome: str
    why: str = ""
    detail: str = ""
    records: bytes | Path = b""
    outputs: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignRun:
    """A whole foreign run. `origin` is its format and location, `digest` identifies it."""

    name: str
    when: datetime
    format: str
    origin: str
    version: str
    system: Mapping[str, Any]
    steps: Sequence[ForeignStep]
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Importer:
    """A format that `milabench import` reads.

    `can_read` tells whether a file or folder may be of this format, by names alone. `read_runs` returns the runs, and the
    omissions with their reasons. Its second argument is the user's name of the source. It raises RecordError for another format.
    """

    can_read: Callable[[Path], bool]
    read_runs: Callable[[Path, str], tuple[list[ForeignRun], list[str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """Where a run went. `is_new` is false when it had been imported before. `masked` secrets were found in it."""

    path: Annotated[Path, JsonKey(write=str)]
    is_new: Annotated[bool, JsonKey("new")]
    benchmarks: int
    masked: int = 0


def write_foreign_run(arrival: ForeignRun, base: Path) -> Imported:
    """Make the run directory. The values of secret variables are masked. Raises RecordError when it cannot be written."""
    benches = len({step.bench for step in arrival.steps})
    # By content, not by name: a run that was moved or renamed is the same run.
    existing = _imported_before(base, arrival.digest)
    if existing is not None:
        return Imported(path=existing, is_new=False, benchmarks=benches)
    writer = create_run(base, arrival.name, arrival.when, clock=arrival.when.timestamp)
    with contextlib.closing(writer), writing(writer.path):
        masked = _write(writer, arrival)
    return Imported(path=writer.path, is_new=True, benchmarks=benches, masked=masked)


def digest_of_pieces(pieces: Iterable[tuple[str, bytes]]) -> str:
    """Return a hash of named pieces, independent of their order."""
    # The length keeps two pieces apart from one that contains both.
    lines = sorted(f"{name}\0{len(content)}\0{hashlib.sha256(content).hexdigest()}\n" for name, content in pieces)
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def at(seconds: float | None) -> datetime:
    """Return a unix time as a date. The epoch where it is unknown."""
    try:
        return datetime.fromtimestamp(seconds or 0.0, tz=UTC)
    except (OverflowError, OSError, ValueError):
        return datetime.fromtimestamp(0.0, tz=UTC)


def _write(writer: RunWriter, arrival: ForeignRun) -> int:
    writer.write_manifest(
        {
            "phase": "run",
            "name": arrival.name,
            "created": arrival.when.isoformat(timespec="seconds"),
            "version": arrival.version,
            "argv": [],
            "suite": {},
            "system": dict(arrival.system),
            "plan": {"steps": [_planned(step) for step in arrival.steps], "skipped": []},
            "files": {step.id: step.id for step in arrival.steps},
            "profile": "",
            "locks": {},
            "imported": {"format": arrival.format, "from": arrival.origin, "sha256": arrival.digest},
        }
    )
    entries: list[dict[str, Any]] = [{"step": step.id, "state": "planned"} for step in arrival.steps]
    count = 0
    for step in arrival.steps:
        content = step.records if isinstance(step.records, bytes) else read_regular(step.records)
        records, masked = _masked(content)
        writer.append(step.id, records)
        count += masked
        for ending, path in step.outputs.items():
            text, masked = _masked(read_regular(path))
            (writer.path / f"{step.id}.{ending}").write_bytes(text)
            count += masked
        entry = {"outcome": step.outcome, "why": step.why, "detail": step.detail}
        entries.append({"step": step.id, "state": "ended", **{key: value for key, value in entry.items() if value}})
    is_passed = all(step.outcome in ("passed", "skipped") for step in arrival.steps)
    entries.append({"run": "ended", "verdict": "passed" if is_passed else "failed"})
    writer.journal_all(entries)
    return count


def _planned(step: ForeignStep) -> dict[str, Any]:
    return {"phase": "run", "id": step.id, "bench": step.bench, **step.planned}


def _masked(content: bytes) -> tuple[bytes, int]:
    """Return the text with the values of secret variables as `***`, and their number."""
    # Every byte is a character of Latin-1, and comes back as it was.
    text, masked = mask_assignments(content.decode("latin-1"))
    return mask_bytes(text.encode("latin-1")), masked


def _imported_before(base: Path, digest: str) -> Path | None:
    for manifest in sorted((base / "runs").glob(f"*/{MANIFEST}")):
        try:
            imported = open_run(manifest.parent).manifest.get("imported")
        except RecordError:
            continue  # somebody else's folder
        if isinstance(imported, Mapping) and imported.get("sha256") == digest:
            return manifest.parent
    return None
