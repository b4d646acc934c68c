"""A disk that fills, a base that becomes read-only, a run directory that is deleted, a clock that jumps: one message, no hang."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.commands import ROOT, Said
from tests.processes import CEILING_S, until

from .test_resume import start
from .written import ends, journal, runs, suite


@contextlib.contextmanager
def disk(folder: Path, size: str) -> Iterator[Path]:
    """A small disk of its own; skips where none can be made."""
    folder.mkdir(parents=True)
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("a disk can only be made by root")
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if made.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {made.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def make_read_only(folder: Path) -> None:
    """While files on it are open for writing, too, as a disk with errors becomes."""
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)


def test_a_base_that_is_read_only_is_one_line(milabench: Callable[..., Said], tmp_path: Path) -> None:
    here = suite(tmp_path, a="echo fine")
    with disk(tmp_path / "disk", "1m") as place:
        make_read_only(place)
        said = milabench("run", *here, "--display", "none", MILABENCH_BASE=str(place))
    assert said.code == 6
    assert "cannot be created: read-only file system" in said.err
    assert len([line for line in said.err.splitlines() if line.startswith("error")]) == 1


def test_closed_and_full_streams_end_no_run(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    words = [sys.executable, "-m", "milabench", "run", *suite(tmp_path, a="echo fine"), "--display", "plain"]
    closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
    assert subprocess.run([*closed, *words], env=environ, cwd=ROOT, check=False).returncode == 0
    (run,) = runs(environ["MILABENCH_BASE"])
    assert (run / "a.0.stdout").read_text() == "fine\n"
    if not Path("/dev/full").is_char_device():
        pytest.skip("there is no /dev/full here")
    with Path("/dev/full").open("w") as full:
        said = subprocess.run(
            [*words[:3], "report"], env=environ, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert (said.returncode, said.stderr) == (6, b"error: output: no space left on device\n")


def test_a_disk_that_fills_fails_the_steps_concerned_and_the_rest_is_kept(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    # This seed's order is a, flood, later.
    here = suite(
        tmp_path, a="echo fine", flood="while :; do echo 0123456789012345678901234567890; done", later="echo x"
    )
    with disk(tmp_path / "disk", "512k") as place:
        said = milabench("run", *here, "--seed", "7", "--display", "plain", MILABENCH_BASE=str(place))
        assert said.code == 1
        assert said.err.count("cannot record: ") >= 1
        assert len([line for line in said.err.splitlines() if "The steps concerned fail" in line]) == 1
        (run,) = runs(place)
        assert ends(run)[0] == ("a.0", 1, "passed")
        assert "fine" in (run / "a.0.stdout").read_text()
        for line in (run / "flood.0.data").read_text().splitlines():
            assert json.loads(line)["event"]
        assert milabench("report", MILABENCH_BASE=str(place)).code == 0
        for ending in ("data", "stdout"):  # somebody makes room
            (run / f"flood.0.{ending}").unlink(missing_ok=True)
        suite(tmp_path, a="echo fine", flood="echo little", later="echo x")
        assert milabench("resume", "--force", MILABENCH_BASE=str(place)).code == 0


def test_a_disk_that_becomes_read_only_in_the_middle_ends_the_run(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    line = f"touch {tmp_path}/up; while ! test -e {tmp_path}/go; do sleep 0.05; done; echo more"
    here = suite(tmp_path, a=line)
    with disk(tmp_path / "disk", "1m") as place:
        process = start({**environ, "MILABENCH_BASE": str(place)}, "run", *here)
        try:
            until((tmp_path / "up").exists, "the step")
            make_read_only_when_possible(place)
            (tmp_path / "go").touch()
            assert process.wait(CEILING_S) == 1
        finally:
            process.terminate()
            process.wait(CEILING_S)
        assert milabench("status", MILABENCH_BASE=str(place)).code == 0


def make_read_only_when_possible(folder: Path) -> None:
    """A mount with files open for writing refuses; fill it instead, which the run meets in the same way."""
    done = subprocess.run(["mount", "-o", "remount,ro", str(folder)], capture_output=True, check=False)
    if done.returncode != 0:
        filler = os.open(folder / "filler", os.O_WRONLY | os.O_CREAT)
        with contextlib.suppress(OSError):
            while True:
                os.write(filler, b"x" * 4096)
        os.close(filler)


def test_a_run_directory_that_is_deleted_ends_the_run_without_a_hang(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    line = f"touch {tmp_path}/up; while ! test -e {tmp_path}/go; do sleep 0.05; done; echo more"
    process = start(environ, "run", *suite(tmp_path, a=line, b=line, c=line))
    try:
        until((tmp_path / "up").exists, "the step")
        shutil.rmtree(runs(environ["MILABENCH_BASE"])[0])
        (tmp_path / "go").touch()
        assert process.wait(CEILING_S) == 1
    finally:
        process.terminate()
        process.wait(CEILING_S)
    assert milabench("report").code == 3


def test_a_clock_that_jumps_back_a_day_changes_stamps_only(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, time\n"
        "real = time.time\n"
        f"time.time = lambda: real() - (86400 if os.path.exists({str(tmp_path / 'jump')!r}) else 0)\n"
    )
    here = suite(tmp_path, a=f"touch {tmp_path}/jump; sleep 0.3; echo fine", b="echo fine", slow="sleep 3600")
    said = milabench("run", *here, "--override", "slow.max_duration=1", PYTHONPATH=str(tmp_path))
    assert said.code == 1
    (run,) = runs(environ["MILABENCH_BASE"])
    assert {step: outcome for step, _, outcome in ends(run)} == {"a.0": "passed", "b.0": "passed", "slow.0": "failed"}
    times = [each["t"] for each in journal(run)]
    assert min(times) < max(times) - 80_000
    report = json.loads(milabench("report", "--json").out)
    assert sorted((each["bench"], each["outcome"]) for each in report["benchmarks"]) == [
        ("a", "passed"),
        ("b", "passed"),
        ("slow", "failed"),
    ]
    for verb in ("runs", "status", "replay"):
        assert milabench(verb, *(["--speed", "0"] if verb == "replay" else [])).code == 0
    assert milabench("resume").code == 1  # slow goes on being slow
