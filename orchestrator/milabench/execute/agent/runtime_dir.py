"""The private folder of an agent, for sinks and rings."""

from __future__ import annotations

import fcntl
import glob
import json
import os
import shutil
from typing import List

LOCK_FILE = "agent.json"


def make_runtime_dir(run_id: str) -> str:
    """Return a new folder for sinks and rings that only we can enter.

    In memory where possible: a ring's page on a disk is write-protected while it is written back, which stalls its
    writer. A short path: a socket's may have 107 bytes. The file in it is locked as long as we live, so that others
    see which folders may be removed.
    """
    for candidate in runtime_dir_candidates():
        try:
            space = os.statvfs(candidate)
            if len(candidate) > 60 or space.f_bavail * space.f_frsize < 1 << 25:
                continue
            folder = os.path.join(candidate, "milabench-" + os.urandom(6).hex())
            os.mkdir(folder, 0o700)
            lock = os.open(os.path.join(folder, LOCK_FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.write(lock, json.dumps({"run": run_id, "pid": os.getpid()}).encode())
            return folder
        except OSError:
            continue
    raise SystemExit("no folder for sockets: none of %s can be written" % ", ".join(runtime_dir_candidates()))


def runtime_dir_candidates() -> List[str]:
    """Return where agents make their folders, the best first."""
    candidates = [os.environ.get("XDG_RUNTIME_DIR", ""), "/dev/shm", os.environ.get("TMPDIR", ""), "/tmp"]
    return [
        candidate for number, candidate in enumerate(candidates) if candidate and candidate not in candidates[:number]
    ]


def remove_dead_runtime_dirs() -> None:
    """Remove the folders of our user's agents that were killed."""
    for candidate in runtime_dir_candidates():
        for path in glob.glob(os.path.join(glob.escape(candidate), "milabench-*", LOCK_FILE)):
            try:
                lock = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            except OSError:
                continue
            try:
                is_written = os.fstat(lock).st_size > 0  # else its owner is just about to lock it
                if is_written and os.fstat(lock).st_uid == os.getuid():
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(os.path.dirname(path), ignore_errors=True)
            except OSError:
                pass  # its owner lives
            finally:
                os.close(lock)
