"""The file of a capsule: the same bytes each time, and nothing in it is believed that its manifest does not say."""

from __future__ import annotations

import hashlib
import json
import subprocess
import tarfile
import tracemalloc
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from milabench.capsule import contents as capsule
from milabench.capsule.contents import (
    CapsuleEntry,
    CapsuleManifest,
    Content,
    PackedImage,
    PackedPython,
    entry_of,
    open_capsule,
    write_capsule,
)
from milabench.errors import RecordError

MANY = "x/" + "long/" * 40 + "name"
CONTENTS = (
    Content(path="install.sh", content=b"#!/bin/sh\n", is_executable=True),
    Content(path="suite/a.yaml", content=b"a: {}\n"),
    Content(path="suite/empty", content=b""),
    Content(path="suite/link", link="a.yaml"),
    Content(path=MANY, content=bytes(5000)),
)


def manifest(contents: Iterable[Content] = CONTENTS) -> CapsuleManifest:
    return CapsuleManifest(
        version="0.1.0",
        suite="suite/a.yaml",
        benchmarks=("a",),
        platform="linux-x86_64",
        glibc="2.17",
        benchmate="0" * 64,
        files=tuple(map(entry_of, contents)),
    )


def written(path: Path, contents: tuple[Content, ...] = CONTENTS) -> Path:
    write_capsule(path, manifest(contents), contents)
    return path


def unpacked(path: Path, into: Path | None = None) -> CapsuleManifest:
    with open_capsule(path) as opened:
        opened.unpack(into or path, lambda _: into is not None)
        return opened.manifest


def forged(path: Path, change: Callable[[CapsuleManifest], CapsuleManifest]) -> Path:
    """A capsule whose manifest says something else of the same contents: written without the writer's own checks."""
    value = change(manifest())
    with path.open("wb") as file:
        file.write(value.own.header + value.content + value.own.padding)
        for entry, content in zip(value.files, CONTENTS, strict=True):
            file.write(entry.header)
            if not entry.link:
                assert isinstance(content.content, bytes)
                file.write(content.content + entry.padding)
        file.write(bytes(1024))
    return path


def renamed(path: str, **changes: object) -> Callable[[CapsuleManifest], CapsuleManifest]:
    """What gives the second file another name or link."""

    def change(value: CapsuleManifest) -> CapsuleManifest:
        first, second, *rest = value.files
        return replace(value, files=(first, replace(second, path=path, **changes), *rest))  # type: ignore[arg-type]

    return change


def test_the_same_contents_give_the_same_bytes_which_a_shell_can_unpack(tmp_path: Path) -> None:
    one, two = written(tmp_path / "one"), written(tmp_path / "two")
    assert one.read_bytes() == two.read_bytes()
    with tarfile.open(one) as tar:
        assert tar.getnames() == [capsule.NAME, *(content.path for content in CONTENTS)]
    (tmp_path / "by tar").mkdir()
    subprocess.run(["tar", "-xf", one, "-C", tmp_path / "by tar"], check=True)
    (tmp_path / "by us").mkdir()
    assert unpacked(one, tmp_path / "by us").digest == unpacked(two).digest
    for content in CONTENTS:
        ours, theirs = tmp_path / "by us" / content.path, tmp_path / "by tar" / content.path
        assert ours.read_bytes() == theirs.read_bytes()
        assert ours.stat().st_mode & 0o111 == theirs.stat().st_mode & 0o111
    assert (tmp_path / "by us" / "suite" / "link").readlink() == Path("a.yaml")


def test_the_format_is_what_it_was() -> None:
    """A Python that writes the headers of tar files otherwise would make every capsule look altered."""
    headers = b"".join(entry.header for entry in manifest().files)
    assert hashlib.sha256(headers).hexdigest() == "d58cd6955869766a93005d84242c1cb145b1334bc4250aea0e1c35332611b82d"
    big = CapsuleEntry(path="data/big", size=2**34, sha256="0" * 64)
    assert tarfile.TarInfo.frombuf(big.header, "utf-8", "strict").size == 2**34


