"""`milabench pin --upgrade`: newer locks are shown, tried apart from everything, and kept only when asked for and good."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from milabench.pinning.upgrade import version_changes
from tests.commands import Said
from tests.process.cli.installable import installable
from tests.process.install.places import wheel
from tests.processes import until

MAIN = """
import benchmate, tool, other
assert tool.__version__ != "3", "no longer works with tool 3"
for _ in benchmate.observed(range(60), units="items/s", batch_size=2):
    pass
"""


def test_changes_are_told_by_package() -> None:
    old = "a==1 --hash=sha256:0\nb==1\nc==1 ; sys_platform == 'linux'\nsame==4 --hash=sha256:1\n"
    new = "a==2 --hash=sha256:5\nd==7\nc==1 ; sys_platform == 'linux'\nsame==4 --hash=sha256:2\n"
    assert version_changes(old, new) == ("a 1 -> 2", "+ d 7", "- b 1")
    assert version_changes(old, old) == ()


def snapshot(folder: Path) -> dict[str, str]:
    return {
        file.name: file.read_text() for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts
    }


@pytest.fixture
def suite(
    environ: dict[str, str],
    milabench: Callable[..., Said],
    tmp_path: Path,
) -> Path:
    """Two benchmarks with locks of their own, made while there was one version of their packages."""
    _, variables, _ = installable(tmp_path, environ["MILABENCH_BASE"])
    environ.update(variables)
    for package in ("tool", "other"):
        wheel(tmp_path / "wheels", package, "1")
    (tmp_path / "suites").mkdir()
    for name in ("one", "two"):
        folder = tmp_path / "benchmarks" / name
        folder.mkdir(parents=True)
        (folder / "benchfile.py").write_text((tmp_path / "timed" / "benchfile.py").read_text())
        (folder / "prepare.py").write_text("")
        (folder / "main.py").write_text(MAIN)
        (folder / "requirements.in").write_text("tool\nother\n" if name == "one" else "tool<3\nother\n")
    file = tmp_path / "suites" / "suite.yaml"
    file.write_text("".join(f"{n}: {{definition: ../benchmarks/{n}, max_duration: 120}}\n" for n in ("one", "two")))
    assert milabench("pin", "--config", str(file)).code == 0
    return file


@pytest.mark.e2e
@pytest.mark.long
def test_only_locks_that_pass_are_kept_and_only_when_asked_for(
    milabench: Callable[..., Said],
    environ: dict[str, str],
    suite: Path,
    tmp_path: Path,
) -> None:
    here = ("pin", "--upgrade", "--config", str(suite))
    said = milabench(*here)
    assert said.code == 0, said.err
    assert "as new as requirements.in" in said.err
    wheel(tmp_path / "wheels", "tool", "2")
    wheel(tmp_path / "wheels", "tool", "3")
    before = snapshot(tmp_path / "benchmarks")
    said = milabench(*here)
    assert said.code == 1, said.err
    assert "tool 1 -> 3" in said.err
    assert "tool 1 -> 2" in said.err
    assert "one: failed" in said.err
    assert "two: passed" in said.err
    assert "Traceback" not in said.err.replace("  | ", "")
    assert snapshot(tmp_path / "benchmarks") == before
    base = Path(environ["MILABENCH_BASE"])
    assert not (base / "venv").exists()
    assert not list((base / "cache").glob("upgrade-*"))
    assert "lock files changed" not in said.err
    assert "milabench report" not in said.err
    assert "1 of 2 locks passed. Nothing is written: --write keeps them" in said.err
    failed = base / "cache" / "failed-upgrade"
    assert str(failed) in said.err
    assert any("no longer works with tool 3" in log.read_text() for log in failed.rglob("*") if log.is_file())
    assert not (failed / "venv").exists()
    assert "0 of 1 locks passed. Nothing is written\n" in milabench(*here, "--select", "one", "--write").err
    assert milabench(*here, "--write").code == 1
    assert "tool==1" in (tmp_path / "benchmarks" / "one" / "requirements.cpu.txt").read_text()
    assert "tool==2" in (tmp_path / "benchmarks" / "two" / "requirements.cpu.txt").read_text()


@pytest.mark.slow
def test_the_smallest_size_is_tried_of_what_has_it(
    milabench: Callable[..., Said],
    suite: Path,
    tmp_path: Path,
) -> None:
    check = "import os\nassert 'AT' not in os.environ, 'not at the smallest size'\n"
    (tmp_path / "benchmarks" / "one" / "main.py").write_text(check + MAIN)
    large = "definition: ../benchmarks/one, sizes: {device: {}}"
    suite.write_text(
        "one: {definition: ../benchmarks/one, max_duration: 120, sizes: {tiny: {}, device: {env: {AT: device}}}}\n"
        "two: {definition: ../benchmarks/two, max_duration: 120}\n"
        f"_large: {{{large}}}\nlarge: {{inherits: _large}}\nlarger: {{inherits: _large}}\n"
    )
    wheel(tmp_path / "wheels", "tool", "2")
    here = ("pin", "--upgrade", "--config", str(suite))
    said = milabench(*here)
    assert said.code == 0, said.err
    assert "not tried, with sizes and none that is tiny: large, larger" in said.err
    assert "one: passed" in said.err
    assert "two: passed" in said.err
    said = milabench(*here, "--select", "larger")
    assert said.code == 3
    assert "no selected benchmark has the size tiny" in said.err


@pytest.mark.slow
def test_an_interrupt_leaves_everything_as_it_was(environ: dict[str, str], suite: Path, tmp_path: Path) -> None:
    wheel(tmp_path / "wheels", "tool", "2")
    (tmp_path / "benchmarks" / "two" / "prepare.py").write_text("import time\ntime.sleep(60)\n")
    before = snapshot(tmp_path / "benchmarks")
    argv = [sys.executable, "-m", "milabench", "pin", "--upgrade", "--write", "--config", str(suite), "--select", "two"]
    child = subprocess.Popen(argv, env=environ, stderr=subprocess.PIPE, text=True)
    cache = Path(environ["MILABENCH_BASE"], "cache")
    until(lambda: list(cache.glob("upgrade-*/base/runs/prepare*")), "prepare is running")
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130, err
    assert "Traceback" not in err
    assert snapshot(tmp_path / "benchmarks") == before
    assert not list(cache.glob("upgrade-*"))


def test_options_that_contradict_each_other_are_refused(milabench: Callable[..., Said]) -> None:
    assert "--write goes with --upgrade" in milabench("pin", "--write").err
    said = milabench("pin", "--upgrade", "--all-variants")
    assert said.code == 2
    assert "Leave out --variant" in said.err
