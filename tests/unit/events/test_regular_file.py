"""What is no regular file is an error at once: nothing waits for a pipe's other end, or reads a device without end."""

from __future__ import annotations

import os
import socket
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from milabench.devices.regular_file import MIB, open_descriptor, open_regular, read_regular
from milabench.errors import RecordError
from milabench.events import rundir
from milabench.events.run_writer import RunWriter
from milabench.events.rundir import open_run, read_batches, read_events
from milabench.following.appended import Appended


def fifo(path: Path) -> None:
    os.mkfifo(path)


def link_to_zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


def link_to_full(path: Path) -> None:
    path.symlink_to("/dev/full")


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(str(path))


def folder(path: Path) -> None:
    path.mkdir()


KINDS = {fifo: "named pipe", link_to_zero: "device", link_to_full: "device", a_socket: "socket", folder: "directory"}


@pytest.fixture(params=KINDS, ids=lambda make: make.__name__)
def irregular(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A path at which there is no regular file, and the word for what is there."""
    make: Callable[[Path], None] = request.param
    path = tmp_path / "x"
    make(path)
    yield path, KINDS[make]


def test_what_is_no_regular_file_is_refused_by_its_kind(irregular: tuple[Path, str]) -> None:
    path, kind = irregular
    for attempt in (
        lambda: open_regular(path),
        lambda: read_regular(path),
        lambda: open_descriptor(path, os.O_RDWR | os.O_CREAT),
        lambda: open_descriptor(path, os.O_WRONLY | os.O_APPEND),
    ):
        with pytest.raises(OSError, match=kind) as caught:
            attempt()
        assert caught.value.filename == str(path)


def test_a_link_is_followed_unless_it_may_not_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"text")
    link = tmp_path / "link"
    link.symlink_to("file")
    assert read_regular(link) == b"text"
    with pytest.raises(OSError, match="symbolic link"):
        open_descriptor(link, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW)
    (tmp_path / "dangling").symlink_to("nowhere")
    with pytest.raises(OSError, match="symbolic link"):
        open_descriptor(tmp_path / "dangling", os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW)
    assert not (tmp_path / "nowhere").exists()


def test_more_than_is_read_whole_is_refused_with_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.touch()
    os.truncate(path, (2 << 20) + 1)
    with pytest.raises(OSError, match="larger than the limit of 2097152 bytes"):
        read_regular(path, 2 << 20)
    assert len(read_regular(path, 3 << 20)) == (2 << 20) + 1


def test_a_pipe_of_the_shell_is_read_where_it_is_allowed_and_a_named_one_never(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"text")
    os.close(writer)
    with pytest.raises(OSError, match="named pipe"):
        read_regular(f"/dev/fd/{reader}")
    assert read_regular(f"/dev/fd/{reader}", is_pipe_allowed=True) == b"text"
    os.close(reader)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="named pipe"):
        read_regular(tmp_path / "pipe", is_pipe_allowed=True)


def test_every_file_of_a_run_directory_is_refused_in_a_sentence(irregular: tuple[Path, str], tmp_path: Path) -> None:
    path, kind = irregular
    for name in ("manifest.json", "journal.jsonl", "a.data"):
        run = tmp_path / f"run-{name}"
        run.mkdir()
        path.rename(run / name)
        with pytest.raises(RecordError, match=f"{name}: cannot be read: .*{kind}"):
            list(open_run(run).events("a"))
        (run / name).rename(path)
        writer = RunWriter(run)
        path.rename(run / "b.data")
        with pytest.raises(OSError, match=kind if kind != "device" else "link"):
            writer.append("b", b"{}\n")
        (run / "b.data").rename(path)


LINE = b'{"event":"message","data":"fine","t":1.0}\n'


def test_a_line_without_end_is_no_record_and_those_after_it_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rundir, "MAX_LINE", 1000)
    monkeypatch.setattr(rundir, "_PIECE", 300)
    monkeypatch.setattr("milabench.following.appended.MAX_LINE", 1000)
    path = tmp_path / "a.data"
    path.write_bytes(LINE + b"x" * 5000 + LINE[:-1] + b"\n" + LINE)
    names = [getattr(event, "event", "message") for event in read_events(path, "a")]
    assert names == ["message", "format_error", "message"]
    assert [getattr(event, "event", "message") for event in read_batches(path, "a")] == names
    path.write_bytes(LINE + b"x" * 5000)
    assert len(list(read_events(path, "a"))) == len(list(read_batches(path, "a"))) == 1
    tail = Appended(path)
    before, whole = -1, []
    while tail.offset > before:
        before = tail.offset
        whole += tail.lines()
    assert (whole, len(tail._rest) <= 1001) == ([LINE[:-1]], True)


def test_a_small_file_takes_no_memory_of_the_largest_that_may_be_read(tmp_path: Path) -> None:
    path = tmp_path / "small"
    path.write_bytes(b"small")
    tracemalloc.start()
    try:
        assert read_regular(path) == b"small"
        assert tracemalloc.get_traced_memory()[1] < 16 * MIB
    finally:
        tracemalloc.stop()
