"""Answer requests, reap children, supervise steps until the lease ends."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import os
import re
import resource
import select
import signal
import socket
import time

from ...devices.locks import DeviceLocks, close_files
from .event_loop import GATHER_S, READ_BYTES, EventLoop, raise_file_limit, widen_pipe
from .evidence import EvidenceCollector
from .groups import Groups
from .helpers import HelperProcesses, verb_command
from .orphans import Cgroup, make_runtime_dir, remove_dead_runtime_dirs, remove_folder, start_guard
from .outcome import MACHINE_KILLS, StepOutcome, oom_kills
from .procfs import Process, descendants, environment_of, own_cpu_s, processes, read_bytes, signal_name
from .protocol import STEP_MARKER, Outbox, format_oserror
from .step import RunningStep
from .step_dir import StepDir

TYPE_CHECKING = False  # see unpack.py
if TYPE_CHECKING:
    from typing import Any

    from .event_loop import Timer

    Answer = dict[str, Any] | None
    """The reply to a request. None when the reply comes later."""

DRAIN_S = 1.0  # rings
REMOVAL_S = 120.0  # removing a step's folder may take so long
BACKLOG_BYTES = 1 << 24  # unsent frames beyond which nothing more is read
PLACEHOLDER = re.compile(r"(.*[=:])?@([a-z]+)$", re.DOTALL)
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LIBC = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process. Silently nothing where the kernel does not know it."""
    LIBC.prctl(option, value, 0, 0, 0)


