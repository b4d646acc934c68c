"""What `--detach` reports of the process that left its terminal, and where it makes no sense."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from milabench.errors import Unreachable
from milabench.execute.detach import DetachedProcess
from milabench.workflow.detach import report_detached
from milabench.workflow.options import CollectingReporter, Session
from tests.commands import Said

RUN = Path("results/runs/run.2026-03-14_12-00-00")


@pytest.fixture
def reporter() -> CollectingReporter:
    return CollectingReporter()


@pytest.fixture
def session(reporter: CollectingReporter) -> Session:
    return Session(reporter)


def test_a_run_that_continues_is_named_with_what_can_be_done(session: Session, reporter: CollectingReporter) -> None:
    assert report_detached("run", DetachedProcess(run=RUN, code=None), session) == 0
    [text] = reporter.texts("info")
    assert text.startswith(f"run: {RUN.name} continues without this terminal")
    assert all(word in text for word in ("`milabench status`", "`logs -f STEP`", "`resume`", "`cancel`"))


@pytest.mark.parametrize("code", [0, 2, 5, 130])
def test_a_process_that_ended_before_its_run_began_has_reported_why(
    session: Session, reporter: CollectingReporter, code: int
) -> None:
    assert report_detached("run", DetachedProcess(run=None, code=code), session) == code
    assert reporter.messages == []


def test_a_run_that_was_ended_as_it_began_can_be_resumed(session: Session, reporter: CollectingReporter) -> None:
    assert report_detached("run", DetachedProcess(run=RUN, code=130), session) == 130
    assert reporter.texts("info") == [f"run: {RUN.name} was ended. `milabench resume` continues it"]


@pytest.mark.parametrize(
    ("run", "rest"), [(None, "No run had begun"), (RUN, f"`milabench resume` continues {RUN.name}")]
)
def test_a_killed_process_is_reported(session: Session, run: Path | None, rest: str) -> None:
    with pytest.raises(Unreachable, match=f"was killed by signal 9. {rest}"):
        report_detached("run", DetachedProcess(run=run, code=-9), session)


def test_a_dry_run_cannot_be_detached(milabench: Callable[..., Said], monkeypatch: pytest.MonkeyPatch) -> None:
    said = milabench("run", "--detach", "--dry-run")
    assert (said.code, "--detach" in said.err) == (2, True)
    monkeypatch.setenv("MILABENCH_DETACH", "1")
    assert "--detach" not in milabench("run", "--dry-run", "--config", "nowhere.yaml").err
