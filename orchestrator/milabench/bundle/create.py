"""What goes into a bundle: each run's records as they are, and beside them what was computed from them and what made them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from milabench.bundle import archive
from milabench.bundle.manifest import NAME, SIGNATURE, Manifest
from milabench.bundle.signing import sign
from milabench.errors import RecordError
from milabench.events.rundir import Run

RECORDS = "runs"
COMPUTED = "computed"
SUMMARY = "summary.json"
# No record: a file that is being written, the lock of a run, and the summary, which is computed anew for a bundle.
_LEFT_OUT = (".tmp", ".new", ".lock")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts:
    """A run and what accompanies it: `computed` are files by name, from its records; `locks` the lock files that it ran with."""

    run: Run
    computed: Mapping[str, str]
    locks: Mapping[str, bytes] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def create_bundle(target: Path, parts: Iterable[RunParts], *, version: str, key: Path | None = None) -> Manifest:
    """Write a bundle; the same runs give the same bytes (a signature aside, and with the same zlib). Raises RecordError."""
    parts = list(parts)
    names = [part.run.name for part in parts]
    if len(set(names)) < len(names):
        again = next(name for name in names if names.count(name) > 1)
        raise RecordError(f"{again}: two runs have this name; rename one of the directories")
    # Sorted: the order in which a file system lists files must not show in the bytes.
    contents = dict(sorted(item for part in parts for item in _entries(part)))
    with archive.create_archive(target) as file:
        packed = tuple(archive.add_file(file, name, content) for name, content in contents.items())
        notes = tuple(note for part in parts for note in part.notes)
        manifest = Manifest(version=version, runs=tuple(names), files=packed, notes=notes)
        listed = manifest.to_bytes()
        archive.add_file(file, NAME, listed)
        if key is not None:
            archive.add_file(file, SIGNATURE, sign(listed, key))
    return manifest


def relative_logs(summary: Any, folder: str) -> Any:
    """Rewrite paths in the run's folder as relative ones: a bundle is read on another machine."""
    prefix = f"{folder.rstrip('/')}/"
    match summary:
        case dict():
            return {key: relative_logs(value, folder) for key, value in summary.items()}
        case list():
            return [relative_logs(value, folder) for value in summary]
        case str():
            return summary.replace(prefix, "")
        case _:
            return summary


def _entries(part: RunParts) -> Iterable[tuple[str, bytes | Path]]:
    name = part.run.name
    for path in sorted(part.run.path.rglob("*")):
        if path.is_symlink():
            raise RecordError(f"{path}: is a link; a bundle contains the records themselves")
        if path.is_file() and path.suffix not in _LEFT_OUT and path.name != SUMMARY:
            yield f"{RECORDS}/{name}/{path.relative_to(part.run.path).as_posix()}", path
    for file, text in part.computed.items():
        yield f"{COMPUTED}/{name}/{file}", text.encode()
    for file, content in part.locks.items():
        yield f"locks/{name}/{file}", content
    manifest = part.run.manifest
    for file, key in (("plan.json", "plan"), ("suite.json", "suite"), ("system.json", "system")):
        if key in manifest:
            yield f"{COMPUTED}/{name}/{file}", json.dumps(manifest[key], indent=1, sort_keys=True).encode() + b"\n"


Summarised = Callable[[Run], Mapping[str, Any]]
"""A run's summary as JSON, computed from its records with the checks that it was made with."""
