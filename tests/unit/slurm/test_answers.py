"""Whatever Slurm's commands print is read: into rows, or as an answer that is not whole."""

from __future__ import annotations

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
)

WORDS = st.sampled_from(
    ("7", "7_1", "RUNNING", "n[1-3]", "n[", "0-9:0%2", "1-99999999999999", "9" * 5000, "x=1", "JobId=7")
)
CELLS = st.lists(WORDS | st.text(max_size=8), max_size=9)
LINES = st.lists(CELLS, max_size=5).flatmap(
    lambda lines: st.sampled_from((SEPARATOR, " ", "|")).map(lambda mark: "\n".join(mark.join(line) for line in lines))
)


@pytest.mark.parametrize("read", [read_squeue, read_sacct, read_scontrol])
@given(text=LINES | st.text())
def test_any_text_is_read(read: Callable[[str], Rows], text: str) -> None:
    by_id(read(text).rows)


def line(id_: str, raw: str, state: str = "RUNNING") -> str:
    return SEPARATOR.join((id_, raw, state, "n1", "x", "None"))


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
    rows = read_squeue("\n".join(line(str(job), str(job)) for job in range(1, MAX_TASKS + 2)))
    assert (len(rows.rows), rows.whole) == (MAX_TASKS, False)
    many = SEPARATOR.join(("7", "7", "RUNNING", "n[1-99999]", "x", "None"))
    rows = read_squeue("\n".join([many] * 200))
    assert sum(len(row.state.nodes) for row in rows.rows) <= MAX_NODES
    assert not rows.whole


def test_the_nodes_of_a_partition_are_bounded() -> None:
    line = SEPARATOR.join(("all", "n1", "idle"))
    assert read_sinfo(f"{line}\nof a plugin\n\n{line}\n") == [["all", "n1", "idle"]] * 2
    assert read_sinfo(f"{line}\n" * (MAX_LISTED + 1)) is None
