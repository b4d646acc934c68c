"""Writes a run directory: made exclusively, appended to so that a crash loses nothing that was written before."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from milabench.devices.regular_file import open_descriptor, open_regular
from milabench.errors import RecordError, os_reason
from milabench.events.atomic_write import replace_file
from milabench.events.model import Line
from milabench.events.names import encode_text, run_dir_name
from milabench.events.run_files import MANIFEST, SUMMARY, evidence_name, journal_name, share_manifest_name
from milabench.events.rundir import SCHEMA, read_share_manifest
from milabench.events.shares import steps_and_nodes
from milabench.events.wire import decode, dump, parse_string
from milabench.redaction import mask_data

# A step has three files; a run of hundreds of steps at once must not run into the limit of open files (often 1024).
_OPEN_FILES = 192


def create_run(base: Path, name: str, now: datetime, clock: Callable[[], float] = time.time) -> RunWriter:
    """Return the writer of a new, empty run directory `{base}/runs/{name}.{time}`. A later one of that second gets a suffix.

    Raises RecordError when it cannot be created.
    """
    runs = base / "runs"
    first = run_dir_name(name, now)
    again = 0
    while True:
        path = runs / (f"{first}_{again}" if again else first)
        try:
            runs.mkdir(parents=True, exist_ok=True)
            # Making a folder is atomic, also on NFS: of two runs of one second exactly one gets the name.
            path.mkdir()
        except FileExistsError:
            if not runs.is_dir():
                raise RecordError(f"{runs}: is no folder. Move it away or choose another --base") from None
            again += 1
            continue
        except OSError as error:
            raise RecordError(
                f"{path}: cannot be created: {os_reason(error)}. Choose a --base that is writable"
            ) from None
        return RunWriter(path, clock)


class RunWriter:
    """Appends to a run directory. The only writer of its files.

    Of a `share` of the run it writes the share's own journal, in which each entry names the share and its `job`, and the
    files of its steps. The run's manifest and journal are others' then. Every method may raise OSError (no space, read-only,
    directory gone): earlier entries stay whole, and a later call may succeed.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time, *, share: str = "", job: str = "") -> None:
        self.path = path
        self._clock = clock
        self._journal = journal_name(share)
        self._share = {"share": share, **({"job": job} if job else {})} if share else {}
        self._files: dict[str, _AppendOnly] = {}

    def write_manifest(self, manifest: Mapping[str, object]) -> None:
        """Write `manifest.json` at once and durably. `schema` is added."""
        replace_file(self.path / MANIFEST, dump({"schema": SCHEMA, **_public(manifest)}) + b"\n")

    def write_share_manifest(self, system: Mapping[str, object], steps: Iterable[Mapping[str, object]]) -> None:
        """Write the work and the place of the share, `steps` as `Plan.to_json` has them. The nodes have their real names.

        Entries of an earlier job of the share stay, except for the same steps.
        """
        assert self._share, "only the writer of a share has it"
        path = self.path / share_manifest_name(self._share["share"])
        try:
            before = read_share_manifest(path)
        except RecordError:
            before = {}  # it is replaced
        now = {"system": dict(system), "plan": {"steps": list(steps)}}
        steps_by_id, nodes_by_name = steps_and_nodes((before, now))
        used = {step.get("node") for step in steps_by_id.values()}
        value = {
            **self._share,
            "system": {**system, "nodes": [node for name, node in nodes_by_name.items() if name in used]},
            "plan": {"steps": list(steps_by_id.values())},
        }
        replace_file(path, dump({"schema": SCHEMA, **_public(value)}) + b"\n")

    def write_summary(self, summary: Mapping[str, object]) -> None:
        """Write `summary.json` at once and durably."""
        replace_file(self.path / SUMMARY, dump(_public(summary)) + b"\n")

    def journal(self, entry: Mapping[str, object]) -> None:
        """Append a change of state, durable when this returns. `t` is added when the entry has none."""
        self.journal_all([entry])

    def journal_all(self, entries: Iterable[Mapping[str, object]]) -> None:
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
        for ending, text in texts_of(payload):
            self._file(f"{stem}.{ending}").write(text)

    def write_evidence(self, stem: str, evidence: bytes) -> None:
        """Write the state of a hung step's processes, next to its records. `evidence` is its node's, a line of JSON."""
        replace_file(self.path / evidence_name(stem), evidence)

    def finish(self, stem: str) -> None:
        """Make the records of an ended step durable and close its files. A later append opens them again."""
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


def _public(value: Mapping[str, object]) -> Mapping[str, object]:
    """Return our own text without secrets of this process. Records were masked by the agent that read them."""
    return cast("Mapping[str, Any]", mask_data(value))


class _AppendOnly:
    """A file to which whole pieces are appended. A piece that did not fit leaves nothing behind."""

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


def texts_of(payload: bytes) -> Iterable[tuple[str, bytes]]:
    """Return the text of `line` records by the file it belongs to. In bulk where they are as the agent writes them."""
    tail = _TAIL.search(payload, max(0, len(payload) - 64))
    if tail is not None and payload.startswith(_HEAD):
        text = _BETWEEN[tail[1]].sub(b"", payload[len(_HEAD) : tail.start()])
        try:
            return [(tail[1].decode(), encode_text(parse_string(text)))]
        except ValueError:
            pass  # records of another kind or pipe are among them
    texts: dict[str, list[bytes]] = {}
    for line in payload.split(b"\n"):
        try:
            event = decode(line, "")
        except ValueError:
            continue  # it is in `.data`, whose readers show what they cannot read
        if isinstance(event, Line):
            texts.setdefault("stderr" if event.pipe == "stderr" else "stdout", []).append(encode_text(event.text))
    return [(ending, b"".join(pieces)) for ending, pieces in texts.items()]
