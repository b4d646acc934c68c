"""Runs whose parts jobs carry out: their files, read as one run, and what is known of each share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milabench.errors import RecordError
from milabench.events import run_files, run_writer, rundir
from milabench.events.attempts import attempts, last_word
from milabench.events.shares import Share, ShareJob, fold_shares, merge_journals
from tests.recorded_run import NOON, SYSTEM, Recorded, RecordedShare, rates, record, record_shares

DIGITS = Recorded(events=rates(98.0, 99.0, 100.0))
SFT = Recorded(bench="sft", tag="", events=rates(10.0, 11.0))
BOTH = RecordedShare(steps=(DIGITS,)), RecordedShare(steps=(SFT,), job="102", node="n2")


def fold(*entries: dict[str, Any], steps: tuple[str, ...] = ("a",)) -> Share:
    """Of the share s1 of a run."""
    manifest = {"submission": {"shares": {"s1": {"steps": list(steps), "nodes": ["node1"]}}}}
    return fold_shares(manifest, [{"t": float(t), "share": "s1", **entry} for t, entry in enumerate(entries)])["s1"]


SUBMITTING, SUBMITTED = {"state": "submitting"}, {"state": "submitted", "job": "7"}
BEGAN, OVER = {"run": "started", "job": "7"}, {"run": "ended", "verdict": "passed", "job": "7"}
ENDED = {
    "state": "ended",
    "job": "7",
    "result": "time-limit",
    "job_state": "TIMEOUT",
    "reason": "None",
    "hosts": ["n3"],
}


def test_a_share_writes_its_own_journal_and_names_itself_in_each_entry(tmp_path: Path) -> None:
    orchestrator = run_writer.create_run(tmp_path, "jobs", NOON, clock=lambda: 5.0)
    job = run_writer.RunWriter(orchestrator.path, lambda: 6.0, share="s2", job="77")
    job.journal({"step": "a", "state": "started"})
    assert not (orchestrator.path / run_files.JOURNAL).exists()
    (entry,) = map(json.loads, (orchestrator.path / "journal.s2.jsonl").read_text().splitlines())
    assert entry == {"t": 6.0, "step": "a", "state": "started", "share": "s2", "job": "77"}


def test_a_run_with_shares_reads_as_one_with_the_nodes_where_they_were(tmp_path: Path) -> None:
    run = record_shares(tmp_path, *BOTH)
    assert [entry["t"] for entry in run.journal] == sorted(entry["t"] for entry in run.journal)
    assert {step: last_word(tried).outcome for step, tried in attempts(run.journal).items()} == {  # type: ignore[union-attr]
        "digits.D0": "passed",
        "sft": "passed",
    }
    assert [step["node"] for step in run.manifest["plan"]["steps"]] == ["n1", "n2"]
    assert [node["name"] for node in run.manifest["system"]["nodes"]] == ["n1", "n2"]
    assert [node["name"] for node in run.as_planned["system"]["nodes"]] == ["node1"]
    assert json.loads((run.path / "manifest.json").read_text()) == run.as_planned
    assert len(list(run.events("digits.D0"))) > 3


def test_a_planned_node_stays_while_a_step_there_has_not_begun(tmp_path: Path) -> None:
    waiting = RecordedShare(steps=(SFT,), job="102", is_begun=False, result=None)
    run = record_shares(tmp_path, BOTH[0], waiting, is_ended=False)
    assert [step["node"] for step in run.manifest["plan"]["steps"]] == ["n1", "node1"]
    assert [node["name"] for node in run.manifest["system"]["nodes"]] == ["node1", "n1"]


def test_the_beginning_and_end_of_a_share_are_not_those_of_the_run(tmp_path: Path) -> None:
    run = record_shares(tmp_path, *BOTH)
    assert [(entry["run"], entry.get("host")) for entry in run.transitions] == [("started", "login"), ("ended", None)]
    assert len([entry for entry in run.journal if entry.get("run") == "ended"]) == 3


@pytest.mark.parametrize(
    ("share", "is_ended", "verdict"),
    [
        (RecordedShare(steps=(SFT,), job="102"), True, "passed"),
        (RecordedShare(steps=(SFT,), job="102", is_over=False), False, ""),
        (RecordedShare(steps=(SFT,), job="102", is_begun=False), False, ""),
        (RecordedShare(steps=(Recorded(bench="sft", tag="", outcome="failed"),), job="102"), True, "failed"),
    ],
)
def test_a_run_whose_orchestrator_died_ends_with_its_last_job(
    tmp_path: Path, share: RecordedShare, is_ended: bool, verdict: str
) -> None:
    run = record_shares(tmp_path, BOTH[0], share, is_followed=False)
    assert (run.is_ended, run.verdict) == (is_ended, verdict)


def test_a_run_without_shares_is_what_it_was(tmp_path: Path) -> None:
    run = record(tmp_path, DIGITS)
    assert (run.is_ended, run.verdict, dict(run.shares)) == (True, "passed", {})
    assert run.manifest == run.as_planned


def test_a_second_job_of_a_share_keeps_where_the_first_one_measured(tmp_path: Path) -> None:
    run = record_shares(tmp_path, RecordedShare(steps=(DIGITS, SFT)))
    job = run_writer.RunWriter(run.path, share="s1", job="201")
    system = {**SYSTEM, "nodes": [{**SYSTEM["nodes"][0], "name": "n9"}]}
    job.write_share_manifest(system, [{**SFT.planned(), "node": "n9"}])
    again = rundir.open_run(run.path)
    assert {step["id"]: step["node"] for step in again.manifest["plan"]["steps"]} == {"digits.D0": "n1", "sft": "n9"}
    assert [node["name"] for node in again.manifest["system"]["nodes"]] == ["n1", "n9"]


@pytest.mark.parametrize(
    ("own_end", "why"),
    [
        ({"outcome": "passed"}, None),
        ({"outcome": "failed", "why": "exit"}, "exit"),
        # It was stopped: why, the scheduler says.
        ({"outcome": "cancelled"}, "time-limit"),
        ({"outcome": "failed", "why": "signal"}, "time-limit"),
    ],
)
# Before the orchestrator's, and after it: a node that failed may work on for a while.
@pytest.mark.parametrize("t", [4.0, 6.0])
def test_the_job_itself_knows_best_how_its_step_ended_but_not_why_it_was_stopped(
    own_end: dict[str, Any], why: str | None, t: float
) -> None:
    entry = {"step": "a", "attempt": 1, "state": "ended"}
    given_up = {**entry, "t": 5.0, "outcome": "failed", "why": "time-limit"}
    other = {**given_up, "step": "b"}
    merged = merge_journals([given_up, other], [[{**entry, "t": t, "share": "s1", **own_end}]])
    tried = attempts(merged)
    assert tried["a"][-1].entry.get("why") == why
    assert tried["b"][-1].why == "time-limit"


TIMES = st.lists(st.floats(0, 100) | st.none(), max_size=8)


@given(TIMES, st.lists(TIMES, max_size=3))
def test_each_journal_keeps_its_order_whatever_its_clock_did(own: list[Any], others: list[list[Any]]) -> None:
    journals = [[{"t": t, "of": n, "place": i} for i, t in enumerate(times)] for n, times in enumerate([own, *others])]
    merged = merge_journals(journals[0], journals[1:])
    for number, journal in enumerate(journals):
        assert [entry for entry in merged if entry["of"] == number] == journal


@pytest.mark.parametrize("content", ["[1]\n", '{"schema": 2}\n', '{"schema": 1, "system": 3}\n', "not json }\n"])
def test_a_share_manifest_of_another_shape_is_refused_by_name(tmp_path: Path, content: str) -> None:
    run = record_shares(tmp_path, *BOTH)
    (run.path / "manifest.s2.json").write_text(content)
    with pytest.raises(RecordError, match=r"manifest\.s2\.json"):
        rundir.open_run(run.path)


@pytest.mark.parametrize("name", ["manifest.s0.json", "journal.x.jsonl", "journal.s1.json", "manifest.s1.jsonl"])
def test_a_file_that_is_only_called_alike_is_left_alone(tmp_path: Path, name: str) -> None:
    run = record_shares(tmp_path, *BOTH)
    (run.path / name).write_text("nothing of ours\n")
    assert rundir.open_run(run.path) == run
    assert not run_files.is_journal_or_manifest(name)


def test_a_submission_that_names_a_share_like_a_path_has_no_such_share(tmp_path: Path) -> None:
    assert fold_shares({"submission": {"shares": {"../s1": {"steps": ["a"]}}}}, []) == {}


@pytest.mark.parametrize(
    ("entries", "jobs", "is_submitting", "is_ended"),
    [
        ((), (), False, False),
        ((SUBMITTING,), (), True, False),
        ((SUBMITTING, SUBMITTED), (("7", "submitted"),), False, False),
        # The orchestrator died in between: the job's own words tell of it.
        ((SUBMITTING, BEGAN), (("7", "running"),), False, False),
        # The clock of the node is behind: it began before it was submitted.
        ((BEGAN, SUBMITTING, SUBMITTED), (("7", "running"),), False, False),
        ((SUBMITTING, SUBMITTED, BEGAN, OVER), (("7", "ended"),), False, True),
        ((SUBMITTING, SUBMITTED, BEGAN, ENDED), (("7", "ended"),), False, True),
        ((SUBMITTING, SUBMITTED, ENDED, SUBMITTING), (("7", "ended"),), True, False),
        (
            (SUBMITTING, SUBMITTED, ENDED, SUBMITTING, {"state": "submitted", "job": "8"}),
            (("7", "ended"), ("8", "submitted")),
            False,
            False,
        ),
        ((SUBMITTING, SUBMITTED, {"state": "pending", "job": "7"}), (("7", "pending"),), False, False),
    ],
)
def test_a_share_is_where_its_last_job_is(
    entries: tuple[dict[str, Any], ...], jobs: tuple[tuple[str, str], ...], is_submitting: bool, is_ended: bool
) -> None:
    share = fold(*entries)
    assert tuple((job.id, job.stage) for job in share.jobs) == jobs
    assert (share.is_submitting, share.is_ended) == (is_submitting, is_ended)


def test_a_job_has_the_schedulers_words_and_its_own_times() -> None:
    share = fold(SUBMITTING, SUBMITTED, BEGAN, ENDED)
    (job,) = share.jobs
    assert job == ShareJob(
        id="7",
        stage="ended",
        result="time-limit",
        state="TIMEOUT",
        reason="None",
        nodes=("n3",),
        began=2.0,
    )
    assert job.failure == "time-limit (TIMEOUT)"


def test_the_steps_of_a_share_that_have_no_end_and_those_that_have_not_passed() -> None:
    share = fold(
        {"step": "a", "attempt": 1, "state": "ended", "outcome": "passed"},
        {"step": "b", "attempt": 1, "state": "ended", "outcome": "failed"},
        {"step": "c", "attempt": 1, "state": "ended", "outcome": "failed"},
        {"step": "c", "attempt": 2, "state": "started"},
        steps=("a", "b", "c", "d"),
    )
    assert (share.unended, share.unpassed) == (("c", "d"), ("b", "c", "d"))
