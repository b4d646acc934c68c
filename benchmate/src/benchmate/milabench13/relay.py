"""`python -m benchmate.milabench13.relay -- PROGRAM...`: runs a program without our runner, and records the values that it gives.

The program gets a pipe for voir's data lines, whose number is DATA_FD. Data there, or hidden in its stdout, is recorded as
its own. All else passes through. When its rates are as many as the measuring profile wants, or after its `stop` event where it
gives none, the program is ended, and that is success. A process that records its rates itself says so by a `stop` event.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import select
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

from benchmate.configuration import Config, read_config
from benchmate.errors import BenchmateError
from benchmate.given_records import record_given
from benchmate.relay_pipe import variables
from benchmate.result_channel import die_with_parent
from benchmate.session import Session
from benchmate.sink import TableSink
from benchmate.supervisor import end_descriptor, signal_group
from benchmate.voir_stream import HiddenDataDecoder, Record, RecordDecoder

USAGE = "usage: python -m benchmate.milabench13.relay -- PROGRAM [ARGUMENTS...]"
STOP_GRACE_S = 30.0
"""Between TERM and KILL for a program that has all it wanted."""
IDLE_S = 60.0
"""Without a rate for so long after its `stop` event, a program gives no more."""
RESEND_S = 2.0
"""Seconds after which a signal from the agent to every process of a step is sent again to a program that has not ended."""
READ_BYTES = 1 << 18
STDOUT = 1
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_WATCHED = {"gpudata", "cpudata", "iodata", "netdata", "process"}
"""The processes that milabench watches from outside."""


class _WindowComplete(Exception):
    """The rates are as many as the measuring profile wants."""


class Relay:
    """A running program, and the two pipes that it writes to. Raises OSError when it cannot be started."""

    def __init__(self, words: Sequence[str], config: Config) -> None:
        # A program that knows of no barrier cannot wait at it.
        self._config = config._replace(measure=config.measure._replace(barrier=False))
        self._data, data = _pipe()
        self._output, output = _pipe()
        self._opened: Session | None = None
        self._hidden = HiddenDataDecoder()
        self._records = {self._data: RecordDecoder(), self._output: RecordDecoder()}
        self._has_complained = self._was_stopped = False
        self._due_s: float | None = None
        """When the program is ended, or killed, if nothing else happens before."""
        self._has_ended = threading.Event()
        self._reaping = threading.Lock()
        ours, mask = os.getpid(), signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)

        def before_exec() -> None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            # A group of its own: one signal reaches what the program starts, but neither us nor who started us.
            os.setpgid(0, 0)
            die_with_parent(ours)

        os.set_inheritable(data, True)
        try:
            self._program = subprocess.Popen(
                words,
                stdout=output,
                env={"PYTHONUNBUFFERED": "1", **os.environ, "DATA_FD": str(data), **variables(self._data)},
                preexec_fn=before_exec,  # noqa: PLW1509  (there are no threads yet)
                close_fds=False,  # the locks of its devices are open files, and the program's too
            )
        finally:
            os.close(data)
            os.close(output)
        self._ended = end_descriptor(self._program.pid)

    def run(self) -> int:
        """Record and pass on the program's output until it ends. Return its exit code, as of subprocess."""
        threading.Thread(target=self._forward_signals, daemon=True).start()
        with selectors.DefaultSelector() as selector:
            for descriptor in (self._data, self._output, self._ended):
                selector.register(descriptor, selectors.EVENT_READ)
            while True:
                left_s = None if self._due_s is None else max(0.0, self._due_s - time.monotonic())
                ready = {key.fd for key, _ in selector.select(left_s)}
                if not ready:
                    self._end_or_kill()
                for descriptor in ready - {self._ended}:
                    if not self._read(descriptor):
                        selector.unregister(descriptor)
                if self._ended in ready:
                    break
        return self._finish()

    def _finish(self) -> int:
        # Not to the end of the pipes: what the program leaves behind may hold them open.
        for descriptor in (self._data, self._output):
            with contextlib.suppress(OSError):
                os.set_blocking(descriptor, False)
                while self._read(descriptor):
                    pass
        self._write(self._hidden.rest())
        for decoder in self._records.values():
            self._record(decoder.rest())
        with self._reaping:
            if self._was_stopped:
                signal_group(self._program.pid, signal.SIGKILL)
            code = self._program.wait()
            self._has_ended.set()
        if self._was_stopped:
            if code not in (0, -signal.SIGTERM):
                self._session.message(f"after its stop the program ended with exit code {code}")
            code = 0
        if self._opened is not None:
            self._close(self._opened, is_whole=code == 0)
        return code

    @property
    def _session(self) -> Session:
        # Only now: one who records nothing is none of the processes that the agent counts.
        if self._opened is None:
            self._opened = Session(self._config)
            # In a script of its own the program decides how long it measures.
            if not isinstance(self._opened.sink, TableSink):
                self._opened.end_program_with(_WindowComplete)
        return self._opened

    def _close(self, session: Session, *, is_whole: bool) -> None:
        for rates in session.program_rates.values():
            rates.close()
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
        session.metric("host_memory_peak", peak, "B", "lower")
        if is_whole:
            session.record_overhead(time.process_time())
        session.sink.close()

    # What the program writes

    def _read(self, descriptor: int) -> bool:
        """Take new data. Return False at the end."""
        data = os.read(descriptor, READ_BYTES)
        if descriptor == self._output and data:
            output, data = self._hidden.feed(data)
            if not self._write(output):
                # The program's next write fails, as it would without us.
                os.close(descriptor)
                return False
            if not data:
                return True
        self._record(self._records[descriptor].feed(data))
        return bool(data)

    def _write(self, output: bytes) -> bool:
        """Write to our stdout. Return False when nobody can read it."""
        rest = memoryview(output)
        while rest:
            try:
                rest = rest[os.write(STDOUT, rest) :]
            except BlockingIOError:
                select.select([], [STDOUT], [])
            except OSError as error:
                if error.errno not in (errno.EPIPE, errno.EBADF):
                    self._session.message(f"stdout: {error.strerror}")
                return False
        return True

    def _record(self, records: Iterable[Record]) -> None:
        for event, data in records:
            if event == "data":
                self._record_data(data)
            elif event == "stop":
                self._take_stop(data["reason"])
            else:
                self._session.record(event, data)
                if event in ("format_error", "binary") and not self._has_complained:
                    self._has_complained = True
                    self._session.message(f"a line of the program's data is no record: {data['line'][:200]}")

    def _record_data(self, data: dict[str, Any]) -> None:
        if data.keys() & _WATCHED:
            return
        if "rate" in data:
            if self._was_stopped:
                return
            if self._due_s is not None:
                self._due_s = time.monotonic() + IDLE_S
        try:
            record_given(self._session, data)
        except _WindowComplete:
            self._end_program()

    def _take_stop(self, reason: str) -> None:
        if self._was_stopped:
            return
        if self._session.is_measuring:
            self._session.message("stop: left to the measuring profile, which has not all it wants", once=True)
            self._due_s = time.monotonic() + IDLE_S
            return
        with contextlib.suppress(_WindowComplete):
            self._session.stop(reason)
        self._end_program()

    def _end_or_kill(self) -> None:
        if self._was_stopped:
            self._due_s = None
            signal_group(self._program.pid, signal.SIGKILL)
        else:
            self._session.record("stop", {"reason": f"no rate for {IDLE_S:g} s after the program's own stop"})
            self._end_program()

    def _end_program(self) -> None:
        self._was_stopped = True
        signal_group(self._program.pid, signal.SIGTERM)
        self._due_s = time.monotonic() + STOP_GRACE_S

    # Signals

    def _forward_signals(self) -> None:
        while True:
            received = signal.sigwaitinfo(_FORWARDED)
            # The agent, our parent, signals every process of a step: a second TERM would disturb a program that is ending.
            if received.si_pid and received.si_pid == os.getppid() and self._has_ended.wait(RESEND_S):
                return
            with self._reaping:
                if self._has_ended.is_set():
                    return
                signal_group(self._program.pid, received.si_signo)


def _pipe() -> tuple[int, int]:
    reading, writing = os.pipe()
    with contextlib.suppress(OSError):  # a user may have too much in pipes already
        fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, READ_BYTES)
    return reading, writing


def _not_started(error: OSError, program: str) -> int:
    """Report a program that cannot be started. Return the exit code that a shell gives then."""
    detail = f"{program}: {error.strerror}"
    print(f"benchmate.relay: {detail}", file=sys.stderr)
    session = Session(Config({}))
    session.fail("environment", detail)
    session.sink.close()
    return 127 if isinstance(error, FileNotFoundError) else 126


def main(argv: Sequence[str]) -> int:
    """Run the program. Return its exit code, or end as it was ended."""
    if len(argv) < 2 or argv[0] != "--":
        print(USAGE, file=sys.stderr)
        return 2
    words = argv[1:]
    try:
        relay = Relay(words, read_config(os.environ.get("MILABENCH_BENCH_CONFIG")))
    except BenchmateError as error:
        print(f"benchmate.relay: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        return _not_started(error, words[0])
    code = relay.run()
    if code < 0:
        # The agent reads from us what ended the program; its core has been written already.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [-code])
        os.kill(os.getpid(), -code)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
