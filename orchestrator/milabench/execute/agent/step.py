"""One command under supervision."""

from __future__ import annotations

import errno
import glob
import json
import os
import re
import signal
import socket
import struct
import subprocess
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Set, Tuple

from .accelerators import VISIBLE_DEVICES
from .container import container_name
from .event_loop import READ_BYTES, widen
from .outcome import Account, KernelKills
from .procfs import UNKILLABLE_S, Process, holders_of, named, own_cpu_s, read_process
from .protocol import RUN_MARKER, STEP_MARKER, said_of
from .ring import Ring
from .streams import Connection, Listener, Output, Source

if TYPE_CHECKING:
    from .supervisor import Agent

LEFTOVER_S = 0.5  # what outlives its leader may end by itself for so long (resource trackers, loader workers)
END_OF_FILE_S = 1.0  # wait for the pipes to close when nobody of the step is left
KNOCK_S = 0.2  # between two looks whether a server answers
ENGINE_S = 15.0  # a container engine may take so long to answer


class Step:
    """One command under supervision, from its start to its `end` record."""

    def __init__(self, agent: "Agent", request: Dict[str, Any], folder: str) -> None:
        self.agent = agent
        self.id: str = request["step"]
        self.folder = folder
        self.group: str = request.get("group") or self.id
        self.group_size = int(request.get("group_size") or 1)
        self.grace_s = float(request.get("grace_s") or agent.grace_s)
        self.ready: Dict[str, Any] = request.get("ready") or {}
        self.account = Account(bool(request.get("needs_data")), bool(self.ready))
        self._awaited: Optional[Any] = None  # the pattern that tells that it serves, until it does
        self._heard: Dict[str, str] = {}
        self._port = 0
        self._hosts: List[str] = list(self.ready.get("hosts") or ["127.0.0.1"])
        self._env: Dict[str, str] = {}
        self._end_command: List[str] = []
        self._engine_pid: Optional[int] = None  # of what ends its container, while it does
        self.pid: Optional[int] = None
        self.command: List[str] = []
        self.connections: List[Connection] = []
        self.is_over = False
        self.usage = {"user_s": 0.0, "system_s": 0.0, "max_rss_kib": 0, "processes": 0}
        self._request = request
        self._outputs: List[Output] = []
        self._listener: Optional[Listener] = None
        self._rings: List[Ring] = []
        self._known_rings: Set[str] = set()
        self._pending: List[Tuple[str, Dict[str, Any], List[bytes]]] = []
        self._pending_bytes = 0
        self._timers: Dict[str, List[Any]] = {}
        self._last_sign = time.monotonic()
        self.monitor: Dict[str, Any] = request.get("monitor") or {}
        self.barrier_s: Optional[float] = request.get("barrier_s")
        self.is_spread = bool(request.get("is_spread"))  # its group has members on other nodes: who knows all decides
        self._said: Set[str] = set()
        self._is_told_to_stop = False
        self._stage = "run"  # run, leftovers, term, kill, closing
        self._killed_since = 0.0
        self._own_cpu = own_cpu_s()
        self._kills = KernelKills()

    # -- start

    def start(self) -> Dict[str, Any]:
        """Starts the command; the reply for the control plane. A command that cannot be started ends at once."""
        request = self._request
        os.mkdir(self.folder, 0o700)
        sink, config = os.path.join(self.folder, "sink"), os.path.join(self.folder, "config.json")
        with open(config, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o600)
            json.dump(request.get("config") or {}, file)
        self._listener = Listener(self, sink)
        values = {"path": os.environ.get("PATH", os.defpath), **(request.get("values") or {})}
        values.update(sink="unix:" + sink, config=config, marker=self.agent.run_id)
        values.update(container=container_name(self.agent.run_id, self.id, values.get("attempt", "")))
        values.update(folder="%s:%s" % (self.folder, self.folder), user="%d:%d" % (os.getuid(), os.getgid()))
        values.update(userns="keep-id" if os.getuid() else "host")  # podman keeps the ids of a user, and refuses root

        def fill(text: str) -> str:
            return self.agent.filled(text, values, self.group)

        self.command = [fill(word) for word in request["argv"]]
        self._end_command = [fill(word) for word in request.get("end_argv") or ()]
        self.account.is_contained = bool(self._end_command)
        given = {name: None if value is None else fill(value) for name, value in (request.get("env") or {}).items()}
        given.update({RUN_MARKER: self.agent.run_id, STEP_MARKER: self.id})
        inherited = dict(os.environ)
        for variables in VISIBLE_DEVICES.values():
            if any(name in given for name in variables):
                # Ours names devices of the machine; another one, inherited, would count from or overrule it.
                for name in variables:
                    inherited.pop(name, None)
        self._env = env = {name: value for name, value in {**inherited, **given}.items() if value is not None}
        cwd = fill(request["cwd"]) if request.get("cwd") else None
        secret = set(request.get("secret_env") or ())
        self.record(
            "start",
            {
                "command": self.command,
                "env": {name: value for name, value in given.items() if name not in secret},
                "secret_env": sorted(secret),
                "cwd": cwd or os.getcwd(),
                "time": round(time.time(), 6),
            },
        )
        try:
            self._await_service(fill)
            for path in request.get("makedirs") or ():
                os.makedirs(fill(path), exist_ok=True)
            process = subprocess.Popen(
                self.command,
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                pass_fds=self.agent.locks.descriptors(),
                preexec_fn=self.agent.before_exec,  # noqa: PLW1509 - there are no threads here
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            why = "no-space" if getattr(error, "errno", None) == errno.ENOSPC else "environment"
            self.account.cause = ("failed", why, _cannot_start(error, self.command, cwd))
            self.finish()
            return {"pid": None}
        self.pid = process.pid
        process.returncode = 0  # we reap it ourselves: keep its destructor from asking
        assert process.stdout is not None
        assert process.stderr is not None
        for stream, name in ((process.stdout, "stdout"), (process.stderr, "stderr")):
            fd = os.dup(stream.fileno())
            stream.close()
            widen(fd, READ_BYTES)
            self._outputs.append(Output(self, fd, name))
        self._set_limits()
        now = read_process(self.pid)
        return {"pid": self.pid, "pgid": self.pid, "pid_start": now.start if now else None}

    def _set_limits(self) -> None:
        timeout = self._request.get("timeout_s")
        if timeout is not None:
            self._timer("timeout", float(timeout), lambda: self._timed_out(float(timeout)))
        if self._request.get("max_silence_s") is not None:
            self._timer("silence", float(self._request["max_silence_s"]), self._check_silence)

        if self.ready:
            self._timer("ready", float(self.ready["timeout_s"]), self._not_ready)
            if self._port:
                self._knock()
            elif self._awaited is None:
                self._serves()  # nothing is to be waited for

    # -- a server

    def _await_service(self, fill: Callable[[str], str]) -> None:
        """What tells that a server can take requests. Raises OSError when somebody else answers in its place."""
        if "pattern" in self.ready:
            self._awaited = re.compile(self.ready["pattern"], re.MULTILINE)
        elif "port" in self.ready:
            self._port = int(fill("@port") if self.ready["port"] == "@port" else self.ready["port"])
            if self._answers():
                raise OSError(errno.EADDRINUSE, "port %d is in use already" % self._port)

    def hear(self, pipe: str, data: bytes) -> None:
        """Looks in its output for what tells that it serves."""
        if self._awaited is None:
            return
        text = self._heard.get(pipe, "") + data.decode("utf-8", "replace")
        if self._awaited.search(text):
            self._serves()
        else:
            self._heard[pipe] = text[-4096:]  # it may come in pieces

    def _answers(self) -> bool:
        for host in list(self._hosts):
            try:
                socket.create_connection((host, self._port), KNOCK_S).close()
                return True
            except socket.timeout:
                self._hosts.remove(host)  # an address of ours answers at once, if only to refuse
            except OSError:
                pass
        return False

    def _knock(self) -> None:
        if self.is_over or self.account.return_code is not None:
            return
        if self._answers():
            self._serves()
        else:
            self._timer("knock", KNOCK_S, self._knock)

    def _serves(self) -> None:
        self._awaited, self._heard = None, {}
        self._cancel("ready")
        if self._stage == "run":
            self.account.is_serving = True
            self.message("it is ready")
            self.flush()
            self.agent.outbox.send("ready", b"{}", self.id)

    def _not_ready(self) -> None:
        if "port" in self.ready:
            missing = "nothing answers on port %d" % self._port
        else:
            missing = "its output does not match %r" % self.ready.get("pattern", "")
        self.end(("failed", "timeout", "not ready within %g s: %s" % (float(self.ready["timeout_s"]), missing)))

    def _timed_out(self, seconds: float) -> None:
        detail = "still running after %g s" % seconds
        late = self.agent.late_for(self)
        if late:
            detail += ", waiting at the start barrier for " + ", ".join(late)
        self.end(("failed", "timeout", detail))

    def _check_silence(self) -> None:
        allowed = float(self._request["max_silence_s"])
        if self.agent.is_paused:
            self._last_sign = time.monotonic()  # it is us who do not listen
        if self.agent.late_for(self):
            self._last_sign = time.monotonic()  # it may not go on: the barrier has a limit of its own
        silent = time.monotonic() - self._last_sign
        if silent >= allowed:
            self.end(("failed", "silent", "neither output nor a record for %g s" % allowed))
        else:
            self._timer("silence", allowed - silent + 0.01, self._check_silence)

    # -- reading

    @property
    def is_hurried(self) -> bool:
        """Whether the end is near, so that nothing should wait for the next gathering."""
        return self._stage != "run"

    @property
    def sources(self) -> List[Source]:
        """Everything that it is read from."""
        found: List[Source] = [*self._outputs, *self.connections]
        return [*found, self._listener] if self._listener else found

    def read_something(self, size: int, is_sign: bool = True) -> None:
        """A source was read; it gave so many bytes, 0 at its end; whether that is a sign of life of the step."""
        if size:
            if is_sign:
                self._last_sign = time.monotonic()
            self.agent.schedule_gathering()
        elif self.account.return_code is not None:
            self.check()

    def gather(self) -> None:
        """Forwards what has come, and listens again."""
        self.flush()
        self.connections = [connection for connection in self.connections if connection.is_open or connection.is_ready]
        for source in self.sources:
            source.arm()

    def open_ring(self, name: str, world_size: int = 1) -> None:
        """Follows a ring in the step's folder; by name, because a container may know the folder under another path."""
        if name in self._known_rings:
            return
        self._known_rings.add(name)
        try:
            self._rings.append(Ring(os.path.join(self.folder, name), world_size))
        except (OSError, ValueError, TypeError, AttributeError, struct.error) as error:
            self.message("the ring %s cannot be read: %s" % (name, error))
            return
        if self._is_told_to_stop:
            self._rings[-1].tell_stop()
        self.agent.schedule_drain()

    def drain(self, final: bool = False) -> bool:
        """Turns new observations into records; whether there may be more later."""
        for ring in self._rings:
            if ring.is_done:
                continue
            before = ring.head
            payload, count = ring.drain(time.time(), final)
            if ring.head != before:
                self._last_sign = time.monotonic()
            if count:
                self.emit("obs", payload, count=count, last=dict(ring.last) if "rate" in ring.last else {})
        return any(not ring.is_done for ring in self._rings)

    # -- together with others

    @property
    def has_observations(self) -> bool:
        """Whether every process of it that passed the start barrier has its window, or is gone."""
        passed = [connection for connection in self.connections if connection.was_released]
        return self.account.return_code is not None or all(one.is_complete or not one.is_open for one in passed)

    def say(self, kind: str) -> None:
        """Tells the control plane, once, how far it is of what its group does together."""
        if kind not in self._said:
            self._said.add(kind)
            self.flush()
            self.agent.outbox.send(kind, b"{}", self.id)

    def tell_stop(self, reason: str) -> None:
        """Tells its processes that nobody needs their load any longer."""
        self._is_told_to_stop = True
        for ring in self._rings:
            if not ring.is_done:
                ring.tell_stop()
        for connection in self.connections:
            if connection.is_open and not connection.is_monitor:
                connection.tell({"stop": reason})

    # -- writing

    def emit(self, kind: str, payload: bytes, **more: Any) -> None:
        """Queues bytes for the control plane, in order."""
        if not payload:
            return
        if self._pending and self._pending[-1][0] == kind and not more:
            self._pending[-1][2].append(payload)
        else:
            self._pending.append((kind, more, [payload]))
        self._pending_bytes += len(payload)
        if self._pending_bytes > READ_BYTES:
            self.flush()
        else:
            self.agent.schedule_gathering()

    def flush(self) -> None:
        """Sends what is queued."""
        for kind, more, payload in self._pending:
            self.agent.outbox.send(kind, b"".join(payload), self.id, **more)
        self._pending.clear()
        self._pending_bytes = 0

    def record(self, event: str, data: Dict[str, Any]) -> None:
        """Queues a record of our own."""
        text = json.dumps(
            {"event": event, "data": data, "pipe": None, "t": round(time.time(), 6)}, separators=(",", ":")
        )
        self.emit("rec", text.encode() + b"\n")

    def message(self, text: str) -> None:
        """Says something to the reader of the records."""
        self.record("message", {"message": text})

    # -- end

    def end(self, cause: Tuple[str, Optional[str], str], grace_s: Optional[float] = None) -> None:
        """TERM to everything, after the grace KILL. The first cause counts; a second call may shorten the grace."""
        if self.is_over:
            return
        if self.account.cause is None and self.account.return_code is None:
            self.account.cause = cause
        grace = self.grace_s if grace_s is None else grace_s
        if grace <= 0:
            self._kill()
        elif self._stage in ("run", "leftovers"):
            self._terminate(grace)

    def killed(self, pid: int) -> None:
        """One of its processes was killed, or a shell says so of what it ran; it has not been waited for yet."""
        self._kills.look_at(pid)

    def exited(self, code: int) -> None:
        """The leader is gone."""
        if self._end_command and 128 < code < 128 + signal.NSIG:
            code = 128 - code  # as engines tell that a signal ended the program
        self.account.return_code = code
        for name in ("timeout", "silence", "ready", "knock"):
            self._cancel(name)
        if self._end_command and (code != 0 or self.account.cause is not None):
            self._end_container()
        if self._stage == "run":
            self._stage = "leftovers"
        for source in self.sources:
            source.arm()
        for connection in self.connections:
            if connection.is_monitor:
                connection.tell({"stop": "the step has ended"})
        self.agent.settle(self.group)
        self.check()

    def check(self) -> None:
        """After the leader: ends what it left behind, waits for the pipes to close, then closes the account."""
        if self.is_over or self.account.return_code is None or self._engine_pid is not None:
            return
        left = self.agent.members(self)
        if left:
            if self._stage == "leftovers" and "leftovers" not in self._timers:
                self._timer("leftovers", LEFTOVER_S, self._end_leftovers)
        elif all(not source.is_open for source in (*self._outputs, *self.connections)):
            self.finish()
        elif self._stage != "closing":
            self._stage = "closing"
            for name in ("leftovers", "term", "kill"):
                self._cancel(name)
            self._timer("closing", END_OF_FILE_S, self._stop_waiting)

    def _end_container(self) -> None:
        """Lets the engine end what is no child of ours, after its client; where nothing is left, it does nothing."""
        try:
            self._engine_pid = self.agent.start_helper(self._end_command, self._container_ended, env=self._env)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self.message("its container could not be ended: " + _cannot_start(error, self._end_command, None))
            return
        self._timer("engine", ENGINE_S, self._engine_hangs)

    def _container_ended(self, code: int, removed: bytes) -> None:
        self._cancel("engine")
        self._engine_pid = None
        if code == 0 and removed.strip():  # it names what it removed; nothing where there was nothing
            self.message("ended its container, which outlived the command: " + " ".join(self._end_command))
        self.check()

    def _engine_hangs(self) -> None:
        self.message("`%s` has not ended within %g s" % (" ".join(self._end_command), ENGINE_S))
        engine = read_process(self._engine_pid or 0)
        if engine is not None:
            engine.signal(signal.SIGKILL)

    def _end_leftovers(self) -> None:
        left = self.agent.members(self)
        if left:
            self.message("ended what outlived its leader: " + named(left))
            self._terminate(self.grace_s)
        else:
            self.check()

    def _stop_waiting(self) -> None:
        held = [source for source in (*self._outputs, *self.connections) if source.is_open]
        for source in held:
            source.read_rest()
        held = [source for source in held if source.is_open and not source.is_monitor]
        if held:
            names = " and ".join(sorted({source.name for source in held}))
            holders = named(holders_of([source.fd for source in held])) or "a process that we cannot see"
            self.message("%s is still held open after the end, by %s" % (names, holders))
        self.finish()

    def _terminate(self, grace_s: float) -> None:
        self._stage = "term"
        self._cancel("leftovers")
        self._signal_all(signal.SIGTERM)
        self._signal_all(signal.SIGCONT)  # a stopped process cannot heed TERM
        self._timer("term", grace_s, self._kill)
        for source in self.sources:
            source.arm()

    def _kill(self) -> None:
        if self.is_over:
            return
        if self._stage != "kill":
            self._stage = "kill"
            self._killed_since = time.monotonic()
            self._cancel("term")
        left = self._signal_all(signal.SIGKILL)
        if not left and self.account.return_code is not None:
            self.check()
        elif time.monotonic() - self._killed_since < UNKILLABLE_S:
            # Looks again: it may have forked meanwhile, and the end of a grandchild is not signalled to us.
            self._timer("kill", 0.1, self._kill)
        else:
            self.message("these do not die of SIGKILL, they hang in the kernel: " + named(left))
            self.finish()

    def _signal_all(self, number: int) -> List[Process]:
        found = self.agent.members(self)
        for process in found:
            process.signal(number)
        return found

    def finish(self) -> None:
        """Takes what is left to read, decides the outcome, writes the last record."""
        if self.is_over:
            return
        if self._listener is not None:
            self._listener.read_rest()
        for source in self.sources:
            source.read_rest()
            source.close()
        self._drain_finally()
        account = self.account
        account.lines = sum(output.lines.count for output in self._outputs)
        if account.return_code:
            account.out_of_memory = self._kills.told(is_elsewhere=bool(self._end_command))
        account.last_words = next((output.lines.last for output in self._outputs if output.name == "stderr"), "")
        self.is_over = True
        for name in list(self._timers):
            self._cancel(name)
        outcome, why, detail = account.outcome()
        if outcome == "passed":
            for path in self._request.get("marks") or ():
                try:
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666))
                except OSError as error:
                    self.message("it will be done again, for this cannot be noted: %s" % said_of(error))
        data: Dict[str, Any] = {
            "command": self.command,
            "time": round(time.time(), 6),
            "return_code": account.return_code,
            "outcome": outcome,
        }
        if why is not None:
            data.update(why=why, detail=detail)
        reasons = ["abort-at-exit"] if outcome == "passed" and account.return_code and account.aborted_at_exit else []
        if reasons:
            data["reasons"] = reasons
        self.record("end", data)
        self.flush()
        ended = {
            "outcome": outcome,
            "why": why,
            "detail": detail,
            "reasons": reasons,
            "return_code": account.return_code,
            "counts": {
                "observations": account.measurements,
                "warmup": account.warmups,
                "records": account.records,
                "lines": account.lines,
                "bytes": account.bytes,
                "lost": account.lost,
            },
            "rusage": self.usage,
            "agent_cpu_s": round(own_cpu_s() - self._own_cpu, 6),
        }
        self.agent.outbox.send("ended", json.dumps(ended).encode(), self.id)
        self.agent.forget(self)

    def _drain_finally(self) -> None:
        # A process may have died between making a ring and announcing it.
        for path in glob.glob(os.path.join(glob.escape(self.folder), "*.ring")):
            self.open_ring(os.path.basename(path))
        self.drain(final=True)
        for ring in self._rings:
            self.account.warmups += ring.warmups
            self.account.measurements += ring.observations
            self.account.records += ring.observations
            self.account.lost += ring.lost
            ring.close()
        if self.account.lost:
            self.message("%d observations were overwritten before they could be read" % self.account.lost)

    def _timer(self, name: str, seconds: float, action: Callable[[], None]) -> None:
        self._cancel(name)

        def fire() -> None:
            self._timers.pop(name, None)
            action()

        self._timers[name] = self.agent.timers.after(seconds, fire)

    def _cancel(self, name: str) -> None:
        self.agent.timers.cancel(self._timers.pop(name, None))


def _cannot_start(error: Exception, command: List[str], cwd: Optional[str]) -> str:
    reason = getattr(error, "strerror", None) or str(error)
    if cwd and not os.path.isdir(cwd):
        return "cannot start in %s: there is no such folder" % cwd
    if isinstance(error, FileNotFoundError) and os.path.exists(command[0]):
        return "cannot start %s: the interpreter in its first line is missing" % command[0]
    path = getattr(error, "filename", None)
    return "cannot start %s: %s" % (path or (command[0] if command else "an empty command"), reason)
