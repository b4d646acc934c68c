"""A disk that is full, under whatever a verb writes: one line, the exit code, what was there before; with room it works again."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from milabench.facts.probe import agent_command
from tests.commands import PYTHON, Said
from tests.processes import started

from .installable import installable
from .test_bad_places import disk
from .written import suite

RATE = """
import benchmate, time
for _ in benchmate.observed(range(40), units="items/s", batch_size=2):
    time.sleep(0.002)
"""


@contextlib.contextmanager
def full(folder: Path, size: str = "64k") -> Iterator[Callable[[], None]]:
    """A small disk without room; yields what makes room on it."""
    with disk(folder, size):
        fill(folder)

        def make_room() -> None:
            subprocess.run(["mount", "-o", "remount,size=128m", str(folder)], check=True)

        yield make_room


def fill(folder: Path) -> None:
    """Leave no room on the disk of a folder."""
    filler = os.open(folder / "filler", os.O_WRONLY | os.O_CREAT)
    with contextlib.suppress(OSError):
        while os.write(filler, b"x" * 4096):
            pass
    os.close(filler)


def only_error(said: Said) -> str:
    (line,) = [line for line in said.err.splitlines() if line.startswith("error: ")]
    return line


def test_copies_of_what_is_shipped_leave_no_folder_behind(milabench: Callable[..., Said], tmp_path: Path) -> None:
    place = tmp_path / "disk"
    with full(place, "256k"):
        said = milabench("init", str(place / "new" / "folder"))
        assert said.code == 2
        assert only_error(said).endswith(
            "config: cannot be created: no space left on the disk. Nothing was left behind"
        )
        assert [path.name for path in place.iterdir()] == ["filler"]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("report -o {}", "a.txt"),
        ("report --format html -o {}", "a.html"),
        ("report --format csv -o {}", "a.csv"),
        ("compare {run} {run} -o {}", "a.html"),
        ("bundle -o {}", "a.zip"),
        ("export -o {}", "a.parquet"),
        ("db add --db {}", "a.sqlite"),
        ("baseline {run} -o {}", "a.json"),
    ],
)
def test_what_cannot_be_written_is_one_line_and_is_not_there(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path, line: str, name: str
) -> None:
    (tmp_path / "rate.py").write_text(RATE)
    assert milabench("run", *suite(tmp_path, a=f"{PYTHON} {tmp_path}/rate.py")).code == 0
    (run,) = Path(environ["MILABENCH_BASE"], "runs").iterdir()
    with full(tmp_path / "disk") as make_room:
        target = tmp_path / "disk" / name
        words = line.format(target, run=run).split()
        before = sorted(path.name for path in target.parent.iterdir())
        said = milabench(*words)
        assert said.code == 6, said.err
        assert "no space" in only_error(said) or "disk is full" in only_error(said)
        assert str(target) in only_error(said)
        left = {path.name for path in target.parent.iterdir()} - set(before)
        assert left <= {name}
        assert all((target.parent / each).stat().st_size == 0 for each in left)
        make_room()
        assert milabench(*words).code in (0, 1)
        assert target.stat().st_size


def test_a_run_on_a_full_disk_is_reported_compared_and_stored(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    base = tmp_path / "disk"
    with disk(base, "256k"):
        assert milabench("run", *suite(tmp_path, a="echo fine"), MILABENCH_BASE=str(base)).code == 0
        (run,) = (base / "runs").iterdir()
        (run / "summary.json").unlink()
        fill(base)
        for verb in ("report", "runs", "status", "replay --speed 0", "logs a", "gc processes"):
            assert milabench(*verb.split(), MILABENCH_BASE=str(base)).code == 0
        assert milabench("db", "add", "--db", str(tmp_path / "a.sqlite"), MILABENCH_BASE=str(base)).code == 0
        assert not list(run.glob("*.tmp"))
        (base / "filler").unlink()
        assert milabench("report", MILABENCH_BASE=str(base)).code == 0
        assert json.loads((run / "summary.json").read_text())["verdict"] == "passed"


def test_an_install_on_a_full_disk_is_one_line_and_the_next_one_is_whole(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    base = tmp_path / "disk"
    with disk(base, "2600k"):
        here, variables, _ = installable(tmp_path, base)
        environ.update(variables, MILABENCH_BASE=str(base))
        said = milabench("install", *here)
        assert said.code == 4
        assert "no space left on the disk" in only_error(said)
        assert not list(base.glob("venv/.store/*/.complete"))
        assert not list(base.glob("venv/timed"))
        subprocess.run(["mount", "-o", "remount,size=128m", str(base)], check=True)
        said = milabench("install", *here)
        assert said.code == 0, said.err


def test_a_preparation_that_fills_the_disk_is_no_preparation(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    base = tmp_path / "disk"
    with disk(base, "1m"):
        folder = tmp_path / "hungry"
        assert milabench("new", "hungry", "--into", str(tmp_path)).code == 0
        main = """
import os, pathlib, signal, sys
# Its records may fill the disk first: it is ended then, and says its last words all the same.
signal.signal(signal.SIGTERM, signal.SIG_IGN)
try:
    pathlib.Path(os.environ["MILABENCH_DIR_DATA"], "big").write_bytes(b"x" * (4 << 20))
except OSError as error:
    sys.exit(str(error))
"""
        (folder / "prepare.py").write_text(main)
        here = ("--use-current-env", "--config", str(folder / "suite.yaml"))
        said = milabench("prepare", *here, MILABENCH_BASE=str(base))
        assert said.code == 4, said.err
        assert "hungry: prepare failed: " in only_error(said)
        assert "No space left on device" in said.err
        said = milabench("run", *here, MILABENCH_BASE=str(base))
        assert (said.code, "no space left on device" in only_error(said)) == (6, True), said.err
        assert milabench("run", *here, "--no-prepare", MILABENCH_BASE=str(base)).code == 4
        (base / "data" / "big").unlink()
        subprocess.run(["mount", "-o", "remount,size=64m", str(base)], check=True)
        said = milabench("prepare", *here, MILABENCH_BASE=str(base))
        assert "1 benchmark prepared" in said.err


def test_a_transfer_to_a_full_disk_names_the_reason_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    content = os.urandom(512 << 10)
    with disk(tmp_path / "disk", "256k"):
        target = tmp_path / "disk" / "folder"
        answer = transfer(target, content)
        assert (answer["ok"], answer["errno"]) == (False, 28)
        assert not (target / "big").exists()
        (kept,) = (target / ".milabench-parts").iterdir()
        assert kept.stat().st_size
        subprocess.run(["mount", "-o", "remount,size=2m", str(tmp_path / "disk")], check=True)
        assert transfer(target, content)["ok"]
        assert [path.name for path in target.iterdir()] == ["big"]
        assert (target / "big").read_bytes() == content


def transfer(target: Path, content: bytes) -> dict[str, object]:
    """Send a folder with one file to the file server of this machine's agent; its last answer."""
    import hashlib

    entry = ["big", "f", 0o644, len(content), 1, hashlib.sha256(content).hexdigest()]
    with started(agent_command("files"), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as agent:
        agent.stdin.write(json.dumps({"do": "take", "root": str(target), "entries": [entry]}).encode() + b"\n")
        agent.stdin.flush()
        answer = json.loads(agent.stdout.readline())
        with contextlib.suppress(BrokenPipeError):
            if answer["ok"]:
                ((_, offset),) = answer["need"]
                agent.stdin.write(content[offset:] + hashlib.sha256(content).digest())
            agent.stdin.close()
        return dict(json.loads(agent.stdout.readline()) if answer["ok"] else answer)
