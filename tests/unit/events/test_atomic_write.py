"""What is written is whole or not there, and nothing is written through a link that somebody else has put in its way."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from milabench.archives.archive import create_archive
from milabench.errors import MilabenchError, RecordError
from milabench.events import atomic_write
from milabench.events.atomic_write import replace_file, write_output
from milabench.events.run_writer import RunWriter
from milabench.execute.install_session import hold_lock
from milabench.execute.locks import hold_base, hold_run, this_orchestrator


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file elsewhere that links lead to."""
    path = tmp_path / "victim"
    path.write_text("precious")
    return path


def no_space(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(atomic_write.os, "fsync", full)


def test_what_does_not_fit_leaves_the_file_as_it_was_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    no_space(monkeypatch)
    for write in (write_output, replace_file):
        with pytest.raises(OSError, match="No space left"):
            write(path, b"new")
        with pytest.raises(OSError, match="No space left"):
            write(tmp_path / "other", b"new")
    with pytest.raises(RecordError, match="no space left"), create_archive(tmp_path / "bundle.zip"):
        pass
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("report.html", "old")]


def test_a_file_keeps_its_mode_and_a_link_stays_one(tmp_path: Path) -> None:
    path, link = tmp_path / "report", tmp_path / "link"
    path.write_text("old")
    path.chmod(0o600)
    link.symlink_to("report")
    write_output(link, b"new")
    assert link.is_symlink()
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new", 0o600)
    old = os.umask(0o027)
    try:
        write_output(tmp_path / "fresh", b"")
        replace_file(tmp_path / "record", b"")
    finally:
        os.umask(old)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("fresh", "record")]
    assert modes == [0o640, 0o640]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_file_that_may_not_be_written_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "report"
    path.write_text("old")
    path.chmod(0o400)
    with pytest.raises(PermissionError):
        write_output(path, b"new")


def test_into_a_pipe_or_a_device_is_written_as_it_comes() -> None:
    program = (
        "from milabench.events.atomic_write import write_output as w; from pathlib import Path; w(Path({!r}), b'text')"
    )
    shown = subprocess.run([sys.executable, "-c", program.format("/dev/stdout")], capture_output=True, check=True)
    assert shown.stdout == b"text"
    with pytest.raises(OSError, match="No space left"):
        write_output(Path("/dev/full"), b"text")
    assert Path("/dev/full").is_char_device()


@pytest.mark.parametrize("to", ["victim", "nowhere"])
def test_a_link_that_was_put_in_the_way_is_not_written_through(tmp_path: Path, victim: Path, to: str) -> None:
    """Under every name in a run directory or a base that can be known before."""
    run = tmp_path / "run"
    run.mkdir()
    names = (
        "summary.json.tmp",
        "manifest.json.tmp",
        "summary.json",
        "manifest.json",
        "journal.jsonl",
        "a.data",
        "a.stdout",
    )
    locks = ("orchestrator.lock", ".milabench.lock", ".x.lock", "output.log")
    for name in (*names, *locks):
        (run / name).symlink_to(f"../{to}")
    writer = RunWriter(run)
    writer.write_summary({"a": 1})
    writer.write_manifest({"a": 1})
    for write in (lambda: writer.journal({"a": 1}), lambda: writer.append("a", b"{}\n")):
        with pytest.raises(OSError, match="symbolic link"):
            write()
    for hold in (
        hold_run(run, this_orchestrator("m")),
        hold_base(run, "install", say=print),
        hold_lock(run / ".x.lock"),
    ):
        with pytest.raises((OSError, MilabenchError), match="symbolic link"), hold:
            pass
    with create_archive(run / "b.zip"):
        pass
    assert victim.read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()
    assert not (run / "summary.json").is_symlink()
