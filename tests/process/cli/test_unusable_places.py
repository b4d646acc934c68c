"""A base that is read-only, another user's, without execution or changed under a run: every verb says so in one line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import ROOT, Said
from tests.processes import CEILING_S, started, until

from .installable import installable
from .test_bad_places import disk, make_read_only
from .written import ends, runs

# What each verb comes to in a base that can be read and not written; `@here` are the options that name the suite, `@out` a
# name in the base.
VERBS = {
    "install @here": 0,
    "install --force @here": 4,
    "prepare @here": 0,
    "prepare --force @here": 4,
    "run @here": 6,
    "resume": 6,
    "report": 0,
    "report --format html -o @out": 6,
    "compare --across @run @run": 0,
    "db add": 6,
    "db query SELECT": 3,
    "export -o @out.parquet": 6,
    "bundle -o @out.zip": 6,
    "baseline @run -o @out": 6,
    "runs": 0,
    "status": 0,
    "logs timed": 0,
    "replay --speed 0": 0,
    "cancel @run": 0,
    "gc processes": 0,
    "plan run @here": 0,
    "dev @here timed -- true": 0,
}


def wrong_verbs(answers: Callable[..., tuple[int, str]], base: Path, here: tuple[str, ...]) -> dict[str, object]:
    """The verbs that answer otherwise, or in more than one line, or without the name of what cannot be written."""
    (run,) = runs(base)
    words = {"@here": here, "@run": (str(run),)}
    wrong = {}
    for line, code in VERBS.items():
        text = line.replace("@out", str(base / "out"))
        answer, err = answers(*(each for word in text.split() for each in words.get(word, (word,))))
        errors = [each for each in err.splitlines() if each.startswith("error: ")]
        is_one = len(errors) == (code != 0) and all(str(base) in error for error in errors)
        if answer != code or not is_one or "Traceback" in err:
            wrong[line] = answer, err
    return wrong


@pytest.fixture
def recorded(milabench: Callable[..., Said], timed: tuple[tuple[str, ...], Path]) -> tuple[str, ...]:
    """A suite that is installed, prepared and run once; its summary is not stored."""
    here, flags = timed
    (flags / "go").touch()
    for verb in ("prepare", "run"):
        said = milabench(verb, *here)
        assert said.code == 0, said.err
    return here


@pytest.mark.slow
def test_every_verb_in_a_read_only_base(
    milabench: Callable[..., Said], environ: dict[str, str], recorded: tuple[str, ...]
) -> None:
    base = Path(environ["MILABENCH_BASE"])
    (runs(base)[0] / "summary.json").unlink()

    def answers(*words: str) -> tuple[int, str]:
        said = milabench(*words)
        return said.code, said.err

    moved = base.rename(base.with_name("moved"))
    with disk(base, "64m"):
        shutil.copytree(moved, base, symlinks=True, dirs_exist_ok=True)
        make_read_only(base)
        assert wrong_verbs(answers, base, recorded) == {}


@pytest.mark.e2e
@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root can give files away")
def test_every_verb_in_the_base_of_another_user(environ: dict[str, str], recorded: tuple[str, ...]) -> None:
    base = Path(environ["MILABENCH_BASE"])
    (runs(base)[0] / "summary.json").unlink()
    for path in (base, *base.rglob("*")):
        os.chown(path, 65534, 65534, follow_symlinks=False)
    # Root without the right to pass over permissions: nobody else could read this interpreter.
    drop = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search,-fowner", sys.executable, "-m", "milabench"]

    def answers(*words: str) -> tuple[int, str]:
        done = subprocess.run(
            [*drop, *words],
            env=environ,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stderr

    assert wrong_verbs(answers, base, recorded) == {}
    (base / "runs").chmod(0o700)
    for words in (("report",), ("runs",), ("gc", "processes"), ("run", *recorded)):
        code, err = answers(*words)
        assert (code, "cannot be read: permission denied" in err.lower()) == (6, True)


def test_a_base_from_which_nothing_can_be_executed_is_refused_by_install(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    with disk(tmp_path / "disk", "64m") as place:
        subprocess.run(["mount", "-o", "remount,noexec", str(place)], check=True)
        here, variables, _ = installable(tmp_path, place)
        said = milabench("install", *here, **{**variables, "MILABENCH_BASE": str(place)})
    assert said.code == 4
    assert "mounted noexec" in said.err
    assert "--base" in said.err


def test_an_environment_that_is_deleted_during_the_run_fails_the_steps_that_need_it(
    milabench: Callable[..., Said], environ: dict[str, str], timed: tuple[tuple[str, ...], Path]
) -> None:
    here, flags = timed
    (flags / "go").touch()
    assert milabench("prepare", *here).code == 0
    (flags / "go").unlink()
    argv = [sys.executable, "-m", "milabench", "run", *here, "--repeat", "2", "--display", "none"]
    with started(argv, env=environ, cwd=ROOT, stderr=subprocess.PIPE, text=True) as run:
        until((flags / "up").exists, "the first step")
        shutil.rmtree(Path(environ["MILABENCH_BASE"], "venv"))
        (flags / "go").touch()
        err = run.communicate(timeout=CEILING_S)[1]
    assert run.returncode == 1, err
    assert "Traceback" not in err
    (recorded,) = runs(environ["MILABENCH_BASE"])
    assert ends(recorded)[-1][2] == "failed"
    failure = milabench("report").out
    assert "bin/python" in failure
    said = milabench("resume")
    assert (said.code, "not installed: venv/timed. Run `milabench install" in said.err) == (4, True)
    assert milabench("install", *here).code == 0
    assert milabench("resume").code == 0


def test_a_run_is_refused_when_benchmate_was_changed_in_its_environment(
    milabench: Callable[..., Said], environ: dict[str, str], recorded: tuple[str, ...]
) -> None:
    (module,) = Path(environ["MILABENCH_BASE"], "venv").glob("timed/lib/python*/site-packages/benchmate/clock.py")
    text = module.read_text()
    module.unlink()  # it is linked to the cache of uv
    module.write_text(text + "\n# faster\n")
    said = milabench("run", *recorded)
    assert said.code == 4
    assert "venv/timed (benchmate 0.1.0: benchmate/clock.py was changed). Run `milabench install" in said.err
    assert milabench("install", *recorded).code == 0
    assert milabench("run", *recorded).code == 0
