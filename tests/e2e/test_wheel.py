"""The distributions: what is built from a checkout, installed into an empty environment, and used in an empty folder."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]


def ran(*argv: str | Path, cwd: Path, environ: dict[str, str] | None = None) -> str:
    """Run a command to its end; return what it wrote."""
    done = subprocess.run(
        list(map(str, argv)),
        cwd=cwd,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{argv}: {done.returncode}\n{done.stdout}"
    return done.stdout


def built(kind: str, project: Path, into: Path) -> Path:
    """Build the wheel or the sdist of a source tree."""
    ran(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", into, cwd=project)
    (made,) = into.iterdir()
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


def test_the_sdist_builds_the_wheel_of_the_checkout(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    subprocess.run(["tar", "-xf", built("sdist", ROOT, tmp_path / "sdist"), "-C", tmp_path / "tree"], check=True)
    (tree,) = (tmp_path / "tree").iterdir()
    again = built("wheel", tree, tmp_path / "again")
    assert zipfile.ZipFile(again).namelist() == zipfile.ZipFile(wheel).namelist()
    assert hashlib.sha256(again.read_bytes()).digest() == hashlib.sha256(wheel.read_bytes()).digest()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder."""
    made = tmp_path / "folder"
    made.mkdir()
    return made


@pytest.fixture
def environ(wheel: Path, folder: Path, tmp_path: Path) -> dict[str, str]:
    """An empty home, and an environment with the wheel and what it depends on.

    What another test has downloaded is not downloaded again: the first of them had empty caches.
    """
    environment, home = tmp_path / "environment", tmp_path / "home"
    home.mkdir()
    venv.create(environment, with_pip=True)
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("MILABENCH_", "PYTHON"))}
    environ |= {
        "HOME": str(home),
        "MILABENCH_LOCK_DIR": str(tmp_path / "locks"),
        "UV_CACHE_DIR": ran(sys.executable, "-m", "uv", "cache", "dir", cwd=folder).strip(),
        "PIP_CACHE_DIR": ran(sys.executable, "-m", "pip", "cache", "dir", cwd=folder).strip(),
        "PATH": f"{environment / 'bin'}:{os.environ['PATH']}",
    }
    ran("pip", "install", "--quiet", wheel, cwd=folder, environ=environ)
    return environ


def test_a_wheel_in_an_empty_environment_measures_in_an_empty_folder(environ: dict[str, str], folder: Path) -> None:
    ran("milabench", "init", "mine", cwd=folder, environ=environ)
    assert ran("milabench", "list", "--config", "mine/config/quickstart.yaml", cwd=folder, environ=environ).startswith(
        "name"
    )
    ran("milabench", "plan", "run", "--config", "quickstart", cwd=folder, environ=environ)
    created = ran("milabench", "new", "tiny", cwd=folder, environ=environ)
    suite = next(word for word in created.split() if word.endswith("suite.yaml"))
    for verb in ("install", "prepare", "run"):
        ran("milabench", verb, "--config", suite, cwd=folder, environ=environ)
    (bench,) = json.loads(ran("milabench", "report", "--json", cwd=folder, environ=environ))["benchmarks"]
    assert (bench["bench"], bench["outcome"], bench["units"]) == ("tiny", "passed", "samples/s")
    assert bench["perf"] > 0


@pytest.mark.long
def test_the_quickstart_of_a_wheel_measures_in_an_empty_folder(environ: dict[str, str], folder: Path) -> None:
    said = ran("milabench", "quickstart", "--select", "digits", "--display", "none", cwd=folder, environ=environ)
    assert "1 of 1 step passed" in said
    (bench,) = json.loads(ran("milabench", "report", "--json", cwd=folder, environ=environ))["benchmarks"]
    assert (bench["bench"], bench["outcome"], bench["units"]) == ("digits", "passed", "images/s")
    assert bench["perf"] > 0
    assert [path.name for path in folder.iterdir()] == ["results"]


@pytest.mark.long
def test_a_program_that_no_suite_has_is_measured_from_its_release(environ: dict[str, str], folder: Path) -> None:
    release = ("--from", "pypi:pytorch-ignite==0.5.5", "--script", "examples/reinforcement_learning/reinforce.py")
    ran("milabench", "new", "mine", *release, cwd=folder, environ=environ)
    requirements = folder / "benchmarks" / "mine" / "requirements.in"
    listed = requirements.read_text()
    assert (
        "\npytorch-ignite==0.5.5\n" in listed and "# gymnasium: imported in line " in listed and "ignite:" not in listed
    )
    requirements.write_text(f"{listed}gymnasium[classic-control]\nnumpy\ntorch\n")
    ran("milabench", "quickstart", "--config", "benchmarks/mine/suite.yaml", cwd=folder, environ=environ)
    (bench,) = json.loads(ran("milabench", "report", "--json", cwd=folder, environ=environ))["benchmarks"]
    assert (bench["bench"], bench["outcome"], bench["units"]) == ("mine", "passed", "steps/s")