def test_the_digest_is_that_of_the_manifest_and_changes_with_any_content(tmp_path: Path) -> None:
    path = written(tmp_path / "a")
    with tarfile.open(path) as tar:
        file = tar.extractfile(capsule.NAME)
        assert file is not None
        assert hashlib.sha256(file.read()).hexdigest() == unpacked(path).digest
    other = (*CONTENTS[:1], replace(CONTENTS[1], content=b"a: []\n"), *CONTENTS[2:])
    assert unpacked(written(tmp_path / "b", other)).digest != unpacked(path).digest


def test_any_altered_byte_behind_the_manifest_is_found(tmp_path: Path) -> None:
    path = written(tmp_path / "a")
    good = path.read_bytes()
    start = len(good) - sum(len(e.header) + e.size + len(e.padding) for e in manifest().files) - 1024
    for at in (*range(start, len(good), 97), len(good) - 1):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(RecordError, match=r"was altered: .* differs from the manifest. Nothing was used"):
            unpacked(path)


def test_an_altered_manifest_is_refused_or_has_another_digest(tmp_path: Path) -> None:
    path = written(tmp_path / "a")
    good, digest = path.read_bytes(), unpacked(path).digest
    for at in range(0, len(manifest().own.header) + manifest().own.size + 200, 13):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        try:
            assert unpacked(path).digest != digest
        except RecordError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize("kept", [0, 100, 600, 3000, -1024, -1])
def test_a_truncated_file_is_one_line(tmp_path: Path, kept: int) -> None:
    path = written(tmp_path / "a")
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(RecordError, match=r"is truncated|is not a capsule"):
        unpacked(path)


def test_a_file_with_more_behind_its_end_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a")
    path.write_bytes(path.read_bytes() + bytes(512))
    with pytest.raises(RecordError, match="has more than its manifest says"):
        unpacked(path)


@pytest.mark.parametrize(
    ("path", "link", "why"),
    [
        ("../evil", "", "a name outside the archive"),
        ("suite/../../evil", "", "a name outside the archive"),
        ("/etc/evil", "", "an absolute name"),
        ("suite/e\nvil", "", "an invalid file name"),
        ("suite/l", "/etc/passwd", "outside its folder"),
        ("suite/l", "../../evil", "outside its folder"),
        ("suite/l", "../data/a", "outside its folder"),
        ("suite/l", "link/link/../../../evil", "outside its folder"),
        ("l", "suite", "outside its folder"),
        ("suite/link", "", "names a file twice"),
        ("capsule.json", "", "names a file twice"),
        ("install.sh/below", "", "is a file and a folder"),
        ("suite/link/below", "", "is a file and a folder"),
    ],
)
def test_a_name_or_link_that_leads_elsewhere_is_refused(tmp_path: Path, path: str, link: str, why: str) -> None:
    changes = {"link": link, "size": 0, "sha256": ""} if link else {}
    with pytest.raises(RecordError, match=f"{why}.*: refused, nothing was unpacked"):
        unpacked(forged(tmp_path / "a", renamed(path, **changes)), tmp_path / "into")
    assert not (tmp_path / "into").exists()


@pytest.mark.parametrize("size", [2**60, -1, 7])
def test_a_size_that_the_file_does_not_have_is_refused_before_anything_is_read(tmp_path: Path, size: int) -> None:
    path = tmp_path / "a"

    def change(value: CapsuleManifest) -> CapsuleManifest:
        first, second, *rest = value.files
        return replace(value, files=(first, replace(second, size=size), *rest))

    content = change(manifest()).content
    own = CapsuleEntry(path=capsule.NAME, size=len(content))
    whole = written(tmp_path / "good").read_bytes()
    at = len(manifest().own.header) + manifest().own.size + len(manifest().own.padding)
    path.write_bytes(own.header + content + own.padding + whole[at:])
    with pytest.raises(RecordError, match=r"is truncated|has no size|was altered"):
        unpacked(path)


def test_a_capsule_of_a_newer_version_says_how_to_use_it(tmp_path: Path) -> None:
    value = {**json.loads(manifest().content), "schema": 2, "version": "9.0"}
    content = json.dumps(value).encode()
    own = CapsuleEntry(path=capsule.NAME, size=len(content))
    path = tmp_path / "a"
    path.write_bytes(own.header + content + own.padding + bytes(1024))
    with pytest.raises(RecordError, match=r"made by milabench 9\.0, with schema 2.*sh install\.sh"):
        unpacked(path)


