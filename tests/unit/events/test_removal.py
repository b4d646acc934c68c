"""What is removed or replaced is milabench's own; everything else is left, and no other module removes anything."""

from __future__ import annotations

import ast
import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from milabench.archives.archive import create_whole
from milabench.errors import RecordError
from milabench.events import removal
from milabench.events.atomic_write import write_output
from milabench.events.removal import MARK, new_folder, obstacle, path_within, put, remove, scratch_folder
from milabench.garbage.base_survey import Policy, survey_base
from tests.unit.test_layers import ROOT

_CALLS = {"rmtree", "unlink", "rename", "copytree", "removedirs", "renames"}
_OF_OS = {"replace", "remove", "rmdir", "move"}
# Why these remove or rename without events/removal.py.
EXCUSED = {
    "orchestrator/milabench/": {
        "execute/agent/": "runs on nodes, where nothing of milabench can be imported: its own folders and those of its run",
        "compat13/names/": "what foreign benchfiles of milabench 1.3 call, in a process of their own",
        "events/removal.py": "is that module",
        "slurm/held_nodes.py": "the empty folder above a request of its own",
        "garbage/collection.py": "the empty folder of what was removed",
        "scaffold/new_benchmark.py": "the empty folders that it has just made",
    },
    # Here nothing of the control plane can be imported.
    "benchmate/src/benchmate/": {
        "prepared_data.py": "is the module of what preparations make",
        "milabench13/datagen.py": "drafts of images, in a folder that is ours by prepared_data.py",
        "ops/base.py": "the draft of a file that -o names",
        "ops/profiler_batch.py": "shared memory, which is no file",
        "ops/traces/record.py": "its own recording, by its number, and the trace that a person named",
        "ring.py": "a file that it has just made, and nobody else",
        "stack_dump.py": "a file that it has just made, by its descriptor",
    },
    "benchmarks/": {
        "machine/": "folders that the program itself has made in this launch, and files of a folder that is ours",
        "pykeen/prepare.py": "a download into its own hidden folder, to where nothing is",
    },
}


