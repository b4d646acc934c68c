"""A command under supervision, from its start to its `end` record."""

from __future__ import annotations

import contextlib
import errno
import json
import mmap
import os
import signal
import struct
import subprocess
import time

from ...devices.locks import DeviceLocks
from ...redaction import Masker, values_in_environment
from .event_loop import READ_BYTES, EventLoop, NamedTimers, widen_pipe
from .helpers import HelperProcesses
from .orphans import container_name
from .outcome import OomWatch, StepLedger, StepOutcome
from .procfs import UNKILLABLE_S, Process, describe_processes, holders_of, host_use, read_process
from .protocol import RUN_MARKER, STEP_MARKER, Outbox, StepFrames, format_oserror
from .ring import StepRings
from .service import Service
from .spawn import spawn
from .streams import Listener, ObservationConnection, Output, Source

TYPE_CHECKING = False  # see unpack.py
if TYPE_CHECKING:
    from typing import Any, Callable, Protocol, Sequence

    class StepGroups(Protocol):
        """The part of the agent's groups that a step needs."""

        def release(self, group: str) -> None:
            """Open the start barrier if all of the group are there."""

        def settle(self, group: str) -> None:
            """Stop the group's loops if each has its observations."""

        def watch(self, group: str) -> None:
            """Start the group's monitor when the last of its members has been started."""

        def stragglers(self, step: "RunningStep") -> list[str]:
            """Return whom a step waits for at the start barrier."""

    class StepHost(Protocol):
        """The part of the supervising agent that a step needs."""

        run_id: str
        grace_s: float
        loop: EventLoop
        outbox: Outbox
        locks: DeviceLocks
        helpers: HelperProcesses

        @property
        def groups(self) -> StepGroups:
            """The groups of its steps."""

        def fill(self, text: str, values: dict[str, str], group: str) -> str:
            """Replace `@name` in a text by a value that is known only here."""

        def before_exec(self) -> None:
            """Prepare the child, after fork."""

        def spawn_limits(self) -> tuple[int, int] | None:
            """Return the limits on open files of a child that is spawned, not forked. None where it has to be forked."""

        def make_step_dir(self, step: str, path: str) -> None:
            """Make the folder of a repeat. Raises OSError."""

        def members(self, step: "RunningStep") -> list[Process]:
            """Return the live processes of a step."""

        def schedule_gathering(self) -> None:
            """Call `gather` of all steps soon."""

        def schedule_drain(self) -> None:
            """Call `drain` of all steps within a second."""

        def forget(self, step: "RunningStep") -> None:
            """Let go of a step that is over."""


ENGINE_S = 15.0  # a container engine may take so long to answer
PEERS_S = 0.8  # a hung step waits so long for the evidence of its job, after its own
LEFTOVER_S = 0.5  # what outlives its leader may end by itself for so long (resource trackers, loader workers)
END_OF_FILE_S = 1.0  # wait for the pipes to close when nobody of the step is left


