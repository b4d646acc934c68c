"""What stands in /tmp under the names that an agent uses there, put by somebody else: not used, not entered, not removed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from milabench.execute.agent import orphans, unpack
from milabench.execute.agent_bootstrap import agent_files, deterministic_zip


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files, and no other place."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setattr(orphans, "runtime_dir_candidates", lambda: [str(folder)])
    return folder


@pytest.mark.parametrize("kind", ["link", "writable by others", "file"])
def test_a_cache_that_others_can_change_is_not_used(temporary: Path, tmp_path: Path, kind: str) -> None:
    cache = next(Path(path) for path in unpack.caches() if Path(path).parent == temporary)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    if kind == "link":
        cache.symlink_to(elsewhere)
    elif kind == "file":
        cache.touch()
    else:
        cache.mkdir()
        cache.chmod(0o777)
    digest = unpack.digest_of(agent_files())
    with pytest.raises(OSError):
        unpack.unpack(deterministic_zip(agent_files()), str(cache / "agent-x"), digest)
    assert not unpack.is_private(str(cache))
    assert list(elsewhere.iterdir()) == []
    assert kind != "writable by others" or list(cache.iterdir()) == []


def test_an_agent_that_somebody_else_put_there_is_not_started(
    temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = unpack.digest_of(agent_files())
    cache = next(Path(path) for path in unpack.caches() if Path(path).parent == temporary)
    cache.mkdir()
    unpack.unpack(deterministic_zip(agent_files()), str(cache / f"agent-{digest[:16]}"), digest)
    cache.chmod(0o777)  # whole, but anybody may have put it there, and change it in a moment
    asked: list[None] = []

    def receive() -> bytes:
        asked.append(None)
        return deterministic_zip(agent_files())

    monkeypatch.setattr(unpack, "receive", receive)
    monkeypatch.setattr(unpack, "say", lambda text: None)
    found = unpack.find_or_receive(digest)
    assert asked
    assert not found.startswith(str(cache))


def test_folders_of_dead_agents_are_removed_only_where_they_are_ours(temporary: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / orphans.LOCK_FILE).write_text(json.dumps({"run": "x", "pid": 1}))
    (temporary / "milabench-link").symlink_to(victim)
    inside = temporary / "milabench-inside"
    inside.mkdir()
    (inside / orphans.LOCK_FILE).symlink_to(victim / orphans.LOCK_FILE)
    pipe = temporary / "milabench-pipe"
    pipe.mkdir()
    os.mkfifo(pipe / orphans.LOCK_FILE)
    orphans.remove_dead_runtime_dirs()
    assert (victim / orphans.LOCK_FILE).exists()
    assert pipe.exists()
