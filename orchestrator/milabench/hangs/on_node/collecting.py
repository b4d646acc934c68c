"""The present state of a step's processes, seen twice from outside: their states, Python stacks, devices, collectives.

Runs on the step's node, in a separate process: an agent's, or a process that is started for the question. Standard library only,
Python 3.8. It changes nothing in the processes, reads no argument of any call, and is done within WITHIN_S.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from ...execute.agent.evidence import WITHIN_S
from ...execute.agent.host_facts import find_accelerators
from ...execute.agent.procfs import environment_of, list_folder, processes, read_bytes, read_process, read_text
from ...execute.agent.protocol import RUN_MARKER, STEP_MARKER
from ...execute.agent.verbs import split_options
from .collectives import last_collectives, ras_status
from .python_stacks import DUMP_SIGNAL, read_faulthandler, read_py_spy

TYPE_CHECKING = False  # see execute/agent/unpack.py
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import IO, Any

    from .python_stacks import Thread

    Dumps = dict[int, tuple[subprocess.Popen[bytes], IO[bytes], IO[bytes]]]
    """The `py-spy dump` of each process that is still at work, its output and its errors."""

APART_S = 1.0  # between the two looks at a process
SPARE_S = 0.1  # to put all together
STACKS_S = 0.8  # for the stacks of all processes, at each look
SIGNALLED_S = 0.3  # for a process to write its own stacks
MOST_BYTES = 200_000
MOST_PROCESSES = 256
MOST_STACKS = 64  # processes whose stacks are read
MOST_THREADS = 16
TICKS_S = 1 / os.sysconf("SC_CLK_TCK")
CAP_SYS_PTRACE = 1 << 19
SMALL = ("index", "arch", "name", "memory_mib", "memory_used_mib", "lost")


def answer(argv: list[str]) -> dict[str, Any]:
    """Return the evidence of a step.

    `--step ID` and `--marker RUN` name its processes, by their environments. `--pids` further ones, between commas. `--ranks`
    is their own report, `pid:rank:local rank:world size`. `--by T`: the step is about to be ended, so that its
    flight recorders may be asked for a dump, and waits until the monotonic time T. On a busy machine the second look is then
    left out: late evidence is lost.
    """
    began = time.monotonic()
    _, options = split_options(argv, "step", "marker", "pids", "ranks", "by")
    by = min(began + WITHIN_S, float(options.get("by", "inf")))
    pids = {int(pid) for pid in options.get("pids", "").split(",") if pid}
    members = _members(pids, options.get("marker", ""), options.get("step", ""))
    looks = [look for look in map(_look, members) if look is not None]
    reported = (map(int, words.split(":")) for words in options.get("ranks", "").split(",") if words)
    _name_ranks(looks, {pid: tuple(numbers) for pid, *numbers in reported})
    looks.sort(key=lambda look: (look["rank"] is None, look["pid"]))
    watched = [look["pid"] for look in looks[:MOST_PROCESSES] if _may_be_python(look)][:MOST_STACKS]
    devices, ras = _Aside(_devices), _Aside(ras_status, [look["pid"] for look in looks])
    absent: dict[str, None] = {}
    first, second = _two_looks(watched, began, by - SPARE_S, absent)
    # After the stacks: a process may write its dump only when it gets the GIL.
    recorders = last_collectives(looks, by) if "by" in options else {}
    found = []
    for look in looks[:MOST_PROCESSES]:
        pid = look["pid"]
        again = _look(pid)
        if again is None and look["rank"] is None:
            continue  # programs start others, which end
        used_s = None if again is None else round(again.pop("cpu_s") - look["cpu_s"], 3)
        # One that reads much is in state D for moments.
        state = "X" if again is None else again["state"] if again["state"] != "D" or look["state"] == "D" else "R"
        kept = dict(look, cpu_s=used_s, state=state)
        samples = [threads for threads in (first.get(pid), second.get(pid)) if threads]
        found.append({**kept, "samples": samples, "collective": recorders.get(pid)})
    if len(looks) > MOST_PROCESSES:
        absent["%d more processes" % (len(looks) - MOST_PROCESSES)] = None
    evidence = {
        "step": options.get("step", ""),
        "time": round(time.time(), 3),
        "processes": found,
        "devices": devices.result(by, "the devices' driver did not answer in time", absent),
        "ras": ras.result(by, "", absent) or "",
        "absent": list(absent),
    }
    return _fitting(dict(evidence, took_s=round(time.monotonic() - began, 3)))


def _two_looks(
    pids: list[int], began: float, by: float, absent: dict[str, None]
) -> tuple[dict[int, list[Thread]], dict[int, list[Thread]]]:
    """Return the threads of each process at once, and after APART_S.

    py-spy knows who holds the GIL, and takes a tenth of a second of CPU time for a process: it goes first, while there is nothing
    else to do. The second time, processes that can write their stacks themselves do so.
    """
    dumps = _start_py_spy(pids)
    first = _read_py_spy(dumps or {}, min(began + STACKS_S, by), absent)
    left = [pid for pid in pids if pid not in first and pid not in (dumps or ())]
    first.update(_by_signal(left, by))
    if dumps is None and not first.keys() >= set(left):
        absent["no py-spy on this node, which reads the stacks of any Python: pip install 'milabench[stacks]'"] = None
    time.sleep(max(0.0, min(began + APART_S, by) - time.monotonic()))
    second = _by_signal(pids, by)
    left = [pid for pid in pids if pid not in second]
    again = _start_py_spy(left) if dumps is not None and by - time.monotonic() > STACKS_S / 2 else None
    second.update(_read_py_spy(again or {}, by, absent, is_last=True))
    first.update(_read_py_spy(dumps or {}, by, absent, is_last=True))
    return first, second


def _members(pids: set[int], marker: str, step: str) -> list[int]:
    """Return the processes that are given, those whose environments have the markers, and all of their sessions. Not ourselves.

    A process that writes its title, as vLLM's engine does, overwrites its environment.
    """
    wanted = {os.fsencode("%s=%s" % (STEP_MARKER, step)), os.fsencode("%s=%s" % (RUN_MARKER, marker))}
    table = processes()
    marked = {pid for pid in table if wanted <= environment_of(pid)} if marker and step else set()
    named = pids | marked
    of_session = {pid for pid, process in table.items() if process.session in named}
    return sorted((named | of_session) - {os.getpid()})


def _look(pid: int) -> dict[str, Any] | None:
    """Return the state of a process. None if it is gone."""
    stat = read_bytes("/proc/%d/stat" % pid).rpartition(b")")[2].split()
    status = dict(line.partition(":\t")[::2] for line in read_text("/proc/%d/status" % pid).splitlines())
    if not stat or "Name" not in status:
        return None
    stack = [line.split()[-1].partition("+")[0] for line in read_text("/proc/%d/stack" % pid).splitlines() if line]
    syscall = read_text("/proc/%d/syscall" % pid).split()
    return {
        "pid": pid,
        "parent": int(stat[1]),
        "name": status["Name"],
        "state": stat[0].decode(),
        "wchan": read_text("/proc/%d/wchan" % pid).strip("0\n"),
        # Not its arguments.
        "syscall": int(syscall[0]) if syscall and syscall[0].isdigit() else None,
        "kernel": stack[:16],
        "threads": int(status.get("Threads", 1)),
        "cpu_s": (int(stat[11]) + int(stat[12])) * TICKS_S,
        "rank": None,
    }


def _name_ranks(looks: list[dict[str, Any]], reported: dict[int, tuple[int, ...]]) -> None:
    """Write down which rank each process is, by its launcher or its own report. A rank's children are no ranks."""
    names = ("rank", "local_rank", "world_size")
    by_pid = {look["pid"]: look for look in looks}
    for look in looks:
        environment = dict(entry.partition(b"=")[::2] for entry in environment_of(look["pid"]))
        launched = [environment.get(name.upper().encode(), b"") for name in names]
        look.update(zip(names, (int(text) if text.isdigit() else None for text in launched)))
        look.update(zip(names, reported.get(_own_pid(look["pid"]), ())))
    own = {look["pid"]: look["rank"] for look in looks}
    for look in looks:
        parent = by_pid.get(look["parent"])
        if parent is not None and own[parent["pid"]] == own[look["pid"]]:
            look["rank"] = None


