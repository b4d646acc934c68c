"""Folders and files that are made once for each recipe, and are complete or not there, whatever becomes of their makers."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import benchmate

# `python -c MAKER KIND PATH RECIPE`: a line "making", then a line of ours, then the rest of what is made.
MAKER = """
import pathlib, sys
import benchmate

def half(path):
    out = path / "half" if sys.argv[1] == "folder" else path
    out.write_text("half")
    print("making", flush=True)
    sys.stdin.readline()
    out.write_text(f"whole {sys.argv[3]}")

{"folder": benchmate.prepare_folder, "file": benchmate.prepare_file}[sys.argv[1]](
    pathlib.Path(sys.argv[2]), {"number": int(sys.argv[3])}, half
)
"""
KINDS = ("folder", "file")


class Maker:
    """A process that makes, up to where it is told to go on."""

    def __init__(self, kind: str, path: Path, number: int = 1) -> None:
        command = [sys.executable, "-c", MAKER, kind, str(path), str(number)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def wait_for_the_lock(self) -> None:
        """Return once it stands in the queue of a lock, as the kernel lists it: `1: -> FLOCK ADVISORY WRITE 4711 ...`."""
        while not any("->" in (words := line.split()) and str(self.process.pid) in words for line in kernel_locks()):
            assert self.process.poll() is None
            time.sleep(0.01)

    def rest(self) -> str:
        """Let it go on to its end, and return the lines that it still wrote."""
        out, _ = self.process.communicate("\n", timeout=60)
        assert self.process.returncode == 0
        return out

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate(timeout=60)


def kernel_locks() -> list[str]:
    return Path("/proc/locks").read_text().splitlines()


def contents(path: Path) -> str:
    return (path / "half" if path.is_dir() else path).read_text()


def made(kind: str, path: Path, number: int = 1) -> str:
    return Maker(kind, path, number).rest()


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_recipe_is_made_once_and_another_one_replaces_it(kind, tmp_path):
    path = tmp_path / "deep" / "data"
    assert made(kind, path) == f"making\n{path}: made\n"
    assert made(kind, path) == f"{path}: already there\n"
    assert contents(path) == "whole 1"
    assert made(kind, path, 2) == f"making\n{path}: made\n"
    assert contents(path) == "whole 2"


@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_leaves_nothing_half_and_the_next_removes_what_it_left(kind, tmp_path):
    path = tmp_path / "data"
    maker = Maker(kind, path)
    assert maker.line() == "making"
    maker.kill()
    assert not path.exists()
    (left,) = (one for one in tmp_path.iterdir() if one.is_dir())
    assert left.name.startswith(".")
    assert made(kind, path) == f"making\n{path}: made\n"
    assert contents(path) == "whole 1"
    assert not left.exists()


@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_while_another_recipe_is_made_keeps_what_was_there(kind, tmp_path):
    path = tmp_path / "data"
    made(kind, path)
    maker = Maker(kind, path, 2)
    assert maker.line() == "making"
    maker.kill()
    assert made(kind, path) == f"{path}: already there\n"
    assert contents(path) == "whole 1"


@pytest.mark.parametrize("kind", KINDS)
def test_of_two_at_once_the_second_waits_and_finds_it_there(kind, tmp_path):
    path = tmp_path / "data"
    first = Maker(kind, path)
    assert first.line() == "making"
    second = Maker(kind, path)
    second.wait_for_the_lock()
    assert first.rest() == f"{path}: made\n"
    assert second.rest() == f"{path}: already there\n"
    assert contents(path) == "whole 1"
    assert [one.name for one in tmp_path.iterdir() if ".partial." in one.name] == []


@pytest.mark.parametrize("kind", KINDS)
def test_where_another_machine_was_faster_its_data_stay(kind, tmp_path, capsys):
    """No lock holds between the machines of some file systems: the other one is `make` here, inside ours."""
    path = tmp_path / "data"
    prepare = {"folder": benchmate.prepare_folder, "file": benchmate.prepare_file}[kind]

    def meanwhile(fresh: Path) -> None:
        other = tmp_path / "other" / "data"
        made(kind, other)
        for file in other.parent.iterdir():
            if ".lock" not in file.name:
                file.rename(tmp_path / file.name)
        (fresh / "half" if kind == "folder" else fresh).write_text("whole 1")

    prepare(path, {"number": 1}, meanwhile)
    assert contents(path) == "whole 1"
    assert capsys.readouterr().out == f"{path}: made\n"
    assert made(kind, path) == f"{path}: already there\n"


@pytest.mark.parametrize("kind", KINDS)
def test_a_maker_that_fails_leaves_nothing(kind, tmp_path):
    def failing(path: Path) -> None:
        raise OSError(28, "No space left on device")

    prepare = {"folder": benchmate.prepare_folder, "file": benchmate.prepare_file}[kind]
    with pytest.raises(OSError, match="No space left"):
        prepare(tmp_path / "data", {}, failing)
    assert [one.name for one in tmp_path.iterdir()] == [".data.lock"]


def test_a_folder_has_the_permissions_of_any_other(tmp_path):
    benchmate.prepare_folder(tmp_path / "data", {}, lambda fresh: None)
    (tmp_path / "plain").mkdir()
    assert (tmp_path / "data").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_filled_by_hand_stays_until_its_owner_confirms_the_recipe_or_moves_it(kind, tmp_path, capsys):
    path = tmp_path / "imagenet"
    if kind == "folder":
        path.mkdir()
    (path / "train.tar" if kind == "folder" else path).write_text("mine")
    prepare = {"folder": benchmate.prepare_folder, "file": benchmate.prepare_file}[kind]
    with pytest.raises(SystemExit) as refused:
        prepare(path, {"seed": 1}, lambda _: pytest.fail("nothing is made"))
    assert (path / "train.tar" if kind == "folder" else path).read_text() == "mine"
    (command,) = re.findall("`(.*)`", str(refused.value))
    assert str(refused.value).startswith(f"{path}: was not made by milabench, so it stays. Use it as it is (`echo ")
    assert str(refused.value).endswith("), or move it away")
    subprocess.run(command, shell=True, check=True)
    prepare(path, {"seed": 1}, lambda _: pytest.fail("nothing is made"))
    assert capsys.readouterr().out == f"{path}: already there\n"


@pytest.mark.parametrize("left", ["{}", ""])
def test_a_kill_between_a_file_and_its_marker_costs_one_more_making(left, tmp_path):
    path, marker = tmp_path / "data", tmp_path / ".data.recipe.json"
    made("file", path)
    marker.write_text(left)
    assert made("file", path) == f"making\n{path}: made\n"
