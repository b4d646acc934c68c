"""What an installation needs of the machine and does not find is one line: which package, what is missing, the way out."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from milabench.errors import EnvironmentFailed
from milabench.pinning import pinned_locks as pinning
from tests.process.install.places import Place, wheel
from tests.process.install.test_pinning import pin

PROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
INFO = "Metadata-Version: 2.1\nName: compiled\nVersion: 1\n"
# As setuptools does, with a compiler that no machine has.
BACKEND = """
import subprocess, sys
def build_wheel(into, config_settings=None, metadata_directory=None):
    try:
        subprocess.run(["/nowhere/gcc", "-c", "x.c"], check=True)
    except FileNotFoundError:
        sys.exit("error: command 'gcc' failed: No such file or directory")
"""


def sdist(folder: Path, name: str) -> None:
    with tarfile.open(folder / f"{name}-1.tar.gz", "w:gz") as tar:
        for member, text in {"pyproject.toml": PROJECT, "PKG-INFO": INFO, "backend.py": BACKEND}.items():
            info = tarfile.TarInfo(f"{name}-1/{member}")
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))


@pytest.fixture(params=["uv", pytest.param("pip", marks=[pytest.mark.e2e, pytest.mark.long])])
def changes(request: pytest.FixtureRequest) -> dict[str, object]:
    """Which program installs."""
    return {} if request.param == "uv" else {"uv": None}


def why(place: Place, requirement: str, changes: dict[str, object]) -> str:
    (outcome,) = place.install(place.spec(requirement, variant="unpinned"), **changes)
    assert outcome.why, outcome
    assert "\n" not in outcome.why
    return outcome.why


def test_without_a_compiler(place: Place, changes: dict[str, object]) -> None:
    sdist(place.wheels, "compiled")
    assert "has to be compiled, and gcc is not installed. Install it, or" in why(place, "compiled\n", changes)


def test_with_an_older_python_than_a_package_requires(place: Place, changes: dict[str, object]) -> None:
    wheel(place.wheels, "newer", "1", info="Requires-Python: >=3.99\n")
    line = why(place, "newer\n", changes)
    assert line.startswith("newer")
    assert "requires python >=3.99, and the environment has another version" in line


def test_pin_without_uv(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinning, "find_uv", lambda _: None)
    with pytest.raises(EnvironmentFailed, match="pin needs uv, which was not found"):
        pin(place, tmp_path, {"a": "tool\n"})
