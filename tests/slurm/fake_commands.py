"""A fake Slurm: sbatch, squeue, sacct, scontrol and scancel over one folder, which do and say what a test wants.

`FakeSlurm` is what tests use: it puts the commands on a PATH, changes the states of jobs, and scripts what a command does
next: hang, fail, answer late, answer with other text, or lie about a job. The commands are this file, run as a program.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

COMMANDS = ("sbatch", "squeue", "sacct", "scontrol", "scancel")
ENDED = (
    "COMPLETED",
    "FAILED",
    "CANCELLED",
    "TIMEOUT",
    "NODE_FAIL",
    "PREEMPTED",
    "OUT_OF_MEMORY",
    "BOOT_FAIL",
    "DEADLINE",
)
Cluster = dict[str, Any]
Printed = tuple[str, str, int]  # output, errors, exit code
FOLDER = "FAKE_SLURM"  # the variable that says where the state is; not SLURM_, which never reaches a command


class State:
    """The state of the cluster, in one file that is locked while it is held."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @contextlib.contextmanager
    def held(self) -> Iterator[dict[str, Any]]:
        """Yield the state; what is changed in it is kept."""
        with (self.folder / "state.json").open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            state = json.load(file)
            yield state
            file.seek(0)
            file.truncate()
            json.dump(state, file)


class FakeSlurm:
    """A cluster that exists in a folder only."""

    def __init__(self, folder: Path, *, accounting: bool = False) -> None:
        self.folder = Path(folder)
        self._state = State(folder)
        state = {"accounting": accounting, "next": 100, "jobs": {}, "next_do": {}, "always": {}}
        (self.folder / "state.json").write_text(json.dumps(state))
        (self.folder / "calls").touch()
        (self.folder / "bin").mkdir()
        program = shlex.join([sys.executable, "-IS", str(Path(__file__).resolve())])
        for name in COMMANDS:
            path = self.folder / "bin" / name
            path.write_text(f'#!/bin/sh\nexec {program} {name} "$@"\n')
            path.chmod(0o755)

    @classmethod
    def at(cls, folder: Path) -> FakeSlurm:
        """The cluster that is already in a folder."""
        it = cls.__new__(cls)
        it.folder, it._state = Path(folder), State(folder)
        return it

    @property
    def environ(self) -> dict[str, str]:
        """The variables with which a program finds it."""
        return {"PATH": f"{self.folder}/bin:/usr/bin:/bin", FOLDER: str(self.folder)}

    @property
    def calls(self) -> list[list[str]]:
        """What was called, in order: lists of words."""
        return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]

    def set(self, job: str, **values: object) -> None:
        """Change a job: `state`, `reason`, `nodes`, `exit`, `name`, or in which answers it is (`squeue=False`)."""
        with self._state.held() as state:
            state["jobs"][job].update(values)

    def forget(self, job: str, *commands: str) -> None:
        """Let a job be in no answer any more, or not in those of some commands."""
        self.set(job, **dict.fromkeys(commands or ("squeue", "scontrol", "sacct"), False))

    def job(self, job: str) -> dict[str, Any]:
        """All that is known of a job."""
        with self._state.held() as state:
            return state["jobs"][job]

    def jobs(self) -> list[str]:
        """The ids of all jobs."""
        with self._state.held() as state:
            return list(state["jobs"])

    def next(self, command: str, **what: object) -> None:
        """What a command does the next time: `hang`, `sleep`, `error`, `code`, `output`, `before` (does its work first)."""
        with self._state.held() as state:
            state["next_do"].setdefault(command, []).append(what)

    def always(self, command: str, **what: object) -> None:
        """The same from now on; nothing: as it should."""
        with self._state.held() as state:
            state["always"][command] = what

    def configure(self, **values: object) -> None:
        """Change the cluster: `accounting`, `new_state` of a job that is submitted."""
        with self._state.held() as state:
            state.update(values)


# The commands


def option(words: Sequence[str], name: str, otherwise: str = "") -> str:
    """The value of an option, the last one if there are several."""
    values = [word.partition("=")[2] for word in words if word.partition("=")[0] == name]
    return values[-1] if values else otherwise


def sbatch(state: Cluster, words: Sequence[str]) -> Printed:
    """Submit a job, or the tasks of an array."""
    script = Path(words[-1]).read_text()
    number = state["next"]
    tasks = re.fullmatch(r"0-(\d+)(%\d+)?", option(words, "--array"))
    count = int(tasks[1]) + 1 if tasks else 1
    state["next"] = number + count
    for task in range(count):
        job = {"raw": str(number + (task + 1) % count if tasks else number), "name": option(words, "--job-name")}
        job |= {"comment": option(words, "--comment"), "nodes": "", "exit": 0}
        job |= {"state": state.get("new_state", "PENDING"), "reason": "Priority"}
        job |= {"squeue": True, "sacct": True, "scontrol": True, "script": script, "words": words}
        job |= {"after": option(words, "--dependency")}
        state["jobs"][f"{number}_{task}" if tasks else str(number)] = job
    return f"{number}\n", "", 0


