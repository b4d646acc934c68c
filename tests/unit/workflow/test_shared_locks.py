"""Benchmarks whose requirements and locks lie in one folder beside them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from milabench.capsule.create import packed_folders

Milabench = Callable[..., Any]

LOCK = "# python: 3.11\n# variant: cpu\ntool==1 --hash=sha256:" + 64 * "1" + "\n"


def definition(folder: Path, requirements: str) -> Path:
    folder.mkdir(parents=True)
    (folder / requirements).mkdir(parents=True, exist_ok=True)
    line = f"benchmark = Benchmark(script='main.py', voirfile=None, prepare=None, requirements={requirements!r})"
    (folder / "benchfile.py").write_text(f"from milabench import Benchmark\n{line}\n")
    (folder / "main.py").write_text("")
    return folder


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    locks = tmp_path / "_environments" / "both"
    locks.mkdir(parents=True)
    (locks / "requirements.in").write_text("tool\n")
    (locks / "requirements.cpu.txt").write_text(LOCK)
    for name in "ab":
        definition(tmp_path / name, "../_environments/both")
    lines = [f"{name}: {{definition: {name}, install_group: both, max_duration: 9}}" for name in "ab"]
    (tmp_path / "suite.yaml").write_text("\n".join(lines) + "\n")
    return tmp_path / "suite.yaml"


def test_one_environment_is_planned_from_the_lock_that_they_share(milabench: Milabench, suite: Path) -> None:
    said = milabench("plan", "install", "--json", "--arch", "cpu", "--config", str(suite))
    assert said.code == 0, said.err
    (venv,) = json.loads(said.out)["venvs"]
    assert venv["benches"] == ["a", "b"]
    assert [Path(file["name"]).parts[-3:] for file in venv["requirements"]] == [
        ("_environments", "both", "requirements.cpu.txt")
    ]


def test_a_changed_requirement_is_told_once(milabench: Milabench, suite: Path) -> None:
    locks = suite.parent / "_environments" / "both"
    (locks / "requirements.cpu.txt").write_text(LOCK.replace("# variant", "# inputs: 0\n# variant"))
    said = milabench("plan", "install", "--arch", "cpu", "--config", str(suite))
    assert said.code == 4
    assert said.err.count("was not made from") == 1
    assert "--select a,b`" in said.err


def test_a_folder_without_a_lock_is_named(milabench: Milabench, suite: Path) -> None:
    (suite.parent / "_environments" / "both" / "requirements.cpu.txt").unlink()
    said = milabench("plan", "install", "--arch", "cpu", "--config", str(suite))
    assert said.code == 2
    assert "_environments/both: a: has no requirements.cpu.txt. Write it with `milabench pin`" in said.err


def test_a_folder_that_is_not_there_is_named_with_the_benchfile(milabench: Milabench, suite: Path) -> None:
    (suite.parent / "_environments").rename(suite.parent / "_elsewhere")
    for verb in (("plan", "install"), ("plan", "run", "--use-current-env"), ("pin",)):
        said = milabench(*verb, "--config", str(suite))
        assert said.code == 2
        told = f"{suite.parent}/a/benchfile.py: benchmark.requirements: no such folder: ../_environments/both. Make it, with a"
        assert told in said.err


def test_a_capsule_keeps_each_benchmark_beside_its_locks(tmp_path: Path) -> None:
    here = [definition(tmp_path / "here" / name, "../_environments/x") for name in "ab"]
    own = definition(tmp_path / "other" / "a", ".")
    there = definition(tmp_path / "there" / "c", "../_environments/x")
    assert packed_folders([*here, own, there]) == {
        "benchmarks/_environments/x": tmp_path / "here" / "_environments" / "x",
        "benchmarks/a": here[0],
        "benchmarks/b": here[1],
        "benchmarks/a~1": own,
        "benchmarks~1/_environments/x": tmp_path / "there" / "_environments" / "x",
        "benchmarks~1/c": there,
    }
