"""`python -m benchmate.ops nsys_analysis -f REPORT.sqlite`: host and device times of every labelled pass in an nsys export."""

from __future__ import annotations

import argparse
import bisect
import json
import re
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmate.ops.base import JsonObject, OpsError, run_command, write_whole

# [param|<operator>|<config>|<build>|<input>|<stage>|<pass>]; an operator's name holds no bar. The first form is what is written,
# the second, without brackets and with the stage first, what the oldest version of the original wrote.
_LABELS = (
    re.compile(r"\[param\|(?P<op>[^|]+)\|(?P<id>.+)\|(?P<stage>warmup|measure)\|(?P<pass>\w+)\]"),
    re.compile(r"(?P<op>[^|\[]+)\|(?P<stage>warmup|measure)\|(?P<id>.+)\|(?P<pass>\w+)"),
)


def parse_label(text: str) -> dict[str, str] | None:
    """Return the parts of a range's text (`op`, `id`, `stage`, `pass`), None when it is not ours."""
    matches = (pattern.fullmatch(text) for pattern in _LABELS)
    return next((match.groupdict() for match in matches if match is not None), None)


def analyse(path: str | Path) -> JsonObject:
    """Return {run id: [range]}, every range with its kernels, waits and T1 to T5 in ns.

    T1 the whole range. T2 its begin to its first kernel's. T3 all its kernels added up. T4 its last kernel's end to its end. T5
    its last cudaDeviceSynchronize. Missing values of a range are null.
    Raises OpsError for a file that is no nsys export.
    """
    if not Path(path).is_file():
        raise OpsError(f"{path}: no such file. Make it from a report with nsys export --type sqlite")
    connection = sqlite3.connect(f"file:{Path(path).resolve()}?mode=ro", uri=True)
    try:
        return _analyse(connection)
    except sqlite3.DatabaseError as error:
        raise OpsError(f"{path}: not an nsys export: {error}") from error
    finally:
        connection.close()


def main(argv: Sequence[str]) -> int:
    """Write the analysis. Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmate.ops nsys_analysis", description=__doc__)
    parser.add_argument("-f", "--file", required=True, metavar="FILE", help="made by nsys export --type sqlite")
    parser.add_argument("-o", "--output", metavar="FILE", help="where the JSON goes (stdout)")
    parser.add_argument("-l", "--log-level", default="INFO", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)

    def write() -> int:
        write_whole(args.output, json.dumps(analyse(args.file), indent=1) + "\n")
        return 0

    return run_command(write)


def _analyse(connection: sqlite3.Connection) -> JsonObject:
    calls = list(_activities(connection, "CUPTI_ACTIVITY_KIND_RUNTIME", "nameId"))
    kernels = dict(_activities(connection, "CUPTI_ACTIVITY_KIND_KERNEL", "shortName"))
    starts = [call["start"] for _, call in calls]
    ranges: JsonObject = {}
    for begin, end, label in _ranges(connection):
        inside = calls[bisect.bisect_left(starts, begin) : bisect.bisect_right(starts, end)]
        launched = [kernels[correlation] for correlation, _ in inside if correlation in kernels]
        launched.sort(key=lambda kernel: kernel["start"])
        waits = [call for _, call in inside if call["name"].startswith("cudaDeviceSynchronize")]
        ranges.setdefault(f"{label['op']}|{label['id']}", []).append(
            {
                "stage": label["stage"],
                "pass": label["pass"],
                "start": begin,
                "end": end,
                "kernels": launched,
                "syncs": [{"start": call["start"], "end": call["end"]} for call in waits],
                "T1": end - begin,
                "T2": launched[0]["start"] - begin if launched else None,
                "T3": sum(kernel["end"] - kernel["start"] for kernel in launched) if launched else None,
                "T4": end - max(kernel["end"] for kernel in launched) if launched else None,
                "T5": waits[-1]["end"] - waits[-1]["start"] if waits else None,
            }
        )
    return ranges


def _ranges(connection: sqlite3.Connection) -> Iterator[tuple[int, int, dict[str, str]]]:
    rows = connection.execute(
        "SELECT e.start, e.end, COALESCE(e.text, s.value) FROM NVTX_EVENTS e LEFT JOIN StringIds s ON e.textId = s.id "
        "WHERE e.end IS NOT NULL ORDER BY e.start"
    )
    for begin, end, text in rows:
        label = parse_label(text or "")
        if label is not None:
            yield begin, end, label


def _activities(connection: sqlite3.Connection, table: str, name: str) -> Iterator[tuple[int, JsonObject]]:
    """Yield (correlation, {"name", "start", "end"}) of the calls or kernels in a table, which an export may lack."""
    # nsys makes a table only where there is something to put into it.
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone() is None:
        return
    query = f"SELECT a.correlationId, s.value, a.start, a.end FROM {table} a JOIN StringIds s ON a.{name} = s.id"
    for correlation, *values in connection.execute(f"{query} ORDER BY a.start"):
        yield correlation, dict(zip(("name", "start", "end"), values, strict=True))
