"""A power cut may leave any file of a run cut off at any byte; every reader accepts what is left."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from milabench.analysis.summary import summarise
from milabench.errors import RecordError
from milabench.events.attempts import attempts
from milabench.events.model import Event
from milabench.events.rundir import open_run
from milabench.following.recorded_events import replay
from milabench.report import csv, json, markdown, text
from tests.examples import thinned
from tests.recorded_run import Recorded, RecordedShare, message, rates, record, record_shares

pytestmark = pytest.mark.turns(3)

LEAST_BYTES = 4096


def told() -> tuple[Event, ...]:
    return (*rates(98.0, 99.0, 100.0, 101.0, 102.0), message("a word"))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    steps = [Recorded(tag=f"D{device}", devices=(device,), events=told(), stderr="a warning\n") for device in range(2)]
    failed = Recorded(bench="sft", tag="", outcome="failed", why="exit", detail="it fell over", events=told())
    return record(tmp_path_factory.mktemp("base"), *steps, failed).path


def files(run: Path) -> list[Path]:
    return sorted(run.iterdir())


def test_the_run_that_is_cut_off_here_is_large_enough(recorded: Path) -> None:
    assert sum(path.stat().st_size for path in files(recorded)) >= LEAST_BYTES


@pytest.mark.slow
@pytest.mark.parametrize("name", ["manifest.json", "journal.jsonl", "digits.D0.data", "digits.D0.stderr", "sft.data"])
def test_a_run_whose_file_is_cut_off_at_any_byte_is_read(recorded: Path, tmp_path: Path, name: str) -> None:
    run = tmp_path / recorded.name
    shutil.copytree(recorded, run)
    whole = (run / name).read_bytes()
    planned = {"digits", "sft"}
    for size in thinned(range(len(whole)), 11):
        (run / name).write_bytes(whole[:size])
        found = open_run(run)
        assert attempts(found.journal) is not None
        summary = summarise(found)
        assert {bench.bench for bench in summary.benchmarks} == planned, size
        assert sum(bench.counts["planned"] for bench in summary.benchmarks) == 3, size
        assert all(bench.counts["passed"] + bench.counts["failed"] <= 2 for bench in summary.benchmarks)
        if size % 16 == 0:  # these only show what the summary says
            assert len(list(replay(found))) > 0
            assert all(form.render([summary]) for form in (text, markdown, json, csv))


@pytest.fixture(scope="module")
def submitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    passed = tuple(Recorded(tag=f"D{device}", devices=(device,), events=told()) for device in range(2))
    stopped = Recorded(bench="sft", tag="", outcome="cancelled", events=told())
    shares = (
        RecordedShare(steps=passed),
        RecordedShare(steps=(stopped,), job="102", node="n2", result="time-limit", state="TIMEOUT"),
    )
    return record_shares(tmp_path_factory.mktemp("base"), *shares).path


OF_SHARES = ["manifest.json", "journal.jsonl", "manifest.s1.json", "journal.s1.jsonl", "manifest.s2.json", "sft.data"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*OF_SHARES, "journal.s2.jsonl"])
def test_a_run_of_jobs_whose_file_is_cut_off_at_any_byte_is_read(submitted: Path, tmp_path: Path, name: str) -> None:
    run = tmp_path / submitted.name
    shutil.copytree(submitted, run)
    whole = (run / name).read_bytes()
    for size in thinned(range(len(whole)), 11):
        (run / name).write_bytes(whole[:size])
        found = open_run(run)
        summary = summarise(found)
        assert {bench.bench for bench in summary.benchmarks} == {"digits", "sft"}, size
        assert sum(bench.counts["planned"] for bench in summary.benchmarks) == 3, size
        (stopped,) = [bench for bench in summary.benchmarks if bench.bench == "sft"]
        assert stopped.counts["passed"] == 0, size
        if name != "manifest.json":  # which alone says that there are shares
            assert [job.share for job in summary.jobs] == ["s1", "s2"]
            assert {str(node["name"]) for node in summary.nodes} <= {"node1", "n1", "n2"}
        if size % 16 == 0:
            assert len(list(replay(found))) > 0
            assert all(form.render([summary]) for form in (text, markdown, json, csv))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["journal.jsonl", "journal.s1.jsonl"])
def test_only_the_scheduler_ends_a_share_that_left_steps_undone(submitted: Path, tmp_path: Path, name: str) -> None:
    run = tmp_path / submitted.name
    shutil.copytree(submitted, run)
    whole = (run / name).read_bytes()
    for size in thinned(range(len(whole)), 11):
        (run / name).write_bytes(whole[:size])
        found = open_run(run)
        for share in found.shares.values():
            assert not share.is_ended or not share.unended or (share.job and share.job.result), (size, share)
        assert found.verdict != "passed" or found.is_ended


@pytest.mark.slow
def test_what_is_cut_off_never_becomes_a_success(recorded: Path, tmp_path: Path) -> None:
    run = tmp_path / recorded.name
    shutil.copytree(recorded, run)
    journal = (run / "journal.jsonl").read_bytes()
    for size in thinned(range(len(journal)), 11):
        (run / "journal.jsonl").write_bytes(journal[:size])
        (failed,) = [bench for bench in summarise(open_run(run)).benchmarks if bench.bench == "sft"]
        assert failed.outcome in ("failed", "missing")
        assert failed.score is None


@pytest.mark.parametrize("content", ["[1]\n", '{"schema": 2}\n', "not json }\n"])
def test_a_manifest_that_is_whole_but_none_of_ours_is_refused(recorded: Path, tmp_path: Path, content: str) -> None:
    run = tmp_path / recorded.name
    shutil.copytree(recorded, run)
    (run / "manifest.json").write_text(content)
    with pytest.raises(RecordError, match=r"manifest\.json"):
        open_run(run)