def _own_pid(pid: int) -> int:
    """Return a process's own view of its pid, which differs in a container."""
    lines = read_text("/proc/%d/status" % pid).splitlines()
    return int(next((line.split()[-1] for line in lines if line.startswith("NSpid")), pid))


def _may_be_python(look: dict[str, Any]) -> bool:
    try:
        program = os.path.basename(os.readlink("/proc/%d/exe" % look["pid"]))
    except OSError:
        program = look["name"]
    return look["rank"] is not None or program.startswith("python")


def _start_py_spy(pids: list[int]) -> Dumps | None:
    """Start `py-spy dump` for each process; return them, None where there is no py-spy."""
    # An agent of the control plane's own machine runs on its Python, which has the extra's programs beside it.
    folders = [os.path.dirname(sys.executable), *os.get_exec_path()]
    program = shutil.which("py-spy", path=os.pathsep.join(folders))
    if program is None:
        return None
    dumps: Dumps = {}
    for pid in pids:
        # Into files: a pipe holds no long dump, and nobody reads it meanwhile.
        output, errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        words = [program, "dump", "--json", "--nonblocking", "--pid", str(pid)]
        dumps[pid] = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=errors), output, errors
    return dumps


def _read_py_spy(
    dumps: Dumps, until: float, absent: dict[str, None], *, is_last: bool = False
) -> dict[int, list[Thread]]:
    """Take the dumps that are there by then, and return their threads; those that are late end if it `is_last`."""
    found = {}
    for pid, (process, output, errors) in list(dumps.items()):
        try:
            code = process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            if is_last:
                process.kill()
                process.wait()
                absent["py-spy did not answer in time"] = None
            continue
        del dumps[pid]
        output.seek(0)
        errors.seek(0)
        threads = read_py_spy(output.read(), pid) if code == 0 else []
        if threads:
            found[pid] = threads
        elif b"ermission" in errors.read():
            absent[_why_not_traced(pid)] = None
    return found


