"""What an installation says while an index lets it wait."""

from __future__ import annotations

import hashlib
import os
import pickle
import pty
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from milabench.bench.api import PyPI
from milabench.execute.activities import Activities
from milabench.execute.install_session import InstallOptions, find_uv
from milabench.execute.remote_install import packed_installer
from milabench.execute.sources import fetch_sources
from milabench.execute.venv import install_venvs
from tests.commands import ROOT
from tests.process.cli.installable import installable
from tests.process.install.places import Place
from tests.process.install.slow_index import slow_index
from tests.processes import end_of, started, until


def row_like(activities: Activities, pattern: str) -> str:
    """Wait for a row, and return it."""
    return str(
        until(lambda: next((row for row in activities.rows() if re.fullmatch(pattern, row)), ""), f"a row {pattern}")
    )


@pytest.mark.e2e
@pytest.mark.long
@pytest.mark.parametrize("uv", ["uv", pytest.param("", marks=pytest.mark.slow)], ids=["uv", "pip"])
def test_an_environment_says_what_it_does_and_for_how_long(place: Place, uv: str) -> None:
    activities = Activities(place.said.append)
    with slow_index(place.wheels, held=True) as index, ThreadPoolExecutor() as pool:
        options = place.options(pip={"index-url": index.url}, **({} if uv else {"uv": None}))
        spec = place.spec(place.lock("tool==1"), pip={"index-url": index.url})
        outcome = pool.submit(install_venvs, [spec], place.dirs, options, activities)
        row_like(activities, r"g: installing: 2 packages(, \d+ installed)?(, \d+ [kMG]B written)?, \d+ s")
        index.go.set()
        (installed,) = outcome.result()
    assert installed.is_new, installed
    assert activities.rows() == ()


def test_a_program_says_how_much_of_it_has_come(place: Place) -> None:
    file = place.wheels / "tool-1-py3-none-any.whl"
    activities = Activities(place.said.append)
    with slow_index(place.wheels, held=True) as index, ThreadPoolExecutor() as pool:
        program = PyPI("tool", "1", file=file.name, sha256=hashlib.sha256(file.read_bytes()).hexdigest())
        options = place.options(pip={"index-url": index.url})
        outcome = pool.submit(fetch_sources, [program], place.dirs, options, activities)
        row_like(activities, r"tool-1: fetching, \d+ [kM]?B of \d+ [kM]?B, \d+ s")
        index.go.set()
        assert outcome.result()[0].is_new
    assert activities.rows() == ()


def test_the_half_on_another_machine_says_it_too(place: Place, tmp_path: Path) -> None:
    with slow_index(place.wheels, held=True) as index:
        spec = place.spec(place.lock("tool==1"), pip={"index-url": index.url})
        options = InstallOptions(benchmate=str(place.benchmate), environ={}, pip={}, uv=find_uv(place.environ))
        (tmp_path / "job").write_bytes(pickle.dumps(((spec,), place.dirs, options)))
        (tmp_path / "milabench.pyz").write_bytes(packed_installer())
        argv = [sys.executable, "-I", "-S", "-P", tmp_path / "milabench.pyz", tmp_path / "job"]
        with started(argv, env=dict(place.environ), stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert any(re.match(r"now: g: installing: 2 packages.*, \d+ s$", line) for line in process.stdout)
            index.go.set()
            process.stdout.read()
            assert end_of(process) == 0


def install_command(tmp_path: Path, index_url: str) -> tuple[list[str], dict[str, str]]:
    """`milabench install` of a benchmark whose packages come from an index."""
    base = tmp_path / "base"
    here, variables, _ = installable(tmp_path, base)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MILABENCH_", "PIP_", "UV_"))}
    ours = {name: value for name, value in variables.items() if name not in ("PIP_NO_INDEX", "PIP_FIND_LINKS")}
    homes = {"HOME": str(tmp_path), "PIP_CONFIG_FILE": os.devnull, "XDG_CONFIG_DIRS": "/nowhere"}
    environ = {**kept, **ours, **homes, "PIP_INDEX_URL": index_url, "MILABENCH_BASE": str(base), "TERM": "xterm"}
    return [sys.executable, "-m", "milabench", "install", *here], environ


def test_a_terminal_shows_it_in_a_table(tmp_path: Path) -> None:
    with slow_index(tmp_path / "wheels", held=True) as index:
        argv, environ = install_command(tmp_path, index.url)
        terminal, end = pty.openpty()
        with started(argv, env=environ, cwd=ROOT, stderr=end, stdout=end) as process:
            os.close(end)
            seen = ""
            while not re.search(r"timed: installing: \d+ packages[^\n]*, \d+ s", seen):
                seen += os.read(terminal, 4096).decode()
            index.go.set()
            while "1 made, 1 environment and" not in seen:
                seen += os.read(terminal, 4096).decode()
            assert end_of(process) == 0
        os.close(terminal)


def test_an_interrupt_ends_the_table_and_the_installation(tmp_path: Path) -> None:
    with slow_index(tmp_path / "wheels", held=True) as index:
        argv, environ = install_command(tmp_path, index.url)
        terminal, end = pty.openpty()
        with started(argv, env=environ, cwd=ROOT, stderr=end, stdout=end) as process:
            os.close(end)
            seen = ""
            while "timed: installing" not in seen:
                seen += os.read(terminal, 4096).decode()
            process.send_signal(signal.SIGINT)
            while "interrupted" not in seen:
                seen += os.read(terminal, 4096).decode()
            assert end_of(process) == 130
        os.close(terminal)
    assert "\x1b[?25h" in seen  # the cursor is back
    assert "Traceback" not in seen
    assert not list((tmp_path / "base" / "venv" / ".store").glob("*/.complete"))


@pytest.mark.e2e
@pytest.mark.long
@pytest.mark.slow
def test_a_log_has_it_as_lines(tmp_path: Path) -> None:
    with slow_index(tmp_path / "wheels", held=True) as index:
        argv, environ = install_command(tmp_path, index.url)
        with started(argv, env=environ, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            assert any(re.match(r"  timed: installing: \d+ packages.*, \d+ s$", line) for line in process.stderr)
            index.go.set()
            assert "1 made, 1 environment and" in process.stderr.read()
            assert end_of(process) == 0