def listed(state: Cluster, command: str) -> list[tuple[str, dict[str, Any]]]:
    """The jobs that a command knows."""
    return [(name, job) for name, job in state["jobs"].items() if job[command]]


def squeue(state: Cluster, words: Sequence[str]) -> Printed:
    """Show the jobs."""
    form = option(words, "--format")
    lines = []
    for name, job in listed(state, "squeue"):
        values = {"i": name, "A": job["raw"], "T": job["state"], "N": job["nodes"], "j": job["name"]}
        values["r"] = job["reason"] or "None"
        lines.append(re.sub("%([a-zA-Z])", lambda found, values=values: values[found[1]], form))
    return "".join(f"{line}\n" for line in lines), "", 0


def codes(job: dict[str, Any]) -> str:
    """An exit code and a signal."""
    return job["exit"] if isinstance(job["exit"], str) else f"{job['exit']}:0"


def sacct(state: Cluster, words: Sequence[str]) -> Printed:
    """Show what the accounting knows."""
    if not state["accounting"]:
        return "", "Slurm accounting storage is disabled\n", 1
    wanted = option(words, "--jobs").split(",")
    between = option(words, "--delimiter", "|")
    lines = []
    for name, job in listed(state, "sacct"):
        if wanted == [""] or name in wanted or name.partition("_")[0] in wanted:
            told = job.get("sacct_state") or job["state"]
            cells = (name, job["raw"], told, job["nodes"] or "None assigned", job["name"], codes(job))
            lines.append(between.join(cells))
    return "".join(f"{line}\n" for line in lines), "", 0


def scontrol(state: Cluster, words: Sequence[str]) -> Printed:
    """Show one job."""
    known = dict(listed(state, "scontrol"))
    name = words[-1]
    if name not in known and name.partition("_")[0] in {id_.partition("_")[0] for id_ in known}:
        return f"Job {name} not found\n", "", 0
    if name not in known:
        return "", "slurm_load_jobs error: Invalid job id specified\n", 1
    job, (array, _, task) = known[name], name.partition("_")
    of_array = f"ArrayJobId={array} ArrayTaskId={task} " if task else ""
    line = (
        f"JobId={job['raw']} {of_array}JobName={job['name']} JobState={job['state']} Reason={job['reason'] or 'None'}"
    )
    return f"{line} ExitCode={codes(job)} ReqNodeList=(null) NodeList={job['nodes'] or '(null)'} Power=\n", "", 0


def scancel(state: Cluster, words: Sequence[str]) -> Printed:
    """End jobs. As in the real one, nothing is left of a waiting task of an array that is cancelled by itself."""
    errors = ""
    for name in (word for word in words if not word.startswith("-")):
        tasks = [job for id_, job in state["jobs"].items() if id_.startswith(f"{name}_")]
        jobs = tasks or [state["jobs"][name]] if tasks or name in state["jobs"] else []
        if not jobs:
            errors += f"scancel: error: Kill job error on job id {name}: Invalid job id specified\n"
        elif all(job["state"] in ENDED for job in jobs):
            errors += f"scancel: error: Kill job error on job id {name}: Job/step already completing or completed\n"
        for job in jobs:
            if job["state"] not in ENDED:
                if "_" in name and job["state"] == "PENDING":
                    job.update(squeue=False, scontrol=False)
                job.update(state="CANCELLED", reason="")
    return "", errors, 1 if errors else 0


def main(name: str, *words: str) -> int:
    """Run a command."""
    state = State(os.environ[FOLDER])
    with (state.folder / "calls").open("a") as calls:
        calls.write(json.dumps([name, *words]) + "\n")
    with state.held() as values:
        queue = values["next_do"].get(name, [])
        is_about_jobs = "--version" not in words
        do = (queue.pop(0) if queue and is_about_jobs else {}) or (
            values["always"].get(name, {}) if is_about_jobs else {}
        )
    output, errors, code = "", "", 0
    if not do or do.get("before") or do.keys() == {"sleep"}:
        time.sleep(do.get("sleep", 0))
        with state.held() as values:
            output, errors, code = globals()[name](values, list(words))
    if do.get("hang"):
        if os.fork():  # a child that keeps the output open, as commands that a site wraps have them
            (state.folder / "hanging").write_text(str(os.getpid()))
        time.sleep(600)
    sys.stdout.write(do.get("output", output))
    sys.stderr.write(do.get("error", errors))
    return do.get("code", 1 if "error" in do else code)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
