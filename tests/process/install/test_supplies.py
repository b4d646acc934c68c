"""The files that a capsule packs for an environment: from real indexes on the loopback, by the hashes of a lock."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from milabench.capsule.supplies import fetch_files, installed_wheel, locked_releases, sealed_environment
from milabench.errors import EnvironmentFailed
from tests.process.install.places import Index, Place, wheel


def fetched(place: Place, text: str, uv: str, pip: dict[str, str] | None = None) -> dict[str, Path]:
    settings = {"find-links": str(place.wheels), "no-index": "true"} if pip is None else pip
    releases = locked_releases(place.spec(text, pip=settings), {})
    return fetch_files(releases, place.environ, uv, jobs=2)


def sdist(place: Place, requires: str = "") -> str:
    """A project without a wheel, which says what builds it; its sha256."""
    path = place.wheels / "source_only-1.tar.gz"
    backend = (
        (place.benchmate / "backend.py")
        .read_text()
        .replace("benchmate", "source_only")
        .replace("voir", "tool")
        .replace("0.1", "1")
    )
    files = {
        "pyproject.toml": f'[build-system]\nrequires = [{requires}]\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "backend.py": backend,
        "src/source_only/__init__.py": "",
        "PKG-INFO": "Metadata-Version: 2.1\nName: source-only\nVersion: 1\n",
    }
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(f"source_only-1/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content.encode()))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_files_that_a_lock_names_come_from_an_index_and_from_a_folder(place: Place, index: Index, uv: str) -> None:
    lock = place.lock("tool==1")
    for pip in (None, {"index-url": index.url}):
        files = fetched(place, lock, uv, pip)
        assert set(files) == {"tool-1-py3-none-any.whl", "voir-1-py3-none-any.whl"}
        for name, file in files.items():
            assert file.read_bytes() == (place.wheels / name).read_bytes()


def test_a_file_of_another_hash_is_not_packed(place: Place, uv: str) -> None:
    lock = place.lock("tool==1")
    wheel(place.wheels, "tool", "1", content="changed = 1\n")
    with pytest.raises(EnvironmentFailed, match=r"tool 1: no index has its file .* that the lock names"):
        fetched(place, lock, uv)


def test_what_is_not_locked_cannot_be_packed(place: Place, uv: str) -> None:
    with pytest.raises(EnvironmentFailed, match="has no hashes of its packages"):
        fetched(place, "tool\n", uv)


def test_what_no_index_that_answers_has_is_said_with_those_that_do_not(place: Place, uv: str) -> None:
    with pytest.raises(EnvironmentFailed) as failed:
        fetched(place, place.lock("tool==1"), uv, {"index-url": "http://127.0.0.1:9/simple"})
    assert "no index has its file" in str(failed.value)
    assert "http://127.0.0.1:9/simple cannot be reached" in str(failed.value)


@pytest.mark.slow
def test_a_project_without_a_wheel_is_packed_with_what_builds_it_and_both_install_without_an_index(
    place: Place, uv: str, tmp_path: Path
) -> None:
    wheel(place.wheels, "builder", "3")
    source = sdist(place, '"builder>=2"')
    lock = place.lock("tool==1") + f"source-only==1 --hash=sha256:{source}\n"
    files = fetched(place, lock, uv)
    assert set(files) == {
        "builder-3-py3-none-any.whl",
        "source_only-1.tar.gz",
        "tool-1-py3-none-any.whl",
        "voir-1-py3-none-any.whl",
    }
    folder = tmp_path / "a folder, packed"
    folder.mkdir()
    for name, file in files.items():
        (folder / name).write_bytes(file.read_bytes())
    # The suite's own settings name an index that nobody answers for: they are not asked.
    spec = place.spec(lock, pip={"index-url": "http://127.0.0.1:9/simple"})
    (outcome,) = place.install(
        spec,
        is_sealed=True,
        environ=sealed_environment(
            {**place.environ, "UV_INDEX_URL": "http://127.0.0.1:9/simple"}, tmp_path / "pythons"
        ),
        pip={"no-index": "true", "find-links": folder.as_uri()},
    )
    assert outcome.why == ""
    assert outcome.is_new


def test_a_python_that_is_neither_packed_nor_here_is_one_line(place: Place, tmp_path: Path) -> None:
    spec = place.spec("# python: 3.77\n" + place.lock("tool==1"))
    sealed = sealed_environment(place.environ, tmp_path / "pythons")
    pip = {"no-index": "true", "find-links": place.wheels.as_uri()}
    (outcome,) = place.install(spec, is_sealed=True, environ=sealed, pip=pip)
    assert outcome.why == "python 3.77 is neither in the capsule nor on this machine. Install it first"


def test_the_wheel_of_an_installed_package_is_the_same_each_time_and_has_its_files(tmp_path: Path) -> None:
    import zipfile

    (tmp_path / "one").mkdir(), (tmp_path / "two").mkdir()
    one, two = (installed_wheel("click", tmp_path / name) for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
    with zipfile.ZipFile(one) as packed:
        names = packed.namelist()
        assert "click/core.py" in names
        assert names[-1].endswith(".dist-info/RECORD")
        assert not [name for name in names if name.endswith((".pyc", "INSTALLER", "direct_url.json")) or ".." in name]
