"""What a command says of the process that left its terminal, and where `--detach` makes no sense."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from milabench.errors import Unreachable
from milabench.execute.detach import DetachedProcess
from milabench.workflow.detach import report_detached
from tests.commands import Said

RUN = Path("results/runs/run.2026-03-14_12-00-00")


def test_a_run_that_goes_on_is_named_with_what_may_be_done(capsys: pytest.CaptureFixture[str]) -> None:
    assert report_detached("run", DetachedProcess(run=RUN, code=None)) == 0
    said = capsys.readouterr().err
    assert said.startswith(f"run: {RUN.name} goes on without this terminal")
    assert all(word in said for word in ("`milabench status`", "`logs -f STEP`", "`resume`", "`cancel`"))


@pytest.mark.parametrize("code", [0, 2, 5, 130])
def test_what_ended_before_its_run_began_has_said_why(capsys: pytest.CaptureFixture[str], code: int) -> None:
    assert report_detached("run", DetachedProcess(run=None, code=code)) == code
    assert capsys.readouterr().err == ""


def test_a_run_that_was_ended_as_it_began_can_be_gone_on_with(capsys: pytest.CaptureFixture[str]) -> None:
    assert report_detached("run", DetachedProcess(run=RUN, code=130)) == 130
    assert capsys.readouterr().err == f"run: {RUN.name} was ended; `milabench resume` goes on with it\n"


@pytest.mark.parametrize(("run", "rest"), [(None, "no run had begun"), (RUN, f"it had begun {RUN.name}")])
def test_a_killed_one_is_said_to_be(run: Path | None, rest: str) -> None:
    with pytest.raises(Unreachable, match=f"was killed by signal 9; {rest}"):
        report_detached("run", DetachedProcess(run=run, code=-9))


def test_what_ends_at_once_leaves_no_terminal(milabench: Callable[..., Said], monkeypatch: pytest.MonkeyPatch) -> None:
    said = milabench("run", "--detach", "--dry-run")
    assert (said.code, "--detach" in said.err) == (2, True)
    monkeypatch.setenv("MILABENCH_DETACH", "1")
    assert "--detach" not in milabench("run", "--dry-run", "--config", "nowhere.yaml").err
