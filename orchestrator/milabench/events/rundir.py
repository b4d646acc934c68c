"""A run on disk: made exclusively, appended to so that a crash loses nothing, read wherever it stops."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, cast
from urllib.parse import unquote

from milabench.devices.regular_file import open_descriptor, open_regular, read_regular
from milabench.errors import NothingSelected, RecordError
from milabench.events.atomic_write import replace_file
from milabench.events.model import Data, Event, Line, Other
from milabench.events.names import bytes_of, encoded, stamped
from milabench.events.observation_columns import single_events
from milabench.events.shapes import JOURNAL as JOURNAL_SHAPE
from milabench.events.shapes import MANIFEST as MANIFEST_SHAPE
from milabench.events.shapes import SHARE_MANIFEST, require_shape
from milabench.events.shares import SHARE_NAME, Share, fold_shares, merge_journals, overlaid, share_number
from milabench.events.values import as_mapping, mappings_in
from milabench.events.wire import decode, dump, parse_object, parse_string
from milabench.redaction import mask_data

if TYPE_CHECKING:
    from milabench.events.model import StepEvent

SCHEMA = 1
MANIFEST = "manifest.json"
JOURNAL = "journal.jsonl"
SUMMARY = "summary.json"
MILABENCH13 = "milabench 1.3"
"""The format of a run that was imported from there, in its manifest."""
_OF_A_SHARE = re.compile(rf"(?:manifest\.({SHARE_NAME.pattern})\.json|journal\.({SHARE_NAME.pattern})\.jsonl)")

_STAMP = re.compile(r"\.(?P<time>\d{4}-\d\d-\d\d_\d\d[-:]\d\d[-:]\d\d(?:[.:]\d+)?)(?:_(?P<again>\d+))?$")
_LATEST = re.compile(r"latest(?:~(\d{1,9}))?")
_STEM_PARTS = re.compile(r"(?:\.(?P<tag>D\d+|\d+))?(?:\.R(?P<repeat>\d+))?(?:\.(?P<node>node\d+))?$")
# No name contains a tilde: `encoded` replaces it.
_ATTEMPT = re.compile(r"~(?P<number>\d+)$")

# Bytes that are decoded at a time, some thousands of lines.
_PIECE = 1 << 20

# Bytes of a line; the agent writes a twentieth of that at most. The beginning of a longer one is dropped.
MAX_LINE = 1 << 24
CUT = b"\0"  # stands for the beginning that was dropped: no record begins with it

# A step has three files; a run of hundreds of steps at once must not run into the limit of open files (often 1024).
_OPEN_FILES = 192


class StepIdentity(Protocol):
    """What the name of a step's files is made of; `plan.model.Step` is one.

    `tag` is `D<device>` for an instance on a device, a number for one of n, empty for a job that stands alone.
    """

    @property
    def id(self) -> str: ...
    @property
    def bench(self) -> str: ...
    @property
    def tag(self) -> str: ...
    @property
    def repeat(self) -> int: ...
    @property
    def node(self) -> str: ...


def stem_of(bench: str, *, tag: str = "", repeat: int | None = None, node: int | None = None) -> str:
    """Return the name, less its ending, of the files of one step; `repeat` and `node` are None when the run has only one."""
    parts = [encoded(bench)]
    if tag:
        parts.append(encoded(tag))
    if repeat is not None:
        parts.append(f"R{repeat}")
    if node is not None:
        parts.append(f"node{node}")
    return ".".join(parts)


def stems(steps: Iterable[StepIdentity]) -> dict[str, str]:
    """Return `{step id: stem}` for all the steps of one run: distinct, the nodes numbered in the order of their first step."""
    steps = tuple(steps)
    nodes = {name: number for number, name in enumerate(dict.fromkeys(step.node for step in steps))}
    repeated = {step.bench for step in steps if step.repeat}
    stem_of_step: dict[str, str] = {}
    taken: set[str] = set()
    for step in steps:
        repeat = step.repeat if step.bench in repeated else None
        node = nodes[step.node] if len(nodes) > 1 else None
        stem = base = stem_of(step.bench, tag=step.tag, repeat=repeat, node=node)
        again = 1
        while stem.lower() in taken:  # some file systems ignore case
            stem, again = f"{base}_{again}", again + 1
        taken.add(stem.lower())
        stem_of_step[step.id] = stem
    return stem_of_step


def attempt_stem(stem: str, attempt: int) -> str:
    """Return the name, less its ending, of the files of one attempt at a step: `digits.D0`, the second one `digits.D0~2`."""
    return stem if attempt <= 1 else f"{stem}~{attempt}"


def journal_name(share: str = "") -> str:
    """Return the name of the journal of a share; of the orchestrators' without one."""
    return f"journal.{share}.jsonl" if share else JOURNAL


