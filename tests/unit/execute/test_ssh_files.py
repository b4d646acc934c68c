"""A key or a file of known hosts that is none is said before anything is connected to, whatever the transport."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from milabench.errors import Unreachable
from milabench.execute.remote_host import RemoteHost
from milabench.execute.ssh import Address, require_key_files

WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "folder": (lambda path: path.mkdir(), "is a directory"),
    "pipe": (os.mkfifo, "not a regular file but a named pipe"),
    "zero": (lambda path: path.symlink_to("/dev/zero"), "not a regular file but a device"),
}


@pytest.mark.parametrize("transport", ["asyncssh", "openssh"])
@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("field", ["key", "known_hosts"])
def test_what_is_no_file_of_keys_is_said(tmp_path: Path, transport: str, kind: str, field: str) -> None:
    path = tmp_path / "x"
    make, what = WRONG[kind]
    make(path)
    setting = {"key": "sshkey names the private key", "known_hosts": "known_hosts names a file of host keys"}[field]
    machine = RemoteHost(Address(name="n0", host="127.0.0.1", port=1, transport=transport, **{field: str(path)}))
    with pytest.raises(Unreachable) as caught:
        asyncio.run(machine.connection())
    assert str(caught.value) == f"n0: {path}: {what}. system.{setting}"


def test_known_hosts_that_are_not_kept_or_not_there_yet_are_none_of_it(tmp_path: Path) -> None:
    for known_hosts in ("/dev/null", str(tmp_path / "nowhere")):
        require_key_files(Address(name="n0", host="h", known_hosts=known_hosts))
    with pytest.raises(Unreachable, match=r"no such file\. system\.sshkey names the private key"):
        require_key_files(Address(name="n0", host="h", key=str(tmp_path / "nowhere")))
