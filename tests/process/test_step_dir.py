"""The agent's removal of a launch's folder, where it must stop."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from milabench.execute.agent.step_dir import StepDir, mounts_below, remove_contents
from tests.process.conftest import AGENT

IN_A_NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")


def is_allowed() -> bool:
    return subprocess.run([*IN_A_NAMESPACE, "true"], capture_output=True, check=False).returncode == 0


def test_a_folder_in_which_something_is_mounted_stays(tmp_path: Path) -> None:
    if not is_allowed():
        pytest.skip("this machine lets nobody mount")
    folder, other = StepDir(str(tmp_path / "a b")), tmp_path / "other"
    other.mkdir()
    (other / "file").write_text("mine")
    point = Path(folder.path, "in here")
    point.mkdir()
    # Of the same file system, so that no number of a device tells.
    line = f'mount --bind "{other}" "{point}" && exec "$@"'
    words = (sys.executable, "-I", "-S", str(AGENT), "empty-folder", folder.path, folder.identity)
    done = subprocess.run(
        [*IN_A_NAMESPACE, "sh", "-c", line, "sh", *words], capture_output=True, text=True, check=False
    )
    assert done.stdout == f"something is mounted in it, at {point}", done.stderr
    assert (other / "file").read_text() == "mine"


def test_mounts_below_a_folder_are_found() -> None:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [line.split(" ")[4] for line in lines if "\\" not in line]
    inside = [point for point in points if len(Path(point).parts) > 2]
    assert all(point in mounts_below(str(Path(point).parent)) for point in inside)
    assert mounts_below("/proc/self/fdinfo") == []


def test_write_protected_folders_are_removed_and_what_links_lead_to_keeps_its_mode(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o500)
    folder = StepDir(str(tmp_path / "step"))
    deep = Path(folder.path, "a", "b")
    deep.mkdir(parents=True)
    (deep / "link").symlink_to(outside)
    (deep / "file").touch()
    deep.chmod(0o500)
    assert remove_contents(folder.path, folder.identity) == ""
    assert list(Path(folder.path).iterdir()) == []
    assert outside.stat().st_mode & 0o777 == 0o500


def test_a_folder_that_somebody_has_used_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("used", "link"):
        with pytest.raises(FileExistsError):
            StepDir(str(tmp_path / name))


def test_an_agent_removes_only_what_it_has_made(agent: Any, tmp_path: Path) -> None:
    (tmp_path / "runs" / "r").mkdir(parents=True)
    folder = tmp_path / "runs" / "r" / "steps" / "s"
    agent.run("sh", "-c", "echo x > file", cwd=str(folder), step_dir=str(folder))
    assert (folder / "file").exists()
    assert agent.ask("discard", step="another") == {"id": 2, "ok": True, "left": ""}
    assert agent.ask("discard", step="s")["left"] == ""
    # With the folders above that nothing else is in: of another machine, on which no records of the run are.
    assert [path.name for path in (tmp_path / "runs").iterdir()] == []
