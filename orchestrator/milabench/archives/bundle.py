"""The content of a bundle: each run's records as they are, the results, the inputs of the run, and their manifest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from milabench.analysis.json_codec import JsonKey, to_json_value
from milabench.archives.archive import ArchiveMember, add_file, create_archive
from milabench.archives.signing import sign
from milabench.errors import RecordError
from milabench.events.rundir import Run
from milabench.events.stored_json import from_json_value
from milabench.events.wire import parse_object
from milabench.version import __version__

NAME = "bundle.json"
SIGNATURE = f"{NAME}.sig"
SCHEMA = 1
_SEED = hashlib.sha256(b"milabench-bundle-1").hexdigest()
RECORDS = "runs"
COMPUTED = "computed"
SUMMARY = "summary.json"
# No record: a file that is being written, a lock, the heartbeat of a job, and the summary, which is computed anew for a bundle.
_LEFT_OUT = (".tmp", ".new", ".lock", ".beat")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts:
    """A run and its accompanying files: `computed` are files by name, from its records, `locks` its lock files.

    `left_out` are folders of the run directory that hold no records.
    """

    run: Run
    computed: Mapping[str, str]
    locks: Mapping[str, bytes] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def create_bundle(
    target: Path, parts: Iterable[RunParts], key: Path | None = None, declared: Mapping[str, bytes] | None = None
) -> Manifest:
    """Write a bundle. The same runs give the same bytes (a signature aside, and with the same zlib). Raises RecordError.

    `declared` are declarations about the runs: files by name.
    """
    parts = list(parts)
    names = [part.run.name for part in parts]
    if len(set(names)) < len(names):
        again = next(name for name in names if names.count(name) > 1)
        raise RecordError(f"{again}: two runs have this name. Rename a directory")
    # Sorted: the order in which a file system lists files must not show in the bytes.
    entries = (item for part in parts for item in _entries(part))
    contents: dict[str, bytes | Path] = dict(sorted([*entries, *(declared or {}).items()]))
    with create_archive(target) as file:
        packed = tuple(add_file(file, name, content) for name, content in contents.items())
        notes = tuple(note for part in parts for note in part.notes)
        manifest = Manifest(version=__version__, runs=tuple(names), files=packed, notes=notes)
        listed = manifest.to_bytes()
        add_file(file, NAME, listed)
        if key is not None:
            add_file(file, SIGNATURE, sign(listed, key))
    return manifest


def _entries(part: RunParts) -> Iterable[tuple[str, bytes | Path]]:
    name = part.run.name
    for path in sorted(part.run.path.rglob("*")):
        if path.relative_to(part.run.path).parts[0] in part.left_out:
            continue
        if path.is_symlink():
            raise RecordError(f"{path}: is a link, but a bundle contains the records themselves")
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


def chain_links(files: Iterable[ArchiveMember]) -> list[str]:
    """Return each file's link: the SHA-256 of the previous link, its own hash, its size and its path."""
    chain, last = [], _SEED
    for file in files:
        # With the link before in it, a file cannot be taken out, put in or moved without changing all that follow.
        last = hashlib.sha256(f"{last}\n{file.sha256} {file.size} {file.path}".encode()).hexdigest()
        chain.append(last)
    return chain


def _chained(files: Sequence[ArchiveMember]) -> list[dict[str, Any]]:
    return [{**asdict(file), "chain": link} for file, link in zip(files, chain_links(files), strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The content of a bundle. `chain` is the last link, which covers everything."""

    version: str = ""
    runs: tuple[str, ...]
    notes: tuple[str, ...] = ()
    files: Annotated[tuple[ArchiveMember, ...], JsonKey(write=_chained, followed_by=("chain",))]

    @property
    def chain(self) -> str:
        """The last link of the chain."""
        return chain_links(self.files)[-1] if self.files else _SEED

    def to_bytes(self) -> bytes:
        """Return the manifest's file. The same content gives the same bytes."""
        value = {"schema": SCHEMA, "kind": "milabench-bundle", **to_json_value(self)}
        return json.dumps(value, indent=1, ensure_ascii=False).encode() + b"\n"


def from_bytes(content: bytes, where: str) -> tuple[Manifest, list[str]]:
    """Return the manifest and its contradictions. Raises RecordError when it is unreadable."""
    try:
        value = parse_object(content)
        manifest = from_json_value(Manifest, value)
    except ValueError as error:
        raise RecordError(f"{where}: {NAME}: cannot be read as a bundle manifest: {error}") from None
    if value.get("schema") != SCHEMA:
        raise RecordError(
            f"{where}: has schema {value.get('schema')!r}, but this version reads {SCHEMA}. Use the version that wrote it"
        )
    wrong = [
        f"{NAME}: the chain breaks at {file.path}"
        for file, listed, link in zip(manifest.files, value["files"], chain_links(manifest.files), strict=True)
        if listed.get("chain") != link
    ][:1]
    if not wrong and value.get("chain") != manifest.chain:
        wrong.append(f"{NAME}: its last link does not match the chain")
    return manifest, wrong


def compare_files(manifest: Manifest, present: Mapping[str, tuple[int, str]]) -> list[str]:
    """Return changed, added and removed files: listed files against present ones, (size, SHA-256) by path."""
    listed = {file.path: file for file in manifest.files}
    own = {NAME, SIGNATURE}
    changed = [
        f"changed: {path}"
        for path, file in listed.items()
        if path in present and present[path] != (file.size, file.sha256)
    ]
    added = [f"added: {path}" for path in present if path not in listed and path not in own]
    removed = [f"removed: {path}" for path in listed if path not in present]
    return [*changed, *added, *removed]
