"""The lock of a base folder."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from milabench.errors import EnvironmentFailed
from milabench.execute.locks import BASE_LOCK, hold_base


def test_a_held_folder_is_waited_for_and_its_holder_is_named(tmp_path: Path) -> None:
    order: list[str] = []
    said = threading.Event()

    def second() -> None:
        with hold_base(tmp_path, "prepare", say=lambda text: (order.append(text), said.set())):
            order.append("second")

    with hold_base(tmp_path, "install", say=print):
        thread = threading.Thread(target=second)
        thread.start()
        assert said.wait(30)
        order.append("first")
    thread.join(30)
    assert order[1:] == ["first", "second"]
    assert order[0].startswith(f"{tmp_path} is held by `install` of ")
    assert f"@{socket.gethostname()} (pid {os.getpid()}) since 20" in order[0]
    assert order[0].endswith(". Waiting for it to end")


def test_a_free_lock_names_nobody(tmp_path: Path) -> None:
    with hold_base(tmp_path, "install", say=print):
        assert b"install" in (tmp_path / BASE_LOCK).read_bytes()
    assert (tmp_path / BASE_LOCK).read_bytes() == b""


def test_the_folder_is_made(tmp_path: Path) -> None:
    with hold_base(tmp_path / "new", "install", say=print):
        assert (tmp_path / "new").is_dir()


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(EnvironmentFailed, match="Choose another --base"),
        hold_base(tmp_path / "file" / "base", "install", say=print),
    ):
        pass
