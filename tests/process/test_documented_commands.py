"""The command blocks of the pages that are marked `sh run` do what the pages say, in a folder of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import fork_server
from tests.pages import ROOT, Page, pages

pytestmark = pytest.mark.turns(1)  # part of every `make test`

RUN = [page for page in pages() if any(block.is_run for block in page.blocks)]
SLOW = [page for page in RUN if any(block.is_slow for block in page.blocks)]
QUICK = [page for page in RUN if page not in SLOW]
LONG = {"docs/tutorial/first-comparison.md"}  # not in CI
TIMEOUT_S = 300  # a ceiling, not an expectation: the longest block measures for five seconds


def test_every_tutorial_has_a_block_that_is_run() -> None:
    tutorials = {page.name for page in pages() if page.name.startswith("docs/tutorial/")}
    assert tutorials <= {page.name for page in RUN}


@pytest.mark.parametrize("page", QUICK, ids=[page.name for page in QUICK])
def test_the_commands_of_a_page_run(page: Page, tmp_path: Path) -> None:
    execute(page, tmp_path)


@pytest.mark.e2e
@pytest.mark.parametrize(
    "page", [pytest.param(page, id=page.name, marks=[pytest.mark.long] * (page.name in LONG)) for page in SLOW]
)
def test_the_slow_commands_of_a_page_run(page: Page, tmp_path: Path) -> None:
    execute(page, tmp_path)


def execute(page: Page, folder: Path) -> None:
    """Run the page's blocks in order, in a folder with a copy of what a checkout has for users."""
    for name in ("benchmarks", "config"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    home = folder / "home"
    home.mkdir()
    programs = folder / "programs"
    programs.mkdir()
    fork_server.program(programs)
    environ = {
        **fork_server.of_the_start(os.environ),
        "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "MILABENCH_LOCK_DIR": str(folder / "locks"),  # other tests measure on this machine meanwhile
        # Nothing on the pages that is run here may need a network.
        "HTTP_PROXY": "http://127.0.0.1:9",
        "HTTPS_PROXY": "http://127.0.0.1:9",
    }
    for block in page.blocks:
        if not block.is_run:
            continue
        done = subprocess.run(
            ["bash", "-e", "-u", "-o", "pipefail", "-c", block.text],
            cwd=folder / block.folder,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
        )
        transcript = f"{page.name}\n{block.text}\n{done.stdout}\n{done.stderr}"
        assert done.returncode in block.exit_codes, transcript
        assert "Traceback" not in done.stderr, transcript
