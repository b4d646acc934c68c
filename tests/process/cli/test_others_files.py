"""A home full of a user's own files is the same, byte for byte, after whatever commands, kills and full disks."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.commands import ROOT
from tests.examples import ALL

SEQUENCES = 300 if ALL else 10


@pytest.mark.slow
@pytest.mark.timeout(3600 if ALL else 240)
def test_no_sequence_of_commands_changes_a_file_of_a_users_own() -> None:
    argv = [sys.executable, "-m", "tests.others_files", "0", str(SEQUENCES)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
