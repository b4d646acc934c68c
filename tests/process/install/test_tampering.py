"""What was changed between a lock and its installation is refused; nothing of it is left that counts."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from milabench.bench.api import PyPI
from milabench.execute.activities import Activities
from milabench.execute.install_session import Installed, InstallOptions
from milabench.execute.inventory import is_linked, store_folder
from milabench.execute.sources import fetch_sources
from milabench.plan.venvs import VenvSpec
from tests.process.install.places import Index, Place, wheel

SDIST = """
import pathlib, zipfile
WHEEL = "Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
def build_wheel(into, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(pathlib.Path(into) / "built-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("built/__init__.py", pathlib.Path("built.py").read_text())
        wheel.writestr("built-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: built\\nVersion: 1\\n")
        wheel.writestr("built-1.dist-info/WHEEL", WHEEL)
        wheel.writestr("built-1.dist-info/RECORD", "")
    return "built-1-py3-none-any.whl"
def build_sdist(into, config_settings=None):
    raise NotImplementedError
"""
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "built"
version = "1"
"""


def sdist(place: Place, code: str = "") -> str:
    """Write an sdist that needs nothing to be built; its sha256."""
    folder = place.wheels.parent / "built-1"
    folder.mkdir(exist_ok=True)
    for name, text in {"pyproject.toml": PROJECT, "backend.py": SDIST, "built.py": code, "PKG-INFO": INFO}.items():
        (folder / name).write_text(text)
    path = place.wheels / "built-1.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.add(folder, "built-1")
    return hashlib.sha256(path.read_bytes()).hexdigest()


INFO = "Metadata-Version: 2.1\nName: built\nVersion: 1\n"


def refused(place: Place, spec: VenvSpec, outcome: Installed) -> str:
    assert outcome.why, outcome
    assert "\n" not in outcome.why
    assert not is_linked(place.dirs, spec)
    assert not store_folder(place.dirs, spec).exists()
    return outcome.why


@pytest.fixture(params=["uv", pytest.param("pip", marks=[pytest.mark.e2e, pytest.mark.long])])
def changes(request: pytest.FixtureRequest) -> dict[str, object]:
    """Which program installs."""
    return {} if request.param == "uv" else {"uv": None}


def test_a_hash_that_was_changed_in_the_lock_is_refused(place: Place, changes: dict[str, object]) -> None:
    text = re.sub("(?<=^tool==1 --hash=sha256:).", lambda digit: "0" if digit[0] != "0" else "1", place.lock("tool==1"))
    spec = place.spec(text)
    assert "tool" in refused(place, spec, *place.install(spec, **changes))


def test_a_wheel_that_was_changed_is_refused(place: Place, changes: dict[str, object]) -> None:
    spec = place.spec(place.lock("tool==1"))
    wheel(place.wheels, "tool", "1", content="print('not what was locked')\n")
    assert "is not in the lock" in refused(place, spec, *place.install(spec, **changes))


def test_an_sdist_that_was_changed_is_refused_and_not_built(place: Place, changes: dict[str, object]) -> None:
    lock = f"built==1 --hash=sha256:{sdist(place)}\n" + place.lock()
    mark = place.wheels.parent / "was-built"
    sdist(place, f"open({str(mark)!r}, 'w')\n")
    spec = place.spec(lock)
    assert "is not in the lock" in refused(place, spec, *place.install(spec, **changes))
    assert not mark.exists()


def test_a_requirement_of_a_locked_package_that_the_lock_does_not_hold_is_not_installed(
    place: Place, changes: dict[str, object]
) -> None:
    wheel(place.wheels, "more", "1", needs=("tool",))
    spec = place.spec(place.lock("more==1"))
    (outcome,) = place.install(spec, **changes)
    assert not list(store_folder(place.dirs, spec).glob("lib/python*/site-packages/tool"))
    assert "tool" in outcome.notes[0]


def test_a_file_that_was_changed_in_the_cache_of_uv_is_noticed(place: Place) -> None:
    spec = place.spec(place.lock("tool==1"))
    place.install(spec)
    cached = list(Path(place.environ["UV_CACHE_DIR"]).rglob("tool/__init__.py"))
    assert cached
    for path in cached:
        path.unlink()  # else the environments that are linked to it were changed, too
        path.write_text("__version__ = 'another'\n")
    (outcome,) = place.install(spec, force=True)
    assert refused(place, spec, outcome).startswith(
        "tool 1: tool/__init__.py: is not as it was published. `uv cache clean tool`"
    )
    environ = dict(place.environ)
    subprocess.run([place.options().uv or "", "cache", "clean", "--quiet", "tool"], env=environ, check=True)
    (outcome,) = place.install(spec)
    assert outcome.is_new


def test_byte_code_that_a_wheel_brings_is_compiled_again_and_no_change(place: Place) -> None:
    compiled = f"tool/__pycache__/__init__.{sys.implementation.cache_tag}.pyc"
    wheel(place.wheels, "tool", "1", more={compiled: "of another compiler"})
    spec = place.spec(place.lock("tool==1"))
    (outcome,) = place.install(spec)
    assert (outcome.is_new, outcome.why) == (True, "")
    (file,) = store_folder(place.dirs, spec).glob(f"lib/python*/site-packages/{compiled}")
    assert file.read_bytes() != b"of another compiler"


@pytest.mark.e2e
@pytest.mark.long
def test_a_file_that_was_changed_in_the_cache_of_pip_is_noticed(place: Place, index: Index) -> None:
    cache = place.wheels.parent / "pip-cache"
    environ = {**place.environ, "PIP_CACHE_DIR": str(cache)}
    spec = place.spec(place.lock("tool==1"), pip={"index-url": index.url})
    assert place.install(spec, uv=None, environ=environ)[0].is_new
    before = hashlib.sha256((place.wheels / "tool-1-py3-none-any.whl").read_bytes()).hexdigest()
    for path in (path for path in cache.rglob("*") if path.is_file()):
        path.write_bytes(path.read_bytes().replace(b"__version__ = '1'", b"__version__ = '6'"))
    (outcome,) = place.install(spec, uv=None, environ=environ, force=True)
    if outcome.why:
        assert "is not in the lock" in outcome.why
    else:  # pip keeps no files of an index that says nothing about keeping them
        assert before in spec.lock.pins[0].hashes[0]
        (module,) = store_folder(place.dirs, spec).glob("lib/python*/site-packages/tool/__init__.py")
        assert module.read_text() == "__version__ = '1'\n"


def test_an_archive_that_was_changed_in_our_cache_is_fetched_again(place: Place, index: Index) -> None:
    sha256 = hashlib.sha256((place.wheels / "tool-1-py3-none-any.whl").read_bytes()).hexdigest()
    program = PyPI("tool", "1", file="tool-1-py3-none-any.whl", sha256=sha256)
    options = InstallOptions(benchmate="/none", environ=place.environ, pip={"index-url": index.url})

    def fetched(**changes: object) -> Installed:
        (outcome,) = fetch_sources(
            [program], place.dirs, InstallOptions(**{**vars_of(options), **changes}), Activities(print)
        )
        return outcome

    assert fetched().is_new
    kept = Path(place.environ["HOME"], ".cache", "milabench", "archives", sha256)
    kept.write_bytes(b"another archive")
    assert not fetched(force=True).why
    assert hashlib.sha256(kept.read_bytes()).hexdigest() == sha256
    kept.write_bytes(b"another archive")
    index.stop()
    assert "not in the cache" in fetched(force=True, environ={**place.environ, "UV_OFFLINE": "1"}).why


def vars_of(options: InstallOptions) -> dict[str, object]:
    return {name: getattr(options, name) for name in options.__dataclass_fields__}


def test_instruments_that_were_changed_in_an_environment_are_noticed_and_installed_again(place: Place) -> None:
    spec = place.spec(place.lock("tool==1"))
    place.install(spec)
    (module,) = store_folder(place.dirs, spec).glob("lib/python*/site-packages/benchmate/__init__.py")
    assert is_linked(place.dirs, spec)
    text = module.read_text()
    module.unlink()  # it is linked to the cache of uv
    module.write_text(text + "# measure less\n")
    assert not is_linked(place.dirs, spec)
    (outcome,) = place.install(spec)
    assert outcome.is_new
    (module,) = store_folder(place.dirs, spec).glob("lib/python*/site-packages/benchmate/__init__.py")
    assert module.read_text() == text
    module.unlink()
    assert not is_linked(place.dirs, spec)


def test_a_wheel_of_the_instruments_that_was_changed_in_our_cache_is_built_again(place: Place) -> None:
    place.install(place.spec(place.lock("tool==1")))
    (kept,) = Path(place.dirs.cache).glob("wheels/*/*.whl")
    with zipfile.ZipFile(kept) as wheel:
        members = {name: wheel.read(name) for name in wheel.namelist()}
    for changed in ({"benchmate/__init__.py": b"import voir, tool\n"}, {"more.pth": b"import os\n"}):
        with zipfile.ZipFile(kept, "w") as wheel:
            for name, content in {**members, **changed}.items():
                wheel.writestr(name, content)
        (outcome,) = place.install(place.spec(place.lock("tool==1")), force=True)
        assert outcome.is_new
        site = next(Path(place.dirs.venv, "g").glob("lib/python*/site-packages"))
        assert (site / "benchmate" / "__init__.py").read_bytes() == members["benchmate/__init__.py"]
        assert not (site / "more.pth").exists()
