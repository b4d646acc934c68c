"""The chain of hashes: what stands for what."""

from __future__ import annotations

import hashlib
import json

import pytest

from milabench.archives.archive import ArchiveMember
from milabench.archives.bundle import Manifest, chain_links, compare_files, from_bytes
from milabench.errors import RecordError

FILES = tuple(
    ArchiveMember(path=name, size=len(name), sha256=hashlib.sha256(name.encode()).hexdigest())
    for name in ("a", "b", "c")
)
MANIFEST = Manifest(version="1", runs=("r",), files=FILES, notes=("n",))


def test_a_link_is_the_hash_of_the_one_before_it_and_of_its_file() -> None:
    seed = hashlib.sha256(b"milabench-bundle-1").hexdigest()
    first = hashlib.sha256(f"{seed}\n{FILES[0].sha256} 1 a".encode()).hexdigest()
    assert chain_links(FILES)[0] == first
    assert chain_links(FILES)[1] == hashlib.sha256(f"{first}\n{FILES[1].sha256} 1 b".encode()).hexdigest()


def test_what_is_written_is_read_back() -> None:
    assert from_bytes(MANIFEST.to_bytes(), "x.zip") == (MANIFEST, [])


def test_an_edited_list_breaks_its_chain() -> None:
    value = json.loads(MANIFEST.to_bytes())
    value["files"][1]["sha256"] = "0" * 64
    assert from_bytes(json.dumps(value).encode(), "x.zip")[1] == ["bundle.json: the chain breaks at b"]
    value = json.loads(MANIFEST.to_bytes())
    del value["files"][2]
    assert from_bytes(json.dumps(value).encode(), "x.zip")[1] == ["bundle.json: its last link does not match the chain"]


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"files": 3}', b"\xff"])
def test_another_file_is_no_list(content: bytes) -> None:
    with pytest.raises(RecordError, match=r"x\.zip: bundle\.json: cannot be read as a bundle manifest"):
        from_bytes(content, "x.zip")


def test_changed_added_and_removed_are_named() -> None:
    there = {"a": (1, FILES[0].sha256), "b": (1, "other"), "d": (1, "x"), "bundle.json": (9, "y")}
    assert compare_files(MANIFEST, there) == ["changed: b", "added: d", "removed: c"]
