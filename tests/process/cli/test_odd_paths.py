"""Folders, suites, runs and reports whose names are not UTF-8, in any locale; reports that do not fit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import ROOT, Said

from .test_bad_places import disk
from .written import HEAD, suite

pytestmark = pytest.mark.slow

ODD = os.fsdecode(b"d\xff\xc3")


@pytest.mark.parametrize("locale", ["C", pytest.param("en_US.UTF-8", marks=[pytest.mark.e2e, pytest.mark.long])])
def test_names_that_are_no_utf_8_are_names(environ: dict[str, str], tmp_path: Path, locale: str) -> None:
    here = tmp_path / ODD
    here.mkdir()
    file, base = here / f"{ODD}.yaml", here / "base"
    file.write_text(HEAD + "a: {inherits: _line, command: ['echo fine']}\nf: {inherits: _line, command: ['exit 3']}\n")
    variables = {name: value for name, value in environ.items() if not name.startswith(("LC_", "LANG"))}

    def milabench(*words: str | Path, code: int = 0) -> bytes:
        done = subprocess.run(
            [sys.executable, "-m", "milabench", *map(os.fsencode, words)],
            env={**variables, "MILABENCH_BASE": str(base), "LC_ALL": locale},
            capture_output=True,
            check=False,
            cwd=ROOT,
        )
        assert done.returncode == code, (words, done.stderr)
        assert b"Traceback" not in done.stderr
        return done.stdout

    suite_of = ("--use-current-env", "--config", file)
    milabench("config", "check", file)
    milabench("config", "check", here / f"none{ODD}.yaml", code=2)
    json.loads(milabench("plan", "run", *suite_of, "--json"))
    milabench("run", *suite_of, "--run-name", ODD, "--repeat", "1", "--display", "plain", code=1)
    milabench("resume", ODD, code=1)
    (run,) = (base / "runs").iterdir()
    for form in ("text", "markdown", "html", "csv", "json", "junit"):
        shown = milabench("report", ODD, "--format", form)
        output = here / f"{ODD}.{form}"
        milabench("report", ODD, "--format", form, "-o", output)
        assert output.read_bytes().strip() == shown.strip() != b""
        output.read_text(encoding="utf-8")
    for words in (("status", ODD), ("runs",), ("logs", "a.0", "--run", ODD), ("replay", ODD, "--speed", "0")):
        milabench(*words)
    milabench("bundle", ODD, "-o", here / f"{ODD}.zip")
    milabench("verify", here / f"{ODD}.zip")
    milabench("db", "add", ODD)
    assert run.name.encode() in milabench("db", "query", "SELECT name FROM runs")


def test_a_report_that_does_not_fit_is_not_there(milabench: Callable[..., Said], tmp_path: Path) -> None:
    here = suite(tmp_path, a="echo fine")
    assert milabench("run", *here, "--display", "none").code == 0
    said = milabench("report", "--format", "html", "-o", "/dev/full")
    assert (said.code, said.err) == (6, "error: /dev/full: cannot be written: no space left on device\n")
    with disk(tmp_path / "disk", "8k") as place:
        old = place / "old.html"
        old.write_text("old")
        for output in (old, place / "new.html"):
            said = milabench("report", "--format", "html", "-o", str(output))
            assert (said.code, said.err) == (6, f"error: {output}: cannot be written: no space left on device\n")
        said = milabench("bundle", "-o", str(place / "b.zip"))
        assert said.code == 6
        assert [(path.name, path.read_text()) for path in place.iterdir()] == [("old.html", "old")]


def test_nothing_that_is_made_can_be_written_by_everybody(environ: dict[str, str], tmp_path: Path) -> None:
    """Also where the umask is none, and by a step; else the umask holds."""
    here = suite(tmp_path, a="echo fine > made; mkdir folder")
    for umask, forbidden in ((0o000, 0o002), (0o077, 0o077)):
        base = tmp_path / f"base{umask}"
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "milabench",
                "run",
                *here,
                "--display",
                "none",
                "--repeat",
                "1",
                "-s",
                "a.keep_step_dir=always",
            ],
            env={**environ, "MILABENCH_BASE": str(base)},
            cwd=ROOT,
            check=False,
            umask=umask,
        )
        assert done.returncode == 0
        subprocess.run(
            [sys.executable, "-m", "milabench", "report", "-o", str(base / "report.html")],
            env={**environ, "MILABENCH_BASE": str(base)},
            cwd=ROOT,
            check=True,
            umask=umask,
        )
        made = [base, *base.rglob("*")]
        assert {"made", "folder", "manifest.json", "report.html", "a.0.data"} <= {path.name for path in made}
        assert [path for path in made if path.stat().st_mode & forbidden] == []
