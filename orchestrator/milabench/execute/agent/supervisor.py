"""The agent's loop: requests, signals, children, steps, deadlines."""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import platform
import re
import resource
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from .device_locks import Locks
from .event_loop import GATHER_S, READ_BYTES, Timers, raise_file_limit, select_write, widen
from .groups import Monitor, is_ready
from .kill_guard import Cage, start_guard
from .procfs import Process, descendants, environment_has, own_cpu_s, processes, signal_name
from .protocol import STEP_MARKER, VERSION, Outbox, said_of
from .runtime_dir import private_folder, remove_dead_folders
from .step import Step, _cannot_start

DRAIN_S = 1.0  # rings
MONITOR_S = 2.0  # a monitor may take so long to end after its last step
BACKLOG_BYTES = 1 << 24  # unsent frames beyond which nothing more is read
VALUE_HERE = re.compile(r"(.*[=:])?@([a-z]+)$", re.DOTALL)
PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LIBC = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    """Sets an attribute of this process; silently nothing where the kernel does not know it."""
    LIBC.prctl(option, value, 0, 0, 0)


class Agent:
    """The loop: requests, signals, steps, deadlines."""

    def __init__(
        self, run_id: str, grace_s: float, lock_folder: Optional[str], lease_s: Optional[float] = None
    ) -> None:
        self.run_id = run_id
        self.grace_s = grace_s
        self._lease_s = lease_s
        self._heard = time.monotonic()
        self._cage: Optional[Cage] = None
        self.selector = selectors.DefaultSelector()
        self.timers = Timers()
        self.outbox = Outbox(1)
        self.locks = Locks(lock_folder, run_id)
        self.steps: Dict[str, Step] = {}
        self.is_paused = False
        remove_dead_folders()
        self.folder = private_folder(run_id)
        self._numbers = itertools.count()
        self._ports: Dict[Tuple[str, str], str] = {}
        self._ended_in_group: Dict[str, int] = {}
        self._requests = b""
        self._helpers: Dict[int, Tuple[int, bytearray, Callable[[int, bytes], None]]] = {}
        self._monitors: Dict[int, Monitor] = {}
        self._barriers: Dict[str, List[Any]] = {}
        self._released: Set[str] = set()  # groups with members on other nodes that may measure
        self._draining: Optional[List[Any]] = None
        self._gathering: Optional[List[Any]] = None
        self._is_writing = False
        self._leaving = False
        self._waking, self._woken = socket.socketpair()
        self._soft_files = raise_file_limit()

    def serve(self) -> int:
        """Works until the lease ends, or a signal or the control plane says so."""
        if self._lease_s is not None:  # whoever started us cannot look after what a killed agent leaves
            self._cage = Cage.make()
            start_guard(self.run_id, self.grace_s, self._cage)
            self._check_lease()
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        for fd in (0, 1):
            os.set_blocking(fd, False)
        widen(1, 1 << 20)  # a second's observations should pass in one piece, not wake both sides for every 64 kB
        self._waking.setblocking(False)
        self._woken.setblocking(False)
        signal.set_wakeup_fd(self._waking.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        self.selector.register(self._woken, selectors.EVENT_READ, self._signals)
        self.selector.register(0, selectors.EVENT_READ, self._read_requests)
        hello = {
            "version": VERSION,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "python": platform.python_version(),
        }
        self.outbox.send("hello", json.dumps(dict(hello, run=self.run_id, folder=self.folder)).encode())
        try:
            while not (self._leaving and not self.steps):
                self._turn()
            self._say_goodbye()
        finally:
            self._end_strays()
            shutil.rmtree(self.folder, ignore_errors=True)
        return 0

    def _turn(self) -> None:
        self.outbox.flush()
        if self.outbox.broken and not self._leaving:
            self.leave("nobody reads the records any more")
        self._watch_outbox()
        for key, mask in self.selector.select(self.timers.wait_s()):
            key.data(mask)
        self.timers.run_due()

    def _watch_outbox(self) -> None:
        if (self.outbox.size > 0) != self._is_writing:
            self._is_writing = not self._is_writing
            if self._is_writing:
                self.selector.register(1, selectors.EVENT_WRITE, lambda _: None)
            else:
                self.selector.unregister(1)
        # A control plane that does not read must not make us grow without bound, nor keep us from supervising.
        if self.outbox.size > BACKLOG_BYTES and not self.is_paused:
            self.is_paused = True
            for step in self.steps.values():
                for source in step.sources:
                    source.disarm()
        elif self.is_paused and self.outbox.size < BACKLOG_BYTES // 2:
            self.is_paused = False
            for step in self.steps.values():
                step.gather()
            self.schedule_drain()

    def _say_goodbye(self) -> None:
        deadline = time.monotonic() + 2.0
        while self.outbox.size and not self.outbox.broken and time.monotonic() < deadline:
            self.outbox.flush()
            if self.outbox.size:
                select_write(1, deadline - time.monotonic())

    def _end_strays(self) -> None:
        """Whatever we started or adopted and is not of any step."""
        for _ in range(50):
            table = processes()
            left = [table[pid] for pid in descendants(table, {os.getpid()})]
            for process in left:
                process.signal(signal.SIGKILL)
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return
            time.sleep(0.02)

    # -- signals and children

    def _signals(self, _: int) -> None:
        numbers = self._woken.recv(4096)
        if any(number in numbers for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)):
            name = signal_name(next(number for number in numbers if number != signal.SIGCHLD))
            self.leave("the agent got %s" % name)
        if signal.SIGCHLD in numbers:
            self._reap()

    def _reap(self) -> None:
        while True:
            try:
                dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                break
            if dead is None:
                break
            owner = self._owner_of_dead(dead.si_pid)
            if owner is not None and dead.si_status in (signal.SIGKILL, 128 + signal.SIGKILL):
                owner.killed(dead.si_pid)
            pid, status, used = os.wait4(dead.si_pid, 0)
            code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            if owner is not None:
                owner.usage["user_s"] = round(owner.usage["user_s"] + used.ru_utime, 6)
                owner.usage["system_s"] = round(owner.usage["system_s"] + used.ru_stime, 6)
                owner.usage["max_rss_kib"] = max(owner.usage["max_rss_kib"], used.ru_maxrss)
                owner.usage["processes"] += 1
                if owner.pid == pid:
                    owner.exited(code)
            elif pid in self._helpers:
                self._helper_ended(pid, code)
            elif pid in self._monitors:
                self._monitor_ended(self._monitors.pop(pid), code)
        for step in list(self.steps.values()):
            step.check()

    def _owner_of_dead(self, pid: int) -> Optional[Step]:
        """Whose process has died: the dead still show their group and session, but no environment."""
        for step in self.steps.values():
            if step.pid == pid:
                return step
        if pid in self._helpers or pid in self._monitors:
            return None
        try:
            with open("/proc/%d/stat" % pid, "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            return None
        for step in self.steps.values():
            if step.pid is not None and step.pid in (int(fields[2]), int(fields[3])):
                return step
        return next(iter(self.steps.values())) if len(self.steps) == 1 else None

    def members(self, step: Step) -> List[Process]:
        """The live processes of a step: leader, group, session, what carries its marker, and all their descendants.

        One that shed all of that (own session, empty environment, orphaned) belongs to the step when there is no other.
        """
        if step.pid is None:
            return []
        table = processes()
        ours = descendants(table, {os.getpid()})
        leaders = {other.pid for other in self.steps.values() if other.pid is not None}
        roots = set()
        for pid in ours:
            process = table[pid]
            if step.pid in (pid, process.group, process.session):
                roots.add(pid)
            elif process.parent == os.getpid() and not (
                pid in self._helpers or pid in self._monitors or pid in leaders
            ):
                alone = len(self.steps) == 1
                if alone or environment_has(pid, "%s=%s" % (STEP_MARKER, step.id)):
                    roots.add(pid)
        return [table[pid] for pid in sorted(roots | descendants(table, roots))]

    def before_exec(self) -> None:
        """In the child: it dies with us, and gets back the limit on open files that it would have had."""
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        resource.setrlimit(resource.RLIMIT_NOFILE, self._soft_files)
        if self._cage is not None:
            self._cage.enter()

    # -- requests

    def _check_lease(self) -> None:
        """Leaves when nothing was heard for too long: a network that is cut ends no input."""
        assert self._lease_s is not None
        left = self._heard + self._lease_s - time.monotonic()
        if left <= 0:
            self.leave("nothing was heard from the orchestrator for %g s" % self._lease_s, "lost-node")
        else:
            self.timers.after(left, self._check_lease)

    def _read_requests(self, _: int) -> None:
        try:
            data = os.read(0, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.selector.unregister(0)
            self.leave("the orchestrator is gone")
            return
        self._heard = time.monotonic()
        *lines, self._requests = (self._requests + data).split(b"\n")
        for line in lines:
            if line.strip():
                self._request(line)

    def _request(self, line: bytes) -> None:
        number = None
        try:
            request = json.loads(line.decode())
            number = request.get("id")
            answer = self._answer(request)
        except OSError as error:
            answer = {"ok": False, "error": said_of(error)}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            answer = {"ok": False, "error": "%s: %s" % (type(error).__name__, error)}
        if answer is not None:
            self.reply(number, answer)

    def reply(self, number: Any, answer: Dict[str, Any]) -> None:
        """Answers a request."""
        self.outbox.send("reply", json.dumps({"id": number, "ok": True, **answer}).encode())

    def _answer(self, request: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        """What to reply; None when the reply comes later."""
        verb = request["verb"]
        if verb == "beat":
            return None  # that it came is what it says
        if verb == "start":
            return self._start(request)
        if verb == "end":
            return self._end(request)
        if verb == "signal":
            return self._signal(request)
        if verb == "stop":
            self.steps[request["step"]].tell_stop(request.get("reason") or "asked to")
            return {}
        if verb == "lock":
            return self._lock(request)
        if verb == "unlock":
            self.locks.release()
            return {}
        if verb in ("facts", "sweep"):
            self._ask_helper(request)
            return None
        if verb == "release":
            if any(step.group == request["group"] for step in self.steps.values()):
                self._released.add(request["group"])
                self.release(request["group"])
            return {"t": round(time.time(), 6)}
        if verb == "port":
            return {"port": free_port()}
        if verb == "usage":
            return {"cpu_s": round(own_cpu_s(), 6), "waiting_bytes": self.outbox.size}
        if verb == "exit":
            self.leave("asked to exit")
            return {}
        raise ValueError("no such verb: %s" % verb)

    def _start(self, request: Dict[str, Any]) -> Dict[str, Any]:
        if self._leaving:
            raise ValueError("the agent is leaving")
        if request["step"] in self.steps:
            raise ValueError("step %s is already running" % request["step"])
        if not request["argv"]:
            raise ValueError("step %s has no command" % request["step"])
        step = Step(self, request, os.path.join(self.folder, str(next(self._numbers))))
        self.steps[step.id] = step
        reply = step.start()
        self.watch(step.group)
        return reply

    def _end(self, request: Dict[str, Any]) -> Dict[str, Any]:
        step = self.steps.get(request["step"])
        if step is None:
            return {"running": False}
        why = request.get("why")
        outcome = "failed" if why else "cancelled"
        cause = (outcome, why, request.get("detail") or "ended on request")
        step.end(("passed", None, "") if request.get("is_done") else cause, request.get("grace_s"))
        return {"running": True}

    def _signal(self, request: Dict[str, Any]) -> Dict[str, Any]:
        step = self.steps[request["step"]]
        number = request["signal"]
        if isinstance(number, str):
            number = getattr(signal, "SIG" + number.upper().replace("SIG", "", 1))
        if step.pid is not None and step.account.return_code is None:
            os.killpg(step.pid, number)
        return {}

    def _lock(self, request: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        opened = self.locks.open(list(request["devices"]))
        holders = self.locks.take(opened)
        if not holders:
            return {"held": self.locks.descriptors() != []}
        if not request.get("wait"):
            for _, fd in opened:
                os.close(fd)
            return {"ok": False, "error": "held", "holders": holders}
        # The helper waits in flock on our own descriptors: what it gets, we have, and nobody polls.
        self.outbox.send("waiting", json.dumps({"id": request.get("id"), "holders": holders}).encode())

        def taken(code: int, _: bytes) -> None:
            if code == 0:
                self.locks.keep(opened)
                self.reply(request.get("id"), {"held": True})
            else:
                for _name, fd in opened:
                    os.close(fd)
                self.reply(request.get("id"), {"ok": False, "error": "held", "holders": holders})

        descriptors = [fd for _, fd in opened]
        self._ask_ourselves(["flock", *map(str, descriptors)], taken, descriptors)
        return None

    def _ask_helper(self, request: Dict[str, Any]) -> None:
        """Asks in a process of its own: a driver that hangs must not hang the supervision."""
        if request["verb"] == "facts":
            words = ["facts", *(word for path in request.get("disk") or () for word in ("--disk", path))]
        else:
            words = ["sweep", request["marker"], "--grace", str(request.get("grace_s", self.grace_s))]

        def answered(code: int, output: bytes) -> None:
            try:
                answer = {"ok": True, "answer": json.loads(output.decode())}
            except ValueError:
                answer = {"ok": False, "error": "%s failed (%d)" % (request["verb"], code)}
            self.reply(request.get("id"), answer)

        self._ask_ourselves(words, answered)

    def _ask_ourselves(
        self, words: List[str], done: Callable[[int, bytes], None], descriptors: Optional[List[int]] = None
    ) -> None:
        self.start_helper([sys.executable, "-I", "-S", PROGRAM, *words], done, descriptors)

    def start_helper(
        self,
        command: List[str],
        done: Callable[[int, bytes], None],
        descriptors: Optional[List[int]] = None,
        env: Optional[Dict[str, str]] = None,
    ) -> int:
        """Starts a command that is of no step; its pid. `done` is told its exit code and what it printed."""
        process = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if env is not None else None,
            pass_fds=descriptors or (),
            preexec_fn=self.before_exec,  # noqa: PLW1509 - there are no threads here
        )
        process.returncode = 0  # reaped by us
        assert process.stdout is not None
        fd = os.dup(process.stdout.fileno())
        process.stdout.close()
        output = bytearray()
        self._helpers[process.pid] = (fd, output, done)

        def read(_: int) -> None:
            data = os.read(fd, READ_BYTES)
            output.extend(data)
            if not data:
                self.selector.unregister(fd)

        self.selector.register(fd, selectors.EVENT_READ, read)
        return process.pid

    def _helper_ended(self, pid: int, code: int) -> None:
        fd, output, done = self._helpers.pop(pid)
        if fd in self.selector.get_map():
            self.selector.unregister(fd)
        os.set_blocking(fd, False)
        try:
            while True:
                data = os.read(fd, READ_BYTES)
                if not data:
                    break
                output.extend(data)
        except BlockingIOError:
            pass
        os.close(fd)
        done(code, bytes(output))

    # -- what steps need of us

    def filled(self, text: str, values: Dict[str, str], group: str) -> str:
        """`@name`, alone or at the end after `=` or `:`, replaced by a value that is only known here."""
        found = VALUE_HERE.match(text)
        if found is None:
            return text
        head, name = found.group(1) or "", found.group(2)
        if name == "port" and name not in values:
            return head + self._port(group)
        return head + values[name] if name in values else text

    def _port(self, group: str) -> str:
        """A port that was free a moment ago, the same for all steps of a group."""
        key = (group, "port")
        if key not in self._ports:
            self._ports[key] = str(free_port())
        return self._ports[key]

    def release(self, group: str) -> None:
        """Lets the members of a group go once all of them are ready or have ended."""
        members = [step for step in self.steps.values() if step.group == group]
        if not members:
            return
        size = max(step.group_size for step in members)
        if members[0].is_spread:
            if group not in self._released:
                for step in filter(is_ready, members):
                    step.say("at-barrier")
                return
        elif size > 1:
            present = len(members) + self._ended_in_group.get(group, 0)
            if present < size or not all(is_ready(step) for step in members):
                self._limit_barrier(group, members)
                return
        self.timers.cancel(self._barriers.pop(group, None))
        message = {"go": round(time.time(), 6)}
        for step in members:
            for connection in step.connections:
                if connection.is_ready and not connection.was_released:
                    connection.was_released = True
                    connection.tell(message)

    def late_for(self, step: Step) -> List[str]:
        """Whom a step waits for at the start barrier; nobody when it does not wait."""
        if not any(one.is_open and one.is_ready and not one.was_released for one in step.connections):
            return []
        here = [other.id for other in self.steps.values() if other.group == step.group and not is_ready(other)]
        return here or (["steps on other nodes"] if step.is_spread else [])

    def _limit_barrier(self, group: str, members: List[Step]) -> None:
        """Nobody waits longer at the barrier than is allowed, counted from the first who is there."""
        allowed = [step.barrier_s for step in members if step.barrier_s is not None]
        if allowed and group not in self._barriers and any(map(is_ready, members)):
            seconds = max(allowed)
            self._barriers[group] = self.timers.after(seconds, lambda: self._barrier_failed(group, seconds))

    def _barrier_failed(self, group: str, seconds: float) -> None:
        self._barriers.pop(group, None)
        members = [step for step in self.steps.values() if step.group == group]
        late = [step for step in members if not is_ready(step)]
        names = ", ".join(step.id for step in late) or "a member that was never started"
        for step in members:
            if step in late:
                detail = "not ready within %g s of the first of its group" % seconds
            else:
                detail = "waited at the start barrier for %s, which was not ready within %g s" % (names, seconds)
            step.end(("failed", "timeout", detail))

    def settle(self, group: str) -> None:
        """Ends the work of a group's members once each has its observations: until then all keep up the load."""
        members = [step for step in self.steps.values() if step.group == group]
        if members and members[0].is_spread:
            for step in members:
                if step.has_observations and any(one.is_complete for one in step.connections):
                    step.say("measured")
            return
        connections = [connection for step in members for connection in step.connections]
        if any(one.is_complete for one in connections) and all(step.has_observations for step in members):
            for step in members:
                step.tell_stop("all of the group have their observations")

    def watch(self, group: str) -> None:
        """Starts the group's monitor when the last of its members on this node has been started."""
        members = [step for step in self.steps.values() if step.group == group]
        size = max((step.group_size for step in members), default=0)
        live = [step for step in members if step.pid is not None and step.account.return_code is None]
        asked = next((step.monitor for step in live if step.monitor.get("argv")), None)
        if asked is None or len(members) + self._ended_in_group.get(group, 0) < size:
            return
        if any(monitor.group == group and not monitor.is_over for monitor in self._monitors.values()):
            return
        try:
            monitor = Monitor(self, group, asked["argv"], live)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            live[0].message("no monitor: " + _cannot_start(error, asked["argv"], None))
            return
        self._monitors[monitor.pid] = monitor

    def _monitor_ended(self, monitor: "Monitor", code: int) -> None:
        """A monitor that ends before its steps is worth a message, not a failure."""
        said = monitor.close()
        live = [
            step for step in self.steps.values() if step.group == monitor.group and step.account.return_code is None
        ]
        if live and not monitor.is_over:
            how = "was ended by %s" % signal_name(-code) if code < 0 else "ended with exit code %d" % code
            live[0].message(
                "the monitor %s; from here on nobody reads devices and host%s" % (how, said and ": " + said)
            )

    def schedule_drain(self) -> None:
        """Rings are read once a second, all in one waking."""
        if self._draining is None:
            self._draining = self.timers.after(DRAIN_S - time.monotonic() % DRAIN_S, self._drain)

    def schedule_gathering(self) -> None:
        """What has come is forwarded, and who rests is listened to again: for all steps in one waking."""
        if self._gathering is None:
            self._gathering = self.timers.after(GATHER_S - time.monotonic() % GATHER_S, self._gather)

    def _gather(self) -> None:
        self._gathering = None
        for step in list(self.steps.values()):
            step.gather()

    def _drain(self) -> None:
        self._draining = None
        if self.is_paused:
            return
        more = [step.drain() for step in list(self.steps.values())]
        for step in self.steps.values():
            step.flush()
        if any(more):
            self.schedule_drain()

    def forget(self, step: Step) -> None:
        """A step is over."""
        self.steps.pop(step.id, None)
        shutil.rmtree(step.folder, ignore_errors=True)
        if any(other.group == step.group for other in self.steps.values()) or step.group_size > 1:
            self._ended_in_group[step.group] = self._ended_in_group.get(step.group, 0) + 1
            if self._ended_in_group[step.group] >= step.group_size:
                del self._ended_in_group[step.group]
                self._ports.pop((step.group, "port"), None)
        else:
            self._ports.pop((step.group, "port"), None)
        if step.ready and not step.account.is_serving:
            self._ended_in_group.pop(step.group, None)  # its client will not be started
        self.release(step.group)
        self.settle(step.group)
        if all(other.group != step.group for other in self.steps.values()):
            self._released.discard(step.group)
            self.timers.cancel(self._barriers.pop(step.group, None))
            for monitor in self._monitors.values():
                if monitor.group == step.group and not monitor.is_over:
                    monitor.is_over = True
                    self.timers.after(MONITOR_S, monitor.kill)

    def leave(self, reason: str, why: Optional[str] = None) -> None:
        """Ends everything, in steps; asked twice, at once. With `why` the steps have failed, else they are cancelled."""
        grace = 0.0 if self._leaving else None
        self._leaving = True
        for step in list(self.steps.values()):
            step.end(("failed" if why else "cancelled", why, reason), grace)


def free_port() -> int:
    """A port that is free at this moment on every address of this machine."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