class Agent:
    """The supervisor of a node's steps, and the StepHost of each."""

    def __init__(self, run_id: str, grace_s: float, lock_folder: str | None, lease_s: float | None = None) -> None:
        self.run_id = run_id
        self.grace_s = grace_s
        self.loop = EventLoop()
        self.outbox = Outbox(1)
        self.locks = DeviceLocks(lock_folder or os.environ.get("MILABENCH_LOCK_DIR"))
        self.steps: dict[str, RunningStep] = {}
        self.step_dirs: dict[str, StepDir] = {}
        self.helpers = HelperProcesses(self.loop, self.before_exec)
        self.groups = Groups(self.steps, self.loop, self.helpers, run_id)
        remove_dead_runtime_dirs()
        self.folder = make_runtime_dir(run_id)
        self._lease_s = lease_s
        self._last_request = time.monotonic()
        self._cgroup: Cgroup | None = None
        self._numbers = itertools.count()
        self._ports: dict[str, str] = {}  # by group
        self._request_bytes = b""
        self._draining: Timer | None = None
        self._gathering: Timer | None = None
        self._is_writing = False
        self._is_leaving = False
        self._wakeup_writer, self._wakeup_reader = socket.socketpair()
        self._file_limits = raise_file_limit()

    def serve(self) -> int:
        """Work until the lease ends, a signal comes or the control plane asks to end. Return the exit code."""
        if self._lease_s is not None:  # whoever started us cannot look after what a killed agent leaves
            # Before our signals are set up: the guard would inherit them, and write each of its own to our wake-up socket.
            self._cgroup = Cgroup.make()
            start_guard(self.run_id, self.grace_s, self._cgroup)
            self._check_lease()
        # What a dying step leaves becomes our child, not init's: we find it, and are told when it ends.
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        for fd in (0, 1):
            os.set_blocking(fd, False)
        widen_pipe(1, 1 << 20)  # a second's observations should pass in one piece, not wake both sides for every 64 kB
        self._wakeup_writer.setblocking(False)
        self._wakeup_reader.setblocking(False)
        signal.set_wakeup_fd(self._wakeup_writer.fileno(), warn_on_full_buffer=False)
        # The handlers do nothing: each signal is a byte to read, when no step is half changed.
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        self.loop.on_readable(self._wakeup_reader.fileno(), self._take_signals)
        self.loop.on_readable(0, self._read_requests)
        hello = {"pid": os.getpid(), "folder": self.folder, "oom_kills": oom_kills(MACHINE_KILLS)}
        self.outbox.send("hello", json.dumps(hello).encode())
        try:
            while not (self._is_leaving and not self.steps):
                self._turn()
            self._flush_before_exit()
        finally:
            self._kill_strays()
            remove_folder(self.folder)
        return 0

    def _turn(self) -> None:
        self.outbox.flush()
        if self.outbox.is_broken and not self._is_leaving:
            self.leave("the control plane stopped reading")
        self._watch_outbox()
        self.loop.turn()

    def _watch_outbox(self) -> None:
        if (self.outbox.size > 0) != self._is_writing:
            self._is_writing = not self._is_writing
            if self._is_writing:
                self.loop.on_writable(self.outbox.fd, lambda _: None)
            else:
                self.loop.forget(self.outbox.fd)
        # A control plane that does not read must not make us grow without bound, nor keep us from supervising.
        if self.outbox.size > BACKLOG_BYTES and not self.loop.is_paused:
            self.loop.is_paused = True
            for step in self.steps.values():
                for source in step.sources:
                    source.disarm()
        elif self.loop.is_paused and self.outbox.size < BACKLOG_BYTES // 2:
            self.loop.is_paused = False
            for step in self.steps.values():
                step.gather()
            self.schedule_drain()

    def _flush_before_exit(self) -> None:
        deadline = time.monotonic() + 2.0
        while self.outbox.size and not self.outbox.is_broken and time.monotonic() < deadline:
            self.outbox.flush()
            if self.outbox.size:
                select.select([], [self.outbox.fd], [], max(0.0, deadline - time.monotonic()))

    def _kill_strays(self) -> None:
        """Kill whatever we started or adopted and is not of any step."""
        for _ in range(50):
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            if not has_children():
                return
            table = processes()
            for pid in descendants(table, {os.getpid()}):
                table[pid].signal(signal.SIGKILL)
            time.sleep(0.02)

    # -- signals and children

    def _take_signals(self, _: int) -> None:
        numbers = self._wakeup_reader.recv(4096)
        ending = [number for number in numbers if number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
        if ending:
            self.leave("the agent got %s" % signal_name(ending[0]))
        if signal.SIGCHLD in numbers:
            self._reap()

    def _reap(self) -> None:
        while True:
            try:
                # Looked at before it is waited for: until then /proc has its group, session and control groups.
                dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                break
            if dead is None:
                break
            noticed_ns = time.monotonic_ns()
            owner = self._owner_of_dead(dead.si_pid)
            if owner is not None and dead.si_status in (signal.SIGKILL, 128 + signal.SIGKILL):
                owner.note_killed(dead.si_pid)
            pid, status = os.waitpid(dead.si_pid, 0)
            code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            if owner is not None and owner.pid == pid:
                owner.note_exit(code, noticed_ns)
            elif pid in self.helpers:
                self.helpers.note_exit(pid, code)
        for step in list(self.steps.values()):
            step.check()

    def _owner_of_dead(self, pid: int) -> RunningStep | None:
        """Return whose process has died: the dead still show their group and session, but no environment."""
        by_leader = {step.pid: step for step in self.steps.values() if step.pid is not None}
        if pid in by_leader or pid in self.helpers:
            return by_leader.get(pid)
        group_and_session = read_bytes("/proc/%d/stat" % pid).rpartition(b")")[2].split()[2:4]
        if not group_and_session:
            return None
        only = next(iter(self.steps.values())) if len(self.steps) == 1 else None
        return next((by_leader[number] for number in map(int, group_and_session) if number in by_leader), only)

    def members(self, step: RunningStep) -> list[Process]:
        """Return the live processes of a step: leader, group, session, processes with its marker, and all their descendants.

        A process that shed all of these (own session, empty environment, orphaned) belongs to the step if it is the only step.
        """
        if step.pid is None or not has_children():
            return []
        table = processes()
        ours = descendants(table, {os.getpid()})
        leaders = {other.pid for other in self.steps.values() if other.pid is not None}
        roots = set()
        for pid in ours:
            process = table[pid]
            if step.pid in (pid, process.group, process.session):
                roots.add(pid)
            elif process.parent == os.getpid() and pid not in self.helpers and pid not in leaders:
                if len(self.steps) == 1 or os.fsencode("%s=%s" % (STEP_MARKER, step.id)) in environment_of(pid):
                    roots.add(pid)
        return [table[pid] for pid in sorted(roots | descendants(table, roots))]

    def before_exec(self) -> None:
        """Let the child die with us, and give it back the limit on open files that it would have had."""
        # Does not reach grandchildren, and a set-user-ID program clears it: hence the guard.
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        resource.setrlimit(resource.RLIMIT_NOFILE, self._file_limits)
        if self._cgroup is not None:
            self._cgroup.enter()

    def spawn_limits(self) -> tuple[int, int] | None:
        """Return the limits on open files of a child that is spawned, not forked. None where it has to be forked.

        It does not die with us: the guard ends it, or the sweep of whoever started us.
        """
        return self._file_limits if self._cgroup is None else None

    # -- requests

    def _check_lease(self) -> None:
        """Leave when nothing was heard for too long: a network that is cut ends no input."""
        assert self._lease_s is not None
        left = self._last_request + self._lease_s - time.monotonic()
        if left <= 0:
            self.leave("nothing was heard from the control plane for %g s" % self._lease_s, "lost-node")
        else:
            self.loop.after(left, self._check_lease)

    def _read_requests(self, _: int) -> None:
        try:
            data = os.read(0, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.loop.forget(0)
            self.leave("the control plane is gone")
            return
        self._last_request = time.monotonic()
        *lines, self._request_bytes = (self._request_bytes + data).split(b"\n")
        for line in lines:
            if line.strip():
                self._handle(line)

    def _handle(self, line: bytes) -> None:
        number = None
        try:
            request = json.loads(line.decode())
            number = request.get("id")
            answer = getattr(self, "do_" + request["verb"])(request)
        except OSError as error:
            answer = {"ok": False, "error": format_oserror(error)}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            answer = {"ok": False, "error": "%s: %s" % (type(error).__name__, error)}
        if answer is not None:
            self.reply(number, answer)

    def reply(self, number: Any, answer: dict[str, Any]) -> None:
        """Answer a request."""
        self.outbox.send("reply", json.dumps({"id": number, "ok": True, **answer}).encode())

    def do_beat(self, _: dict[str, Any]) -> Answer:
        """Do nothing: receiving a heartbeat is enough."""

    def do_start(self, request: dict[str, Any]) -> Answer:
        """Start a step, and its group's monitor with the last of them."""
        if self._is_leaving:
            raise ValueError("the agent is leaving")
        if request["step"] in self.steps:
            raise ValueError("step %s is already running" % request["step"])
        if not request["argv"]:
            raise ValueError("step %s has no command" % request["step"])
        step = RunningStep(self, request, os.path.join(self.folder, str(next(self._numbers))))
        if request.get("collector"):
            step.collect = EvidenceCollector(step, request["collector"]).collect
        self.steps[step.id] = step
        for other in self.steps.values():
            other.is_alone = len(self.steps) == 1
        reply = step.start()
        if not step.is_before_command:  # which the monitor has to find
            self.groups.watch(step.group)
        return reply

    def do_end(self, request: dict[str, Any]) -> Answer:
        """End a step, with the outcome of the request."""
        step = self.steps.get(request["step"])
        if step is None:
            return {"running": False}
        why = request.get("why")
        detail = request.get("detail") or "ended on request"
        cause = StepOutcome("failed" if why else "cancelled", why, detail)
        if why == "timeout":
            step.end_hung(cause)
            return {"running": True}
        step.end(StepOutcome("passed", None, "") if request.get("is_done") else cause, request.get("grace_s"))
        return {"running": True}

    def do_discard(self, request: dict[str, Any]) -> Answer:
        """Remove the folder of a step that is over. The reply comes when it is gone, or says why something is left."""
        folder = self.step_dirs.pop(request["step"], None)
        if folder is None or folder.remove_empty():
            return {"left": ""}

        # Not here: many files take long to remove, and other steps want to be read.
        def emptied(code: int, left: bytes) -> None:
            self.loop.cancel(limit)
            why = left.decode() or ("" if code == 0 else "removing it took more than %g s" % REMOVAL_S)
            if not why and not folder.remove_empty():
                why = "something was written to it after the end of the step"
            self.reply(request.get("id"), {"left": why})

        pid = self.helpers.start(verb_command("empty-folder", folder.path, folder.identity), emptied)
        limit = self.loop.after(REMOVAL_S, lambda: self.helpers.kill(pid))
        return None

    def do_collect(self, request: dict[str, Any]) -> Answer:
        """Collect the state of a step's processes. The reply comes after the evidence."""
        step = self.steps.get(request["step"])
        if step is None:
            return {"running": False}
        step.collect(lambda: self.reply(request.get("id"), {"running": True}))
        return None

    def do_collected(self, request: dict[str, Any]) -> Answer:
        """Let a hung step end: the evidence of the rest of its job is there."""
        step = self.steps.get(request["step"])
        if step is not None:
            step.note_peers_seen()
        return {"running": step is not None}

    def do_stop(self, request: dict[str, Any]) -> Answer:
        """Tell a step that its load is needed no longer."""
        self.steps[request["step"]].request_stop(request.get("reason") or "asked to")
        return {}

    def do_lock(self, request: dict[str, Any]) -> Answer:
        """Take the locks of devices. The reply comes when they are ours, or at once if a held lock need not be waited for."""
        opened = self.locks.open(request["devices"])
        holder = self.locks.take(opened)
        if holder is None:
            self.locks.keep(opened, run=self.run_id)
            return {"held": self.locks.descriptors() != ()}
        refusal = {"ok": False, "error": "held", "holders": [holder]}
        if not request.get("wait"):
            close_files(opened)
            return refusal
        # The helper waits in flock on our own descriptors: what it locks, we hold, and nothing polls.
        self.outbox.send("waiting", json.dumps({"id": request.get("id"), "holders": [holder]}).encode())

        def taken(code: int, _: bytes) -> None:
            if code == 0:
                self.locks.keep(opened, run=self.run_id)
                self.reply(request.get("id"), {"held": True})
            else:
                close_files(opened)
                self.reply(request.get("id"), refusal)

        descriptors = [fd for _, fd in opened]
        self.helpers.start(verb_command("flock", *map(str, descriptors)), taken, descriptors=descriptors)
        return None

    def do_release(self, request: dict[str, Any]) -> Answer:
        """Open the start barrier of a group with members on other nodes."""
        self.groups.allow(request["group"])
        return {"t": round(time.time(), 6)}

    def do_port(self, _: dict[str, Any]) -> Answer:
        """Return a free port."""
        return {"port": free_port()}

    def do_usage(self, _: dict[str, Any]) -> Answer:
        """Return our own cost."""
        return {"cpu_s": round(own_cpu_s(), 6)}

    # -- what steps need of us

    def fill(self, text: str, values: dict[str, str], group: str) -> str:
        """Replace `@name`, alone or at the end after `=` or `:`, by a value that is known only here."""
        placeholder = PLACEHOLDER.match(text)
        if placeholder is None:
            return text
        head, name = placeholder.group(1) or "", placeholder.group(2)
        if name == "port" and name not in values:
            return head + self._port(group)
        return head + values[name] if name in values else text

    def make_step_dir(self, step: str, path: str) -> None:
        """Make the folder of a repeat. Raises OSError."""
        self.step_dirs[step] = StepDir(path)

    def _port(self, group: str) -> str:
        """Return a port that was free a moment ago, the same for all steps of a group."""
        if group not in self._ports:
            self._ports[group] = str(free_port())
        return self._ports[group]

    def schedule_drain(self) -> None:
        """Drain the rings once a second, all at the same wake-up."""
        if self._draining is None:
            self._draining = self.loop.after(DRAIN_S - time.monotonic() % DRAIN_S, self._drain)

    def schedule_gathering(self) -> None:
        """Forward received data, and listen again to the sources that rest: for all steps at the same wake-up."""
        if self._gathering is None:
            self._gathering = self.loop.after(GATHER_S - time.monotonic() % GATHER_S, self._gather)

    def _gather(self) -> None:
        self._gathering = None
        for step in list(self.steps.values()):
            step.gather()

    def _drain(self) -> None:
        self._draining = None
        if self.loop.is_paused:
            return
        more = [step.drain() for step in list(self.steps.values())]
        for step in self.steps.values():
            step.frames.flush()
        if any(more):
            self.schedule_drain()

    def forget(self, step: RunningStep) -> None:
        """Let go of a step that is over."""
        self.steps.pop(step.id, None)
        remove_folder(step.folder)
        if self.groups.forget(step):
            self._ports.pop(step.group, None)

    def leave(self, reason: str, why: str | None = None) -> None:
        """End everything, in steps. At once on a second call. With `why` the steps have failed, else they are cancelled."""
        grace = 0.0 if self._is_leaving else None
        self._is_leaving = True
        for step in list(self.steps.values()):
            step.end(StepOutcome("failed" if why else "cancelled", why, reason), grace)


def has_children() -> bool:
    """Return whether any process that we started or inherited is alive or not waited for."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def free_port() -> int:
    """Return a port that is free at this moment on every address of this machine."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