def removals(file: Path) -> Iterator[str]:
    """Yield the calls in a module that remove, rename or copy a tree."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name, owner = node.func.attr, getattr(node.func.value, "id", "")
            is_of_a_path = name == "replace" and len(node.args) == 1 and not node.keywords
            if name in _CALLS or (name in _OF_OS and owner in ("os", "shutil")) or name == "rmdir" or is_of_a_path:
                yield f"{node.lineno}: {ast.unparse(node)[:80]}"


def test_no_other_module_removes_renames_or_copies_a_tree() -> None:
    found: dict[str, list[str]] = {}
    for root in EXCUSED:
        for file in sorted((ROOT / root).rglob("*.py")):
            name = file.relative_to(ROOT).as_posix()
            if "/milabench/devices/" not in name and (calls := list(removals(file))):
                found[name] = calls
    excused = {f"{root}{name}" for root, names in EXCUSED.items() for name in names}
    assert {name: calls for name, calls in found.items() if not name.startswith(tuple(excused))} == {}
    assert {each for each in excused if not any(name.startswith(each) for name in found)} == set()


@pytest.mark.parametrize("name", ["..", "a/../..", "/etc", "", "a//b", "./a", "a\\b", "a\0b", "C:x", "a\nb"])
def test_a_name_from_a_file_that_leads_elsewhere_is_joined_to_nothing(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"has an? .*name"):
        path_within(tmp_path, name)


def test_a_name_that_a_link_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "link").symlink_to(tmp_path)
    with pytest.raises(ValueError, match="leads out of"):
        path_within(tmp_path / "base", "link/file")
    assert path_within(tmp_path / "base", "a/b") == tmp_path / "base" / "a" / "b"


def test_what_is_mounted_or_elsewhere_is_not_removed(tmp_path: Path) -> None:
    base = tmp_path / "base"
    (base / "data" / "a").mkdir(parents=True)
    assert obstacle(base / "data" / "a", base, [Path("/"), base, tmp_path]) == ""
    for mount in (base / "data", base / "data" / "a", base / "data" / "a" / "in" / "it"):
        assert obstacle(base / "data" / "a", base, [mount]) == f"another file system is mounted at {mount}"
    assert obstacle(base, base, []) == obstacle(tmp_path / "other", base, []) == f"it is not below {base}"
    with pytest.raises(OSError, match="is not below"):
        remove(base / ".." / "base" / "..", base)
    assert base.exists()


def test_a_mount_with_spaces_in_its_name_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    listing = tmp_path / "mountinfo"
    listing.write_bytes(b"36 35 98:0 / /mnt/my\\040disk rw,noatime - ext4 /dev/sda1 rw\n")
    monkeypatch.setattr(removal, "Path", lambda name: listing if name == "/proc/self/mountinfo" else Path(name))
    assert removal.mounted() == (Path("/mnt/my disk"),)


def test_a_folder_of_a_scratch_folders_name_without_its_mark_stays(tmp_path: Path) -> None:
    folder = tmp_path / ".code.building"
    folder.mkdir()
    (folder / "thesis").write_text("mine")
    with pytest.raises(FileExistsError), scratch_folder(folder):
        pass
    assert (folder / "thesis").read_text() == "mine"
    (folder / MARK).touch()  # as one that was killed has left it
    with scratch_folder(folder) as scratch:
        assert [path.name for path in scratch.iterdir()] == [MARK]
    assert not folder.exists()


def test_a_new_folder_is_there_whole_or_not_at_all_and_replaces_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space"), new_folder(tmp_path / "new") as draft:
        draft.mkdir()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert list(tmp_path.iterdir()) == []
    with new_folder(tmp_path / "new") as draft:
        draft.mkdir()
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
    with pytest.raises(FileExistsError), new_folder(tmp_path / "new") as draft:
        draft.mkdir()
    with pytest.raises(FileExistsError):
        put(tmp_path / "new", tmp_path)


@pytest.mark.parametrize("name", ["manifest.json", "journal.jsonl", "summary.json", "a.D0.data", "a.D0~2.stdout"])
def test_what_is_written_for_a_user_replaces_no_record_of_a_run(tmp_path: Path, name: str) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    (tmp_path / name).write_text("record")
    (tmp_path / "link").symlink_to(name)
    for path in (tmp_path / name, tmp_path / "link"):
        with pytest.raises(PermissionError, match="is a record of a run"):
            write_output(path, b"report")
        with pytest.raises(RecordError, match="is a record of a run"), create_whole(path, "a bundle"):
            pass
    assert (tmp_path / name).read_text() == "record"
    write_output(tmp_path / "report.html", b"report")


def test_a_survey_keeps_everything_that_carries_no_mark_of_ours(tmp_path: Path) -> None:
    base = tmp_path.resolve() / "base"
    mine = (
        *(
            "code/thesis",
            "code/.thesis.building",
            "cache/images/own.sif",
            "cache/wheels/numpy",
            "cache/wheels/.own.building",
        ),
        *(
            "cache/wheels/benchmate-0123456789abcdef",
            "cache/capsules/mine",
            "cache/capsules/0123456789abcdef",
            "data/imagenet",
        ),
        *("venv/.store/mine", "venv/.store/mine-0123456789abcdef", "runs/mine", ".removed/mine"),
    )
    for name in mine:
        (base / name).mkdir(parents=True)
        (base / name / "file").write_text("mine")
    (base / "runs" / "empty").mkdir()
    (base / "venv" / "usb").symlink_to("/mnt/usb/venv")
    (base / "suites.json").write_text('{"schema": 1, "suites": []}')
    assert [str(item.path.relative_to(base)) for item in survey_base(base, Policy(keep=0)).unused] == []
    assert re.search(
        "carry the mark", next(item.kept for item in survey_base(base, Policy()).items if item.path.name == "thesis")
    )
