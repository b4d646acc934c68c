"""What of a folder is packed: files, links inside of it as links, what links outside lead to in their place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from milabench.capsule.create import _searched, tree
from milabench.errors import EnvironmentFailed


def packed(folder: Path, *left_out: str) -> dict[str, str]:
    """Each path with its content, or `-> target`; an executable ends in `*`."""
    found = {}
    for content in tree(folder, "p", lambda name: name in left_out):
        text = f"-> {content.link}" if content.link else Path(str(content.content)).read_text()
        found[content.path + ("*" if content.is_executable else "")] = text
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    (made / "blobs").mkdir(parents=True)
    (made / "snapshots" / "a").mkdir(parents=True)
    (made / "blobs" / "x").write_text("x")
    return made


def test_a_link_inside_stays_one_and_is_relative(folder: Path) -> None:
    (folder / "snapshots" / "a" / "relative").symlink_to("../../blobs/x")
    (folder / "snapshots" / "a" / "absolute").symlink_to(folder / "blobs" / "x")
    (folder / "latest").symlink_to("snapshots/a")
    assert packed(folder) == {
        "p/blobs/x": "x",
        "p/latest": "-> snapshots/a",
        "p/snapshots/a/absolute": "-> ../../blobs/x",
        "p/snapshots/a/relative": "-> ../../blobs/x",
    }


def test_what_a_link_outside_leads_to_is_packed_in_its_place(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "y").write_text("y")
    (outside / "own").symlink_to("y")
    (folder / "images").symlink_to(outside)
    (folder / "one").symlink_to(outside / "y")
    (folder / "nothing").symlink_to(tmp_path / "nothing")
    assert packed(folder) == {"p/blobs/x": "x", "p/images/y": "y", "p/images/own": "-> y", "p/one": "y"}


def test_what_is_left_out_is_not_linked_to_either(folder: Path) -> None:
    (folder / ".git").mkdir()
    (folder / ".git" / "x").write_text("history")
    (folder / "link").symlink_to(".git/x")
    assert packed(folder, ".git") == {"p/blobs/x": "x", "p/link": "history"}


def test_executables_stay_executable(folder: Path) -> None:
    (folder / "tool").write_text("#!")
    (folder / "tool").chmod(0o755)
    assert "p/tool*" in packed(folder)


def test_links_that_form_a_circle_outside_end_in_one_line(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (folder / "out").symlink_to(outside)
    (outside / "back").symlink_to(folder)
    with pytest.raises(EnvironmentFailed, match="folders deep: cannot be packed"):
        packed(folder)


def test_what_is_no_file_is_one_line(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises(EnvironmentFailed, match="neither a file nor a folder"):
        packed(folder)


@pytest.mark.parametrize("pieces", [[b"a/base/b"], [b"a/ba", b"se/b"], [b"/", b"b", b"a", b"se"]])
def test_a_path_is_found_across_pieces(pieces: list[bytes]) -> None:
    seen: list[bool] = []
    assert b"".join(_searched(iter(pieces), b"/base", seen)) == b"".join(pieces)
    assert seen == [True]
    assert list(_searched(iter([b"/bas", b"/e"]), b"/base", none := [])) and not none
