"""A run directory as it is read, wherever its run stopped: manifest, journal, and the records of each step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from milabench.devices.regular_file import open_regular, read_regular
from milabench.errors import RecordError, os_reason
from milabench.events.model import Event
from milabench.events.names import encode_name
from milabench.events.observation_columns import events_of_line
from milabench.events.run_files import (
    JOURNAL,
    MANIFEST,
    attempt_stem,
    journal_name,
    share_manifest_name,
    shares_named,
    without_attempt,
)
from milabench.events.shares import Share, fold_shares, merge_journals, overlaid
from milabench.events.values import as_mapping
from milabench.events.wire import parse_object

if TYPE_CHECKING:
    from milabench.events.model import StepEvent

SCHEMA = 1
MILABENCH13 = "milabench 1.3"
"""The format of a run that was imported from there, in its manifest."""

# Bytes that are decoded at a time, some thousands of lines.
_PIECE = 1 << 20

# Bytes of a line; the agent writes a twentieth of that at most. The beginning of a longer one is dropped.
MAX_LINE = 1 << 24
CUT_LINE = b"\0"  # stands for the beginning that was dropped: no record begins with it


OnRead = Callable[[int], object]
"""Takes how many bytes are about to be decoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run directory as it stands. Its records are read when asked for.

    `manifest` is empty for a run of milabench 1.3, and for a run that a crash left without it. `files` maps
    step ids to file stems. Without a manifest the stems themselves are the ids. Of a run with shares, `journal` has the
    entries of all journals, and `manifest` the steps and nodes as the shares carried them out. `as_planned` is the
    content of the manifest's file. `on_read` observes every piece of records that is read in batches.
    """

    path: Path
    manifest: Mapping[str, Any] = field(default_factory=dict)
    journal: tuple[Mapping[str, Any], ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    as_planned: Mapping[str, Any] = field(default_factory=dict)
    shares: Mapping[str, Share] = field(default_factory=dict)
    on_read: OnRead | None = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        """The name of the directory, which is how a person tells runs apart."""
        return self.path.name

    @property
    def phase(self) -> str:
        """install, prepare or run. Guessed from the directory's name where no manifest says it."""
        phase = self.manifest.get("phase")
        if isinstance(phase, str):
            return phase
        first = self.path.name.split(".", 1)[0]
        return first if first in ("install", "prepare") else "run"

    @property
    def is_of_milabench13(self) -> bool:
        """Whether its records are of milabench 1.3, as written by it or imported."""
        if self.manifest:
            return as_mapping(self.manifest.get("imported")).get("format") == MILABENCH13
        return not self.journal

    @property
    def transitions(self) -> tuple[Mapping[str, object], ...]:
        """The beginnings and ends of the run's orchestrators, not of its shares' processes."""
        return tuple(
            entry for entry in self.journal if entry.get("run") in ("started", "ended") and "share" not in entry
        )

    @property
    def is_ended(self) -> bool:
        """Whether the last orchestrator of this run came to its end. True for a run without a journal, which cannot say.

        A run with shares has ended when all of their jobs have, whether an orchestrator watched them or not.
        """
        if self.shares:
            return all(share.is_ended for share in self.shares.values())
        return not self.journal or [entry["run"] for entry in self.transitions[-1:]] == ["ended"]

    @property
    def verdict(self) -> str:
        """The verdict of the last orchestrator at its end, empty without any. See `is_ended`.

        For a run whose jobs ended while nobody watched, the verdict from its steps.
        """
        last = self.transitions[-1] if self.transitions else {}
        if last.get("run") == "ended" and (self.is_ended or not self.shares):
            return str(last.get("verdict") or "")
        if not self.shares or not self.is_ended:
            return ""
        ends = [tried and tried.outcome for share in self.shares.values() for tried in share.attempts.values()]
        return "passed" if all(end in ("passed", "skipped") for end in ends) else "failed"

    def events(self, step: str, attempt: int = 1) -> Iterator[Event]:
        """Return the events of an attempt at a step as they were written. Empty when it never started.

        An unreadable line becomes an `Other` of the kind `format_error`, except an incomplete last line. Raises
        RecordError when the file cannot be opened.
        """
        return read_events(self.path / f"{self.stem(step, attempt)}.data", step)

    def batches(self, step: str, attempt: int = 1) -> Iterator[StepEvent]:
        """Return the same events, plain observations many at a time: for runs of millions."""
        return read_batches(self.path / f"{self.stem(step, attempt)}.data", step, self.on_read)

    def stem(self, step: str, attempt: int = 1) -> str:
        """Return the name, less its ending, of the files of an attempt at a step."""
        return attempt_stem(self.files.get(step, step), attempt)

    def log(self, step: str, attempt: int = 1) -> Path | None:
        """Return the file in which to look first: its stderr, else its stdout, else its records."""
        stem = self.stem(step, attempt)
        for ending in ("stderr", "stdout", "data"):
            path = self.path / f"{stem}.{ending}"
            try:
                if path.stat().st_size:
                    return path
            except OSError:
                continue
        return None


ReadManifest = Callable[[bytes], Mapping[str, Any] | None]
"""Returns the manifest that these bytes are, known to have its shape. None where that is not known."""


def read_alone(_: bytes) -> None:
    """Know no manifest: the reader of runs of which each is read for itself."""


