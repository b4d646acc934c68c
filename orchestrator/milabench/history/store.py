"""The results store: SQLite in a file, or PostgreSQL at a URL, with the same tables and the same answers."""

from __future__ import annotations

import contextlib
import shlex
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, cast
from urllib.parse import quote

from milabench.devices.regular_file import open_regular
from milabench.errors import NothingSelected, RecordError, Unreachable, UsageError, os_reason
from milabench.history.rows import TABLES, Row, RunRows

SCHEMA = 1
_URLS = ("postgresql://", "postgres://")  # of a database server, rather than the path of a file
_WAIT_S = 30  # for another writer of the same file
_LOOK_STEPS = 100_000  # of SQLite's machine: milliseconds


class Store:
    """An open results store. Every method raises RecordError when the database does."""

    def __init__(
        self, connection: sqlite3.Connection, name: str, mark: Literal["?", "%s"], failure: type[Exception]
    ) -> None:
        self._connection = connection
        self._name = name
        self._mark = mark
        self._failure = failure

    def add(self, rows: RunRows) -> Literal["added", "updated", "known"]:
        """Add a run. An existing run is left unchanged, or replaced when its results have changed."""
        with self._writing():
            stored = self._execute("SELECT digest FROM runs WHERE run = ?", (rows.run,)).fetchone()
            if stored is not None and stored[0] == rows.digest:
                return "known"
            # All or nothing, in one transaction: a reader never sees a run whose results are half replaced.
            for table, columns in TABLES.items():
                self._execute(f"DELETE FROM {table} WHERE run = ?", (rows.run,))
                marks = ", ".join("?" * len(columns))
                for row in rows.tables[table]:
                    self._execute(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", row)
        return "added" if stored is None else "updated"

    def query(self, sql: str, parameters: Sequence[object] = ()) -> tuple[list[str], list[Row]]:
        """Return columns and rows of a read-only statement. Raises UsageError when the database rejects it."""
        try:
            # A user's statement goes as it is: its ? may stand in a text.
            cursor = self._execute(sql, parameters) if parameters else self._connection.execute(sql)
            if cursor.description is None:
                raise UsageError("this statement returns no rows. `db query` is read-only")
            return [str(column[0]) for column in cursor.description], [tuple(row) for row in cursor.fetchall()]
        except (self._failure, sqlite3.Warning) as error:
            _raise_interrupt(error)
            raise UsageError(f"{self._name}: {_first_line(error)}") from None

    def count(self) -> int:
        """Return the number of runs."""
        return int(self.query("SELECT count(*) FROM runs")[1][0][0])

    def _execute(self, sql: str, parameters: Sequence[object]) -> sqlite3.Cursor:
        return self._connection.execute(sql.replace("?", self._mark), parameters)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Run a transaction: completely, or not at all."""
        try:
            yield
            self._connection.commit()
        except self._failure as error:
            self._connection.rollback()
            _raise_interrupt(error)
            raise RecordError(f"{self._name}: cannot be written: {_first_line(error)}") from None

    def make_tables(self) -> None:
        """Create missing tables. Raises RecordError for a store of another version."""
        with self._writing():
            for table, columns in TABLES.items():
                key = {"runs": "run", "results": "run, bench", "metrics": "run, bench, place_in_run"}[table]
                declarations = ", ".join(f"{name} {kind}" for name, kind in columns.items())
                self._execute(f"CREATE TABLE IF NOT EXISTS {table} ({declarations}, PRIMARY KEY ({key}))", ())
            self._execute("CREATE TABLE IF NOT EXISTS milabench_store (schema_version INTEGER)", ())
            version_row = self._execute("SELECT schema_version FROM milabench_store", ()).fetchone()
            if version_row is None:
                self._execute("INSERT INTO milabench_store VALUES (?)", (SCHEMA,))
        if version_row is not None and version_row[0] != SCHEMA:
            raise RecordError(
                f"{self._name}: has store version {version_row[0]}, but this milabench reads version {SCHEMA}"
            )

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


@contextmanager
def open_store(place: str, *, is_writing: bool) -> Iterator[Store]:
    """Open the store at a path or a PostgreSQL URL. Writing creates it.

    Raises NothingSelected when there is none to read, RecordError when it is none, Unreachable for a server that does not
    answer, UsageError without its driver.
    """
    store = _open_server(place, is_writing) if place.startswith(_URLS) else _open_file(Path(place), is_writing)
    try:
        if is_writing:
            store.make_tables()
        yield store
    finally:
        store.close()


def _open_file(path: Path, is_writing: bool) -> Store:
    if not is_writing and not path.is_file():
        create = f"milabench db add RUN... --db {shlex.quote(str(path))}"
        raise NothingSelected(f"{path}: no results store. Create it with `{create}`")
    try:
        if path.exists():
            open_regular(path).close()
        if is_writing:
            path.parent.mkdir(parents=True, exist_ok=True)
        uri = f"file:{quote(bytes(path.absolute()))}?mode={'rwc' if is_writing else 'ro'}"
        with contextlib.ExitStack() as undo:
            connection = undo.enter_context(contextlib.closing(sqlite3.connect(uri, uri=True, timeout=_WAIT_S)))
            # Python handles a signal between two of its own instructions only; an exception there interrupts the statement.
            connection.set_progress_handler(lambda: None, _LOOK_STEPS)
            connection.execute("PRAGMA trusted_schema = OFF")
            if not is_writing:
                connection.execute("PRAGMA query_only = ON")
                # A file that is attached, or vacuumed into, would be made.
                connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            known = dict(connection.execute("SELECT lower(name), rootpage FROM sqlite_master"))
            if odd := sorted(name for name in ("milabench_store", *TABLES) if known.get(name) == 0):
                # A view or a virtual table runs what its file says, whenever it is read.
                raise RecordError(f"{path}: not a results store: '{odd[0]}' is a view or a virtual table")
            if not is_writing and "milabench_store" not in known:
                raise NothingSelected(f"{path}: is empty: no run was added. Add a run with `milabench db add RUN...`")
            undo.pop_all()
    except sqlite3.Error as error:
        _raise_interrupt(error)
        what = (
            "cannot be opened" if getattr(error, "sqlite_errorname", "") == "SQLITE_CANTOPEN" else "not a results store"
        )
        raise RecordError(f"{path}: {what}: {_first_line(error)}") from None
    except OSError as error:
        raise RecordError(f"{path}: cannot be opened: {os_reason(error)}") from None
    return Store(connection, str(path), "?", sqlite3.Error)


def _open_server(url: str, is_writing: bool) -> Store:
    try:
        import psycopg
    except ImportError:
        raise UsageError(
            "a PostgreSQL store needs the driver psycopg. Install it with `pip install 'milabench[postgresql]'`"
        ) from None
    name = without_password(url)
    try:
        connection = psycopg.connect(url, connect_timeout=10)
    except psycopg.Error as error:
        raise Unreachable(f"{name}: {_first_line(error)}") from None
    connection.read_only = not is_writing
    if not is_writing:
        table_row = connection.execute("SELECT to_regclass('milabench_store')").fetchone()
        if table_row is None or table_row[0] is None:
            connection.close()
            raise NothingSelected(
                f"{name}: is empty: no run was added. Add a run with `milabench db add RUN... --db URL`"
            )
    # Of what a connection can do, only what the two drivers have in common is used.
    return Store(cast("sqlite3.Connection", connection), name, "%s", psycopg.Error)


def without_password(url: str) -> str:
    """Return the URL without its password."""
    head, at, tail = url.rpartition("@")
    scheme, _, who = head.partition("://")
    return f"{scheme}://{who.partition(':')[0]}@{tail}" if at else url


def _raise_interrupt(error: Exception) -> None:
    """Raise the error again where a signal interrupted SQLite: then the command ends, and this says nothing of the store."""
    if getattr(error, "sqlite_errorname", "") == "SQLITE_INTERRUPT":
        raise error


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    line = text[0] if text else type(error).__name__
    return line[:1].lower() + line[1:]
