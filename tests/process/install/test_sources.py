from __future__ import annotations

import base64
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from milabench.bench.api import COPY, Git, PyPI, Source, WorkingCopy
from milabench.bench.load import folder_digest
from milabench.errors import EnvironmentFailed
from milabench.execute import sources
from milabench.execute.activities import Activities
from milabench.execute.install_session import OF_A_REPOSITORY, Installed, InstallOptions, raise_failures
from milabench.execute.locks import hold_in_use
from milabench.execute.sources import fetch_sources, is_fetched, source_folder, source_marker
from tests.process.install.places import Index, Place
from tests.processes import until


def fetch(
    place: Place, *wanted: Source, pip: Mapping[str, str] | None = None, force: bool = False
) -> tuple[Installed, ...]:
    settings = {"find-links": str(place.wheels), "no-index": "1"} if pip is None else pip
    options = InstallOptions(benchmate="/none", environ=place.environ, pip=settings, force=force)
    return fetch_sources(wanted, place.dirs, options, Activities(place.said.append))


def release(place: Place, file: str, project: str = "tool") -> PyPI:
    sha256 = hashlib.sha256((place.wheels / file).read_bytes()).hexdigest()
    return PyPI(project, "1", file=file, sha256=sha256)


def sdist(place: Place, members: Mapping[str, str], *, link: str | None = None) -> PyPI:
    with tarfile.open(place.wheels / "tool-1.tar.gz", "w:gz") as tar:
        for name, text in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
        if link:
            info = tarfile.TarInfo("tool-1/link")
            info.type, info.linkname = tarfile.SYMTYPE, link
            tar.addfile(info)
    return release(place, "tool-1.tar.gz")


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def why(outcome: Installed) -> str:
    assert outcome.why, outcome
    assert "\n" not in outcome.why
    return outcome.why


def test_a_wheel_is_unpacked_as_it_is(place: Place, tmp_path: Path) -> None:
    source = release(place, "tool-1-py3-none-any.whl")
    (outcome,) = fetch(place, source)
    assert outcome == Installed(name="tool-1", is_new=True)
    with zipfile.ZipFile(place.wheels / source.file) as published:
        published.extractall(tmp_path / "published")
    assert tree(place.base / "code" / "tool-1") == tree(tmp_path / "published")


def test_an_sdist_loses_its_outer_folder_only(place: Place) -> None:
    source = sdist(place, {"tool-1/setup.py": "1", "tool-1/examples/train.py": "2"})
    fetch(place, source)
    assert tree(source_folder(place.dirs, source)) == {"setup.py": b"1", "examples/train.py": b"2"}


def test_a_second_fetch_and_one_without_any_index_find_it_there(place: Place) -> None:
    source = release(place, "tool-1-py3-none-any.whl")
    fetch(place, source)
    (again,) = fetch(place, source, pip={"no-index": "1"})
    (forced,) = fetch(place, source, pip={"no-index": "1"}, force=True)
    assert (again, forced) == (Installed(name="tool-1"), Installed(name="tool-1", is_new=True))


def test_a_file_from_an_index_is_fetched_over_the_network(place: Place, index: Index) -> None:
    source = release(place, "tool-1-py3-none-any.whl")
    (outcome,) = fetch(place, source, pip={"index-url": index.url})
    assert not outcome.why
    assert (source_folder(place.dirs, source) / "tool" / "__init__.py").is_file()


def test_a_file_with_another_hash_is_refused_with_both_hashes(place: Place) -> None:
    source = release(place, "tool-1-py3-none-any.whl")
    wrong = PyPI("tool", "1", file=source.file, sha256="f" * 64)
    (outcome,) = fetch(place, wrong)
    assert source.sha256 in why(outcome)
    assert "f" * 64 in why(outcome)
    assert not is_fetched(place.dirs, wrong)
    assert not source_folder(place.dirs, wrong).exists()


def test_one_that_is_missing_does_not_keep_the_others_from_being_fetched(place: Place) -> None:
    missing = PyPI("nosuch", "1", file="nosuch-1.tar.gz", sha256="0" * 64)
    good = release(place, "tool-1-py3-none-any.whl")
    outcomes = fetch(place, missing, good)
    assert "nosuch 1 (nosuch-1.tar.gz): no such file on the configured indexes" in why(outcomes[0])
    assert outcomes[1].is_new
    with pytest.raises(EnvironmentFailed, match="nosuch-1: nosuch 1"):
        raise_failures(outcomes)


