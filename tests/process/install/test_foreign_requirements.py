"""Requirements that were not written for us: without hashes, with indexes of their own and revisions that move."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from milabench.errors import EnvironmentFailed
from milabench.execute.git_commits import with_known_commits
from milabench.execute.install_session import Installed
from milabench.execute.inventory import packages_of, store_folder
from milabench.plan.venvs import VenvSpec
from tests.process.install.places import Index, Place, wheel

INSTRUMENTS = ("voir==1", "torchcompat==1")


@pytest.fixture
def place(place: Place) -> Place:
    """A place with what foreign environments get in addition, and older versions of it."""
    wheel(place.wheels, "torchcompat", "1")
    wheel(place.wheels, "voir", "0.5")
    wheel(place.wheels, "needy", "1", needs=("voir<1",))
    return place


def foreign(
    place: Place, text: str, *, pip: Mapping[str, str] | None = None, variant: str = "cpu", **changes: object
) -> VenvSpec:
    spec = place.spec(text, variant=variant, pip=pip)
    return replace(spec, overrides=INSTRUMENTS, **changes)  # type: ignore[arg-type]


def built(place: Place, spec: VenvSpec) -> Installed:
    (installed,) = place.install(spec)
    assert not installed.why, installed
    return installed


def packages(place: Place, spec: VenvSpec) -> dict[str, str]:
    found = packages_of(store_folder(place.dirs, spec))
    return {name: version for name, version in found.items() if name not in ("benchmate", "pip", "setuptools")}


def test_the_instruments_win_over_an_older_version_in_a_lock_which_is_said_once(place: Place) -> None:
    spec = foreign(place, "# made by another tool\nneedy==1\n    # via x\nvoir==0.5\ntool==1\n")
    notes = built(place, spec).notes
    assert packages(place, spec) == {"needy": "1", "voir": "1", "tool": "1", "torchcompat": "1"}
    assert [note for note in notes if "voir==0.5" in note] == [
        "the instruments need other versions: voir==0.5 by voir==1"
    ]


def test_a_package_that_cannot_be_imported_is_a_note_where_nobody_here_chose_it(place: Place) -> None:
    wheel(place.wheels, "broken", "1", content="raise ImportError('no such symbol')\n")
    spec = replace(foreign(place, "broken==1\n"), required={"b": ("broken",)})
    assert "broken, which b requires, cannot be imported: ImportError: no such symbol" in "\n".join(
        built(place, spec).notes
    )


def test_an_index_that_a_lock_names_is_asked(place: Place, index: Index) -> None:
    spec = foreign(place, f"--index-url {index.url}\n--trusted-host 127.0.0.1\ntool==2\n", pip={"timeout": "5"})
    assert built(place, spec).notes == ()
    assert packages(place, spec)["tool"] == "2"


@pytest.mark.parametrize("closed", ["no-index", "index-url"])
def test_an_index_that_the_settings_of_the_user_exclude_is_not_asked(place: Place, index: Index, closed: str) -> None:
    named = "http://127.0.0.1:9/simple"  # to which a connection would fail
    pip = {"index-url": index.url} if closed == "index-url" else {"no-index": "1", "find-links": str(place.wheels)}
    spec = foreign(place, f"--index-url {named}\n--find-links {named}/files\ntool==2\n", pip=pip)
    (note,) = [note for note in built(place, spec).notes if named in note]
    assert note == (
        "indexes of its requirement files that were not asked, since your settings say where packages come from: "
        f"{named}, {named}/files"
    )
    assert packages(place, spec)["tool"] == "2"


def test_options_for_the_installer_are_given_to_it(place: Place) -> None:
    wheel(place.wheels, "tool", "3b1")
    stable, pre = (foreign(place, "tool\n", pip_args=args) for args in ((), ("--prerelease", "allow")))
    assert [packages(place, spec)["tool"] for spec in (stable, pre) if built(place, spec)] == ["2", "3b1"]
    assert stable.digest != pre.digest


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a package that needs nothing to be built, and a second commit on its branch."""
    folder = tmp_path / "repository"
    folder.mkdir()

    def git(*argv: str) -> None:
        who = ("-c", "user.name=n", "-c", "user.email=e@example.org")
        subprocess.run(["git", *who, *argv], cwd=folder, check=True, capture_output=True)

    git("init", "--initial-branch", "trunk")
    (folder / "backend.py").write_text(BACKEND)
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    (folder / "VERSION").write_text("1")
    git("add", ".")
    git("commit", "-m", "first")
    git("tag", "-a", "-m", "a tag", "v1")
    (folder / "VERSION").write_text("2")
    git("commit", "-am", "second")
    return folder


