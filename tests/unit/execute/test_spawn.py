"""What a program whose time is measured finds when it starts: what one that is forked finds."""

from __future__ import annotations

import gc
import os
import resource
import signal
from pathlib import Path

import pytest

from milabench.execute.agent.spawn import spawn

PROGRAM = """#!/bin/sh
pwd -P; echo "$MARK"; ulimit -n; cut -d' ' -f6 /proc/$$/stat; echo $$; grep SigIgn /proc/$$/status; readlink /proc/$$/fd/0
echo "descriptors" /proc/$$/fd/*
echo failed >&2
exit 3
"""


def text_of(fd: int) -> str:
    with os.fdopen(fd, encoding="utf-8") as file:
        return file.read()


def test_it_has_its_own_folder_environment_limits_session_and_descriptors(tmp_path: Path) -> None:
    program = tmp_path / "programs" / "program"
    program.parent.mkdir()
    program.write_text(PROGRAM)
    program.chmod(0o755)
    kept, hidden = os.pipe()
    before = (Path.cwd(), resource.getrlimit(resource.RLIMIT_NOFILE))
    env = {"PATH": f"nowhere:{os.environ['PATH']}:programs", "MARK": "mine"}  # relative: to its own folder
    most = hidden + 100
    spawned = spawn(["program"], str(tmp_path), env, [kept], (most, before[1][1]))
    assert spawned is not None
    pid, output, errors, _ = spawned
    assert (Path.cwd(), resource.getrlimit(resource.RLIMIT_NOFILE), os.get_inheritable(kept)) == (*before, False)
    folder, mark, limit, session, own, ignored, entry, descriptors = text_of(output).splitlines()
    assert (folder, mark, limit, session) == (str(tmp_path.resolve()), "mine", str(most), own)
    own_ignored = sum(1 << number - 1 for number in (signal.SIGPIPE, signal.SIGXFSZ))  # by Python
    assert (own, int(ignored.split()[1], 16) & own_ignored, entry) == (str(pid), 0, "/dev/null")
    seen = {int(path.rpartition("/")[2]) for path in descriptors.split()[1:]}
    assert kept in seen
    assert hidden not in seen
    assert text_of(errors) == "failed\n"
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    os.close(kept)
    os.close(hidden)


def test_what_cannot_be_started_leaves_no_descriptor(tmp_path: Path) -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    gc.collect()  # closes what earlier tests left to it
    limits, before = resource.getrlimit(resource.RLIMIT_NOFILE), open_files()
    assert spawn(["no-such-program"], None, dict(os.environ), [], limits) is None
    assert spawn(["/bin/true"], None, {}, [], (3, limits[1])) is None  # fewer than are open here
    with pytest.raises(PermissionError):
        spawn([str(tmp_path)], None, {}, [], limits)
    with pytest.raises(FileNotFoundError):
        spawn(["/bin/true"], str(tmp_path / "nowhere"), {}, [], limits)
    assert open_files() == before
