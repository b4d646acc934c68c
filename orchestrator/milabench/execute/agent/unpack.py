"""Unpack the agent on another machine, and become it.

The control plane gives this text to a Python there (execute/agent_bootstrap.py), before there is a package to import: it stands
alone. Its arguments: the prefix of each of its lines, so that no other line can be mistaken; the digest of the
files of the agent; an environment entry NAME=value or nothing; the words for the agent.
"""

from __future__ import annotations

import os
import stat
import sys

TYPE_CHECKING = False  # as a type checker knows it, without 5 ms of importing typing
if TYPE_CHECKING:
    from typing import Iterable, Iterator


def say(text: str) -> None:
    """Report our progress to the control plane."""
    os.write(1, ("%s %s\n" % (sys.argv[2], text)).encode("utf-8", "replace"))


def digest_of(files: Iterable[tuple[str, bytes]]) -> str:
    """Return the SHA-256 of files, names and contents, whatever their order."""
    import hashlib

    digest = hashlib.sha256()
    for path, content in sorted(files):
        digest.update(("%s\0%d\0" % (path, len(content))).encode())
        digest.update(content)
    return digest.hexdigest()


def files_below(folder: str) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of every file, but for the byte code that Python keeps next to them. A pipe or a link has none."""
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            path = os.path.join(parent, name)
            content = b""
            if stat.S_ISREG(os.lstat(path).st_mode):
                with open(path, "rb") as file:
                    content = file.read()
            yield os.path.relpath(path, folder), content


def is_private(folder: str) -> bool:
    """Tell whether a folder is ours, and nobody else can write in it."""
    try:
        status = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022


def is_whole(folder: str, digest: str) -> bool:
    """Tell whether a folder holds the agent as it was sent: not altered, and nothing removed by a cleaner of old files."""
    try:
        return is_private(folder) and digest_of(files_below(folder)) == digest
    except OSError:
        return False


def caches() -> list[str]:
    """Return the folders that the agent may be kept in, the best first. A home may be read-only."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    temporary = dict.fromkeys(path for path in (os.environ.get("TMPDIR"), "/tmp") if path)
    return [os.path.join(home, "milabench"), *(os.path.join(path, "milabench-%d" % os.getuid()) for path in temporary)]


def receive() -> bytes:
    """Read the archive: eight bytes with its size, then as many bytes as that."""

    def read(size: int) -> bytes:
        content = b""
        while len(content) < size:
            piece = os.read(0, size - len(content))
            if not piece:
                sys.exit(4)
            content += piece
        return content

    return read(int.from_bytes(read(8), "big"))


def unpack(archive: bytes, folder: str, digest: str) -> None:
    """Unpack next to the folder's place and rename: others see the whole folder or nothing. Raise OSError."""
    import io
    import shutil
    import zipfile

    cache = os.path.dirname(folder)
    os.makedirs(cache, mode=0o700, exist_ok=True)
    if not is_private(cache):
        raise OSError(13, "belongs to somebody else, or others can write in it", cache)
    new = "%s.%s" % (folder, os.urandom(6).hex())  # several machines may share a home
    old = new + ".old"
    try:
        os.mkdir(new, 0o700)
        with zipfile.ZipFile(io.BytesIO(archive)) as file:
            file.extractall(new)
        if digest_of(files_below(new)) != digest:
            raise OSError(5, "the agent arrived altered", new)
        if not is_whole(folder, digest):
            if os.path.lexists(folder):
                os.rename(folder, old)
            try:
                os.rename(new, folder)
            except OSError:
                if not is_whole(folder, digest):  # else another process was faster
                    raise
    finally:
        for path in (new, old):
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path, ignore_errors=True)
            elif os.path.lexists(path):
                os.unlink(path)


def find_or_receive(digest: str) -> str:
    """Return the folder with the agent, which is asked for where no cache has it."""
    folders = [os.path.join(cache, "agent-" + digest[:16]) for cache in caches()]
    for folder in folders:
        if is_private(os.path.dirname(folder)) and is_whole(folder, digest):
            return folder
    say("need")
    archive = receive()
    reasons = []
    for folder in folders:
        try:
            unpack(archive, folder, digest)
            return folder
        except OSError as error:
            reasons.append("%s: %s" % (os.path.dirname(folder), error.strerror or error))
    say("error no place for the agent: " + "; ".join(reasons))
    sys.exit(4)


def main() -> None:
    """Become the agent."""
    digest, entry, words = sys.argv[3], sys.argv[4], sys.argv[5:]
    program = os.path.join(find_or_receive(digest), "milabench", "execute", "agent", "__main__.py")
    if entry:
        name, _, value = entry.partition("=")
        os.environ[name] = value
    say("ready")
    os.execv(sys.executable, [sys.executable, "-u", "-I", "-S", "-X", "utf8", program, *words])


if __name__ == "__main__":
    main()
