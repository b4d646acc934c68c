"""The instruments on every Python that a benchmark may need: a core of their tests, run in an environment made for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
OURS = f"{sys.version_info.major}.{sys.version_info.minor}"
# What differs between versions: ptera's rewriting, the runner's loading, the loop's written-out fast way, the readers.
CORE = ("test_selectors", "test_voir_and_ptera", "test_observer", "test_loss_recorder", "test_ring")
CORE_OF_RUN = (
    "tests/test_run.py::test_a_probed_loader_is_measured_and_ends_the_program",
    "tests/test_run.py::test_a_script_without_instruments_runs_as_under_python",
    "tests/test_run.py::test_what_a_script_raises_is_shown_as_python_shows_it",
    "tests/test_run.py::test_a_forked_child_records_for_itself_only",
    "tests/test_bad_input.py::test_steps_are_recorded_however_the_script_ends",
)


def interpreter(version: str) -> str | None:
    """A Python of this version on PATH or under pyenv."""
    found = shutil.which(f"python{version}")
    pyenv = shutil.which("pyenv")
    candidates = [found] if found else []
    if pyenv is not None:
        root = subprocess.run([pyenv, "root"], capture_output=True, text=True, check=False).stdout.strip()
        candidates += [
            str(path) for path in sorted(Path(root or "/nonexistent").glob(f"versions/{version}*/bin/python"))
        ]
    for candidate in candidates:
        # A pyenv shim exists for versions that are not chosen, and fails.
        asked = [candidate, "-c", f"import sys; sys.exit('%d.%d' % sys.version_info[:2] != {version!r})"]
        if subprocess.run(asked, capture_output=True, check=False).returncode == 0:
            return candidate
    return None


@pytest.mark.parametrize(
    "version",
    # The oldest is the one that breaks; the others take `make e2e` too long for each change.
    [
        pytest.param(VERSIONS[0], marks=pytest.mark.e2e),
        *(pytest.param(each, marks=[pytest.mark.e2e, pytest.mark.long]) for each in VERSIONS[1:] if each != OURS),
    ],
)
def test_the_instruments_work_on_every_python(root: Path, tmp_path: Path, version: str) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"Python {version} is not installed (PATH, pyenv)")
    venv = tmp_path / "venv"
    uv = (sys.executable, "-m", "uv")
    environ = {**os.environ, "VIRTUAL_ENV": str(venv)}
    wanted = (f"{root / 'benchmate'}[test]",)
    for command in (
        (*uv, "venv", "--quiet", "--python", python, str(venv)),
        (*uv, "pip", "install", "--quiet", "--python", str(venv / "bin" / "python"), *wanted),
    ):
        made = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        if made.returncode != 0:
            pytest.skip(f"an environment for Python {version} cannot be made here: {made.stderr.strip()[-300:]}")
    files = [f"tests/{name}.py" for name in CORE] + list(CORE_OF_RUN)
    done = subprocess.run(
        [venv / "bin" / "python", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files],
        cwd=root / "benchmate",
        env={name: value for name, value in environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