class RunningStep:
    """A command, everything that it started, and the streams that are read from them."""

    def __init__(self, host: StepHost, request: dict[str, Any], folder: str) -> None:
        self.host = host
        self.loop = host.loop
        self.id: str = request["step"]
        self.folder = folder
        self.group: str = request.get("group") or self.id
        self.group_size = int(request.get("group_size") or 1)
        self.is_spread = bool(request.get("is_spread"))  # has group members on other nodes: the engine decides
        self.barrier_s: float | None = request.get("barrier_s")
        self.monitor: dict[str, Any] = request.get("monitor") or {}
        self.grace_s = float(request.get("grace_s") or host.grace_s)
        self.pid: int | None = None
        self.command: list[str] = []
        self.connections: list[ObservationConnection] = []
        self.is_over = False
        # The control plane's secrets that this step is given, and those of this machine.
        given = [(request.get("env") or {}).get(name) or "" for name in request.get("secret_env") or ()]
        secrets = [*(request.get("secrets") or ()), *given, *values_in_environment(os.environ)]
        self.frames = StepFrames(host.outbox, self.id, Masker(secrets), host.schedule_gathering)
        self._timers = NamedTimers(self.loop)
        ready = request.get("ready")
        waiting = (self._timers, self._note_ready, self._fail_not_ready)
        self.service = Service(ready, *waiting) if ready else None
        self.ledger = StepLedger(bool(request.get("needs_data")), self.service is not None)
        self._request = request
        self._outputs: list[Output] = []
        self._rings = StepRings(folder, self.frames)
        # Shared with the child, which writes here when it is about to become the command: a fork is not the command's time.
        self._executed = mmap.mmap(-1, 8)
        self._next: list[str] = []  # the command, while what is to run before it runs
        self._cwd: str | None = None
        self._is_timed = bool((request.get("config") or {}).get("timed"))
        self._wall_s: float | None = None
        self._removal: list[str] = []  # the engine's command that removes its container, where it is in one
        self._is_removing = False
        self._env: dict[str, str] = {}
        self._last_heartbeat = time.monotonic()
        self._excused = 0.0  # until then it had to wait
        self._after_peers: Callable[[], None] | None = None
        self._notices: set[str] = set()
        self._stage = "run"  # run, leftovers, term, kill, closing
        self._killed_since = 0.0
        self._oom_watch = OomWatch()
        self._host_use: Callable[[], dict[str, float] | None] | None = None
        self._host_used: dict[str, float] | None = None
        # Collects the state of its processes, and calls what it is given. The supervisor puts a feature's collector here.
        self.collect: Callable[[Callable[[], None]], None] = lambda then: then()
        self.is_alone = False  # no other step has run beside it on this agent: all work of our children is its
        os.mkdir(folder, 0o700)
        self.sink = os.path.join(folder, "sink")
        self._listener = Listener(self, self.sink)

    # -- start

    def start(self) -> dict[str, Any]:
        """Start the command and return the reply to the control plane. A command that cannot be started ends at once."""
        values = self._values()

        def fill(text: str) -> str:
            return self.host.fill(text, values, self.group)

        request = self._request
        self.command = [fill(word) for word in request["argv"]]
        if request.get("end_argv"):
            self._removal = [fill(word) for word in request["end_argv"]]
            self.ledger.is_contained = True
        own = {name: None if value is None else fill(value) for name, value in (request.get("env") or {}).items()}
        own.update({RUN_MARKER: self.host.run_id, STEP_MARKER: self.id})
        self._env = merge_environment(dict(os.environ), own, request.get("displaces", ()))
        cwd = self._cwd = fill(request["cwd"]) if request.get("cwd") else None
        secret = set(request.get("secret_env") or ())
        self.frames.record(
            "start",
            {
                "command": self.command,
                "env": {name: value for name, value in own.items() if name not in secret},
                "secret_env": sorted(secret),
                "cwd": cwd or os.getcwd(),
                "time": round(time.time(), 6),
            },
        )
        try:
            if self.service is not None:
                self.service.prepare(fill)
            self._make_folders([fill(path) for path in request.get("makedirs") or ()])
            prerun = [fill(word) for word in request.get("prerun") or ()]
            self._next = self.command if prerun else []
            self.pid = self._execute(prerun or self.command)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self._fail_to_start(error, self.command)
            return {"pid": None}
        self._set_limits()
        now = read_process(self.pid)
        return {"pid": self.pid, "pgid": self.pid, "pid_start": now.start if now else None}

    def _make_folders(self, paths: list[str]) -> None:
        for path in paths:
            os.makedirs(path, exist_ok=True)
        if self._request.get("step_dir"):
            self.host.make_step_dir(self.id, self._request["step_dir"])

    def _execute(self, command: list[str]) -> int:
        """Start a command of the step and listen to it. Return its pid. Raises the errors of Popen."""
        self._host_use = host_use()
        if self._is_timed and (limits := self.host.spawn_limits()):
            spawned = spawn(command, self._cwd, self._env, self.host.locks.descriptors(), limits)
            if spawned is not None:
                pid, output, errors, began_ns = spawned
                struct.pack_into("q", self._executed, 0, began_ns)
                self._listen(output, errors)
                return pid
        process = subprocess.Popen(
            command,
            cwd=self._cwd,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=self.host.locks.descriptors(),
            preexec_fn=self._before_exec,  # noqa: PLW1509 - there are no threads here
        )
        process.returncode = 0  # we reap it ourselves: keep its destructor from asking
        assert process.stdout is not None
        assert process.stderr is not None
        copies = [os.dup(stream.fileno()) for stream in (process.stdout, process.stderr)]
        process.stdout.close()
        process.stderr.close()
        self._listen(*copies)
        return process.pid

    def _listen(self, output: int, errors: int) -> None:
        for fd, name in ((output, "stdout"), (errors, "stderr")):
            widen_pipe(fd, READ_BYTES)
            self._outputs.append(Output(self, fd, name))

    def _before_exec(self) -> None:
        self.host.before_exec()
        struct.pack_into("q", self._executed, 0, time.monotonic_ns())

    def _fail_to_start(self, error: Exception, command: list[str]) -> None:
        why = "no-space" if getattr(error, "errno", None) == errno.ENOSPC else "environment"
        self.ledger.cause = StepOutcome("failed", why, describe_start_failure(error, command, self._cwd, self._env))
        self.finish()

    def _continue(self, code: int) -> bool:
        """Continue after the line that ran before the command: start the command and return whether it runs."""
        command, self._next = self._next, []
        if self._stage != "run" or self.ledger.cause is not None:
            return False
        if code != 0:
            how = "exited with code %d" % code if code > 0 else "was ended by signal %d" % -code
            self.ledger.cause = StepOutcome("failed", "exit", "the command before it (prerun) %s" % how)
            return False
        for output in self._outputs:
            output.read_rest()  # what was said before the command stands before what that says
        try:
            self.pid = self._execute(command)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self._fail_to_start(error, command)
            return False
        self._last_heartbeat = time.monotonic()
        self._set_limits()  # those of what ran before it are over
        self.host.groups.watch(self.group)
        return True

    @property
    def is_before_command(self) -> bool:
        """Whether the line before the command still runs."""
        return bool(self._next)

    def _values(self) -> dict[str, str]:
        """Write the configuration, and return the values of the command's placeholders."""
        config = os.path.join(self.folder, "config.json")
        with open(config, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o600)
            json.dump(self._request.get("config") or {}, file)
        values = {"path": os.environ.get("PATH", os.defpath), **(self._request.get("values") or {})}
        values.update(sink="unix:" + self.sink, config=config, marker=self.host.run_id)
        values.update(container=container_name(self.host.run_id, self.id, values.get("attempt", "")))
        values.update(folder="%s:%s" % (self.folder, self.folder), user="%d:%d" % (os.getuid(), os.getgid()))
        values.update(userns="keep-id" if os.getuid() else "host")  # podman keeps the ids of a user, and refuses root
        return values

    def _set_limits(self) -> None:
        timeout = self._request.get("timeout_s")
        if timeout is not None:
            self._timers.start("timeout", float(timeout), lambda: self._time_out(float(timeout)))
        if self._request.get("max_silence_s") is not None:
            self._timers.start("silence", float(self._request["max_silence_s"]), self._check_silence)
        if self.service is not None and not self._next:
            self._timers.start("ready", self.service.timeout_s, self._time_out_not_ready)
            self.service.wait()

    def _time_out(self, seconds: float) -> None:
        detail = "%sstill running after %g s" % ("the command before it (prerun) is " if self._next else "", seconds)
        stragglers = self.host.groups.stragglers(self)
        if stragglers:
            detail += ", waiting at the start barrier for " + ", ".join(stragglers)
        self.end_hung(StepOutcome("failed", "timeout", detail))

    def _check_silence(self) -> None:
        allowed = float(self._request["max_silence_s"])
        # While paused, we do not read; at the barrier the step must wait, and the barrier has a limit of its own.
        if self.loop.is_paused or self.host.groups.stragglers(self):
            self._excused = time.monotonic()
        progress = self.progress()
        # Other ranks, or threads of the same, may go on printing while one makes no step.
        silent = max((since for _, _, since in progress), default=time.monotonic() - self._last_heartbeat)
        silent = min(silent, time.monotonic() - self._excused)
        if silent < allowed:
            self._timers.start("silence", allowed - silent + 0.01, self._check_silence)
            return
        late = [str(rank) for rank, _, since in progress if since >= allowed]
        detail = "neither output nor a record for %g s" % allowed
        if progress:
            of = " of rank %s" % ", ".join(late) if len(late) < len(progress) else ""
            detail = "no step%s for %g s" % (of, allowed)
        self.end_hung(StepOutcome("failed", "silent", detail))

    # -- a server

    def _note_ready(self) -> None:
        self._timers.cancel("ready")
        if self._stage == "run":
            self.ledger.is_serving = True
            self.frames.message("it is ready")
            self.frames.send_now("ready")

    def _time_out_not_ready(self) -> None:
        assert self.service is not None
        detail = "not ready within %g s: %s" % (self.service.timeout_s, self.service.missing())
        self.end_hung(StepOutcome("failed", "timeout", detail))

    def _fail_not_ready(self, detail: str) -> None:
        self.end(StepOutcome("failed", "timeout", detail))

    # -- reading

    @property
    def is_ending(self) -> bool:
        """Whether the step is about to end, so that nothing should wait for the next gathering."""
        return self._stage != "run"

    @property
    def sources(self) -> list[Source]:
        """Everything that it is read from."""
        return [*self._outputs, *self.connections, self._listener]

    def note_read(self, size: int, is_heartbeat: bool) -> None:
        """Take note that `size` bytes were read, 0 at the end. `is_heartbeat`: they come from the step itself."""
        if size:
            if is_heartbeat:
                self._last_heartbeat = time.monotonic()
            self.host.schedule_gathering()
        elif self.ledger.return_code is not None:
            self.check()

    def scan_output(self, pipe: str, data: bytes) -> None:
        """Look in the output for the sign that a server is ready."""
        if self.service is not None:
            self.service.scan(pipe, data)

    def gather(self) -> None:
        """Forward the received data, and listen again."""
        self.frames.flush()
        self.connections = [connection for connection in self.connections if connection.is_open or connection.is_ready]
        for source in self.sources:
            source.arm()

    def open_ring(self, name: str, world_size: int) -> None:
        """Follow a ring in the step's folder."""
        self._rings.open(name, world_size)
        self.host.schedule_drain()

    def drain(self) -> bool:
        """Turn new observations into records. Return whether there may be more later."""
        if self._rings.drain():
            self._last_heartbeat = time.monotonic()
        return not self._rings.is_done

    # -- together with others

    def note_at_barrier(self) -> None:
        """Take note that a process waits at the start barrier."""
        self.host.groups.release(self.group)

    def note_complete(self) -> None:
        """Take note that a process has its observations, or is gone."""
        self.host.groups.settle(self.group)

    @property
    def is_at_barrier(self) -> bool:
        """Whether as many of its processes wait at the barrier, or have passed it, as there are ranks."""
        ranks = [connection for connection in self.connections if not connection.is_monitor]
        world = max((connection.world_size for connection in ranks), default=1)
        return sum(connection.is_ready for connection in ranks) >= world

    @property
    def has_observations(self) -> bool:
        """Whether every process that passed the start barrier has its window, or is gone."""
        passed = [connection for connection in self.connections if connection.was_released]
        return self.ledger.return_code is not None or all(
            connection.is_complete or not connection.is_open for connection in passed
        )

    def notify_once(self, kind: str) -> None:
        """Report its progress in the common stages of its group to the control plane."""
        if kind not in self._notices:
            self._notices.add(kind)
            self.frames.send_now(kind)

    def request_stop(self, reason: str) -> None:
        """Tell its processes that their load is needed no longer."""
        self._rings.request_stop()
        for connection in self.connections:
            if connection.is_open and not connection.is_monitor:
                connection.send({"stop": reason})

    # -- end

    def end_hung(self, cause: StepOutcome) -> None:
        """End it once the state of its processes is known, here and where the control plane asks: the state explains the hang."""
        if self._stage == "run" and not self.is_over:
            self.notify_once("hung")
            self.collect(lambda: self._end_with_peers(cause))
        else:
            self.end(cause)

    def _end_with_peers(self, cause: StepOutcome) -> None:
        """End it when the evidence of the rest of its job is there, too, so that its end does not change their evidence."""
        if self._request.get("has_peers"):
            self._after_peers = lambda: self.end(cause)
            self._timers.start("peers", PEERS_S, self.note_peers_seen)
        else:
            self.end(cause)

    def note_peers_seen(self) -> None:
        """Take note that the rest of its job need not be waited for any longer."""
        if self._after_peers is not None:
            self._timers.cancel("peers")
            self._after_peers()

    def progress(self) -> list[tuple[int, int, float]]:
        """Return rank, steps, and seconds since the last step, of each process whose steps are observed."""
        return self._rings.progress()

    def end(self, cause: StepOutcome, grace_s: float | None = None) -> None:
        """Send TERM to everything, after the grace KILL. The first cause counts. A second call may shorten the grace."""
        if self.is_over:
            return
        if self.ledger.cause is None and self.ledger.return_code is None:
            self.ledger.cause = cause
        grace = self.grace_s if grace_s is None else grace_s
        if grace <= 0:
            self._kill()
        elif self._stage in ("run", "leftovers"):
            self._terminate(grace)

    def note_killed(self, pid: int) -> None:
        """Take note that a process of the step was killed, or a shell's child. It has not been waited for yet."""
        self._oom_watch.note_killed(pid)

    def note_exit(self, code: int, noticed_ns: int) -> None:
        """Take note that the leader is gone, as was noticed at a time of the monotonic clock."""
        if self._next:
            if self._continue(code) or self.is_over:
                return
        elif executed_ns := struct.unpack_from("q", self._executed)[0]:
            self._wall_s = (noticed_ns - executed_ns) / 1e9
        if self.is_alone and self._host_use is not None:
            self._host_used = self._host_use()
        if self._removal and 128 < code < 128 + signal.NSIG:
            code = 128 - code  # as engines report that a signal ended the program
        self.ledger.return_code = code
        self._timers.cancel("timeout", "silence", "ready")
        if self.service is not None:
            self.service.close()
        if self._removal and (code != 0 or self.ledger.cause is not None):
            self._remove_container()
        if self._stage == "run":
            self._stage = "leftovers"
        for source in self.sources:
            source.arm()
        for connection in self.connections:
            if connection.is_monitor:
                connection.send({"stop": "the step has ended"})
        self.host.groups.settle(self.group)
        self.check()

    def check(self) -> None:
        """After the leader: end leftover processes, wait for the pipes to close, then close the ledger."""
        if self.is_over or self.ledger.return_code is None or self._is_removing:
            return
        if self.host.members(self):
            if self._stage == "leftovers" and "leftovers" not in self._timers:
                self._timers.start("leftovers", LEFTOVER_S, self._end_leftovers)
        elif all(not source.is_open for source in (*self._outputs, *self.connections)):
            self.finish()
        elif self._stage != "closing":
            self._stage = "closing"
            self._timers.cancel("leftovers", "term", "kill")
            self._timers.start("closing", END_OF_FILE_S, self._stop_waiting)

    def _remove_container(self) -> None:
        """Remove the container after its client: it is no child of ours. Where none is left, the engine does nothing."""
        try:
            pid = self.host.helpers.start(self._removal, self._note_removed, stderr=subprocess.DEVNULL, env=self._env)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            why = describe_start_failure(error, self._removal, None)
            self.frames.message("its container could not be removed: " + why)
            return
        self._is_removing = True
        self._timers.start("engine", ENGINE_S, lambda: self._stop_removal(pid))

    def _note_removed(self, code: int, removed: bytes) -> None:
        self._timers.cancel("engine")
        self._is_removing = False
        if code == 0 and removed.strip():  # it prints the name of what it removed, if anything
            self.frames.message("removed its container, which outlived the command: " + " ".join(self._removal))
        self.check()

    def _stop_removal(self, pid: int) -> None:
        self.frames.message("`%s` has not ended within %g s" % (" ".join(self._removal), ENGINE_S))
        self.host.helpers.kill(pid)

    def _end_leftovers(self) -> None:
        leftovers = self.host.members(self)
        if leftovers:
            self.frames.message("killed leftover processes: " + describe_processes(leftovers))
            self._terminate(self.grace_s)
        else:
            self.check()

    def _stop_waiting(self) -> None:
        streams = [source for source in (*self._outputs, *self.connections) if source.is_open]
        for source in streams:
            source.read_rest()
        held = [source for source in streams if source.is_open and not source.is_monitor]
        if held:
            names = " and ".join(sorted({source.name for source in held}))
            holders = describe_processes(holders_of([source.fd for source in held])) or "a process that we cannot see"
            self.frames.message("%s is still held open after the end, by %s" % (names, holders))
        self.finish()

    def _terminate(self, grace_s: float) -> None:
        self._stage = "term"
        self._timers.cancel("leftovers")
        self._signal_all(signal.SIGTERM)
        self._signal_all(signal.SIGCONT)  # a stopped process cannot heed TERM
        self._timers.start("term", grace_s, self._kill)
        for source in self.sources:
            source.arm()

    def _kill(self) -> None:
        if self.is_over:
            return
        if self._stage != "kill":
            self._stage = "kill"
            self._killed_since = time.monotonic()
            self._timers.cancel("term")
        left = self._signal_all(signal.SIGKILL)
        if not left and self.ledger.return_code is not None:
            self.check()
        elif time.monotonic() - self._killed_since < UNKILLABLE_S:
            # Looks again: it may have forked meanwhile, and the end of a grandchild is not signalled to us.
            self._timers.start("kill", 0.1, self._kill)
        else:
            self.frames.message("these do not die of SIGKILL, they hang in the kernel: " + describe_processes(left))
            self.finish()

    def _signal_all(self, number: int) -> list[Process]:
        members = self.host.members(self)
        for process in members:
            process.signal(number)
        return members

    def finish(self) -> None:
        """Read the rest, decide the outcome, write the last record."""
        if self.is_over:
            return
        self._listener.read_rest()
        for source in self.sources:
            source.read_rest()
            source.close()
        ledger = self.ledger
        self._rings.close(ledger)
        if ledger.lost:
            self.frames.message("%d observations were overwritten before they could be read" % ledger.lost)
        if ledger.return_code:
            ledger.out_of_memory = self._oom_watch.describe_kill(is_elsewhere=self.ledger.is_contained)
        ledger.last_error_line = next((output.lines.last for output in self._outputs if output.name == "stderr"), "")
        self.is_over = True
        self._timers.cancel_all()
        outcome = ledger.outcome()
        if outcome.outcome == "passed":
            self._write_markers()
        why = {} if outcome.why is None else {"why": outcome.why, "detail": outcome.detail}
        self.frames.record(
            "end",
            {
                "command": self.command,
                "time": round(time.time(), 6),
                "return_code": ledger.return_code,
                "outcome": outcome.outcome,
                **why,
                **({} if self._wall_s is None else {"wall_s": round(self._wall_s, 6)}),
                **({} if self._host_used is None else {"host": self._host_used}),
                **({"reasons": outcome.reasons} if outcome.reasons else {}),
            },
        )
        ended = {
            "outcome": outcome.outcome,
            "why": outcome.why,
            "detail": outcome.detail,
            "reasons": outcome.reasons,
            "return_code": ledger.return_code,
        }
        self.frames.send_now("ended", json.dumps(ended).encode())
        self.host.forget(self)

    def _write_markers(self) -> None:
        """Make the empty files that tell a later run that this step is done."""
        for path in self._request.get("marks") or ():
            try:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666))
            except OSError as error:
                self.frames.message(
                    "cannot write the completion marker, so the step will be repeated: %s" % format_oserror(error)
                )