BACKEND = """
import pathlib, zipfile
def build_wheel(into, config_settings=None, metadata_directory=None):
    version = pathlib.Path("VERSION").read_text()
    name = f"cloned-{version}-py3-none-any.whl"
    info = f"cloned-{version}.dist-info"
    with zipfile.ZipFile(pathlib.Path(into) / name, "w") as wheel:
        wheel.writestr("cloned/__init__.py", f"version = {version}")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\\nName: cloned\\nVersion: {version}\\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/RECORD", "".join(f"{n},,\\n" for n in (*wheel.namelist(), f"{info}/RECORD")))
    return name
"""


def commit(repository: Path, rev: str) -> str:
    argv = ["git", "rev-parse", f"{rev}^{{commit}}"]
    return subprocess.run(argv, cwd=repository, check=True, capture_output=True, text=True).stdout.strip()


def resolved(place: Place, spec: VenvSpec, *, update: bool = False) -> VenvSpec:
    (fixed,) = with_known_commits([spec], place.dirs, place.options(update=update))
    return fixed


@pytest.mark.parametrize("rev", ["trunk", "v1", "", "short"])
def test_a_revision_that_may_move_is_resolved_to_its_commit(place: Place, repository: Path, rev: str) -> None:
    expected = commit(repository, {"": "trunk", "short": "v1"}.get(rev, rev))
    written = f"@{expected[:7]}" if rev == "short" else f"@{rev}" if rev else ""
    spec = foreign(place, f"cloned @ git+file://{repository}{written}\n")
    assert list(resolved(place, spec).commits.values()) == [expected]


def test_a_commit_stays_what_it_was_resolved_to_and_is_recorded_in_the_environment(
    place: Place, repository: Path
) -> None:
    spec = foreign(place, f"cloned @ git+file://{repository}@trunk\n")
    built(place, first := resolved(place, spec))
    assert packages(place, spec)["cloned"] == "2"
    marker = json.loads((store_folder(place.dirs, spec) / ".complete").read_text())
    assert list(marker["commits"].values()) == [commit(repository, "trunk")]
    subprocess.run(["git", "branch", "-D", "-q", "trunk"], cwd=repository, check=False)
    subprocess.run(["git", "checkout", "-q", "-B", "trunk", "v1"], cwd=repository, check=True)
    assert resolved(place, spec) == first
    unpinned = foreign(place, f"cloned @ git+file://{repository}@trunk\n", variant="unpinned")
    before = resolved(place, unpinned)
    repository.rename(repository.with_name("gone"))
    assert resolved(place, unpinned) == before
    with pytest.raises(EnvironmentFailed):
        resolved(place, unpinned, update=True)


def test_a_repository_that_cannot_be_reached_is_refused_with_file_line_and_the_way_out(place: Place) -> None:
    spec = foreign(place, "tool\n\ncloned @ git+file:///no/such/repository@main\n")
    with pytest.raises(EnvironmentFailed) as caught:
        resolved(place, spec)
    why = str(caught.value)
    assert why.startswith(
        "b/requirements.cpu.txt:3: git+file:///no/such/repository@main: cannot be resolved to a commit: "
    )
    assert why.endswith("Write the full commit after the @, or install where the repository can be reached")
    assert "\n" not in why


def test_a_branch_that_is_not_there_is_named(place: Place, repository: Path) -> None:
    spec = foreign(place, f"cloned @ git+file://{repository}@nosuch\n")
    with pytest.raises(EnvironmentFailed, match="the repository has no branch or tag 'nosuch'"):
        resolved(place, spec)


def test_a_package_that_needs_another_to_be_built_without_saying_so_is_built_inside(place: Place) -> None:
    for name in ("setuptools", "wheel", "poetry-core", "flit-core", "torch"):
        wheel(place.wheels, name, "1")
    backend = BACKEND.replace("import pathlib, zipfile", "import pathlib, torch, zipfile")
    project = (
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "cloned"\nversion = "1"\n'
    )
    with tarfile.open(place.wheels / "cloned-1.tar.gz", "w:gz") as sdist:
        for name, text in {
            "backend.py": backend,
            "pyproject.toml": project,
            "VERSION": "1",
            "PKG-INFO": "Metadata-Version: 2.1\nName: cloned\nVersion: 1\n",
        }.items():
            info = tarfile.TarInfo(f"cloned-1/{name}")
            info.size = len(text)
            sdist.addfile(info, io.BytesIO(text.encode()))
    spec = foreign(place, "cloned==1\ntorch==1\n")
    built(place, spec)
    assert packages(place, spec).items() >= {"cloned": "1", "torch": "1"}.items()
    assert "g: building cloned with the packages of the environment" in place.said
