"""Signals and streams that fail, at every verb: the exit code, and no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from milabench.cli.verbs import COMMANDS
from milabench.errors import INTERRUPTED, NOT_WRITTEN
from tests.commands import ROOT, Said, forked
from tests.examples import thinned
from tests.process.interruptions import catches, is_noisy
from tests.processes import started, until

from .written import suite

pytestmark = pytest.mark.turns(1)  # part of every `make test`

AT_ONCE = 2
# What each verb prints on its standard output, if anything; `@suite` are the options that name a suite, `@config` its file.
LINES = {
    "bench": ["bench --base @folder/elsewhere --runs 1 -- true"],
    "try": ["try true"],
    "quickstart": ["quickstart @suite"],
    "install": ["install @suite"],
    "prepare": ["prepare @suite"],
    "run": ["run @suite"],
    "resume": ["resume"],
    "plan": ["plan run @suite", "plan run --json @suite", "plan install --config @config"],
    "ci": ["ci @suite --reports @folder/reports"],
    "size": ["size --help"],
    "report": [
        "report",
        "report --full",
        "report --site @folder/site",
        "report --json",
        "report --format csv",
        "report --format html",
    ],
    "history": ["history --help"],
    "db": ["db add", "db query SELECT"],
    "import": ["import --help"],
    "export": ["export --help"],
    "bundle": ["bundle -o @folder/a.zip"],
    "verify": ["verify --help"],
    "compare": ["compare @run @run", "compare --json @run @run"],
    "accept": ["accept --help"],
    "accept plan": ["accept plan --help"],
    "accept recheck": ["accept recheck --help"],
    "accept looks": ["accept looks --help"],
    "baseline": ["baseline --help"],
    "outliers": ["outliers --help"],
    "runs": ["runs", "runs --json"],
    "status": ["status", "status --json"],
    "logs": ["logs a"],
    "stacks": ["stacks a.0"],
    "replay": ["replay --speed 0"],
    "cancel": ["cancel @run"],
    "gc processes": ["gc processes"],
    "gc": ["gc", "gc --remove", "gc --json"],
    "list": ["list --config @config", "list --references", "list --gated --config @config"],
    "config": ["config show --config @config", "config check --config @config"],
    "nodes": ["nodes --help"],
    "doctor": ["doctor @suite"],
    "dev": ["dev @suite a -- true"],
    "capsule": ["capsule create --help"],
    "init": ["init --help"],
    "new": ["new --help"],
    "import-suite": ["import-suite --help"],
    "import-meter": ["import-meter --help"],
    "tender": ["tender check @tender"],
    "project": ["project --help"],
    "offer": ["offer --help"],
    "budget": ["budget --help"],
    "pin": ["pin --help"],
    "image": ["image --help"],
    "driver": ["driver --help"],
    "timing-audit": ["timing-audit --help"],
    "ops": ["ops --help"],
    "completion": ["completion bash"],
}
TENDER = ROOT / "config" / "procurement" / "procurement.yaml"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def lines(milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path) -> list[list[str]]:
    """A command line, or several, of every verb; there is one run."""
    assert set(LINES) == set(COMMANDS)
    here = suite(tmp_path, a="echo fine")
    assert milabench("run", *here, "--run-name", "first").code == 0
    assert milabench("db", "add").code == 0  # whichever of the lines are examples
    (run,) = Path(environ["MILABENCH_BASE"], "runs").iterdir()
    words = {"@suite": here, "@config": here[2:], "@run": (str(run),), "SELECT": ("SELECT * FROM runs",)}
    words["@tender"] = (str(TENDER),)
    texts = [text.replace("@folder", str(tmp_path)) for texts in LINES.values() for text in texts]
    return [[each for word in text.split() for each in words.get(word, (word,))] for text in texts]


def over_all(lines: list[list[str]], wrong: Callable[[list[str]], object]) -> dict[str, object]:
    """What is wrong with each line, or with some of them where not all examples run; nothing where all is well."""
    lines = [lines[number] for number in thinned(range(len(lines)), 3)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return {" ".join(line): found for line, found in zip(lines, pool.map(wrong, lines), strict=True) if found}


def program(line: list[str]) -> list[str]:
    return [sys.executable, "-m", "milabench", *line]


@pytest.mark.slow
def test_a_reader_that_has_gone_and_a_full_disk_are_output_that_could_not_be_written(
    lines: list[list[str]], environ: dict[str, str]
) -> None:
    def into(stdout: int, line: list[str]) -> tuple[int, str]:
        said = forked(line, environ, stdout=stdout)
        return said.code, said.err

    def wrong(line: list[str]) -> object:
        reader, writer = os.pipe()
        os.close(reader)
        full = os.open("/dev/full", os.O_WRONLY)
        try:
            closed, filled = into(writer, line), into(full, line)
        finally:
            os.close(writer)
            os.close(full)
        # A verb that prints nothing there ends as ever.
        known = {0, NOT_WRITTEN}
        is_told = filled[0] != NOT_WRITTEN or "error: output: no space left on device\n" in filled[1]
        if closed[0] in known and filled[0] in known and is_told and "Traceback" not in closed[1] + filled[1]:
            return None
        return closed, filled

    assert over_all(lines, wrong) == {}


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2])
def test_a_signal_ends_every_verb_with_one_word(lines: list[list[str]], environ: dict[str, str], times: int) -> None:
    def wrong(line: list[str]) -> object:
        number = SIGNALS[(lines.index(line) + times) % len(SIGNALS)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
        with started(program(line), env=environ, cwd=ROOT, **pipes) as process:
            until(lambda: catches(process.pid, signal.SIGTERM) or process.poll() is not None)
            for _ in range(times):
                process.send_signal(number)
            out, err = (text.decode() for text in process.communicate())
        # 0 where the verb was faster than the signal.
        if process.returncode in (INTERRUPTED, 0) and not is_noisy(err.replace("warning:", "")):
            return None
        return signal.Signals(number).name, process.returncode, out[-300:], err[-300:]

    assert over_all(lines, wrong) == {}


@pytest.mark.slow
def test_quit_ends_every_verb_as_a_kill_does(
    lines: list[list[str]], environ: dict[str, str], milabench: Callable[..., Said]
) -> None:
    def wrong(line: list[str]) -> object:
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        with started(program(line), env=environ, cwd=ROOT, **pipes) as process:
            until(lambda: catches(process.pid, signal.SIGTERM) or process.poll() is not None)
            process.send_signal(signal.SIGQUIT)
            err = process.communicate()[1].decode()
        is_fine = process.returncode in (-signal.SIGQUIT, 0) and "Traceback" not in err
        return None if is_fine else (process.returncode, err)

    assert over_all(lines, wrong) == {}
    assert milabench("runs").code == 0
