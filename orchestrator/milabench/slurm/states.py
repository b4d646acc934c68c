"""The states of jobs in Slurm 20 to 25, and their meaning, in a table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from milabench.schedulers.scheduler import JobPhase, JobResult

STATES: Final[Mapping[str, tuple[tuple[str, ...], JobPhase, JobResult]]] = {
    # Base states: a job has one of them.
    "PENDING": (("PD",), "pending", ""),
    "RUNNING": (("R",), "running", ""),
    "SUSPENDED": (("S",), "running", ""),  # it has its processes and its nodes
    "COMPLETED": (("CD",), "ended", "completed"),
    "CANCELLED": (("CA",), "ended", "cancelled"),
    "FAILED": (("F",), "ended", "failed"),
    "TIMEOUT": (("TO",), "ended", "time-limit"),
    "DEADLINE": (("DL",), "ended", "time-limit"),
    "NODE_FAIL": (("NF",), "ended", "node-failed"),
    "PREEMPTED": (("PR",), "ended", "preempted"),
    "OUT_OF_MEMORY": (("OOM",), "ended", "out-of-memory"),
    "BOOT_FAIL": (("BF",), "ended", "node-failed"),
    # Flags: shown instead of the base state.
    "CONFIGURING": (("CF",), "pending", ""),  # has nodes that are still booting
    "POWER_UP_NODE": ((), "pending", ""),
    "REQUEUED": (("RQ",), "pending", ""),
    "REQUEUE_FED": (("RF",), "pending", ""),
    "REQUEUE_HOLD": (("RH",), "pending", ""),
    "RESV_DEL_HOLD": (("RD",), "pending", ""),
    "SPECIAL_EXIT": (("SE",), "pending", ""),  # started again by somebody, and held
    "RECONFIG_FAIL": ((), "pending", ""),  # its nodes could not be set up: it is queued again
    "EXPEDITING": (("EX",), "pending", ""),
    "COMPLETING": (("CG",), "running", ""),  # some of its processes may be left
    "RESIZING": (("RS",), "running", ""),
    "SIGNALING": (("SI",), "running", ""),
    "STAGE_OUT": (("SO",), "running", ""),
    "STOPPED": (("ST",), "running", ""),
    "LAUNCH_FAILED": (("LF",), "ended", "not-started"),
    "REVOKED": (("RV",), "unknown", ""),  # runs on another cluster of the federation, which we did not ask
}
_NAMES: Final = {short: name for name, (shorts, _, _) in STATES.items() for short in (name, *shorts)}
_SILENT: Final = frozenset({"UPDATE_DB"})  # a flag about Slurm's database, not about the job
_WORD: Final = re.compile(r"[A-Z_]+")


def read_state(words: str) -> tuple[JobPhase, JobResult]:
    """Return the meaning of a state, as any command of Slurm writes it: `CG`, `CANCELLED by 1000`, `RUNNING+COMPLETING`.

    A word outside the table is ignored: with another word for pending or running the job is that, else unknown.
    """
    names = {found[0] for part in words.split("+") if (found := _WORD.match(part.strip().upper()))} - _SILENT
    rows = [STATES[_NAMES[name]][1:] if name in _NAMES else ("unknown", "") for name in names]
    phases = {phase for phase, _ in rows}
    for phase in ("pending", "running", "unknown"):
        if phase in phases or not rows:
            return (phase if rows else "unknown"), ""
    results = {result for _, result in rows}
    if "not-started" in results:
        return "ended", "not-started"
    return ("ended", results.pop()) if len(results) == 1 else ("unknown", "")
