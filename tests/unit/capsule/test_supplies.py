"""Which file of a release a capsule takes, and what it asks of the machine."""

from __future__ import annotations

import io
import platform
import sys
import tarfile
from pathlib import Path

import pytest

from milabench.capsule.supplies import Release, build_requirements, choose_file, oldest_glibc, sealed_environment

MINE = f"{sys.version_info.major}{sys.version_info.minor}"
HERE = f"manylinux_2_17_{platform.machine()}"


def chosen(*names: str, version: str = "1.0", hashes: frozenset[str] = frozenset(), python: str = "") -> str | None:
    """The name that is chosen; each file's hash is its name."""
    version_here = python or f"{sys.version_info.major}.{sys.version_info.minor}"
    release = Release(project="tool", version=version, python=version_here, settings=(), hashes=hashes)
    found = choose_file([(name, name) for name in names], release)
    return found[0] if found else None


def test_the_wheel_for_this_python_and_platform_wins_over_a_pure_one_and_that_over_an_sdist() -> None:
    own, pure, sdist = f"tool-1.0-cp{MINE}-cp{MINE}-{HERE}.whl", "tool-1.0-py3-none-any.whl", "tool-1.0.tar.gz"
    foreign = ("tool-1.0-cp27-cp27m-win32.whl", f"tool-1.0-cp{MINE}-cp{MINE}-macosx_11_0_arm64.whl")
    assert chosen(sdist, *foreign, pure, own) == own
    assert chosen(sdist, *foreign, pure) == pure
    assert chosen(sdist, *foreign) == sdist
    assert chosen(*foreign, "nonsense.whl", "tool-2.0.tar.gz", "tool-x.tar.gz") is None


def test_only_what_the_lock_names_is_taken() -> None:
    assert (
        chosen("tool-1.0-py3-none-any.whl", "tool-1.0.tar.gz", hashes=frozenset({"tool-1.0.tar.gz"}))
        == "tool-1.0.tar.gz"
    )
    assert chosen("tool-1.0.tar.gz", hashes=frozenset({"another"})) is None


def test_a_version_with_a_local_part_is_another() -> None:
    assert chosen("torch-2.0-py3-none-any.whl", "torch-2.0+cpu-py3-none-any.whl", version="2.0+cpu").startswith(
        "torch-2.0+"
    )  # type: ignore[union-attr]


def test_another_python_has_other_wheels() -> None:
    names = [f"tool-1.0-cp{python}-cp{python}-{HERE}.whl" for python in ("311", "312", "313")]
    assert chosen(*names, python="3.12.1") == names[1]


def test_the_glibc_of_a_capsule_is_the_newest_of_the_oldest_that_its_wheels_need() -> None:
    assert oldest_glibc(["a-1-py3-none-any.whl", "a-1.tar.gz"]) == ""
    assert oldest_glibc(["a-1-cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64.whl"]) == "2.17"
    assert (
        oldest_glibc(["a-1-cp311-cp311-manylinux_2_28_x86_64.whl", "b-1-cp311-cp311-manylinux1_x86_64.whl"]) == "2.28"
    )
    assert oldest_glibc(["a-1-cp311-abi3-manylinux_2_9_x86_64.manylinux_2_34_x86_64.whl"]) == "2.9"


@pytest.mark.parametrize(
    ("text", "requires"),
    [
        ('[build-system]\nrequires = ["hatchling>=1", "x"]\n', ["hatchling>=1", "x"]),
        ("[project]\nname = 'tool'\n", ["setuptools>=40.8", "wheel"]),
        (None, ["setuptools>=40.8", "wheel"]),
    ],
)
def test_what_builds_an_sdist_is_read_from_it(tmp_path: Path, text: str | None, requires: list[str]) -> None:
    path = tmp_path / "any"
    with tarfile.open(path, "w:gz") as tar:
        for name, content in {"tool-1/tests/pyproject.toml": "x = [", "tool-1/pyproject.toml": text}.items():
            if content is not None:
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content.encode()))
    assert build_requirements(path, "tool-1.tar.gz") == requires


def test_a_sealed_environment_has_nothing_of_the_users_settings(tmp_path: Path) -> None:
    user = {"PATH": "/bin", "UV_INDEX_URL": "https://u:p@x/", "PIP_INDEX_URL": "https://x/", "UV_CACHE_DIR": "/c"}
    sealed = sealed_environment(user, tmp_path)
    assert (sealed["PATH"], sealed["UV_CACHE_DIR"], sealed["UV_OFFLINE"]) == ("/bin", "/c", "1")
    assert not {"UV_INDEX_URL", "PIP_INDEX_URL"} & set(sealed)
