"""The heartbeat of a process, and its age by the clock that stamped it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from milabench.execute import heartbeat
from milabench.execute.heartbeat import FRESH_S, beating, beats_again, is_beating, last_beat_age_s
from tests.processes import until


def test_a_process_beats_until_the_end_of_the_block(tmp_path: Path) -> None:
    beat = tmp_path / "share.s1.beat"
    assert last_beat_age_s(beat) is None
    with beating(beat, every_s=0.01):
        assert is_beating(beat)
        os.utime(beat, (0.0, 0.0))
        until(lambda: beat.stat().st_mtime > 0.0, "another beat")
    assert not beat.exists()
    assert [path.name for path in tmp_path.iterdir()] == []


def test_one_that_was_killed_beats_no_more(tmp_path: Path) -> None:
    beat = tmp_path / "share.s1.beat"
    beat.touch()
    then = time.time() - FRESH_S - 10
    os.utime(beat, (then, then))
    assert (last_beat_age_s(beat) or 0.0) > FRESH_S
    assert not is_beating(beat)


def test_the_age_is_by_the_clock_that_stamped_the_beat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat.time, "time", lambda: 0.0)  # this machine's is decades behind
    (tmp_path / "share.s1.beat").touch()
    age = last_beat_age_s(tmp_path / "share.s1.beat")
    assert age is not None
    assert age < FRESH_S


def test_only_the_files_that_are_there_have_an_age(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert last_beat_age_s(tmp_path / "a") is not None
    assert last_beat_age_s(tmp_path / "b") is None
    assert last_beat_age_s(tmp_path / "nowhere" / "a") is None


def test_what_cannot_be_touched_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "share.s1.beat").mkdir()
    with beating(tmp_path / "share.s1.beat", every_s=0.01), beating(tmp_path / "nowhere" / "x", every_s=0.01):
        pass


def test_whoever_beats_again_lives(tmp_path: Path) -> None:
    beat = tmp_path / "share.s1.beat"
    assert not beats_again(beat, within_s=30.0)  # nothing is waited for where nobody beats
    with beating(beat, every_s=0.05):
        assert beats_again(beat, within_s=30.0)
    beat.touch()
    assert not beats_again(beat, within_s=0.2)
