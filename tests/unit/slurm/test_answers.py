"""Whatever Slurm's commands print is read: into rows, or as an answer that is not whole."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milabench.slurm.answers import (
    MAX_LISTED,
    MAX_NODES,
    MAX_TASKS,
    SEPARATOR,
    JobRow,
    Rows,
    by_id,
    read_sacct,
    read_scontrol,
    read_sinfo,
    read_squeue,
    read_squeue_json,
)

NAMES = ("job_id", "array_job_id", "array_task_id", "array_task_string", "het_job_id", "het_job_offset", "name")
KEYS = st.sampled_from(
    (*NAMES, "comment", "job_state", "state_reason", "nodes", "exit_code", "number", "set", "signal")
)
WORDS = st.sampled_from(
    ("7", "7_1", "RUNNING", "n[1-3]", "n[", "0-9:0%2", "1-99999999999999", "9" * 5000, "x=1", "JobId=7")
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=8), max_leaves=20
)
CELLS = st.lists(WORDS | st.text(max_size=8), max_size=9)
LINES = st.lists(CELLS, max_size=5).flatmap(
    lambda lines: st.sampled_from((SEPARATOR, " ", "|")).map(lambda mark: "\n".join(mark.join(line) for line in lines))
)


@pytest.mark.parametrize("read", [read_squeue, read_sacct, read_scontrol])
@given(text=LINES | st.text())
def test_any_text_is_read(read: Callable[[str], Rows], text: str) -> None:
    by_id(read(text).rows)


@given(jobs=st.lists(st.dictionaries(KEYS, VALUES, max_size=12), max_size=3), whole=VALUES)
def test_any_json_is_read(jobs: object, whole: object) -> None:
    for document in ({"jobs": jobs}, {"jobs": whole, "errors": whole}, whole):
        rows = read_squeue_json(json.dumps(document))
        if rows is not None:
            assert len(rows.rows) <= MAX_TASKS
            by_id(rows.rows)


def line(id_: str, raw: str, state: str = "RUNNING") -> str:
    return SEPARATOR.join((id_, raw, state, "n1", "x", "m", "None"))


def test_a_job_is_found_by_each_of_its_ids() -> None:
    # The last task of an array has the number of the array itself; a heterogeneous job is called by its first part.
    text = "\n".join(
        (line("7_0", "8"), line("7_1", "7", "PENDING"), line("9+0", "9"), line("9+1", "10"), line("12", "12"))
    )
    rows = by_id(read_squeue(text).rows)
    assert {id_: row.id for id_, row in rows.items()} == {
        "7_0": "7_0",
        "8": "7_0",
        "7_1": "7_1",
        "7": "7_1",
        "9+0": "9+0",
        "9": "9+0",
        "9+1": "9+1",
        "10": "9+1",
        "12": "12",
    }


def test_the_last_life_of_a_job_counts_in_the_accounting() -> None:
    lives = ("7", "7", "NODE_FAIL", "n1", "x", "0:0"), ("7", "7", "COMPLETED", "n2", "x", "0:0")
    rows = by_id(read_sacct("\n".join(SEPARATOR.join(life) for life in lives)).rows)
    assert rows["7"].state.result == "completed"


def test_tasks_that_the_accounting_has_in_one_row_make_no_job_absent() -> None:
    waiting = SEPARATOR.join(("7_[2-3%2]", "7", "PENDING", "None assigned", "x", "0:0"))
    assert read_sacct(waiting) == Rows(rows=(), whole=False)


def test_one_unreadable_row_makes_the_answer_a_part_of_one() -> None:
    answer = read_squeue(line("7", "7") + "\nslurm: warning: something\n")
    assert [type(row) for row in answer.rows] == [JobRow]
    assert not answer.whole


def test_tasks_and_nodes_of_an_answer_are_bounded_in_all() -> None:
    tasks = {"array_job_id": 7, "array_task_string": "0-99999", "job_state": "PENDING"}
    rows = read_squeue_json(json.dumps({"jobs": [{"job_id": job, **tasks} for job in range(1, 200)]}))
    assert rows is not None
    assert (len(rows.rows), rows.whole) == (MAX_TASKS, False)
    many = SEPARATOR.join(("7", "7", "RUNNING", "n[1-99999]", "x", "m", "None"))
    rows = read_squeue("\n".join([many] * 200))
    assert sum(len(row.state.nodes) for row in rows.rows) <= MAX_NODES
    assert not rows.whole


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        '{"jobs": [{"job_id": 1, "job_state": ' + "[" * 60_000 + "]" * 60_000 + "}]}",
        '{"jobs": [{"job_id": 1, "comment": ' + "[" * 20_000 + "]" * 20_000 + ', "job_state": "RUNNING"}]}',
        '{"jobs": [{"job_id": ' + "9" * 5000 + "}]}",
    ],
)
def test_json_without_a_bottom_is_no_answer(text: str) -> None:
    rows = read_squeue_json(text)
    # From Python 3.14 on more of them can be decoded, and what else they say is read.
    assert rows is None or {(row.id, row.state.phase) for row in rows.rows} <= {("1", "running")}


def test_what_is_too_long_under_one_key_is_passed_over() -> None:
    job = {"job_id": 1, "job_state": "RUNNING", "name": "x" * 100_000, "comment": "m"}
    rows = read_squeue_json(json.dumps({"jobs": [job]}))
    assert rows is not None
    assert [(row.name, row.comment) for row in rows.rows] == [("", "m")]


def test_the_nodes_of_a_partition_are_bounded() -> None:
    line = SEPARATOR.join(("all", "n1", "idle"))
    assert read_sinfo(f"{line}\nof a plugin\n\n{line}\n") == [["all", "n1", "idle"]] * 2
    assert read_sinfo(f"{line}\n" * (MAX_LISTED + 1)) is None