def merge_environment(
    inherited: dict[str, str], own: dict[str, str | None], displaced: Sequence[str]
) -> dict[str, str]:
    """Return a step's environment. A variable that is None in its own part is unset. Displaced variables are not inherited."""
    kept = {name: value for name, value in inherited.items() if name not in displaced}
    return {name: value for name, value in {**kept, **own}.items() if value is not None}


def describe_start_failure(
    error: Exception, command: list[str], cwd: str | None, env: dict[str, str] | None = None
) -> str:
    """Return why a command cannot be started, for a person. `env`: its environment, where that is not ours."""
    reason = getattr(error, "strerror", None) or str(error)
    if cwd and isinstance(error, (FileNotFoundError, NotADirectoryError)) and not os.path.isdir(cwd):
        return "cannot start in %s: there is no such folder" % cwd
    if isinstance(error, FileNotFoundError) and os.path.exists(command[0]):
        return "cannot start %s: the interpreter in its first line is missing" % command[0]
    path = getattr(error, "filename", None)
    if isinstance(error, PermissionError) and path:
        from shutil import which  # rarely needed, and slow to import

        if path == command[0] and not which(path, os.F_OK, (env or os.environ).get("PATH")):
            # execvp(3) reports a folder of PATH that may not be entered, though the program is in none; a shell "not found".
            reason = os.strerror(errno.ENOENT)
        with contextlib.suppress(OSError):
            if os.stat(path).st_mode & 0o111 and os.statvfs(path).f_flag & os.ST_NOEXEC:
                reason = "its file system is mounted noexec"
    return "cannot start %s: %s" % (path or (command[0] if command else "an empty command"), reason)