def share_manifest_name(share: str) -> str:
    """Return the name of the file that says what a share does, and where."""
    return f"manifest.{share}.json"


def is_journal_or_manifest(name: str) -> bool:
    """Return whether this is the name of a manifest or a journal, of a run or of one of its shares."""
    return name in (MANIFEST, JOURNAL) or _OF_A_SHARE.fullmatch(name) is not None


def _shares_named(names: Iterable[str]) -> list[str]:
    """Return the shares that have a journal or a manifest, in order."""
    matches = (_OF_A_SHARE.fullmatch(name) for name in names)
    return sorted({match[1] or match[2] for match in matches if match is not None}, key=share_number)


# ------------------------------------------------------------------------------------------------------------- writing


def create_run(base: Path, name: str, now: datetime, clock: Callable[[], float] = time.time) -> RunWriter:
    """Return the writer of a new, empty run directory `{base}/runs/{name}.{time}`; a second one of that second gets a suffix.

    Raises RecordError when it cannot be created.
    """
    runs = base / "runs"
    stamp = stamped(name, now)
    again = 0
    while True:
        path = runs / (f"{stamp}_{again}" if again else stamp)
        try:
            runs.mkdir(parents=True, exist_ok=True)
            # Making a folder is atomic, also on NFS: of two runs of one second exactly one gets the name.
            path.mkdir()
        except FileExistsError:
            if not runs.is_dir():
                raise RecordError(f"{runs}: is no folder; move it away or choose another --base") from None
            again += 1
            continue
        except OSError as error:
            raise RecordError(
                f"{path}: cannot be created: {os_reason(error)}; choose a --base that is writable"
            ) from None
        return RunWriter(path, clock)


