"""A test that waits for ever fails at its ceiling, with the stacks of what it waits for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import ROOT

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