def test_an_index_that_cannot_be_reached_is_named_without_credentials(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_PAUSES_S", ())
    source = release(place, "tool-1-py3-none-any.whl")
    (outcome,) = fetch(place, source, pip={"index-url": "http://somebody:hunter2@127.0.0.1:9/simple"})
    assert "not in the cache, and http://***@127.0.0.1:9/simple cannot be reached" in why(outcome)


@pytest.mark.parametrize("name", ["../outside", "/tmp/outside"])
def test_a_member_outside_the_folder_is_refused(place: Place, name: str) -> None:
    (outcome,) = fetch(place, sdist(place, {"tool-1/a": "1", name: "2"}))
    # The library strips a leading slash, which keeps the member inside.
    if outcome.why:
        assert "cannot be unpacked" in outcome.why
    assert not (place.base / "code" / "outside").exists()
    assert not (place.base / "outside").exists()


def test_a_link_out_of_the_folder_is_refused(place: Place) -> None:
    (outcome,) = fetch(place, sdist(place, {"tool-1/a": "1"}, link="../../../etc/passwd"))
    assert "cannot be unpacked" in why(outcome)


def test_a_wheel_with_a_member_outside_is_refused(place: Place) -> None:
    with zipfile.ZipFile(place.wheels / "tool-1-py3-none-any.whl", "w") as packed:
        packed.writestr("../outside", "1")
    (outcome,) = fetch(place, release(place, "tool-1-py3-none-any.whl"))
    assert "would land outside" in why(outcome)


def test_what_an_interrupted_fetch_left_is_replaced(place: Place) -> None:
    source = sdist(place, {"tool-1/a": "1"})
    folder = source_folder(place.dirs, source)
    folder.mkdir(parents=True)
    (folder / "half").touch()
    source_marker(place.dirs, source).write_text(json.dumps({"folder": source.folder, "is": "unfinished"}))
    fetch(place, source)
    assert tree(folder) == {"a": b"1"}


@pytest.mark.parametrize("options", [{}, {"force": True}])
def test_a_folder_of_a_programs_name_that_was_not_fetched_stays(place: Place, options: dict[str, bool]) -> None:
    source = sdist(place, {"tool-1/a": "1"})
    folder = source_folder(place.dirs, source)
    folder.mkdir(parents=True)
    (folder / "thesis").write_text("mine")
    (outcome,) = fetch(place, source, **options)
    assert why(outcome) == f"{folder}: exists, and milabench did not make it. Move it away"
    assert tree(folder) == {"thesis": b"mine"}


def test_a_program_that_a_run_uses_is_not_replaced_before_it_ends(place: Place) -> None:
    source = sdist(place, {"tool-1/a": "1"})
    fetch(place, source)
    lock = f"{place.dirs.code}/.{source.folder}.lock"
    with hold_in_use({lock: source.folder}):
        again = threading.Thread(target=lambda: fetch(place, source, force=True))
        again.start()
        until(lambda: "tool-1: waiting: another process fetches or uses it" in place.said, "its word")
        (source_folder(place.dirs, source) / "still-there").touch()
    again.join()
    assert tree(source_folder(place.dirs, source)) == {"a": b"1"}


@pytest.fixture
def repository(tmp_path: Path) -> tuple[Path, str]:
    folder = tmp_path / "repository.git"
    folder.mkdir()

    def git(*argv: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
        return subprocess.run(
            ["git", *identity, *argv], cwd=folder, capture_output=True, text=True, check=True
        ).stdout.strip()

    git("init", "--quiet")
    (folder / "train.py").write_text("first")
    git("add", ".")
    git("commit", "--quiet", "-m", "first")
    revision = git("rev-parse", "HEAD")
    (folder / "train.py").write_text("second")
    git("commit", "--quiet", "-am", "second")
    return folder, revision


def test_a_git_source_is_checked_out_at_its_revision(place: Place, repository: tuple[Path, str]) -> None:
    source = Git(str(repository[0]), repository[1])
    (outcome,) = fetch(place, source)
    assert not outcome.why, outcome
    assert (source_folder(place.dirs, source) / "train.py").read_text() == "first"


def test_a_git_revision_that_is_not_there_is_named(place: Place, repository: tuple[Path, str]) -> None:
    (outcome,) = fetch(place, Git(str(repository[0]), "0" * 40))
    assert "has no revision " + "0" * 40 in why(outcome)


def test_git_gets_credentials_by_its_environment(place: Place, repository: tuple[Path, str], tmp_path: Path) -> None:
    folder, revision = repository
    subprocess.run(["git", "update-server-info"], cwd=folder, check=True)

    class Private(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.headers.get("Authorization") == f"Basic {base64.b64encode(b'me:pa/ss-word').decode()}":
                super().do_GET()
            else:
                self.send_error(401)

        def log_message(self, *_: object) -> None:
            pass

    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "tool.git").symlink_to(folder / ".git")
    trace = tmp_path / "trace"  # of every process that git starts, with its arguments
    place = replace(place, environ={**place.environ, "GIT_TRACE": str(trace)})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Private, directory=str(tmp_path / "served"))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://me:pa%2Fss-word@127.0.0.1:{server.server_port}/tool.git"
        raise_failures(fetch(place, source := Git(url, revision)))
        (refused,) = fetch(place, Git(url.replace("ss-w", "SS-W"), "0" * 40))
        server.shutdown()
    assert tree(source_folder(place.dirs, source))["train.py"] == b"first"
    assert "SS-W" not in why(refused)
    assert "remote-http" in trace.read_text()
    written = [path.read_bytes() for path in Path(place.dirs.base).rglob("*") if path.is_file()]
    assert all(b"ss-word" not in text for text in [trace.read_bytes(), *written, *map(str.encode, place.said)])


# Reads its request and writes into the copy, as an install that clones a repository beside the benchfile does.
COMPLETING = """
import json, pathlib, sys
request = json.load(open(sys.argv[-1]))
if "error" in request:
    print(json.dumps({"error": {"where": "benchfile.py:7", "what": request["error"]}}))
    sys.exit(1)
code = pathlib.Path(request["code"])
(code / "third_party").mkdir()
(code / "third_party" / "model.py").write_text("cloned")
with open(code.parents[2] / "calls", "a") as calls:
    calls.write(pathlib.Path().resolve().name + "\\n")
"""


@pytest.fixture
def definition(tmp_path: Path) -> Path:
    """A benchmark's own folder, whose installation writes beside it, and which nobody may write to."""
    folder = tmp_path / "timm"
    folder.mkdir()
    (folder / "benchfile.py").write_text("__pack__ = None\n")
    (folder / "prepare.py").write_text("#!/usr/bin/env python\n")
    (folder / "prepare.py").chmod(0o555)
    (folder / ".hidden").write_text("left here")
    return folder


def working_copy(definition: Path, request: str = f'{{"code": "{COPY}"}}') -> WorkingCopy:
    command = (sys.executable, "-c", COMPLETING)
    return WorkingCopy("timm", folder_digest(definition), str(definition), command, request)


def test_a_working_copy_is_completed_once_and_its_definition_stays_as_it_is(place: Place, definition: Path) -> None:
    before = tree(definition)
    first, again = fetch(place, source := working_copy(definition)) + fetch(
        place, working_copy(definition, "of another")
    )
    assert (first, again) == (Installed(name=source.folder, is_new=True), Installed(name=source.folder))
    assert tree(definition) == before
    made = source_folder(place.dirs, source)
    before.pop(".hidden")
    assert tree(made) == {**before, "third_party/model.py": b"cloned"}
    assert (made / "prepare.py").stat().st_mode & 0o700 == 0o700
    assert (place.base / "calls").read_text() == f"{source.folder}\n"


def test_a_changed_definition_has_another_working_copy(place: Place, definition: Path) -> None:
    fetch(place, first := working_copy(definition))
    (definition / "main.py").write_text("pass\n")
    (outcome,) = fetch(place, second := working_copy(definition))
    assert outcome.is_new
    assert first.folder != second.folder
    assert (source_folder(place.dirs, second) / "main.py").is_file()


def test_an_installation_of_a_working_copy_that_fails_leaves_nothing_and_says_where(
    place: Place, definition: Path
) -> None:
    source = working_copy(definition, '{"error": "clone_subtree: cannot be reached: https://example.org/a.git"}')
    (outcome,) = fetch(place, source)
    assert why(outcome) == (
        "timm: its own install failed: benchfile.py:7: clone_subtree: cannot be reached: https://example.org/a.git"
    )
    assert not is_fetched(place.dirs, source)
    assert {path.name for path in Path(place.dirs.code).iterdir()} == {f".{source.folder}.lock"}
    (again,) = fetch(place, working_copy(definition))
    assert again.is_new
    assert (source_folder(place.dirs, source) / "third_party").is_dir()


def test_a_working_copy_of_a_folder_that_changed_meanwhile_is_not_kept(place: Place, definition: Path) -> None:
    source = working_copy(definition)
    (definition / "main.py").write_text("later\n")
    (outcome,) = fetch(place, source)
    assert "changed while it was copied" in why(outcome)
    assert not is_fetched(place.dirs, source)


def test_a_git_hook_that_installs_keeps_its_own_repository(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git tells its hooks of their repository by variables, which every command of git would take for its own."""
    theirs, mine = tmp_path / "theirs", tmp_path / "mine"
    for folder in (theirs, mine):
        folder.mkdir()
        (folder / "a").write_text(folder.name)
        for words in ("init -q -b main", "add .", "-c user.name=a -c user.email=a@b commit -q -m a"):
            subprocess.run(["git", *words.split()], cwd=folder, check=True)
    index = (mine / ".git" / "index").read_bytes()
    own = {name: str(mine / ".git" / part) for name, part in {"GIT_DIR": "", "GIT_INDEX_FILE": "index"}.items()}
    own |= {"GIT_WORK_TREE": str(mine), "GIT_COMMON_DIR": str(mine / ".git")}
    own |= {"GIT_OBJECT_DIRECTORY": str(mine / ".git" / "objects")}
    (outcome,) = fetch(replace(place, environ={**place.environ, **own}), Git(str(theirs), "main"))
    assert outcome.why == ""
    assert (place.base / "code" / "theirs-main" / "a").read_text() == "theirs"
    assert (mine / ".git" / "index").read_bytes() == index
    listed = subprocess.run(["git", "rev-parse", "--local-env-vars"], capture_output=True, text=True, check=True)
    settings = {"GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT"}
    assert set(listed.stdout.split()) - settings <= OF_A_REPOSITORY
