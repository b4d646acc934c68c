"""The names that benchfiles of milabench 1.3 import, one by one."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import pytest

from milabench.compat13.names.milabench.effects import ALLOWED
from milabench.compat13.names.milabench.fs import XPath
from milabench.compat13.names.milabench.merge import DELETE, merge
from milabench.compat13.names.milabench.system import DockerConfig, option, system_global
from milabench.compat13.names.milabench.utils import assemble_options, enumerate_rank, select_nodes
from tests.structure import CONTROL_PLANE

SOURCES = [CONTROL_PLANE / "compat13" / "child.py", *sorted((CONTROL_PLANE / "compat13" / "names").rglob("*.py"))]


@pytest.mark.parametrize("path", SOURCES, ids=[path.name for path in SOURCES])
def test_the_child_runs_under_python_3_10_with_nothing_installed(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 10))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level}
    assert {name.split(".")[0] for name in imported if name} <= sys.stdlib_module_names


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["a", 1], ["a", 1]),
        (
            {"--a": [1, 2], "p": True, "--f": True, "--n": None, "--": ["x", "y"], "q": "v", "--e": ""},
            ["p", "--a", "1,2", "--f", "x", "y", "q", "v", "--e", ""],
        ),
        ({"--lr": 0.5, "--n": 0}, ["--lr", "0.5", "--n", "0"]),
    ],
)
def test_options_become_words(options: Any, words: list[Any]) -> None:
    assert assemble_options(options) == words


def test_false_is_refused_and_names_its_option() -> None:
    with pytest.raises(ValueError, match=r"--amp: false. Write null"):
        assemble_options({"--amp": False})


def test_the_main_node_is_first_and_one_is_always_selected() -> None:
    nodes = [{"name": "a"}, {"name": "b", "main": True}, {"name": "c"}]
    assert [node["name"] for node in select_nodes(nodes, 2)] == ["b", "a"]
    assert [node["name"] for node in select_nodes(nodes, 0)] == ["b"]
    assert [(rank, node["name"]) for rank, node in enumerate_rank(nodes)] == [(1, "a"), (0, "b"), (2, "c")]


def test_mappings_are_merged_and_lists_replaced_or_made_longer() -> None:
    old = {"a": {"x": 1, "y": 2}, "list": [1], "more": [1], "gone": 0}
    new = {"a": {"y": 3}, "list": [2], "more": {"append": [2]}, "gone": DELETE, "new": {"z": DELETE, "k": 1}}
    assert merge(old, new) == {"a": {"x": 1, "y": 3}, "list": [2], "more": [1, 2], "new": {"k": 1}}


def test_an_option_is_that_of_the_environment_then_of_the_system_then_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    token = system_global.set({"options": {"torchrun": {"port": 1}, "force": {"remote": 0}}})
    try:
        assert option("torchrun.port", int, 2) == 1
        assert option("torchrun.other", int, 2) == 2
        assert option("torchrun.none", int) is None
        assert option("force.remote", int, 1) == 0
        monkeypatch.setenv("MILABENCH_TORCHRUN_PORT", "3")
        monkeypatch.setenv("MILABENCH_CPU_ENABLED", "0")
        assert option("torchrun.port", int, 2) == 3
        assert option("cpu.enabled", bool, True) is False
        monkeypatch.setenv("MILABENCH_TORCHRUN_PORT", "many")
        with pytest.raises(ValueError, match="MILABENCH_TORCHRUN_PORT: 'many' is no int"):
            option("torchrun.port", int, 2)
    finally:
        system_global.reset(token)


def test_a_container_has_its_words() -> None:
    assert DockerConfig(image="i", args=["--rm"]).command(["-e", "A"]) == ["podman", "run", "--rm", "-e", "A", "i"]


def test_a_path_edits_its_file(tmp_path: Path) -> None:
    file = XPath(tmp_path / "file.txt")
    file.write_text("two\n")
    file.prepend_lines("one")
    file.append_lines("three")
    file.sub("t(wo|hree)", r"T\1")
    assert file.read_text() == "one\nTwo\nThree\n"
    file.copy(tmp_path / "folder" / "copy.txt")
    assert (tmp_path / "folder" / "copy.txt").read_text() == file.read_text()
    file.rm()
    XPath(tmp_path / "folder").rm()
    assert not list(tmp_path.iterdir())
    assert len(file) == len(str(file))


MANIFESTS = {
    "*": {"a.py", "sub/b.py", "sub/deep/c.txt", "sub/deep/[x].txt"},
    "*.py": {"a.py", "sub/b.py"},
    "/*.py": {"a.py"},
    "deep/": {"sub/deep/c.txt", "sub/deep/[x].txt"},
    "sub/*\n!*.txt": {"sub/b.py"},
    "# sub\n\nsub/**/?.txt": {"sub/deep/c.txt"},
    "[a-b].py": {"a.py", "sub/b.py"},
    "/sub/**": {"sub/b.py", "sub/deep/c.txt", "sub/deep/[x].txt"},
    "": set(),
}


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_a_manifest_is_a_gitignore(tmp_path: Path, manifest: str) -> None:
    source = XPath(tmp_path / "source")
    for name in MANIFESTS["*"]:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
    target = tmp_path / "target"
    source.merge_into(target, manifest, readonly=True)
    files = {path for path in target.rglob("*") if path.is_file()}
    assert {path.relative_to(target).as_posix() for path in files} == MANIFESTS[manifest]
    assert not any(path.stat().st_mode & 0o222 for path in files)
    assert {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()} == MANIFESTS["*"]


def test_a_file_is_downloaded_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "there.txt").write_text("content")
    folder = XPath(tmp_path / "folder")
    folder.mkdir()
    with pytest.raises(RuntimeError, match="only in install and prepare"):
        folder.download((tmp_path / "there.txt").as_uri())
    token = ALLOWED.set(True)
    try:
        folder.download((tmp_path / "there.txt").as_uri())
        with pytest.raises(RuntimeError, match="cannot download file://"):
            folder.download((tmp_path / "missing.txt").as_uri(), "other.txt")
    finally:
        ALLOWED.reset(token)
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"there.txt": "content"}
