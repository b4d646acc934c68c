"""The own install and prepare of a benchfile of milabench 1.3, done by the child process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.foreign_requests import DIRS, FOLDERS, answers, benchmark, definition, do


def request_in(base: Path, name: str = "overrides", **config: Any) -> dict[str, Any]:
    """Return a request about a copy of one of our folders, with all folders below `base`."""
    shutil.copytree(FOLDERS / name, base / "code")
    dirs = {each: str(base / each) for each in DIRS}
    (base / "data").mkdir()
    return definition(FOLDERS / name, benchmark(dirs=dirs, **config), code=base / "code")


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    return subprocess.run(["git", *identity, *words], cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository whose branch `main` has two commits, with a folder `sub`."""
    folder = tmp_path / "repository"
    (folder / "sub").mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "config", "uploadpack.allowAnySHA1InWant", "true")
    for text in ("first", "second"):
        (folder / "sub" / "program.py").write_text(text)
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "-m", text)
    return folder


def environ(**more: str) -> dict[str, str]:
    return {**os.environ, "CALLERS_TOKEN": "secret", **more}


def test_an_install_clones_the_commit_that_it_names(tmp_path: Path, repository: Path) -> None:
    commit = git(repository, "rev-parse", "main~1").strip()
    request = request_in(tmp_path / "base", url=str(repository), revision=commit)
    done = do("install", request, tmp_path / "request.json", environ())
    assert (done.returncode, done.stderr) == (0, "")
    source = tmp_path / "base" / "code" / "source"
    assert done.stdout.splitlines() == [f"cloned {repository} at {commit} to {source}", "installed install"]
    assert (source / "sub" / "program.py").read_text() == "first"
    assert git(source, "rev-parse", "HEAD").strip() == commit


def test_a_branch_is_cloned_at_the_commit_that_is_printed(tmp_path: Path, repository: Path) -> None:
    request = request_in(tmp_path / "base", url=str(repository), revision="main")
    done = do("install", request, tmp_path / "request.json", environ())
    assert f" at {git(repository, 'rev-parse', 'main').strip()} to " in done.stdout


def test_a_repository_that_cannot_be_had_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    request = request_in(tmp_path / "base", url=str(tmp_path / "nowhere"), revision="main")
    before = sorted((tmp_path / "base" / "code").iterdir())
    done = do("install", request, tmp_path / "request.json", environ())
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"benchfile.py:16: install: RuntimeError: cannot clone {tmp_path}/nowhere: git fetch: ")
    assert sorted((tmp_path / "base" / "code").iterdir()) == before


def test_an_install_that_is_told_its_folder_alone_knows_no_other(tmp_path: Path, repository: Path) -> None:
    request = request_in(tmp_path / "base", url=str(repository), revision="main")
    request["benchmarks"][0] |= {"dirs": {}, "nodes": [], "placements": []}
    assert do("install", request, tmp_path / "request.json", environ()).returncode == 0
    benchfile = tmp_path / "base" / "code" / "benchfile.py"
    benchfile.write_text(benchfile.read_text().replace("await super().install()", "await self.pip_install('numpy')", 1))
    done = do("install", request, tmp_path / "request.json", environ())
    assert done.stderr.splitlines()[-1].endswith(
        "install: AttributeError: dirs.venv is not known here: an own install has its own folder, dirs.code, and no other"
    )


def test_a_prepare_calls_the_planned_command_in_its_folder(tmp_path: Path) -> None:
    request = request_in(tmp_path / "base")
    done = do("prepare", request, tmp_path / "request.json", environ())
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"prepared --lr 0.1 from-a-file in {tmp_path}/base/code\n"
    assert (tmp_path / "base" / "data" / "own").read_text() == "from-a-file"


