"""Why a command cannot be started, in the words of a person."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from milabench.execute.agent.step import describe_start_failure


@pytest.mark.parametrize(("is_there", "reason"), [(False, "No such file or directory"), (True, "Permission denied")])
def test_a_folder_of_path_that_may_not_be_entered_hides_no_missing_program(
    tmp_path: Path, is_there: bool, reason: str
) -> None:
    if is_there:
        (tmp_path / "program").touch()
    denied = PermissionError(errno.EACCES, os.strerror(errno.EACCES), "program")  # as of execvp in both cases
    said = describe_start_failure(denied, ["program"], None, {"PATH": str(tmp_path)})
    assert said == f"cannot start program: {reason}"
