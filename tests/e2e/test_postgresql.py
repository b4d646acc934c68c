"""The results store on a real PostgreSQL server: the same commands, the same answers as in a file."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dashboards import panel_queries, variable_queries
from tests.recorded_run import Recorded, rates, record

pytestmark = pytest.mark.e2e
pytest.importorskip("psycopg", reason="the extra milabench[postgresql] is not installed")

USER = "postgres"


def program(name: str) -> str | None:
    """One of the server's programs: distributions keep them off the path."""
    versions = sorted(map(str, Path("/usr/lib/postgresql").glob(f"*/bin/{name}")), reverse=True)
    return shutil.which(name) or (versions[0] if versions else None)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The URL of an empty database, on a socket in a folder of its own; the server is ended afterwards."""
    initdb, pg_ctl = program("initdb"), program("pg_ctl")
    if initdb is None or pg_ctl is None:
        pytest.skip("PostgreSQL is not installed")
    who = {"user": USER} if os.getuid() == 0 else {}  # the server refuses to be root
    folder = Path(tempfile.mkdtemp(prefix="milabench-pg-"))  # short: a socket's path has at most 107 bytes
    if who:
        try:
            shutil.chown(folder, USER)
        except LookupError:
            shutil.rmtree(folder)
            pytest.skip(f"PostgreSQL does not run as root, and there is no user {USER}")
    data, options = str(folder / "data"), f"-c listen_addresses='' -k {folder} -F"

    def run(*argv: str) -> None:
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder, **who)

    try:
        run(initdb, "-D", data, "-U", "bench", "-A", "trust", "--no-sync")
        run(pg_ctl, "-D", data, "-w", "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield f"postgresql://bench@/postgres?host={folder}"
        finally:
            run(pg_ctl, "-D", data, "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


def milabench(base: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "MILABENCH_BASE": str(base)}
    command = [sys.executable, "-m", "milabench", *argv]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


def test_a_server_is_used_as_a_file_is(server: str, tmp_path: Path) -> None:
    names = []
    for day in range(1, 9):
        level = 800.0 + day % 2 if day < 5 else 860.0 + day % 2
        steps = [Recorded(repeat=repeat, events=rates(level, level, level)) for repeat in range(3)]
        created = {"created": f"2026-03-{day:02d}T12:00:00+00:00"}
        names.append(record(tmp_path, *steps, name=f"night{day}", manifest=created).path.name)
    empty = milabench(tmp_path, "db", "query", "SELECT 1", "--db", server)
    assert (empty.returncode, "is empty: no run was added" in empty.stderr) == (3, True)

    answers = {}
    for place in (server, str(tmp_path / "results.sqlite")):
        added = milabench(tmp_path, "db", "add", *names, "--db", place)
        again = milabench(tmp_path, "db", "add", names[0], "--db", place)
        query = milabench(
            tmp_path,
            "db",
            "query",
            "SELECT name, perf FROM results JOIN runs USING (run) ORDER BY name",
            "--json",
            "--db",
            place,
        )
        trend = milabench(tmp_path, "history", "digits", "--json", "--db", place)
        writing = milabench(tmp_path, "db", "query", "DELETE FROM runs", "--db", place)
        assert writing.returncode == 2, writing.stderr
        answers[place] = (added.stdout, again.stdout, json.loads(query.stdout), json.loads(trend.stdout))
    assert answers[server] == answers[str(tmp_path / "results.sqlite")]
    [trend_told] = answers[server][3]["trends"]
    assert [change["run"] for change in trend_told["changes"]] == [names[4]]


@pytest.fixture
def empty(server: str) -> str:
    """The URL of another database of the server, which is empty."""
    import psycopg

    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("CREATE DATABASE panels")
    return server.replace("/postgres?", "/panels?")


def test_the_panels_of_the_dashboard_have_the_same_answers_in_both_kinds_of_store(empty: str, tmp_path: Path) -> None:
    names = []
    for day in range(1, 4):
        steps = [
            Recorded(repeat=repeat, events=rates(800.0, 801.0, 802.0 + day), is_complete=day > 1) for repeat in range(3)
        ]
        # A run of milabench 1.3 may not say when it was.
        created = {"created": f"2026-03-{day:02d}T12:00:00+00:00" if day < 3 else ""}
        names.append(record(tmp_path, *steps, name=f"night{day}", manifest=created).path.name)
    answers = {}
    for store, place in (("postgresql", empty), ("sqlite", str(tmp_path / "results.sqlite"))):
        assert milabench(tmp_path, "db", "add", *names, "--db", place).returncode == 0
        queries = panel_queries(store, {"benchmark": ["digits", "it's"], "host": ["box"]}, 0, 1_773_500_000_000)
        said = {
            title: milabench(tmp_path, "db", "query", sql, "--json", "--db", place)
            for title, sql in (*queries.items(), *variable_queries(store).items())
        }
        assert {title: done.stderr for title, done in said.items() if done.returncode} == {}
        answers[store] = {title: json.loads(done.stdout) for title, done in said.items()}
    assert not [title for title, rows in answers["sqlite"].items() if not rows]
    assert answers["postgresql"] == answers["sqlite"]


def test_a_server_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    said = milabench(tmp_path, "history", "digits", "--db", f"postgresql://user:secret@/none?host={tmp_path}")
    assert (said.returncode, said.stderr.count("\n"), "secret" in said.stderr) == (5, 1, False)
