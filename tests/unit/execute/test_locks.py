"""Who holds a run directory, as its lock file and its journal tell."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from milabench.execute.locks import RUN_LOCK, hold_run, holder_of, orchestrator_of, this_orchestrator


@pytest.mark.parametrize("detached", [False, True])
def test_what_is_written_is_read_back(detached: bool) -> None:
    who = this_orchestrator("marker", detached=detached)
    assert orchestrator_of(who.to_json()) == who


def test_one_of_before_there_were_detached_ones_was_attached() -> None:
    who = this_orchestrator("marker")
    entry = {name: value for name, value in who.to_json().items() if name != "detached"}
    assert orchestrator_of(entry) == who
    assert orchestrator_of({**entry, "detached": "yes"}) == who


def test_only_a_detached_one_is_called_so() -> None:
    who = this_orchestrator("marker")
    assert "detached" not in str(who)
    assert f"(pid {who.pid}, detached)" in str(replace(who, detached=True))


def test_who_let_go_of_a_run_holds_it_no_more_although_it_lives(tmp_path: Path) -> None:
    who = this_orchestrator("marker")
    with hold_run(tmp_path, who):
        assert holder_of(tmp_path) == who
    assert holder_of(tmp_path) is None
    with pytest.raises(ZeroDivisionError), hold_run(tmp_path, who):
        raise ZeroDivisionError
    assert holder_of(tmp_path) is None


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", "3", '"x"', "{}", "[" * 4000, '{"pid": 1}'),
        json.dumps({**this_orchestrator("m").to_json(), "pid": [1]}),
        json.dumps({**this_orchestrator("m").to_json(), "since": 10**400}),
        json.dumps({**this_orchestrator("m").to_json(), "host": {"a": 1}}),
    ],
)
def test_a_lock_file_of_another_kind_names_nobody(tmp_path: Path, content: str) -> None:
    (tmp_path / RUN_LOCK).write_text(content)
    assert holder_of(tmp_path) is None


def test_a_time_that_no_calendar_has_is_an_unknown_one() -> None:
    assert str(replace(this_orchestrator("m"), since=1e40)).endswith(" since an unknown time")
