"""Two commands of one base at once: each thing is made once, nothing is taken from a run, who waits or is refused says why."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from milabench.devices.locks import DeviceLocks
from milabench.events.atomic_write import replace_file
from tests.commands import ROOT, Said, milabench_in
from tests.processes import CEILING_S, started, until

from .installable import installable
from .written import ends, runs, suite


def begun(environ: dict[str, str], *argv: str) -> list[str]:
    return [sys.executable, "-m", "milabench", *argv]


@pytest.fixture
def held(environ: dict[str, str]) -> Iterator[DeviceLocks]:
    """The processor, held by another run."""
    del environ["MILABENCH_WAIT"]
    locks = DeviceLocks(environ["MILABENCH_LOCK_DIR"])
    opened = locks.open([f"cpu-{socket.gethostname()}"])
    assert locks.take(opened) is None
    locks.keep(opened, run="other")
    yield locks
    locks.release()


@pytest.mark.parametrize("words", [("quickstart",), ("ci",), ("run",), ("pin", "--upgrade"), ("dev", "--run", "timed")])
def test_every_command_that_measures_looks_first_whether_a_device_is_held(
    milabench: Callable[..., Said], timed: tuple[tuple[str, ...], Path], held: DeviceLocks, words: tuple[str, ...]
) -> None:
    here, flags = timed
    refused = milabench(*words, *here, cwd=flags)
    assert refused.code == 5, refused.err
    assert "device cpu-" in refused.err and "is held by run other" in refused.err
    assert refused.err.endswith(". Use --wait to wait for it to end\n")
    assert "milabench install" not in refused.out
    assert not (flags / "prepared").exists()


def test_a_command_that_waits_for_a_device_says_so_and_goes_on_when_it_is_free(
    environ: dict[str, str], timed: tuple[tuple[str, ...], Path], held: DeviceLocks
) -> None:
    here, flags = timed
    (flags / "go").touch()
    pipes = {"env": environ, "cwd": flags, "stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL, "text": True}
    with started(begun(environ, "quickstart", "--wait", *here), **pipes) as process:
        assert process.stderr is not None
        assert "is held by run other" in (line := process.stderr.readline()) and ". Waiting for it to end" in line
        assert not (flags / "prepared").exists()
        held.release()
        process.communicate(timeout=CEILING_S)
    assert process.returncode == 0
    assert (flags / "prepared").exists()


def test_two_preparations_at_once_prepare_once(
    milabench: Callable[..., Said], environ: dict[str, str], timed: tuple[tuple[str, ...], Path]
) -> None:
    here, flags = timed
    pipes = {"env": environ, "cwd": ROOT, "stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with started(begun(environ, "prepare", *here), **pipes) as first:
        until((flags / "prepared").exists, "the first prepare.py")
        with started(begun(environ, "prepare", *here), **pipes) as second:
            assert second.stderr is not None
            line = second.stderr.readline()
            assert "is held by `prepare` of " in line
            assert f"(pid {first.pid})" in line
            (flags / "go").touch()
            rest = second.communicate(timeout=CEILING_S)[1]
        assert "nothing to do, prepared: 1 benchmark" in rest
        first.communicate(timeout=CEILING_S)
    assert (first.returncode, second.returncode) == (0, 0)
    assert (flags / "prepared").read_text() == "once\n"


def test_an_environment_that_a_run_uses_is_not_built_again_before_it_ends(
    milabench: Callable[..., Said], environ: dict[str, str], timed: tuple[tuple[str, ...], Path]
) -> None:
    here, flags = timed
    (flags / "go").touch()
    assert milabench("prepare", *here).code == 0
    (flags / "go").unlink()
    pipes = {"env": environ, "cwd": ROOT, "stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with started(begun(environ, "run", *here, "--display", "none"), **{**pipes, "stderr": None}) as run:
        until((flags / "up").exists, "the step")
        with started(begun(environ, "install", "--force", *here), **pipes) as install:
            assert install.stderr is not None
            line = install.stderr.readline()
            while line and "waiting: " not in line:
                line = install.stderr.readline()
            assert "timed: waiting: another process builds or uses it" in line
            (flags / "go").touch()
            assert run.wait(CEILING_S) == 0
            rest = install.communicate(timeout=CEILING_S)[1]
        assert install.returncode == 0, rest
        assert "timed: ready" in rest
    (recorded,) = runs(environ["MILABENCH_BASE"])
    assert ends(recorded) == [("timed.D0", 1, "passed")]


def test_a_run_is_refused_while_its_environment_is_built_again(
    milabench: Callable[..., Said], environ: dict[str, str], timed: tuple[tuple[str, ...], Path]
) -> None:
    from milabench.execute.install_session import hold_lock

    here, flags = timed
    (flags / "go").touch()
    assert milabench("prepare", *here).code == 0
    store = Path(environ["MILABENCH_BASE"], "venv", ".store")
    (lock,) = store.glob("timed-*.lock")
    with hold_lock(lock):
        said = milabench("run", *here)
    what = f"{store / lock.stem}: another process is building it. Try again when it has ended"
    assert (said.code, what in said.err) == (5, True), said.err
    assert milabench("run", *here).code == 0


def test_two_installs_at_once_build_once(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    here, variables, _ = installable(tmp_path, environ["MILABENCH_BASE"])
    said: list[Said] = []
    both = [
        threading.Thread(target=lambda: said.append(milabench_in({**environ, **variables})("install", *here)))
        for _ in range(2)
    ]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert [each.code for each in said] == [0, 0], said
    assert sorted("1 made" in each.err for each in said) == [False, True]


def test_two_runs_at_once_have_a_directory_each_and_the_second_waits_for_the_devices(
    environ: dict[str, str], tmp_path: Path
) -> None:
    here = suite(tmp_path, a="echo fine")
    said: list[Said] = []
    both = [threading.Thread(target=lambda: said.append(milabench_in(environ)("run", *here))) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert [each.code for each in said] == [0, 0], said
    assert [ends(run) for run in runs(environ["MILABENCH_BASE"])] == [[("a.0", 1, "passed")]] * 2


def test_a_run_that_is_resumed_meanwhile_is_not_packed(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    then = f"touch {tmp_path}/up; while ! test -e {tmp_path}/go; do sleep 0.02; done"
    line = f"test -e {tmp_path}/first || {{ touch {tmp_path}/first; exit 3; }}; {then}"
    assert milabench("run", *suite(tmp_path, a=line)).code == 1
    (run,) = runs(environ["MILABENCH_BASE"])
    with started(begun(environ, "resume"), env=environ, cwd=ROOT, stderr=subprocess.DEVNULL) as resume:
        until((tmp_path / "up").exists, "the step")
        said = milabench("bundle", str(run), "-o", str(tmp_path / "a.zip"))
        assert (said.code, "is still running" in said.err) == (6, True)
        assert not (tmp_path / "a.zip").exists()
        for verb in ("report", "runs", "status", "gc processes"):
            assert milabench(*verb.split()).code in (0, 6)
        (tmp_path / "go").touch()
        assert resume.wait(CEILING_S) == 0
    assert milabench("bundle", str(run), "-o", str(tmp_path / "a.zip")).code == 0
    assert milabench("verify", str(tmp_path / "a.zip")).code == 0


def test_two_bundles_of_one_name_at_once_are_one_whole_bundle(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    assert milabench("run", *suite(tmp_path, a="echo fine")).code == 0
    said: list[Said] = []
    both = [
        threading.Thread(target=lambda: said.append(milabench_in(environ)("bundle", "-o", str(tmp_path / "a.zip"))))
        for _ in range(2)
    ]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert [each.code for each in said] == [0, 0], said
    assert milabench("verify", str(tmp_path / "a.zip")).code == 0
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith("a.zip") and path.suffix != ".zip"]


def test_two_writers_of_one_file_leave_one_of_their_contents_whole(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    contents = [json.dumps({"who": who, "filler": str(who) * 50_000}).encode() for who in range(4)]
    failures: list[BaseException] = []

    def write(content: bytes) -> None:
        try:
            for _ in range(50):
                replace_file(path, content)
                assert path.read_bytes() in contents
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [each.name for each in tmp_path.iterdir()] == ["summary.json"]
