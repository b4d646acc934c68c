"""Zip files from strangers: nothing is written when a name or a size in them is not to be trusted."""

from __future__ import annotations

import os
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from milabench.archives import archive
from milabench.errors import RecordError


def entry(name: str, mode: int = stat.S_IFREG | 0o644) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def zipped(path: Path, *entries: tuple[zipfile.ZipInfo, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for info, content in entries:
            file.writestr(info, content)
    return path


@pytest.mark.parametrize(
    ("name", "mode", "why"),
    [
        ("../evil", stat.S_IFREG, "a name outside the archive"),
        ("runs/../../evil", stat.S_IFREG, "a name outside the archive"),
        ("runs//evil", stat.S_IFREG, "a name outside the archive"),
        ("/etc/evil", stat.S_IFREG, "absolute name"),
        ("C:evil", stat.S_IFREG, "absolute name"),
        ("runs\\evil", stat.S_IFREG, "an invalid file name"),
        ("runs/e\nvil", stat.S_IFREG, "an invalid file name"),
        ("runs/link", stat.S_IFLNK, "a link or a device"),
        ("runs/device", stat.S_IFCHR, "a link or a device"),
    ],
)
def test_a_name_that_is_not_to_be_trusted_is_refused(tmp_path: Path, name: str, mode: int, why: str) -> None:
    path = zipped(tmp_path / "x.zip", (entry("good"), b"1"), (entry(name, mode | 0o644), b"2"))
    with pytest.raises(RecordError, match=f"{why}: refused, nothing was unpacked"):
        archive.open_checked(path)


def test_the_same_name_twice_is_refused(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate"):
        path = zipped(tmp_path / "x.zip", (entry("a"), b"1"), (entry("a"), b"2"))
    with pytest.raises(RecordError, match="duplicate entry"):
        archive.open_checked(path)


def test_a_bomb_is_refused_by_its_ratio(tmp_path: Path) -> None:
    path = zipped(tmp_path / "x.zip", (entry("zeros"), bytes(20 * 2**20)))
    with pytest.raises(RecordError, match=r"unpacks to \d+ times its size, more than 200: refused"):
        archive.open_checked(path)


def test_a_bomb_of_many_small_files_is_refused_too(tmp_path: Path) -> None:
    path = zipped(tmp_path / "x.zip", *((entry(f"zeros{n}"), bytes(2 * 2**20)) for n in range(12)))
    with pytest.raises(RecordError, match="would unpack to 24 MiB: refused"):
        archive.open_checked(path)


def test_too_much_altogether_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = zipped(tmp_path / "x.zip", (entry("a"), b"12345678"))
    monkeypatch.setattr(archive, "MAX_BYTES", 7)
    with pytest.raises(RecordError, match="would unpack to"):
        archive.open_checked(path)
    monkeypatch.setattr(archive, "MAX_ENTRIES", 0)
    with pytest.raises(RecordError, match="has 1 entries, more than 0"):
        archive.open_checked(path)


def test_an_encrypted_file_is_refused(tmp_path: Path) -> None:
    path = zipped(tmp_path / "x.zip", (entry("a"), b"1"))
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(bytes(content))
    with pytest.raises(RecordError, match="is encrypted"):
        archive.open_checked(path)


@pytest.mark.parametrize("break_it", [lambda c: c[: len(c) // 2], lambda c: b"", lambda c: b"hello" * 20])
def test_what_is_no_zip_is_one_clear_line(tmp_path: Path, break_it: Callable[[bytes], bytes]) -> None:
    path = zipped(tmp_path / "x.zip", (entry("a"), b"1" * 100))
    path.write_bytes(break_it(path.read_bytes()))
    with pytest.raises(RecordError, match=r"x\.zip: not a readable zip file"):
        archive.open_checked(path)


def test_damaged_bytes_are_told_with_their_file(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a", b"stored as it is")
    path.write_bytes(path.read_bytes().replace(b"stored", b"STORED", 1))
    with archive.open_checked(path) as file, pytest.raises(RecordError, match=r"x\.zip: a: is damaged: bad CRC-32"):
        archive.archived_digest(file, "a")


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x" * 100_000)
    written = []
    for number in range(2):
        path = tmp_path / f"{number}.zip"
        with archive.create_archive(path) as file:
            archive.add_file(file, "a", source)
            archive.add_file(file, "b", b"text")
        written.append(path.read_bytes())
        source.touch()
    assert written[0] == written[1]


@pytest.mark.slow
def test_what_we_pack_we_can_read_however_repetitive_it_is(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"y\n" * 2**24)
    (tmp_path / "small").write_bytes(b"y\n" * 2**13)
    path = tmp_path / "x.zip"
    with archive.create_archive(path) as file:
        archive.add_file(file, "large", tmp_path / "large")
        for number in range(300):
            archive.add_file(file, f"small{number}", tmp_path / "small")
    with archive.open_checked(path) as file:
        assert len(archive.files(file)) == 301


def test_an_archive_that_could_not_be_finished_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="cannot be packed"), archive.create_archive(tmp_path / "x.zip") as file:
        archive.add_file(file, "a", tmp_path / "missing")
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_file_is_not_put_away_for_an_archive_and_a_link_stays_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RecordError, match="pipe: not a regular file"), archive.create_archive(tmp_path / "pipe"):
        pass
    assert (tmp_path / "pipe").is_fifo()
    (tmp_path / "link.zip").symlink_to("real.zip")
    with archive.create_archive(tmp_path / "link.zip") as made:
        archive.add_file(made, "a", b"1")
    assert (tmp_path / "link.zip").is_symlink()
    assert zipfile.is_zipfile(tmp_path / "real.zip")


def test_what_is_packed_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with archive.create_archive(path) as file:
        packed = [archive.add_file(file, name, name.encode() * 9) for name in ("top", "runs/r/a", "runs/r/b/c")]
    with archive.open_checked(path) as file:
        assert [archive.archived_digest(file, one.path) for one in packed] == [(one.size, one.sha256) for one in packed]
        archive.unpack_archive(file, "runs/r", tmp_path / "out")
    found = {str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*") if p.is_file()}
    assert found == {"a", "b/c"}


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_contents_that_cannot_be_unpacked_are_damaged_whatever_packed_them(tmp_path: Path, method: int) -> None:
    info = entry("records")
    info.compress_type = method
    path = zipped(tmp_path / "x.zip", (info, os.urandom(4000)))
    raw = bytearray(path.read_bytes())
    raw[60:1060] = b"\xff" * 1000
    path.write_bytes(raw)
    with archive.open_checked(path) as file, pytest.raises(RecordError, match=r"x\.zip: records: is damaged: "):
        archive.read_member(file, "records")


def test_a_folder_that_is_not_there_is_named_and_not_a_file_of_ours(tmp_path: Path) -> None:
    target = tmp_path / "none" / "x.zip"
    with pytest.raises(RecordError) as error, archive.create_archive(target):
        pass
    assert str(error.value) == f"{target}: cannot be written: no such file or directory"
