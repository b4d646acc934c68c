"""The lock of a base folder."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from milabench.errors import EnvironmentFailed, Unreachable
from milabench.execute.base_lock import FILE, hold_base


def test_a_held_folder_is_refused_with_its_holder(tmp_path: Path) -> None:
    with (
        hold_base(tmp_path, "install", say=print, clock=lambda: 0.0),
        pytest.raises(Unreachable) as refused,
        hold_base(tmp_path, "prepare", say=print, wait=False),
    ):
        pass
    assert f"{tmp_path} is held by `install` of " in str(refused.value)
    assert f"@{socket.gethostname()} (pid {os.getpid()}) since 19" in str(refused.value)


def test_a_held_folder_is_waited_for_and_it_is_said(tmp_path: Path) -> None:
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
    assert [order[0].endswith("; waiting for it to end"), *order[1:]] == [True, "first", "second"]


def test_a_free_lock_names_nobody(tmp_path: Path) -> None:
    with hold_base(tmp_path, "install", say=print):
        assert b"install" in (tmp_path / FILE).read_bytes()
    assert (tmp_path / FILE).read_bytes() == b""


def test_the_folder_is_made(tmp_path: Path) -> None:
    with hold_base(tmp_path / "new", "install", say=print):
        assert (tmp_path / "new").is_dir()


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(EnvironmentFailed, match="choose another --base"),
        hold_base(tmp_path / "file" / "base", "install", say=print),
    ):
        pass
