"""Who holds a run directory, as its lock file and its journal tell."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from milabench.errors import Unreachable
from milabench.execute.heartbeat import FRESH_S, beating
from milabench.execute.locks import (
    RUN_LOCK,
    hold_run,
    hold_share,
    holder_of,
    orchestrator_of,
    share_beat,
    share_holder,
    share_lock,
    this_orchestrator,
)


@pytest.mark.parametrize("detached", [False, True])
def test_what_is_written_is_read_back(detached: bool) -> None:
    who = this_orchestrator("marker", detached=detached)
    assert orchestrator_of(who.to_json()) == who


def test_one_of_before_there_were_detached_ones_was_attached() -> None:
    who = this_orchestrator("marker")
    entry = {name: value for name, value in who.to_json().items() if name != "detached"}
    assert orchestrator_of(entry) == who
    assert orchestrator_of({**entry, "detached": "yes"}) == who


def test_only_a_detached_one_is_called_so() -> None:
    who = this_orchestrator("marker")
    assert "detached" not in str(who)
    assert f"(pid {who.pid}, detached)" in str(replace(who, detached=True))


def test_who_let_go_of_a_run_holds_it_no_more_although_it_lives(tmp_path: Path) -> None:
    who = this_orchestrator("marker")
    with hold_run(tmp_path, who):
        assert holder_of(tmp_path) == who
    assert holder_of(tmp_path) is None
    with pytest.raises(ZeroDivisionError), hold_run(tmp_path, who):
        raise ZeroDivisionError
    assert holder_of(tmp_path) is None


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", "3", '"x"', "{}", "[" * 4000, '{"pid": 1}'),
        json.dumps({**this_orchestrator("m").to_json(), "pid": [1]}),
        json.dumps({**this_orchestrator("m").to_json(), "since": 10**400}),
        json.dumps({**this_orchestrator("m").to_json(), "host": {"a": 1}}),
    ],
)
def test_a_lock_file_of_another_kind_names_nobody(tmp_path: Path, content: str) -> None:
    (tmp_path / RUN_LOCK).write_text(content)
    assert holder_of(tmp_path) is None


def test_a_time_that_no_calendar_has_is_an_unknown_one() -> None:
    assert str(replace(this_orchestrator("m"), since=1e40)).endswith(" since an unknown time")


def test_a_share_is_held_by_one_process_which_beats_meanwhile(tmp_path: Path) -> None:
    who = this_orchestrator("marker")
    with hold_share(tmp_path, "s1", who):
        assert share_holder(tmp_path, "s1") == who
        assert share_holder(tmp_path, "s2") is None
        assert (tmp_path / share_beat("s1")).exists()
        with hold_share(tmp_path, "s2", who):
            pass
        with pytest.raises(Unreachable, match=rf"share s1 is carried out already, by .*\(pid {os.getpid()}\)"):
            hold_share(tmp_path, "s1", who).__enter__()
    assert share_holder(tmp_path, "s1") is None
    assert not (tmp_path / share_beat("s1")).exists()


def without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file system that has none."""

    def flock(*_: Any) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", flock)


def beat(path: Path, ago_s: float) -> None:
    path.touch()
    then = time.time() - ago_s
    os.utime(path, (then, then))


def test_where_there_are_no_locks_a_share_is_held_by_its_heartbeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_locks(monkeypatch)
    elsewhere = replace(this_orchestrator("marker"), host="another")
    (tmp_path / share_lock("s1")).write_text(json.dumps(elsewhere.to_json()))
    beat(tmp_path / share_beat("s1"), 1.0)
    assert share_holder(tmp_path, "s1") == elsewhere
    with pytest.raises(Unreachable, match="@another"):
        hold_share(tmp_path, "s1", this_orchestrator("m")).__enter__()
    beat(tmp_path / share_beat("s1"), 2 * FRESH_S)
    assert share_holder(tmp_path, "s1") is None
    with hold_share(tmp_path, "s1", this_orchestrator("m")):
        pass


def test_a_lock_that_only_another_host_could_see_is_told_by_the_heartbeat(tmp_path: Path) -> None:
    elsewhere = replace(this_orchestrator("marker"), host="another")
    (tmp_path / share_lock("s1")).write_text(json.dumps(elsewhere.to_json()))
    assert share_holder(tmp_path, "s1") is None
    beat(tmp_path / share_beat("s1"), 1.0)
    assert share_holder(tmp_path, "s1") == elsewhere


def test_who_holds_a_share_on_a_host_whose_locks_are_its_own_is_heard(tmp_path: Path) -> None:
    elsewhere = replace(this_orchestrator("marker"), host="another")
    with beating(tmp_path / share_beat("s1"), every_s=0.1):
        (tmp_path / share_lock("s1")).write_text(json.dumps(elsewhere.to_json()))
        with pytest.raises(Unreachable, match="@another"):
            hold_share(tmp_path, "s1", this_orchestrator("m")).__enter__()