def planned_prepare(request: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """Return the words and the environment of the step that prepares the benchmark of a request."""
    (answer,) = answers(request, env=environ())
    assert answer["own_prepare"]
    (benchmark,) = request["benchmarks"]
    config = {**benchmark["config"], "dirs": benchmark["dirs"], "definition": request["code"]}
    prepare = answer["benchmarks"][0]["prepare"]
    assert prepare["words"][0] == f"{benchmark['dirs']['venv']}/bin/python"
    env = {**environ(), **prepare["env"], "MILABENCH_CONFIG": json.dumps(config)}
    return [sys.executable, *prepare["words"][1:]], env


def test_an_own_prepare_is_a_step_that_ends_in_the_planned_command(tmp_path: Path) -> None:
    words, env = planned_prepare(request_in(tmp_path / "base", argv={"--workers": "{n_worker}"}))
    assert words[-3:] == [f"{tmp_path}/base/code/prepare.sh", "--workers", "{n_worker}"]
    words[-1] = "8"  # as the control plane renders it
    done = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"prepared --workers 8 from-a-file in {tmp_path}\n"
    assert (tmp_path / "base" / "data" / "own").read_text() == "from-a-file"


def test_an_own_prepare_without_a_script_is_a_step_too(tmp_path: Path) -> None:
    request = request_in(tmp_path / "base")
    (tmp_path / "base" / "code" / "prepare.sh").unlink()
    words, env = planned_prepare(request)
    assert words[-1] == "--"
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "base" / "data" / "own").exists()


def test_a_prepare_script_that_fails_fails_the_prepare(tmp_path: Path) -> None:
    request = request_in(tmp_path / "base")
    done = do("prepare", request, tmp_path / "request.json", environ(EXIT_CODE="3"))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("ended with exit code 3")


def test_packages_are_installed_into_the_environment_with_the_constraints_of_the_suite(tmp_path: Path) -> None:
    base = tmp_path / "base"
    request = request_in(base, "plain", pip={"constraints": ["numpy<2"], "args": ["--extra-index-url X"]})
    benchfile = base / "code" / "benchfile.py"
    benchfile.write_text(
        benchfile.read_text().replace("await super().install()", "await self.pip_install('a', '-e', self.dirs.code)")
    )
    python = base / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)
    done = do("install", request, tmp_path / "request.json", environ(PATH="/usr/bin:/bin"))
    assert (done.returncode, done.stderr) == (0, "")
    words = (
        f"-m pip install --no-build-isolation a -e {base}/code --extra-index-url X -c {base}/extra/pip-constraints.txt"
    )
    assert done.stdout.strip() == words
    assert (base / "extra" / "pip-constraints.txt").read_text() == "numpy<2\n"


def test_some_files_of_a_clone_are_merged_into_the_folder(tmp_path: Path, repository: Path) -> None:
    for name in ("keep.txt", "sub/notes.md", "other/program.py"):
        (repository / name).parent.mkdir(exist_ok=True)
        (repository / name).write_text(name)
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "third")
    request = request_in(tmp_path / "base", "plain")
    (tmp_path / "base" / "code" / "benchfile.py").write_text(
        "import tempfile\n"
        "from milabench.fs import XPath\n"
        "from milabench.pack import Package\n\n\n"
        "class Merges(Package):\n"
        "    async def install(self):\n"
        "        with tempfile.TemporaryDirectory() as folder:\n"
        "            folder = XPath(folder)\n"
        f"            folder.clone_subtree({str(repository)!r}, 'main')\n"
        "            folder.merge_into(XPath(__file__).parent / 'merged', manifest='/sub/\\n!*.md\\n/keep.txt')\n\n\n"
        "__pack__ = Merges\n"
    )
    done = do("install", request, tmp_path / "request.json", environ())
    assert (done.returncode, done.stderr) == (0, "")
    merged = tmp_path / "base" / "code" / "merged"
    files = {str(file.relative_to(merged)) for file in merged.rglob("*") if file.is_file()}
    assert files == {"sub/program.py", "keep.txt"}
