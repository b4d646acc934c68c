"""Which suite a command reads: a file, a shipped suite by its name, or the default."""

from __future__ import annotations

from pathlib import Path

import pytest

from milabench.errors import ConfigError, UsageError
from milabench.scaffold.new_benchmark import copy_shipped, create_benchmark
from milabench.workflow.files import ROOT, suite_file
from tests.process.cli.test_bad_places import disk


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_name_is_a_shipped_suite_and_everything_else_a_file(folder: Path) -> None:
    (folder / "mine").touch()
    assert suite_file(Path("quickstart")) == ROOT / "config" / "quickstart.yaml"
    assert [suite_file(Path(name)) for name in ("mine", "quickstart.yaml", "config/quickstart")] == [
        Path("mine"),
        Path("quickstart.yaml"),
        Path("config/quickstart"),
    ]


@pytest.mark.parametrize(
    ("name", "hint"),
    [("quickstar", "Did you mean 'quickstart'?"), ("mine", "Shipped suites: acceptance-1h, ci, ops, ")],
)
def test_a_name_that_is_neither_is_answered_with_the_shipped_suites(name: str, hint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        suite_file(Path(name))
    assert f"{name}: neither a file here nor a shipped suite. {hint}" in str(refused.value)


def test_a_name_that_is_also_a_file_is_refused_with_both_paths(folder: Path) -> None:
    (folder / "quickstart").touch()
    with pytest.raises(UsageError) as refused:
        suite_file(Path("quickstart"))
    both = f"Give {folder / 'quickstart'} or {ROOT / 'config' / 'quickstart.yaml'}"
    assert str(refused.value) == f"quickstart is a file here and a shipped suite. {both}"
    assert suite_file(folder / "quickstart") == folder / "quickstart"


def test_the_default_is_the_standard_suite_here_else_the_shipped_one(folder: Path) -> None:
    assert suite_file(None) == ROOT / "config" / "standard.yaml"
    copy_shipped(folder)
    assert suite_file(None) == folder / "config" / "standard.yaml"


def test_copies_of_what_is_shipped_overwrite_nothing(folder: Path) -> None:
    (folder / "benchmarks").mkdir()
    with pytest.raises(UsageError, match=r"benchmarks exists. Choose another folder, or remove it first"):
        copy_shipped(folder)
    assert not (folder / "config").exists()


@pytest.mark.parametrize("words", ["init", "new"])
def test_on_a_full_disk_nothing_is_left_and_with_room_it_works(folder: Path, words: str) -> None:
    made = {"init": copy_shipped, "new": lambda into: create_benchmark("mine", into)}[words]
    with disk(folder / "disk", "24k") as small:
        with pytest.raises(UsageError, match=r"no space left on the disk. Nothing was left behind"):
            made(small)
        assert list(small.iterdir()) == []
    (folder / "more").mkdir()
    made(folder / "more")
