"""A results store that somebody else wrote, and statements that never end."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from milabench.history.store import open_store
from tests.commands import ROOT, Said
from tests.processes import end_of, started, until

ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"


def empty_store(path: Path) -> Path:
    with open_store(str(path), is_writing=True):
        return path


def cpu_ticks(pid: int) -> int:
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))


def holds(pid: int, path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return any(link.readlink() == path for link in Path(f"/proc/{pid}/fd").iterdir())
    return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_query_in_the_midst_of_sqlite(environ: Mapping[str, str], tmp_path: Path, number: int) -> None:
    store = empty_store(tmp_path / "store.sqlite")
    command = [sys.executable, "-m", "milabench", "db", "query", ENDLESS, "--db", str(store)]
    with started(command, env=environ, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        until(lambda: holds(process.pid, store), "the store to be opened")
        begun = cpu_ticks(process.pid)
        until(lambda: cpu_ticks(process.pid) > begun + 30, "0.3 s of work in SQLite")
        process.send_signal(number)
        code = end_of(process, 30)
        assert (code, process.stdout.read(), process.stderr.read()) == (130, "", "interrupted\n")


@pytest.mark.parametrize(
    "statement",
    [
        f"CREATE VIEW runs AS {ENDLESS}",
        f"CREATE VIEW Results AS {ENDLESS}",
        "CREATE VIRTUAL TABLE metrics USING rtree(a, b, c)",
    ],
)
def test_a_view_is_no_table_of_a_store(milabench: Callable[..., Said], tmp_path: Path, statement: str) -> None:
    name = next(name for name in ("runs", "results", "metrics") if name in statement.lower())
    store = empty_store(tmp_path / "store.sqlite")
    with contextlib.closing(sqlite3.connect(store)) as connection:
        connection.execute(f"DROP TABLE {name}")
        connection.execute(statement)
        connection.commit()
    said = milabench("history", "digits", "--db", str(store))
    assert (said.code, said.err) == (6, f"error: {store}: not a results store: '{name}' is a view or a virtual table\n")
