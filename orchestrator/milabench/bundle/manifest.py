"""The list of a bundle's files: a SHA-256 for each, chained, so that one hash stands for all of them and their order."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from milabench.bundle.archive import ArchiveMember
from milabench.errors import RecordError

NAME = "bundle.json"
SIGNATURE = f"{NAME}.sig"
NAMESPACE = "milabench-bundle"  # of the signature: a signature made for something else is none
SCHEMA = 1
_SEED = hashlib.sha256(b"milabench-bundle-1").hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a bundle holds; `chain` is the last link, which stands for everything."""

    version: str
    runs: tuple[str, ...]
    files: tuple[ArchiveMember, ...]
    notes: tuple[str, ...] = ()

    @property
    def chain(self) -> str:
        """The last link of the chain."""
        return chain_links(self.files)[-1] if self.files else _SEED

    def to_bytes(self) -> bytes:
        """Return the manifest's file; the same content gives the same bytes."""
        chained = zip(self.files, chain_links(self.files), strict=True)
        value = {
            "schema": SCHEMA,
            "kind": "milabench-bundle",
            "version": self.version,
            "runs": list(self.runs),
            "notes": list(self.notes),
            "files": [
                {"path": file.path, "size": file.size, "sha256": file.sha256, "chain": link} for file, link in chained
            ],
            "chain": self.chain,
        }
        return json.dumps(value, indent=1, ensure_ascii=False).encode() + b"\n"


def chain_links(files: Iterable[ArchiveMember]) -> list[str]:
    """Return each file's link: the SHA-256 of the previous link, its own hash, its size and its path."""
    chain, last = [], _SEED
    for file in files:
        # With the link before in it, a file cannot be taken out, put in or moved without changing all that follow.
        last = hashlib.sha256(f"{last}\n{file.sha256} {file.size} {file.path}".encode()).hexdigest()
        chain.append(last)
    return chain


def from_bytes(content: bytes, where: str) -> tuple[Manifest, list[str]]:
    """Return the manifest and its contradictions. Raises RecordError when it cannot be read as one."""
    try:
        value = json.loads(content)
        listed = value["files"]
        files = tuple(ArchiveMember(path=str(f["path"]), size=int(f["size"]), sha256=str(f["sha256"])) for f in listed)
        recorded_links = [str(file["chain"]) for file in listed]
        schema, chain = value["schema"], str(value["chain"])
        runs, notes = tuple(map(str, value["runs"])), tuple(map(str, value.get("notes", ())))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RecordError(f"{where}: {NAME}: cannot be read as a bundle manifest ({type(error).__name__})") from None
    if schema != SCHEMA:
        raise RecordError(
            f"{where}: has schema {schema!r}, but this version reads {SCHEMA}; use the version that wrote it"
        )
    manifest = Manifest(version=str(value.get("version", "")), runs=runs, files=files, notes=notes)
    wrong = [
        f"{NAME}: the chain breaks at {file.path}"
        for file, recorded, link in zip(files, recorded_links, chain_links(files), strict=True)
        if recorded != link
    ][:1]
    if not wrong and chain != manifest.chain:
        wrong.append(f"{NAME}: its last link does not match the chain")
    return manifest, wrong


def compare_files(manifest: Manifest, present: Mapping[str, tuple[int, str]]) -> list[str]:
    """Return what was changed, added and removed: listed files against present ones, (size, SHA-256) by path."""
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