def _why_not_traced(pid: int) -> str:
    """Return why the memory of a process may not be read, with the setting that would allow it."""
    try:
        owner = os.stat("/proc/%d" % pid).st_uid
    except OSError:
        owner = os.getuid()
    if owner != os.getuid() and os.getuid() != 0:
        return "py-spy may not read processes of %s: run milabench as that user" % _user(owner)
    capabilities = next(line for line in read_text("/proc/self/status").splitlines() if line.startswith("CapEff"))
    has_ptrace = int(capabilities.split()[1], 16) & CAP_SYS_PTRACE
    scope = read_text("/proc/sys/kernel/yama/ptrace_scope").strip()
    if not has_ptrace and scope not in ("", "0"):
        return "py-spy may not read them, kernel.yama.ptrace_scope is %s: sysctl kernel.yama.ptrace_scope=0" % scope
    if not has_ptrace and os.getuid() == 0:
        return "py-spy may not read them in this container: start it with --cap-add=SYS_PTRACE"
    return "py-spy may not read them: they have other privileges, or a security module forbids it"


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return "user %d" % number


def _by_signal(pids: list[int], by: float) -> dict[int, list[Thread]]:
    """Return the stacks that processes write themselves: those that our runner has started."""
    asked: dict[int, tuple[str, int]] = {}
    for pid in pids:
        path = _dump_file(pid)
        if path is not None:
            asked[pid] = path, os.stat(path).st_size
            os.kill(pid, DUMP_SIGNAL)
    found: dict[int, list[Thread]] = {}
    until = min(by, time.monotonic() + SIGNALLED_S)
    while len(found) < len(asked) and time.monotonic() < until:
        time.sleep(0.02)
        for pid, (path, before) in asked.items():
            text = read_bytes(path)[before:]
            if pid not in found and text.endswith(b"\n") and len(text) == os.stat(path).st_size - before:
                found[pid] = read_faulthandler(text.decode("utf-8", "backslashreplace"))
    return found


def _dump_file(pid: int) -> str | None:
    """Return the file that a process writes its stacks to when it is signalled. None if it would not.

    Its name is `<pid>-<random>.<descriptor>.stacks`: a program may have closed the descriptor, and opened another file there.
    """
    status = read_text("/proc/%d/status" % pid)
    fields = dict(line.partition(":\t")[::2] for line in status.splitlines())
    catches = int(fields.get("SigCgt", "0"), 16) >> (DUMP_SIGNAL - 1) & 1
    if not catches or read_process(pid) is None or fields.get("State", "T")[0] in "TtD":
        return None
    for entry in environment_of(pid):
        name, _, sink = entry.partition(b"=unix:")
        if name != b"MILABENCH_SINK":
            continue
        folder = os.path.dirname(os.fsdecode(sink))
        for file in list_folder(folder):
            words = file.split(".")
            if file.endswith(".stacks") and file.startswith("%d-" % _own_pid(pid)) and len(words) == 3:
                try:
                    target = os.readlink("/proc/%d/fd/%s" % (pid, words[1]))
                except OSError:
                    continue
                if os.path.basename(target) == file:
                    return os.path.join(folder, file)
    return None


class _Aside:
    """A question that may hang, such as one to a driver: asked in a separate process, which is left behind then."""

    def __init__(self, ask: Callable[..., Any], *arguments: Any) -> None:
        self._file = tempfile.TemporaryFile()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                self._file.write(json.dumps(ask(*arguments)).encode())
                self._file.flush()
            finally:
                os._exit(0)

    def result(self, by: float, late: str, absent: dict[str, None]) -> Any:
        """Return the answer. None where there is none in time, which `late` says."""
        while os.waitpid(self._pid, os.WNOHANG) == (0, 0):
            if time.monotonic() >= by:
                os.kill(self._pid, signal.SIGKILL)
                if late:
                    absent[late] = None
                return None
            time.sleep(0.01)
        self._file.seek(0)
        text = self._file.read()
        return json.loads(text) if text else None


def _devices() -> list[dict[str, Any]]:
    """Return the use of each device, and its processes."""
    devices, _ = find_accelerators({})
    return [
        {
            **{name: device[name] for name in SMALL if device.get(name) is not None},
            "pids": [process["pid"] for process in device.get("processes") or ()],
        }
        for device in devices
    ]


def _fitting(evidence: dict[str, Any]) -> dict[str, Any]:
    """Return the evidence in MOST_BYTES: of each process with as many threads as fit, the main one first."""
    fitted = evidence
    for most_threads in (MOST_THREADS, 4, 1, 0):
        processes = [
            dict(
                process,
                samples=[threads[:most_threads] for threads in process["samples"]],
                kernel=process["kernel"] if most_threads else [],
            )
            for process in evidence["processes"]
        ]
        fitted = dict(evidence, processes=processes)
        if len(json.dumps(fitted)) <= MOST_BYTES:
            break
    return fitted
