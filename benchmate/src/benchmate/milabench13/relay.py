"""`python -m benchmate.milabench13.relay -- PROGRAM...`: runs a program without our runner, and records what it gives.

The program gets a pipe for voir's data lines, whose number is DATA_FD. What comes there, or hidden in its stdout, is recorded as
its own; all else passes through. With its `stop` event the program has all it wanted: it is ended, and that is success.
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

from benchmate.result_channel import die_with_parent
from benchmate.sink import Sink, open_sink
from benchmate.supervisor import end_descriptor, signal_group
from benchmate.voir_stream import HiddenDataDecoder, Record, RecordDecoder

USAGE = "usage: python -m benchmate.milabench13.relay -- PROGRAM [ARGUMENTS...]"
STOP_GRACE_S = 30.0
"""Between TERM and KILL for a program that has all it wanted."""
RESEND_S = 2.0
"""After this, a signal that the agent sends to every process of a step is sent to a program that has not ended of it."""
READ_BYTES = 1 << 18
STDOUT = 1
_SET_PIPE_SIZE = 1031  # fcntl(2)
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


class Relay:
    """A running program, and the two pipes that it writes to. Raises OSError when it cannot be started."""

    def __init__(self, words: Sequence[str]) -> None:
        self._data, data = _pipe()
        self._output, output = _pipe()
        self._sink: Sink | None = None
        self._hidden = HiddenDataDecoder()
        self._records = {self._data: RecordDecoder(), self._output: RecordDecoder()}
        self._has_complained = False
        self._was_stopped = False
        self._kill_at: float | None = None
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
                env={"PYTHONUNBUFFERED": "1", **os.environ, "DATA_FD": str(data)},
                preexec_fn=before_exec,  # noqa: PLW1509  (there are no threads yet)
                close_fds=False,  # the locks of its devices are open files, and the program's too
            )
        finally:
            os.close(data)
            os.close(output)
        self._ended = end_descriptor(self._program.pid)

    def run(self) -> int:
        """Record and pass on what the program writes until it ends; return its exit code, as of subprocess."""
        threading.Thread(target=self._forward_signals, daemon=True).start()
        with selectors.DefaultSelector() as selector:
            for descriptor in (self._data, self._output, self._ended):
                selector.register(descriptor, selectors.EVENT_READ)
            while True:
                left_s = None if self._kill_at is None else max(0.0, self._kill_at - time.monotonic())
                ready = {key.fd for key, _ in selector.select(left_s)}
                if not ready:
                    self._kill_at = None
                    signal_group(self._program.pid, signal.SIGKILL)
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
                self._record([("message", {"message": f"after its stop the program ended with exit code {code}"})])
            code = 0
        if self._sink is not None:
            if code == 0:
                self._record([("data", {"overhead": _cost(self._sink)})])
            self._sink.close()
        return code

    # What the program writes

    def _read(self, descriptor: int) -> bool:
        """Take what has come; return False at the end."""
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
        """Write to our stdout; return False when nobody can read it."""
        rest = memoryview(output)
        while rest:
            try:
                rest = rest[os.write(STDOUT, rest) :]
            except BlockingIOError:
                select.select([], [STDOUT], [])
            except OSError as error:
                if error.errno not in (errno.EPIPE, errno.EBADF):
                    self._record([("message", {"message": f"stdout: {error.strerror}"})])
                return False
        return True

    def _record(self, records: Iterable[Record]) -> None:
        for event, data in records:
            # Only now: one who writes no records is none of the processes that the agent counts.
            if self._sink is None:
                self._sink = open_sink(os.environ, _hello())
            if event == "stop":
                if self._was_stopped:
                    continue
                self._was_stopped = True
                self._kill_at = time.monotonic() + STOP_GRACE_S
                signal_group(self._program.pid, signal.SIGTERM)
            self._sink.record(event, data)
            if event in ("format_error", "binary") and not self._has_complained:
                self._has_complained = True
                text = f"a line of the program's data is no record: {data['line'][:200]}"
                self._sink.record("message", {"message": text})

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
        fcntl.fcntl(reading, _SET_PIPE_SIZE, READ_BYTES)
    return reading, writing


def _hello() -> dict[str, object]:
    return {"pid": os.getpid(), "role": "rank", "rank": 0, "local_rank": 0, "world_size": 1}


def _cost(sink: Sink) -> dict[str, object]:
    return {"host_s": time.process_time(), "records": sink.records, "bytes": sink.bytes, "dropped": sink.dropped}


def _not_started(error: OSError, program: str) -> int:
    """Report a program that cannot be started; return the exit code that a shell gives then."""
    detail = f"{program}: {error.strerror}"
    print(f"benchmate.relay: {detail}", file=sys.stderr)
    sink = open_sink(os.environ, _hello())
    sink.control({"fail": {"why": "environment", "detail": detail}})
    sink.close()
    return 127 if isinstance(error, FileNotFoundError) else 126


def main(argv: Sequence[str]) -> int:
    """Run the program; return its exit code, or end as it was ended."""
    if len(argv) < 2 or argv[0] != "--":
        print(USAGE, file=sys.stderr)
        return 2
    words = argv[1:]
    try:
        relay = Relay(words)
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
