"""Reads the answers of Slurm's commands into a common kind of row. Pure. An answer that cannot be read completely is marked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import islice

from milabench.facts.allocated_nodes import expand_nodelist
from milabench.schedulers.scheduler import JobState
from milabench.slurm.states import read_state

SEPARATOR = "\x1f"  # in no name, no comment and no reason
SQUEUE_FORMAT = SEPARATOR.join(("%i", "%A", "%T", "%N", "%j", "%r"))
SACCT_FORMAT = "JobID,JobIDRaw,State,NodeList,JobName,ExitCode"
MAX_TASKS = 100_000  # rows that an answer may stand for
MAX_NODES = 1_000_000  # names of nodes, in all of them
MAX_LISTED = 100_000  # nodes of a partition
MAX_CHARACTERS = 1 << 16  # of a line

_ID = re.compile(r"[0-9]{1,18}([_+][0-9]{1,18})?")
_CODES = re.compile(r"([0-9]{1,18}):([0-9]{1,18})")
_NOTHING = ("", "(null)", "None", "None assigned", "N/A")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A command's entry of a job: `id` as sbatch writes it (`12`, `12_3`, `12+1`), `raw` Slurm's own number."""

    id: str
    raw: str
    name: str
    state: JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of an answer. `whole`: the whole answer could be read. Only then is a job without a row absent."""

    rows: tuple[JobRow, ...]
    whole: bool


def read_squeue(text: str) -> Rows:
    """Read the text of squeue, in `SQUEUE_FORMAT`."""
    return _bounded(_row(line, "squeue") for line in lines(text) if not line.startswith("CLUSTER: "))


def read_sacct(text: str) -> Rows:
    """Read the text of `sacct --parsable2 --noheader`, in `SACCT_FORMAT`. Of a job's several lives the last counts."""
    return _bounded(_row(line, "sacct") for line in lines(text))


def _row(line: str, witness: str) -> JobRow | None:
    cells = line.split(SEPARATOR)
    if len(cells) != 6 or not _ID.fullmatch(cells[0]):  # also sacct's one row of all tasks that have not begun
        return None
    id_, raw, state, nodes, name, last = cells
    more = {"reason": last} if witness == "squeue" else {"exit_code": last}
    return JobRow(id=id_, raw=raw, name=name, state=_state(state, nodes=nodes, witness=witness, **more))


def read_scontrol(text: str) -> Rows:
    """Read the text of `scontrol --oneliner show job`."""
    return _bounded(map(_scontrol_row, lines(text)))


def _scontrol_row(line: str) -> JobRow | None:
    fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
    raw = fields.get("JobId", "")
    if not raw or "JobState" not in fields:
        return None
    array, task = fields.get("ArrayJobId", ""), fields.get("ArrayTaskId", "")
    het, offset = fields.get("HetJobId", ""), fields.get("HetJobOffset", "")
    id_ = f"{array}_{task}" if array and task.isdigit() else f"{het}+{offset}" if het and offset else raw
    status = _state(
        fields["JobState"],
        reason=fields.get("Reason", ""),
        nodes=fields.get("NodeList", ""),
        exit_code=fields.get("ExitCode", ""),
        witness="scontrol",
    )
    return JobRow(id=id_, raw=raw, name=fields.get("JobName", ""), state=status)


def read_sinfo(text: str) -> list[list[str]] | None:
    """Read the text of `sinfo --Node`: partition, node and state of each. None where that is more than a cluster has."""
    rows = (cells for line in lines(text) if len(cells := line.split(SEPARATOR)) == 3)
    kept = list(islice(rows, MAX_LISTED + 1))
    return kept if len(kept) <= MAX_LISTED else None


def lines(text: str) -> Iterator[str]:
    """Yield the lines with content. A line that is too long is cut to its beginning, which is no row."""
    return (line[:MAX_CHARACTERS].rstrip("\r\n") for line in StringIO(text) if not line.isspace())


def _bounded(rows: Iterable[JobRow | None]) -> Rows:
    """Return as many of the rows as a memory holds. None is an unreadable row."""
    kept: list[JobRow] = []
    whole, nodes = True, 0
    for row in rows:
        if row is None:
            whole = False
            continue
        nodes += len(row.state.nodes)
        if len(kept) >= MAX_TASKS or nodes > MAX_NODES:
            return Rows(rows=tuple(kept), whole=False)
        kept.append(row)
    return Rows(rows=tuple(kept), whole=whole)


def by_id(rows: Sequence[JobRow]) -> Mapping[str, JobRow]:
    """Return rows by each id that their job may be called by: a task of an array, a part of a heterogeneous job, a number."""
    known = {row.raw: row for row in rows}
    known |= {row.id.removesuffix("+0"): row for row in rows}
    return known | {row.id: row for row in rows}


def _state(text: str, *, reason: str = "", nodes: str = "", exit_code: str = "", witness: str) -> JobState:
    phase, result = read_state(text)
    codes = _CODES.fullmatch(exit_code) if phase == "ended" else None
    return JobState(
        phase=phase,
        result=result,
        state=text,
        reason=_word(reason),
        nodes=_nodes(_word(nodes)),
        exit_code=(int(codes[1]) or (128 + int(codes[2]) if int(codes[2]) else 0))
        if codes
        else None,  # as a shell says it
        witness=witness,
    )


def _word(text: str) -> str:
    return "" if text in _NOTHING else text


def _nodes(text: str) -> tuple[str, ...]:
    try:
        return expand_nodelist(text)
    except ValueError:
        return (text,)
