"""Archives of programs are unpacked by a check of our own: nothing lands outside, on every Python."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from milabench.errors import EnvironmentFailed
from milabench.execute import unpack_release as unpacking
from milabench.execute.unpack_release import unpack_release

DEEP = "/".join(["d" * 200] * 8)  # longer with its prefix than a path may be: CVE-2025-4517


def member(
    name: str, content: bytes = b"", *, link: str = "", kind: bytes = tarfile.REGTYPE, mode: int = 0o644
) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size, info.mode = kind, link, len(content), mode
    return info


def packed(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for info in members:
            tar.addfile(info, io.BytesIO(bytes(info.size)))
    return path


def test_files_links_and_modes_of_an_sdist_arrive(tmp_path: Path) -> None:
    archive = packed(
        tmp_path / "a-1.tar.gz",
        member("a-1", kind=tarfile.DIRTYPE),
        member("./a-1/run.sh", b"12", mode=0o4777),
        member("a-1/lib/x.py", b"1"),
        member("a-1/to", link="lib/x.py", kind=tarfile.SYMTYPE),
        member("a-1/same", link="a-1/lib/x.py", kind=tarfile.LNKTYPE),
    )
    unpack_release(archive, archive.name, tmp_path / "into")
    assert sorted(path.relative_to(tmp_path / "into").as_posix() for path in (tmp_path / "into").rglob("*")) == [
        *("lib", "lib/x.py", "run.sh", "same", "to"),
    ]
    assert (tmp_path / "into" / "run.sh").stat().st_mode & 0o7777 == 0o755
    assert (tmp_path / "into" / "to").readlink() == Path("lib/x.py")


@pytest.mark.parametrize(
    "members",
    [
        [member("../out", b"1")],
        [member("/tmp/out", b"1")],
        [member("a/l", link="..", kind=tarfile.SYMTYPE), member("a/l/../../out", b"1")],
        [member("a/l", link="../../out", kind=tarfile.SYMTYPE)],
        [member("a/l", link="/etc/passwd", kind=tarfile.SYMTYPE)],
        [member("a/l", link="../out", kind=tarfile.LNKTYPE)],
        [member("a/device", kind=tarfile.CHRTYPE)],
        [member("a/pipe", kind=tarfile.FIFOTYPE)],
        [
            member("x", link=DEEP, kind=tarfile.SYMTYPE),
            member("up", link="x/" + "../" * 8 + "..", kind=tarfile.SYMTYPE),
            member("up/out", b"1"),
        ],
        [member("s", link="..", kind=tarfile.SYMTYPE), member("s2", link="s/..", kind=tarfile.SYMTYPE)],
    ],
)
def test_a_member_that_would_land_outside_is_refused(tmp_path: Path, members: list[tarfile.TarInfo]) -> None:
    folder = tmp_path / "deep" / "er"
    folder.mkdir(parents=True)
    archive = packed(tmp_path / "a-1.tar.gz", *members)
    with pytest.raises((EnvironmentFailed, OSError)):
        unpack_release(archive, archive.name, folder / "into")
    assert [path for path in tmp_path.rglob("out") if not path.is_relative_to(folder / "into.loose")] == []


def test_a_file_is_not_written_through_a_link_that_came_before_it(tmp_path: Path) -> None:
    members = [member("a/l", link="../../..", kind=tarfile.SYMTYPE), member("a/l/out", b"1")]
    with pytest.raises((EnvironmentFailed, OSError)):
        unpack_release(packed(tmp_path / "a.tar.gz", *members), "a.tar.gz", tmp_path / "x")
    assert not (tmp_path.parent / "out").exists()


def test_what_would_unpack_to_more_than_it_may_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "_RATIO_FROM", 1000)
    archive = packed(tmp_path / "a.tar.gz", member("a/b", bytes(10**6)))
    with pytest.raises(EnvironmentFailed, match="would unpack to more than"):
        unpack_release(archive, "a.tar.gz", tmp_path / "x")
    wheel = tmp_path / "a.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a.py", bytes(10**6))
    with pytest.raises(EnvironmentFailed, match="would unpack to more than"):
        unpack_release(wheel, "a.whl", tmp_path / "y")