@pytest.mark.parametrize("content", [b"", b"no tar", bytes(4096), b"PK\x03\x04" + bytes(2000)])
def test_what_is_no_capsule_is_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=r"is not a capsule. Create it with `milabench capsule create`"):
        unpacked(path)


def test_a_file_that_changes_while_it_is_packed_leaves_no_capsule(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"1")
    contents = (Content(path="data/source", content=source),)
    listed = manifest(contents)
    source.write_bytes(b"2")
    with pytest.raises(RecordError, match="was changed while it was packed"):
        write_capsule(tmp_path / "a", listed, contents)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_what_cannot_be_packed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no UTF-8"):
        entry_of(Content(path="data/\udcff", content=b""))
    with pytest.raises(RecordError, match="not a regular file, as a capsule must be"):
        write_capsule(Path("/dev/null"), manifest(), CONTENTS)
    with pytest.raises(RecordError, match=r"no.a: cannot be written: no such file"):
        write_capsule(tmp_path / "no" / "a", manifest(), CONTENTS)


def test_a_suite_that_was_changed_after_it_was_unpacked_has_no_digest(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    digest = unpacked(written(tmp_path / "a"), home).digest
    (home / capsule.NAME).write_bytes(manifest().content)
    assert capsule.unpacked_digest(home, "suite") == digest
    (home / "suite" / "a.yaml").write_text("a: []\n")
    with pytest.raises(RecordError, match="was changed since it was unpacked"):
        capsule.unpacked_digest(home, "suite")


def with_parts(path: Path, *parts: Content, **changes: object) -> Path:
    """A capsule with more files, or another manifest, written without the writer's own checks."""
    contents = (*CONTENTS, *parts)
    value = replace(manifest(contents), **changes)  # type: ignore[arg-type]
    with path.open("wb") as file:
        file.write(value.own.header + value.content + value.own.padding)
        for entry, content in zip(value.files, contents, strict=True):
            assert isinstance(content.content, bytes)
            file.write(entry.header + (b"" if entry.link else content.content + entry.padding))
        file.write(bytes(1024))
    return path


@pytest.mark.parametrize(
    "name", ["code/....complete", "code/..complete", "code/.other.complete", "code/.install.sh.complete"]
)
def test_a_marker_that_belongs_to_no_program_of_the_capsule_is_refused(tmp_path: Path, name: str) -> None:
    """Of `code/....complete` the program would be `code/..`, the base itself."""
    with pytest.raises(RecordError, match="which belongs to no folder of the capsule"):
        unpacked(with_parts(tmp_path / "capsule", Content(path=name, content=b"{}")))
    program = (Content(path="code/.a-1.complete", content=b"{}"), Content(path="code/a-1/main.py"))
    unpacked(with_parts(tmp_path / "whole", *program))


@pytest.mark.parametrize(
    "changes",
    [
        {"suite": "/etc/suite.yaml"},
        {"suite": "../suite.yaml"},
        {"suite": "install.sh"},
        {"images": (PackedImage(engine="docker", image="mine", path="/etc/passwd"),)},
        {"images": (PackedImage(engine="docker", image="mine", path="suite/a.yaml"),)},
        {"pythons": (PackedPython(version="3.11", folder="/usr"),)},
        {"pythons": (PackedPython(version="3.11", folder="../.."),)},
    ],
)
def test_a_path_of_the_manifest_that_is_not_in_the_capsule_is_refused(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    with pytest.raises(RecordError, match=r"names '.*', which (is not a file|belongs to no folder) of the capsule"):
        unpacked(with_parts(tmp_path / "capsule", **changes))


def test_folders_that_lie_too_deep_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="lies more than 120 folders deep"):
        unpacked(with_parts(tmp_path / "capsule", Content(path="data/" + "d/" * 2000 + "x")))


def test_a_manifest_with_holes_is_refused_before_it_takes_memory(tmp_path: Path) -> None:
    info = tarfile.TarInfo(capsule.NAME)
    info.size = 400 * 2**20
    with (tmp_path / "capsule").open("wb") as file:
        file.write(info.tobuf(tarfile.GNU_FORMAT, "utf-8", "strict"))
        file.truncate(500 * 2**20)
    tracemalloc.start()
    with pytest.raises(RecordError, match="its manifest is not as milabench writes it"):
        unpacked(tmp_path / "capsule")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 * 2**20
