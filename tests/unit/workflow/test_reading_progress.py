"""How far the records of a run are read: by bytes of the attempts that count, by a clock that is given."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from milabench.events.rundir import Run, open_run
from milabench.workflow.options import CollectingReporter, ReportRequest, Session
from milabench.workflow.reading_progress import ReadingProgress, shown_reading
from milabench.workflow.report_runs import render_report
from tests.commands import ROOT


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A copy of a recorded run, without a summary beside it."""
    path = tmp_path / "system_a"
    shutil.copytree(ROOT / "tests" / "runs" / "system_a", path)
    (path / "summary.json").unlink(missing_ok=True)
    return open_run(path)


def size_of(run: Run) -> int:
    return sum((run.path / f"{run.stem(step)}.data").stat().st_size for step in run.files)


class Clock:
    """A clock that is set."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_share_the_rate_and_the_time_that_is_left_are_told(run: Run) -> None:
    clock, shown, whole = Clock(), list[str](), size_of(run)
    progress = ReadingProgress(run, shown.append, clock)
    progress.take(whole // 4)
    clock.now += 2.0
    progress.take(whole // 4)
    (text,) = shown
    assert text.startswith("reading system_a: 25 %, ")
    assert text.endswith(" MB/s, about 6.0 s left")


def test_the_rate_is_that_of_all_bytes_so_far(run: Run) -> None:
    clock, shown = Clock(), list[str]()
    progress = ReadingProgress(run, shown.append, clock)
    for _ in range(3):
        progress.take(50_000_000)
        clock.now += 2.0
    assert [text.split(", ")[1] for text in shown] == ["25.0 MB/s", "25.0 MB/s"]


def test_what_is_read_at_once_says_nothing(run: Run) -> None:
    clock, shown = Clock(), list[str]()
    progress = ReadingProgress(run, shown.append, clock)
    for _ in range(9):
        progress.take(100)
        clock.now += 0.1
    assert shown == []


def test_it_is_not_told_more_often_than_a_person_reads(run: Run) -> None:
    clock, shown = Clock(), list[str]()
    progress = ReadingProgress(run, shown.append, clock)
    for _ in range(300):
        progress.take(10)
        clock.now += 0.01
    assert 8 <= len(shown) <= 11


def test_all_bytes_of_the_records_are_counted(run: Run) -> None:
    sizes = list[int]()
    watched = replace(run, on_read=sizes.append)
    for step in run.files:
        assert list(watched.batches(step)) == list(run.batches(step))
    contents = [(run.path / f"{run.stem(step)}.data").read_bytes() for step in run.files]
    assert sum(sizes) == sum(map(len, contents))


class Shown(CollectingReporter):
    """Keeps what a terminal would show."""

    def __init__(self) -> None:
        super().__init__()
        self.progress = list[str]()

    def show_progress(self, text: str) -> None:
        self.progress.append(text)


@pytest.mark.parametrize("end", [None, KeyboardInterrupt, ValueError])
def test_nothing_is_left_on_the_terminal_whatever_ends_it(run: Run, end: type[BaseException] | None) -> None:
    reporter = Shown()
    if end is None:
        with shown_reading(Session(reporter)):
            reporter.show_progress("50 %")
    else:
        with pytest.raises(end), shown_reading(Session(reporter)):
            reporter.show_progress("50 %")
            raise end
    assert reporter.progress == ["50 %", ""]


def test_an_interrupted_report_leaves_nothing_half_written(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path.name: path.read_bytes() for path in run.path.iterdir()}

    def interrupted(self: ReadingProgress, size: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ReadingProgress, "take", interrupted)
    with pytest.raises(KeyboardInterrupt):
        render_report(ReportRequest(runs=(str(run.path),)), "text", Session(Shown()))
    assert {path.name: path.read_bytes() for path in run.path.iterdir()} == before


def test_a_report_is_the_same_whether_it_is_watched_or_not(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milabench.workflow.reading_progress.SHOWN_AFTER_S", 1e-9)
    monkeypatch.setattr("milabench.workflow.reading_progress.EVERY_S", 1e-9)
    reporter = Shown()
    request = ReportRequest(runs=(str(run.path),), reference="none")
    watched = render_report(request, "text", Session(reporter))
    assert len(reporter.progress) > 1
    assert watched == render_report(request, "text", Session(CollectingReporter()))
