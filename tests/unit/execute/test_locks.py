"""Who holds a run directory, as its lock file and its journal tell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from milabench.execute.locks import hold_run, holder_of, orchestrator_of, this_orchestrator


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