class RunWriter:
    """Appends to one run directory; the only writer of its files.

    Of a `share` of the run it writes the share's own journal, in which each entry names the share and its `job`, and the
    files of its steps; the run's manifest and journal are others' then. Every method may raise OSError (no space, read-only,
    directory gone): what was written before stays whole, and a later call may succeed.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time, *, share: str = "", job: str = "") -> None:
        self.path = path
        self._clock = clock
        self._journal = journal_name(share)
        self._share = {"share": share, **({"job": job} if job else {})} if share else {}
        self._files: dict[str, _AppendOnly] = {}

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Write `manifest.json` at once and durably; `schema` is added."""
        replace_file(self.path / MANIFEST, dump({"schema": SCHEMA, **_public(manifest)}) + b"\n")

    def write_share_manifest(self, system: Mapping[str, Any], steps: Iterable[Mapping[str, Any]]) -> None:
        """Write what the share does and where, `steps` as `Plan.to_json` has them; the nodes have their real names.

        What an earlier job of the share did stays, but for the same steps.
        """
        assert self._share, "only the writer of a share has one"
        path = self.path / share_manifest_name(self._share["share"])
        try:
            before = _read_manifest(path, SHARE_MANIFEST, may_be_torn=True) if path.exists() else {}
        except RecordError:
            before = {}  # it is replaced
        now = {"system": dict(system), "plan": {"steps": list(steps)}}
        steps_by_id, nodes_by_name = dict[str, Any](), dict[str, Any]()
        for each in (before, now):
            steps_by_id |= {
                str(step.get("id")): step for step in mappings_in(as_mapping(each.get("plan")).get("steps"))
            }
            nodes = mappings_in(as_mapping(each.get("system")).get("nodes"))
            nodes_by_name |= {str(node.get("name")): node for node in nodes}
        used = {step.get("node") for step in steps_by_id.values()}
        value = {
            **self._share,
            "system": {**system, "nodes": [node for name, node in nodes_by_name.items() if name in used]},
            "plan": {"steps": list(steps_by_id.values())},
        }
        replace_file(path, dump({"schema": SCHEMA, **_public(value)}) + b"\n")

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write `summary.json` at once and durably."""
        replace_file(self.path / SUMMARY, dump(_public(summary)) + b"\n")

    def journal(self, entry: Mapping[str, Any]) -> None:
        """Append one change of state, durable when this returns; `t` is added when the entry has none."""
        self.journal_all([entry])

    def journal_all(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """Append many changes of state, durable together when this returns."""
        now = self._clock()
        file = self._file(self._journal)
        file.write(b"".join(dump({"t": now, **_public(entry), **self._share}) + b"\n" for entry in entries))
        file.sync()

    def append(self, stem: str, payload: bytes) -> None:
        """Append whole records, each with its line end, to `{stem}.data`."""
        self._file(f"{stem}.data").write(payload)

    def append_lines(self, stem: str, payload: bytes) -> None:
        """Append `line` records to `{stem}.data`, and the text that they hold to `{stem}.stdout` or `{stem}.stderr`."""
        self.append(stem, payload)
        for ending, text in _texts_of(payload):
            self._file(f"{stem}.{ending}").write(text)

    def finish(self, stem: str) -> None:
        """Make the records of an ended step durable and close its files; a later append opens them again."""
        for ending in ("data", "stdout", "stderr"):
            file = self._files.pop(f"{stem}.{ending}", None)
            if file is not None:
                try:
                    file.sync()
                finally:
                    file.close()

    def close(self) -> None:
        """Close every file."""
        while self._files:
            self._files.popitem()[1].close()

    def _file(self, name: str) -> _AppendOnly:
        # Taken out and put back at the end: the order of the dictionary is that of use.
        file = self._files.pop(name, None)
        if file is None:
            while len(self._files) >= _OPEN_FILES:
                oldest = next(iter(self._files))
                self._files.pop(oldest).close()
            file = _AppendOnly(self.path / name)
        self._files[name] = file  # last: the one used most recently
        return file


def _public(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what may be written of our own: no secret of this process. Records were masked by the agent that read them."""
    return cast("Mapping[str, Any]", mask_data(value))


