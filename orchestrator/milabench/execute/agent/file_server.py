"""Answers about files, and takes folders that a sender has."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import stat

from .host_facts import host_facts
from .protocol import format_oserror

TYPE_CHECKING = False  # see unpack.py
if TYPE_CHECKING:
    from typing import Any, Iterator

SILENCE_S = 60.0  # of a sender within a file; beyond, it is gone, and others may wait for the folder


def new_digest(content: bytes = b"") -> Any:
    """Return a SHA-256 of these bytes, to which more may be added."""
    import hashlib  # only needed for files and folders

    return hashlib.sha256(content)


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """Hold the lock of a folder. A second control plane's file server waits here until the first has taken it.

    Where a file system has no such locks (NFS of directories) it is not held.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def silence_ends(after_s: float, what: str) -> Iterator[None]:
    """Raise ValueError when the main thread waits so long in this context: of a sender that is gone, nobody tells."""

    def give_up(*_: object) -> None:
        raise ValueError("%s for %g s" % (what, after_s))

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, after_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class FileServer:
    """Answers about files, and takes folders that a sender has. A request and its answer are a line each.

    Files are named by paths below a root, so that nothing else can be written. The received part of a file is kept when the
    connection is lost, and the next time only the rest is asked for.
    """

    PARTS = ".milabench-parts"

    def __init__(self, source: Any) -> None:
        self._source = source

    def serve(self) -> int:
        """Work until the end of its input."""
        for line in iter(self._source.readline, b""):
            try:
                request = json.loads(line.decode())
                answer = getattr(self, "do_" + request["do"])(request)
            except OSError as error:
                answer = {"ok": False, "error": format_oserror(error), "errno": error.errno}
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                answer = {"ok": False, "error": "%s: %s" % (type(error).__name__, error)}
            self._send_answer(dict({"ok": True}, **answer))
            if not answer.get("ok", True):
                return 1  # the data already on its way cannot be distinguished from the next request
        return 0

    def _send_answer(self, answer: dict[str, Any]) -> None:
        data = json.dumps(answer).encode() + b"\n"
        while data:
            data = data[os.write(1, data) :]

    def do_facts(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the facts of this machine."""
        return {"facts": host_facts(request.get("disks") or [])}

    def do_mark(self, request: dict[str, Any]) -> dict[str, Any]:
        """Make an empty file, with the folders above it."""
        os.makedirs(os.path.dirname(request["path"]), exist_ok=True)
        with open(request["path"], "ab"):
            return {}

    def do_look(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return which of these paths exist."""
        return {"found": [os.path.exists(path) for path in request["paths"]]}

    def do_forget(self, request: dict[str, Any]) -> dict[str, Any]:
        """Remove files."""
        for path in request["paths"]:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        return {}

    def do_link(self, request: dict[str, Any]) -> dict[str, Any]:
        """Make a symbolic link. An older link is replaced in one step."""
        new = "%s.%d" % (request["path"], os.getpid())
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new)  # of a process with our pid that was killed between the next two lines
        os.symlink(request["target"], new)
        os.replace(new, request["path"])
        return {}

    def do_take(self, request: dict[str, Any]) -> dict[str, Any]:
        """Make a folder like the sender's: `entries` are its links, folders and files. Missing ones are sent.

        `[path, "d", mode]`, `[path, "l", target]`, `[path, "f", mode, size, mtime_ns, sha256 or ""]`. Without a digest, a
        file with the same size and time is the same. Other entries are removed, unless they are to be kept.
        """
        os.makedirs(request["root"], exist_ok=True)
        with locked(request["root"]):
            return self._take(request["root"], request)

    def _take(self, root: str, request: dict[str, Any]) -> dict[str, Any]:
        entries = request["entries"]
        for entry in entries:
            if entry[0].startswith("/") or ".." in entry[0].split("/"):
                raise ValueError("%s leads out of the folder" % entry[0])
        files = [entry for entry in entries if entry[1] == "f"]
        for path, kind, *about in entries:
            self._prepare(os.path.join(root, path), kind, about)
        need = [(number, entry) for number, entry in enumerate(files) if not self._has(root, entry)]
        offsets = [self._offset(self._part(root, entry), entry[3]) for _, entry in need]
        self._send_answer({"ok": True, "need": [[number, at] for (number, _), at in zip(need, offsets)]})
        for (_, entry), offset in zip(need, offsets):
            try:
                self._take_file(root, entry, offset)
            except OSError as error:
                error.filename = error.filename or os.path.join(root, entry[0])  # a write says none
                raise
        if not request.get("keep"):
            self._remove_others(root, {entry[0] for entry in entries})
        shutil.rmtree(os.path.join(root, self.PARTS), ignore_errors=True)
        return {}

    def _prepare(self, path: str, kind: str, about: list[Any]) -> None:
        is_link = os.path.islink(path)
        if kind == "f" and (is_link or os.path.isdir(path)):
            self._remove(path)
        elif kind == "d":
            if is_link or not os.path.isdir(path):
                self._remove(path)
                os.mkdir(path)
            os.chmod(path, about[0] | 0o700)
        elif kind == "l" and not (is_link and os.readlink(path) == about[0]):
            self._remove(path)
            os.symlink(about[0], path)

    @staticmethod
    def _remove(path: str) -> None:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):
            os.unlink(path)

    def _has(self, root: str, entry: list[Any]) -> bool:
        path, _, mode, size, mtime_ns, digest = entry
        path = os.path.join(root, path)
        try:
            status = os.lstat(path)
        except OSError:
            return False
        if not stat.S_ISREG(status.st_mode) or status.st_size != size:
            return False
        same = bool(self._digest_of(path).hexdigest() == digest if digest else status.st_mtime_ns == mtime_ns)
        if same and stat.S_IMODE(status.st_mode) != mode:
            os.chmod(path, mode)
        return same

    @staticmethod
    def _digest_of(path: str) -> Any:
        digest = new_digest()
        with open(path, "rb") as file:
            for piece in iter(lambda: file.read(1 << 20), b""):
                digest.update(piece)
        return digest

    def _part(self, root: str, entry: list[Any]) -> str:
        name = new_digest(json.dumps([entry[0], entry[3], entry[4], entry[5]]).encode()).hexdigest()[:24]
        return os.path.join(root, self.PARTS, name)

    @staticmethod
    def _offset(part: str, size: int) -> int:
        try:
            have = os.stat(part).st_size
        except OSError:
            return 0
        return have if have <= size else 0

    def _take_file(self, root: str, entry: list[Any], offset: int) -> None:
        path, _, mode, size, mtime_ns, _ = entry
        part = self._part(root, entry)
        os.makedirs(os.path.dirname(part), exist_ok=True)
        digest = self._digest_of(part) if offset else new_digest()
        with open(part, "r+b" if offset else "wb") as file:
            file.seek(offset)
            left = size - offset
            while left:
                with silence_ends(SILENCE_S, "nothing more came of %s" % path):
                    piece = self._source.read1(min(left, 1 << 20))
                if not piece:
                    raise ValueError("the sender stopped in the middle of %s" % path)
                file.write(piece)
                digest.update(piece)
                left -= len(piece)
            file.truncate()
        if self._source.read(32) != digest.digest():
            os.unlink(part)
            raise ValueError("%s arrived altered. Try again" % path)
        os.chmod(part, mode)
        os.utime(part, ns=(mtime_ns, mtime_ns))
        # Mode and time first: what has its name is whole, and is not sent again.
        os.replace(part, os.path.join(root, path))

    def _remove_others(self, root: str, wanted: set[str]) -> None:
        for folder, folders, files in os.walk(root, topdown=True):
            below = os.path.relpath(folder, root)
            for name in [*folders, *files]:
                path = name if below == "." else "%s/%s" % (below, name)
                if path not in wanted and name != self.PARTS and "__pycache__" not in path.split("/"):
                    self._remove(os.path.join(root, path))
            folders[:] = [name for name in folders if name != self.PARTS and os.path.isdir(os.path.join(folder, name))]
