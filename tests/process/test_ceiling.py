"""A test that waits for ever fails at its ceiling, with the stacks of what it waits for."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import ROOT
from tests.processes import end_of, started

CHILD = "import threading\\ndef waits_for_ever():\\n    threading.Event().wait()\\nwaits_for_ever()"
WAITS = {
    "for a child that is read": f"subprocess.run([sys.executable, '-c', '{CHILD}'], capture_output=True)",
    "at the end of a with statement": f"with subprocess.Popen([sys.executable, '-c', '{CHILD}']): pass",
    "in a thread": f"thread = threading.Thread(target=subprocess.run, args=[[sys.executable, '-c', '{CHILD}']])\n"
    "    thread.start()\n    thread.join()",
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_a_test_that_waits_for_ever_fails_and_what_it_waits_for_is_named(wait: str, tmp_path: Path) -> None:
    (tmp_path / "test_waits.py").write_text(
        "import subprocess, sys, threading\nimport pytest\n"
        f"@pytest.mark.timeout(0.5)\ndef test_it():\n    {wait}\n\ndef test_the_next():\n    pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.ceiling", "-c", "/dev/null", "--rootdir=.", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "the test has run for 0.5 s and is here:\n" in done.stdout
    assert "thread MainThread, most recent call last:\n" in done.stdout
    assert f"{tmp_path}/test_waits.py" in done.stdout
    assert "waits_for_ever()" in done.stdout


def test_no_test_waits_for_a_process_at_the_end_of_a_with_statement() -> None:
    bare = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in (ROOT / "tests", ROOT / "benchmate" / "tests")
        for path in folder.rglob("test_*.py")
        if "Popen(" in (source := path.read_text())  # to parse all of them takes a second
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.With) and "Popen(" in "".join(ast.unparse(item) for item in node.items)
    ]
    assert bare == [], "use tests.commands.started, which ends the process whatever happens in its block"


def test_a_process_whose_block_is_left_early_is_ended() -> None:
    with pytest.raises(ZeroDivisionError), started(["sleep", "600"]) as process:
        1 / 0  # noqa: B018
    assert process.returncode == -signal.SIGKILL


def test_a_process_that_does_not_end_writes_its_stacks(capfd: pytest.CaptureFixture[str]) -> None:
    child = "import threading\ndef waits():\n    print('here', flush=True)\n    threading.Event().wait()\nwaits()"
    with started([sys.executable, "-c", child], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        with pytest.raises(AssertionError, match="has not ended after 0 s"):
            end_of(process, 0)
    assert "in waits" in capfd.readouterr().err