def open_run(path: Path, read_manifest: ReadManifest = read_alone) -> Run:
    """Return the run at `path`. Raises RecordError when it is none, is of a version that we do not know, or cannot be read."""
    try:
        names = sorted(entry.name for entry in path.iterdir())
    except NotADirectoryError:
        raise RecordError(f"{path}: is no run directory but a file") from None
    except FileNotFoundError:
        raise RecordError(f"{path}: no such run directory") from None
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {os_reason(error)}") from None
    data = [name.removesuffix(".data") for name in names if name.endswith(".data")]
    if MANIFEST not in names and JOURNAL not in names and not data:
        raise RecordError(f"{path}: is no run directory: it has neither {MANIFEST} nor any .data file")
    is_one = JOURNAL in names or bool(data)
    manifest: Mapping[str, Any] = {}
    if MANIFEST in names:
        from milabench.events.stored_run import StoredManifest

        manifest = _read_manifest(path / MANIFEST, StoredManifest, may_be_torn=is_one, read=read_manifest)
    shares = shares_named(names)
    journal = merge_journals(_entries(path / JOURNAL), (_entries(path / journal_name(share)) for share in shares))
    manifests = [read_share_manifest(path / share_manifest_name(share)) for share in shares]
    files = manifest.get("files")
    if not isinstance(files, dict):
        files = _files_without_manifest(journal, data)
    as_done = overlaid(manifest, manifests)
    return Run(
        path=path,
        manifest=as_done,
        journal=journal,
        files=files,
        as_planned=manifest,
        shares=fold_shares(as_done, journal),
    )


def _files_without_manifest(journal: Iterable[Mapping[str, Any]], data: Iterable[str]) -> dict[str, str]:
    """Return the steps that the journal names, then those that only left files. A stem is its step's id, encoded."""
    files = {entry["step"]: encode_name(entry["step"]) for entry in journal if isinstance(entry.get("step"), str)}
    known = set(files.values())
    return files | {stem: stem for file_stem in data if (stem := without_attempt(file_stem)) not in known}


def read_events(path: Path, step: str) -> Iterator[Event]:
    """Yield the events of a `.data` file. See `Run.events`."""
    for line in _read(path, _lines):
        yield from events_of_line(line, step, is_whole=line.endswith(b"\n"))


def read_batches(path: Path, step: str, on_read: OnRead | None = None) -> Iterator[StepEvent]:
    """Yield the events of a `.data` file, plain observations in batches. See `Run.batches`."""
    from milabench.events.batch_decoder import decode_lines

    rest = b""
    for piece in _read(path, lambda file: iter(partial(file.read, _PIECE), b"")):
        if on_read is not None:
            on_read(len(piece))
        end = piece.rfind(b"\n") + 1
        if end:
            yield from decode_lines(b"".join((rest, memoryview(piece)[:end])), step)
            rest = piece[end:]
        else:
            rest += piece
        if len(rest) > MAX_LINE:
            rest = CUT_LINE
    yield from events_of_line(rest, step, is_whole=False)


def _read(path: Path, pieces_of: Callable[[BinaryIO], Iterable[bytes]]) -> Iterator[bytes]:
    """Yield the pieces of a file. Nothing when the file is not there."""
    try:
        with open_regular(path) as file:
            yield from pieces_of(file)
    except FileNotFoundError:
        return
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {os_reason(error)}") from None


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file, each with its end. The rest of a line without end is no record."""
    cut = b""
    for line in iter(partial(file.readline, MAX_LINE), b""):
        is_whole = len(line) < MAX_LINE or line.endswith(b"\n")
        if is_whole:
            yield cut + line
        cut = b"" if is_whole else CUT_LINE


def _entries(path: Path) -> Iterator[Mapping[str, object]]:
    from milabench.events.stored_run import parse_entry

    for line in _read(path, _lines):
        try:
            yield parse_entry(line)
        except ValueError:
            continue  # cut off by a crash; the entry after it says where the run was resumed


def read_share_manifest(path: Path) -> Mapping[str, object]:
    """Return the work and the place of a share. Empty while it has not begun."""
    if not path.exists():
        return {}
    from milabench.events.stored_run import ShareManifest

    return _read_manifest(path, ShareManifest, may_be_torn=True)


def _read_manifest(
    path: Path, kind: type, *, may_be_torn: bool, read: ReadManifest = read_alone
) -> Mapping[str, object]:
    """Return the manifest. Empty where a power cut left only its beginning: records have most of its facts."""
    from milabench.events.stored_json import from_json_value

    try:
        content = read_regular(path)
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {os_reason(error)}") from None
    known = read(content)
    try:
        manifest = parse_object(content) if known is None else known
    except ValueError as error:
        if may_be_torn and not content.endswith(b"\n"):
            return {}
        raise RecordError(f"{path}: is not a manifest: {error}") from None
    schema = manifest.get("schema")
    if schema != SCHEMA:
        raise RecordError(
            f"{path}: has schema {schema!r}, and this version reads {SCHEMA}. Use the version that wrote it"
        )
    try:
        if known is None:
            from_json_value(kind, manifest)
    except ValueError as error:
        raise RecordError(f"{path}: was altered: {error}. Get a copy as `milabench run` wrote it") from None
    return manifest
