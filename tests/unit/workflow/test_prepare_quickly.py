"""What takes too long to be prepared by a run: it is ended, the command is said, and it is not tried again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from milabench.workflow import prepare
from tests.commands import Said

Milabench = Callable[..., Said]


def test_what_takes_too_long_is_ended_and_not_tried_again(
    milabench: Milabench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILABENCH_LOCK_DIR", str(tmp_path / "locks"))
    monkeypatch.setattr(prepare, "LIMIT_S", 0.5)
    assert milabench("new", "mine").code == 0
    script = tmp_path / "benchmarks" / "mine" / "prepare.py"
    script.write_text("import time\nprint('downloading', flush=True)\ntime.sleep(3600)\n")
    suite = ("--use-current-env", "--config", "benchmarks/mine/suite.yaml")
    said = milabench("run", *suite)
    command = f"milabench prepare --config benchmarks/mine/suite.yaml --base {tmp_path / 'base'} --use-current-env"
    assert said.code == 4
    assert "error: mine: prepare failed: timeout: still running after 0.5 s; " in said.err
    assert f"Where it needs more than 0.5 s, run `{command}`\n  | downloading\n" in said.err
    again = milabench("run", *suite)
    assert (again.code, again.err) == (
        4,
        f"error: not prepared: mine, which took 0.5 s or more the last time. Run `{command}`\n",
    )
    # What is prepared by hand has the time that it takes.
    script.write_text(script.read_text().replace("3600", "0.6"))
    assert milabench("prepare", *suite).code == 0
    assert "nothing to do" in milabench("prepare", *suite).err
