"""The kernel kills for memory as anybody else does, by SIGKILL; it counts what it kills, and that tells the two apart."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commands import PYTHON, ROOT, milabench_in
from tests.processes import until

LIMIT_MIB = 64
HOG = "import time; held = bytearray(1 << 29); held[::4096] = b'x' * len(held[::4096]); print('has it all')"


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group that may hold LIMIT_MIB, below our own."""
    made, why = group_below_ours()
    if made is None:
        pytest.skip(f"no control group with a limit of memory can be made here: {why}")
    yield made
    until(lambda: is_removed(made), f"{made} is empty")


def group_below_ours() -> tuple[Path | None, str]:
    why = "there is no memory controller"
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            bases, limit, swap = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"], "memory.max", "memory.swap.max"
        elif "memory" in controllers.split(","):
            bases, limit, swap = ["/sys/fs/cgroup/memory"], "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"
        else:
            continue
        for base in bases:
            made = Path(base + path.rstrip("/"), f"milabench-test-{os.getpid()}")
            try:
                made.mkdir()
                if not (made / limit).exists():  # the controller is not handed down to it
                    is_removed(made)
                    continue
                (made / limit).write_text(str(LIMIT_MIB << 20))
                if (made / swap).exists():
                    (made / swap).write_text("0" if limit == "memory.max" else str(LIMIT_MIB << 20))
            except OSError as error:
                why = str(error)
                is_removed(made)
                continue
            return made, ""
    return None, why


def is_removed(made: Path) -> bool:
    try:
        made.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def inside(group: Path, command: str) -> tuple[str, ...]:
    """A shell that goes into the group and then does something."""
    return "sh", "-c", f"echo $$ > {group}/cgroup.procs || exit 99; {command}", "-", sys.executable, HOG


def how(said: dict[str, Any]) -> tuple[Any, ...]:
    return said["outcome"], said["why"], said["detail"]


def was_killed_for_memory(said: dict[str, Any]) -> bool:
    """By its own group, or where that cannot be asked (version 1) by the machine."""
    told = (f"the kernel killed it for memory, in a control group that may hold {LIMIT_MIB} MiB", ON_MACHINE)
    return how(said)[:2] == ("failed", "out-of-memory") and said["detail"] in told


ON_MACHINE = "killed while the kernel was killing for memory on this machine"
KILLED = (
    "failed",
    "out-of-memory",
    f"the kernel killed it for memory, in a control group that may hold {LIMIT_MIB} MiB",
)


def test_the_group_in_which_everything_runs_is_named_with_its_limit(group: Path, agent: Any) -> None:
    (group / "cgroup.procs").write_text(str(agent.process.pid))
    assert how(agent.run(sys.executable, "-c", HOG)) == KILLED
    assert how(agent.run("sh", "-c", "kill -9 $$", step="second"))[:2] == ("failed", "signal")


def test_a_step_that_the_kernel_killed_for_memory_is_out_of_memory(agent: Any, group: Path) -> None:
    assert was_killed_for_memory(agent.run(*inside(group, 'exec "$1" -c "$2"')))


def test_so_is_one_whose_shell_tells_that_its_program_was_killed(agent: Any, group: Path) -> None:
    assert was_killed_for_memory(agent.run(*inside(group, '"$1" -c "$2"; exit $?')))


def test_a_kill_by_somebody_else_in_the_same_group_is_none(agent: Any, group: Path) -> None:
    assert how(agent.run(*inside(group, "kill -9 $$"))) == (
        *("failed", "signal"),
        "ended by SIGKILL, perhaps by the kernel for want of memory",
    )


def test_a_later_kill_by_somebody_else_is_not_taken_for_the_kernels(agent: Any, group: Path) -> None:
    assert was_killed_for_memory(agent.run(*inside(group, 'exec "$1" -c "$2"'), step="first"))
    assert how(agent.run(*inside(group, "kill -9 $$"), step="second"))[:2] == ("failed", "signal")


def test_a_step_whose_child_was_killed_for_memory_and_that_ended_well_has_passed(agent: Any, group: Path) -> None:
    assert how(agent.run(*inside(group, '"$1" -c "$2"; true'))) == ("passed", None, "")


RUN_LIMIT_MIB = 256


def run_in(group: Path, folder: Path, victim: str, *options: str) -> tuple[int, list[dict[str, Any]], dict[str, str]]:
    """A run in which the kernel kills for memory, a process that a line of shell names as its first victim.

    Its exit code, how its attempts ended, and the variables with which verbs find it.
    """
    for name in ("memory.memsw.limit_in_bytes", "memory.limit_in_bytes", "memory.max"):
        if (group / name).exists():
            (group / name).write_text(str(RUN_LIMIT_MIB << 20))
    hog = folder / "hog.py"
    hog.write_text(HOG)
    # It holds less than the program; of a larger score the kernel takes it first.
    hungry = f"touch {folder}/seen; echo 1000 > /proc/{victim}/oom_score_adj; {PYTHON} {hog}"
    line = json.dumps(f"test -e {folder}/seen || {{ {hungry}; }}")
    (folder / "suite.yaml").write_text(
        "profile: quick\n"
        f"a: {{shell: true, command: [{line}], max_duration: 60, plan: {{method: njobs, n: 1}}, weight: 1.0}}\n"
    )
    words = [sys.executable, "-m", "milabench", "run", "--use-current-env", "--config", folder / "suite.yaml", *options]
    environ = {**os.environ, "MILABENCH_BASE": str(folder), "MILABENCH_LOCK_DIR": str(folder / "locks")}
    enter = f'echo $$ > {group}/cgroup.procs || exit 99; exec "$@"'
    ran = subprocess.run(["sh", "-c", enter, "sh", *words], env=environ, cwd=ROOT, capture_output=True, check=False)
    (run,) = (folder / "runs").iterdir()
    entries = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]
    return ran.returncode, [entry for entry in entries if entry.get("state") == "ended"], environ


def test_an_agent_that_the_kernel_killed_is_reported_so_and_the_next_step_has_another(
    group: Path, tmp_path: Path
) -> None:
    code, (first, second), _ = run_in(group, tmp_path, "$PPID", "--max-retries", "1")
    assert (code, first["why"], second["outcome"]) == (0, "lost-node", "passed")
    assert "the agent was ended by SIGKILL; meanwhile the kernel killed there " in first["detail"]
    assert " for lack of memory" in first["detail"]


def test_an_orchestrator_that_the_kernel_killed_is_reported_so_and_its_run_is_resumed(
    group: Path, tmp_path: Path
) -> None:
    code, ended, environ = run_in(group, tmp_path, "$(cut -d ' ' -f 4 /proc/$PPID/stat)")
    assert (code, ended) == (-signal.SIGKILL, [])
    verb = milabench_in(environ)
    told = verb("status").out
    assert "incomplete" in told
    assert "memory   since it began, the kernel killed " in told
    assert verb("resume", "--force").code == 0  # outside of the group the machine has more memory
    assert "since it began" not in verb("status").out