class _AppendOnly:
    """One file to which whole pieces are appended; a piece that did not fit leaves nothing behind."""

    def __init__(self, path: Path) -> None:
        self._fd = open_descriptor(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            self._size = os.fstat(self._fd).st_size
            # What a crash cut off stays as evidence, on a line of its own.
            self._torn = self._size > 0 and not _ends_a_line(path, self._size)
        except OSError:
            os.close(self._fd)
            raise

    def write(self, piece: bytes) -> None:
        if not piece:
            return
        if self._torn:
            piece = b"\n" + piece
        rest = memoryview(piece)
        try:
            while rest:
                # A write may be short (signal, quota); only what is left is tried again.
                rest = rest[os.write(self._fd, rest) :]
        except OSError:
            if len(rest) < len(piece):
                # Half a record would swallow the next one: what was there before is put back.
                self._take_back()
            raise
        self._torn = False
        self._size += len(piece)

    def _take_back(self) -> None:
        try:
            os.ftruncate(self._fd, self._size)
        except OSError:
            self._torn = True
            self._size = os.fstat(self._fd).st_size

    def sync(self) -> None:
        os.fsync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


def _ends_a_line(path: Path, size: int) -> bool:
    if path.suffix in (".stdout", ".stderr"):
        return True  # text, not records: any end is a good end
    with open_regular(path) as file:
        file.seek(size - 1)
        return file.read(1) == b"\n"


# The end of a line's record and the head of the next one, as the agent writes them.
_HEAD = b'{"event":"line","data":"'
_TAIL = re.compile(rb'","pipe":"(stdout|stderr)","t":[0-9.]+\}\n\Z')
_BETWEEN = {
    pipe: re.compile(b'","pipe":"' + pipe + rb'","t":[0-9.]+\}\n' + re.escape(_HEAD)) for pipe in (b"stdout", b"stderr")
}


def _texts_of(payload: bytes) -> Iterable[tuple[str, bytes]]:
    """Return the text of `line` records by the file it belongs to; in bulk where they are as the agent writes them."""
    tail = _TAIL.search(payload, max(0, len(payload) - 64))
    if tail is not None and payload.startswith(_HEAD):
        text = _BETWEEN[tail[1]].sub(b"", payload[len(_HEAD) : tail.start()])
        try:
            return [(tail[1].decode(), bytes_of(parse_string(text)))]
        except ValueError:
            pass  # records of another kind or pipe are among them
    texts: dict[str, list[bytes]] = {}
    for line in payload.split(b"\n"):
        try:
            event = decode(line, "")
        except ValueError:
            continue  # it is in `.data`, whose readers show what they cannot read
        if isinstance(event, Line):
            texts.setdefault("stderr" if event.pipe == "stderr" else "stdout", []).append(bytes_of(event.text))
    return [(ending, b"".join(pieces)) for ending, pieces in texts.items()]


# ------------------------------------------------------------------------------------------------------------- reading


OnRead = Callable[[int], object]
"""Takes how many bytes are about to be decoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run directory as it stands; its records are read when asked for.

    `manifest` is empty for a run of milabench 1.3, and for one that a crash left without it. `files` maps
    step ids to file stems; without a manifest the stems themselves are the ids. Of a run with shares, `journal` has the
    entries of all journals, and `manifest` the steps and nodes as the shares carried them out; `as_planned` is what the
    manifest's file says. `on_read` observes every piece of records that is read in batches.
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
        """install, prepare or run; guessed from the directory's name where no manifest says it."""
        phase = self.manifest.get("phase")
        if isinstance(phase, str):
            return phase
        first = self.path.name.split(".", 1)[0]
        return first if first in ("install", "prepare") else "run"

    @property
    def is_of_milabench13(self) -> bool:
        """Whether its records are those of milabench 1.3, as that left them or imported."""
        if self.manifest:
            return as_mapping(self.manifest.get("imported")).get("format") == MILABENCH13
        return not self.journal

    @property
    def transitions(self) -> tuple[Mapping[str, Any], ...]:
        """The beginnings and ends of the run's orchestrators, not those of its shares' processes."""
        return tuple(
            entry for entry in self.journal if entry.get("run") in ("started", "ended") and "share" not in entry
        )

    @property
    def is_ended(self) -> bool:
        """Whether the last orchestrator of this run came to its end; true for a run without a journal, which cannot say.

        One with shares has ended when all of their jobs have, whether an orchestrator watched them or not.
        """
        if self.shares:
            return all(share.is_ended for share in self.shares.values())
        return not self.journal or [entry["run"] for entry in self.transitions[-1:]] == ["ended"]

    @property
    def verdict(self) -> str:
        """What the last orchestrator said at its end, empty when it said nothing; see `is_ended`.

        Of a run whose jobs ended while nobody watched, what follows from its steps.
        """
        last = self.transitions[-1] if self.transitions else {}
        if last.get("run") == "ended" and (self.is_ended or not self.shares):
            return str(last.get("verdict") or "")
        if not self.shares or not self.is_ended:
            return ""
        ends = [tried and tried.outcome for share in self.shares.values() for tried in share.attempts.values()]
        return "passed" if all(end in ("passed", "skipped") for end in ends) else "failed"

    def events(self, step: str, attempt: int = 1) -> Iterator[Event]:
        """Return the events of one attempt at a step as they were written; none when it never started.

        What cannot be read becomes an `Other` of the kind `format_error`, but for a last line that is incomplete. Raises
        RecordError when the file cannot be opened.
        """
        return read_events(self.path / f"{self.stem(step, attempt)}.data", step)

    def batches(self, step: str, attempt: int = 1) -> Iterator[StepEvent]:
        """Return the same events, plain observations many at a time: what to read a run of millions by."""
        return read_batches(self.path / f"{self.stem(step, attempt)}.data", step, self.on_read)

    def stem(self, step: str, attempt: int = 1) -> str:
        """Return the name, less its ending, of the files of one attempt at a step."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class StemParts:
    """What the name of a step's files says; how a run without a manifest is understood."""

    bench: str
    tag: str = ""
    repeat: int = 0
    node: str = ""


def parse_stem(stem: str) -> StemParts:
    """Return the parts of a stem; everything that is not a known suffix belongs to the benchmark's name."""
    match = _STEM_PARTS.search(stem)
    assert match is not None  # every part is optional
    bench = unquote(stem[: match.start()]) or stem
    return StemParts(bench=bench, tag=match["tag"] or "", repeat=int(match["repeat"] or 0), node=match["node"] or "")


ReadManifest = Callable[[bytes], Mapping[str, Any] | None]
"""Returns the manifest that these bytes are, known to have its shape; None where that is not known."""


def read_alone(_: bytes) -> None:
    """Know no manifest: the reader of runs of which each is read for itself."""


def open_run(path: Path, read_manifest: ReadManifest = read_alone) -> Run:
    """Return the run at `path`; raises RecordError when it is none, is of a version that we do not know, or cannot be read."""
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
        manifest = _read_manifest(path / MANIFEST, MANIFEST_SHAPE, may_be_torn=is_one, read=read_manifest)
    shares = _shares_named(names)
    journal = merge_journals(_entries(path / JOURNAL), (_entries(path / journal_name(share)) for share in shares))
    manifests = [_read_share_manifest(path / share_manifest_name(share)) for share in shares]
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
    """Return the steps that the journal names, then those that only left files; a stem is its step's id, encoded."""
    files = {entry["step"]: encoded(entry["step"]) for entry in journal if isinstance(entry.get("step"), str)}
    known = set(files.values())
    return files | {stem: stem for file_stem in data if (stem := _ATTEMPT.sub("", file_stem)) not in known}


def latest_run(base: Path, phase: str = "run") -> Run:
    """Return the newest run of one phase below `base`; raises NothingSelected when there is none."""
    for run in recent_runs(base, phase):
        return run
    raise NothingSelected(
        f"{base / 'runs'}: no {phase} recorded here; `milabench {phase}` makes one, --base names another place"
    )


def recent_runs(base: Path, phase: str = "run") -> Iterator[Run]:
    """Yield the runs of one phase below `base`, the newest first; each is read when it is asked for."""
    for path in reversed(_run_folders(base)):
        try:
            run = open_run(path)
        except RecordError:
            continue  # another folder, or a run that crashed before its manifest
        if run.phase == phase:
            yield run


def place_of_latest(word: str) -> int | None:
    """Return 0 for `latest`, N for `latest~N`, the run N before it; None for another word."""
    match = _LATEST.fullmatch(word)
    return None if match is None else int(match[1] or 0)


def find_run(base: Path, name: str | Path, read_manifest: ReadManifest = read_alone) -> Run:
    """Return the run at a path, the newest below `base` with this name or directory name, or that of `latest`, `latest~1`.

    In a path to `runs` of any base, the run's name will do too.

    Raises NothingSelected when there is none, RecordError when there is one that cannot be read.
    """
    path = Path(name)
    is_path = path.is_absolute() or len(path.parts) > 1
    if is_path and path.is_dir():
        return open_run(path, read_manifest)
    folders = _run_folders(base)
    wanted = str(name)
    if (named := _newest_called(wanted, folders)) is not None:
        return open_run(named, read_manifest)
    place = place_of_latest(wanted)
    if place is not None and (run := next(islice(recent_runs(base), place, None), None)) is not None:
        return run
    if path.is_dir():  # a bare word is tried as a run's name first: the checkout has folders called run, docs, config
        return open_run(path, read_manifest)
    if path.suffix == ".zip" and path.is_file():
        raise RecordError(f"{path}: is no run directory; unpack the bundle to a folder, and name that as the --base")
    if is_path:
        if path.parent.name == "runs" and (named := _newest_called(path.name, _run_folders(path.parent.parent))):
            return open_run(named, read_manifest)
        raise RecordError(f"{path}: no such run directory")
    known = ", ".join(folder.name for folder in folders[-3:])
    raise NothingSelected(
        f"no run is called '{wanted}' below {base / 'runs'}" + (f"; the latest are {known}" if known else "")
    )


def _newest_called(wanted: str, folders: Sequence[Path]) -> Path | None:
    """Return the last of the folders, oldest first, with this name: that of the folder, or that which the run was given."""
    for folder in reversed(folders):
        given = _STAMP.sub("", folder.name)
        if wanted in (folder.name, given, unquote(given, errors="surrogateescape")):
            return folder
    return None


def read_events(path: Path, step: str) -> Iterator[Event]:
    """Yield the events of one `.data` file; see `Run.events`."""
    for line in _read(path, _lines):
        try:
            event = decode(line, step)
        except ValueError:
            if line.endswith(b"\n") and line.strip():
                yield Other(step=step, event="format_error", data=line.decode("utf-8", "backslashreplace"))
            continue
        if isinstance(event, Data):
            yield from single_events(event)
        else:
            yield event


def read_batches(path: Path, step: str, on_read: OnRead | None = None) -> Iterator[StepEvent]:
    """Yield the events of one `.data` file, plain observations in batches; see `Run.batches`."""
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
            rest = CUT
    if rest:
        with contextlib.suppress(ValueError):  # a last line that is incomplete
            event = decode(rest, step)
            yield from single_events(event) if isinstance(event, Data) else (event,)


def os_reason(error: OSError) -> str:
    """Return what the system says, as a clause: lower case, no number."""
    text = error.strerror or str(error)
    return text[:1].lower() + text[1:]


def _read(path: Path, pieces_of: Callable[[BinaryIO], Iterable[bytes]]) -> Iterator[bytes]:
    """Yield the pieces of a file; nothing when the file is not there."""
    try:
        with open_regular(path) as file:
            yield from pieces_of(file)
    except FileNotFoundError:
        return
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {os_reason(error)}") from None


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file, each with its end; what is left of one without end in sight is no record."""
    cut = b""
    for line in iter(partial(file.readline, MAX_LINE), b""):
        is_whole = len(line) < MAX_LINE or line.endswith(b"\n")
        if is_whole:
            yield cut + line
        cut = b"" if is_whole else CUT


def parse_entry(line: bytes) -> Mapping[str, Any]:
    """Return the entry on one line of a journal. Raises ValueError for one that is torn, or is none."""
    entry = parse_object(line)
    require_shape(entry, JOURNAL_SHAPE)
    return entry


def _entries(path: Path) -> Iterator[Mapping[str, Any]]:
    for line in _read(path, _lines):
        try:
            yield parse_entry(line)
        except ValueError:
            continue  # cut off by a crash; the entry after it says where the run was resumed


def _read_share_manifest(path: Path) -> Mapping[str, Any]:
    """Return what a share does, and where; empty while it has not begun."""
    return _read_manifest(path, SHARE_MANIFEST, may_be_torn=True) if path.exists() else {}


def _read_manifest(
    path: Path, shape: Mapping[str, Any], *, may_be_torn: bool, read: ReadManifest = read_alone
) -> Mapping[str, Any]:
    """Return the manifest; empty where a power cut left only the beginning of it beside records that tell most of the same."""
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
            f"{path}: has schema {schema!r}, and this version reads {SCHEMA}; use the version that wrote it"
        )
    try:
        if known is None:
            require_shape(manifest, shape)
    except ValueError as error:
        raise RecordError(f"{path}: was altered: {error}; get a copy as `milabench run` wrote it") from None
    return manifest


def _run_folders(base: Path) -> list[Path]:
    """Return the folders below `base/runs`, oldest first by the time in their names."""
    try:
        folders = [path for path in (base / "runs").iterdir() if path.is_dir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RecordError(f"{base / 'runs'}: cannot be read: {os_reason(error)}") from None

    def age(path: Path) -> tuple[str, int, str]:
        match = _STAMP.search(path.name)
        return (match["time"].replace(":", "-"), int(match["again"] or 0), path.name) if match else ("", 0, path.name)

    return sorted(folders, key=age)
