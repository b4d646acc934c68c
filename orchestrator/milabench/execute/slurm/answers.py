"""What Slurm's commands answer, read into one kind of row; pure. An answer that cannot be read whole says so."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from msgspec import Struct
from msgspec.json import Decoder

from milabench.execute.scheduler import JobState
from milabench.execute.slurm.states import read_state
from milabench.facts.slurm import expand_nodelist

SEPARATOR = "\x1f"  # in no name, no comment and no reason
SQUEUE_FORMAT = SEPARATOR.join(("%i", "%A", "%T", "%N", "%j", "%k", "%r"))
SACCT_FORMAT = "JobID,JobIDRaw,State,NodeList,JobName,ExitCode"
MAX_TASKS = 100_000

_ID = re.compile(r"[0-9]{1,18}([_+][0-9]{1,18})?")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18})(?::([0-9]{1,18}))?)?")
_CODES = re.compile(r"([0-9]{1,18}):([0-9]{1,18})")
_NOTHING = ("", "(null)", "None", "None assigned", "N/A")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """What one command says of one job: `id` as sbatch writes it (`12`, `12_3`, `12+1`), `raw` Slurm's own number."""

    id: str
    raw: str
    name: str
    state: JobState
    comment: str = ""


class _Job(Struct):
    """What we read of a job in JSON, of any type: a release changes those of some. The others are passed over unread."""

    job_id: Any = None
    array_job_id: Any = None
    array_task_id: Any = None
    array_task_string: Any = None
    het_job_id: Any = None
    het_job_offset: Any = None
    name: Any = None
    comment: Any = None
    job_state: Any = None
    state_reason: Any = None
    nodes: Any = None
    exit_code: Any = None


class _Document(Struct):
    jobs: list[_Job]
    errors: list[Any] | None = None


_DOCUMENT = Decoder(_Document)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of one answer; `whole` says that all of it could be read: only then is a job absent that has no row."""

    rows: tuple[JobRow, ...]
    whole: bool


def read_squeue(text: str) -> Rows:
    """Read the text of squeue, in `SQUEUE_FORMAT`."""
    rows, whole = [], True
    for line in text.splitlines():
        cells = line.split(SEPARATOR)
        if len(cells) == 7 and _ID.fullmatch(cells[0]):
            id_, raw, state, nodes, name, comment, reason = cells
            status = _state(state, reason=reason, nodes=nodes, witness="squeue")
            rows.append(JobRow(id=id_, raw=raw, name=name, comment=_word(comment), state=status))
        elif line.strip() and not line.startswith("CLUSTER: "):
            whole = False
    return Rows(rows=tuple(rows), whole=whole)


def read_squeue_json(text: str) -> Rows | None:
    """Read the JSON of squeue, as Slurm 22.05 to 25 write it; None when it is none, or says that it is an error."""
    try:
        document = _DOCUMENT.decode(text)
    except ValueError:
        return None
    if document.errors:
        return None
    found = [list(_json_rows(job)) for job in document.jobs]
    return Rows(rows=tuple(row for rows in found for row in rows), whole=all(found))


def read_sacct(text: str) -> Rows:
    """Read the text of `sacct --parsable2 --noheader`, in `SACCT_FORMAT`; of a job's several lives the last one counts."""
    rows, whole = [], True
    for line in text.splitlines():
        cells = line.split(SEPARATOR)
        if len(cells) == 6 and _ID.fullmatch(cells[0]):
            id_, raw, state, nodes, name, code = cells
            status = _state(state, nodes=nodes, exit_code=code, witness="sacct")
            rows.append(JobRow(id=id_, raw=raw, name=name, state=status))
        elif line.strip():  # also the one row of all tasks that have not begun
            whole = False
    return Rows(rows=tuple(rows), whole=whole)


def read_scontrol(text: str) -> Rows:
    """Read the text of `scontrol --oneliner show job`."""
    rows, whole = [], True
    for line in text.splitlines():
        fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
        raw = fields.get("JobId", "")
        if raw and "JobState" in fields:
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
            rows.append(JobRow(id=id_, raw=raw, name=fields.get("JobName", ""), state=status))
        elif line.strip():
            whole = False
    return Rows(rows=tuple(rows), whole=whole)


def by_id(rows: Sequence[JobRow]) -> Mapping[str, JobRow]:
    """Return rows by each id that their job may be called by: a task of an array, a part of a heterogeneous job, a number."""
    known = {row.raw: row for row in rows}
    known |= {row.id.removesuffix("+0"): row for row in rows}
    return known | {row.id: row for row in rows}


def _json_rows(job: _Job) -> Iterator[JobRow]:
    raw = _number(job.job_id)
    state = job.job_state
    words = [word for word in (state if isinstance(state, list) else [state]) if isinstance(word, str)]
    if raw is None or not words:
        return
    status = _state(
        "+".join(words),
        reason=_text(job.state_reason),
        nodes=_text(job.nodes),
        exit_code=_exit_code(job.exit_code),
        witness="squeue",
    )
    array, task = _number(job.array_job_id), _number(job.array_task_id)
    het, offset = _number(job.het_job_id), _number(job.het_job_offset)
    ids = [str(raw)]
    if array and task is not None:
        ids = [f"{array}_{task}"]
    elif array and _text(job.array_task_string):
        ids = [f"{array}_{number}" for number in islice(_tasks(_text(job.array_task_string)), MAX_TASKS)]
    elif het:
        ids = [f"{het}+{offset or 0}"]
    for id_ in ids:
        yield JobRow(id=id_, raw=str(raw), name=_text(job.name), comment=_text(job.comment), state=status)


def _exit_code(value: Any) -> str:
    """Return an exit code and a signal as text has them, `3:0`."""
    if isinstance(value, dict):
        ended_by = value.get("signal")
        number = _number(ended_by.get("id", ended_by.get("signal_id"))) if isinstance(ended_by, dict) else None
        return f"{_number(value.get('return_code')) or 0}:{number or 0}"
    return f"{value >> 8}:{value & 0x7F}" if isinstance(value, int) else ""  # 22.05: as wait(2) has it


def _number(value: Any) -> int | None:
    """Return a number, or that of `{"set": true, "infinite": false, "number": 5}`."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _tasks(text: str) -> Iterator[int]:
    """Yield the tasks of `0-3,7,10-20:5%2`."""
    for part in text.partition("%")[0].strip("[]").split(","):
        if found := _RANGE.fullmatch(part.strip()):
            first, last, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
            yield from range(first, last + 1, max(step, 1))


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
