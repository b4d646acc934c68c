"""The findings of `doctor` about Slurm on this machine."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from milabench.errors import Unreachable
from milabench.facts.compare import NodeFinding
from milabench.slurm.commands import Commands

SLURM_S = 5.0  # for each question to Slurm


def check_slurm(environ: Mapping[str, str]) -> NodeFinding:
    """Check whether Slurm is here and answers, and with which partitions. Without it, this machine can be measured as well."""
    if shutil.which("sinfo", path=environ.get("PATH")) is None:
        return NodeFinding(
            what="slurm", state="note", says="not found: --engine slurm needs the login node of a cluster"
        )
    commands = Commands(environ, SLURM_S)
    try:
        version = commands.ask("sinfo", "--version").output.strip().rpartition(" ")[2]
        answer = commands.ask("sinfo", "--noheader", "--format=%R|%D|%l|%G")
    except Unreachable as error:
        return NodeFinding(what="slurm", state="note", says=str(error))
    if answer.code:
        return NodeFinding(what="slurm", state="note", says=f"{version} does not answer: {answer.reason}")
    rows = [line.split("|") for line in answer.output.splitlines() if line.count("|") == 3]
    partitions = (
        f"{name} ({nodes} nodes"
        + (f" with {devices}" if devices not in ("", "(null)") else "")
        + (f", at most {limit}" if limit not in ("infinite", "n/a") else "")
        + ")"
        for name, nodes, limit, devices in rows
    )
    return NodeFinding(what="slurm", state="ok", says=f"{version}; partitions: {', '.join(partitions) or 'none'}")
