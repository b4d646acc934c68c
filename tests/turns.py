"""Tests that take turns: of those in a file `make test` runs a third, which the hash of the commit chooses; `make e2e` runs all.

Tests of real processes, machines and clusters take turns, by their folder. The mark `turns(N)` says otherwise: a file with
`turns(1)` is part of every `make test`, and some slow unit tests take turns, too. Without `--in-turn`, as when pytest is given a
file, all of them run. `--in-turn=N` names the turn itself: three runs in a row with 0, 1 and 2 have run all.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.examples import ALL, commit

OPTION = "--in-turn"
FOLDERS = ("fuzz", "process", "rehearsal", "slurm", "ssh")
COUNT = 3


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        OPTION,
        nargs="?",
        type=int,
        const=commit(),
        metavar="TURN",
        help="of the tests that take turns, run those whose turn it is: that of the commit, or this number's",
    )


class _Marks:
    @pytest.hookimpl(tryfirst=True)  # before `-m` looks at marks
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            folder = item.path.relative_to(Path(__file__).parent).parts[0] if _is_ours(item) else ""
            if folder in FOLDERS and item.get_closest_marker("turns") is None:
                item.add_marker(pytest.mark.turns(COUNT))


class _Turns:
    def __init__(self, turn: int) -> None:
        self.turn = turn

    @pytest.hookimpl(trylast=True)  # after `-m` has chosen: only what is left takes turns
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        places = Counter[Path]()
        chosen, waiting = [], []
        for item in items:
            mark = item.get_closest_marker("turns")
            count = 1 if mark is None else mark.args[0]
            (waiting if (places[item.path] + self.turn) % count else chosen).append(item)
            places[item.path] += 1
        config.hook.pytest_deselected(items=waiting)
        items[:] = chosen


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Marks())
    turn = config.getoption(OPTION)
    if turn is not None and not ALL:
        config.pluginmanager.register(_Turns(turn))


def _is_ours(item: pytest.Item) -> bool:
    return item.path.is_relative_to(Path(__file__).parent)
