"""Handling of SIGINT, SIGTERM and SIGHUP during the whole life of a command. No other module installs handlers for them.

A command is interrupted once. By default that is an exception, raised once: nothing raises again while the stack unwinds.
Around an event loop, from before its creation until it is closed, nothing is raised at all, because asyncio does not
survive that at every point: signals go to a listener, or are deferred until the loop is closed. Only code that neither awaits nor
writes may ask for the exception there (`raising`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from milabench.errors import INTERRUPTED, EnvironmentFailed

if TYPE_CHECKING:
    import asyncio
    import socket
    from concurrent.futures import Future
    from sys import UnraisableHookArgs

T = TypeVar("T")
R = TypeVar("R")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# A second signal within this time is the same request: a closed terminal sends two signals, so does `cancel --now`.
PATIENCE_S = 1.0
AGAIN_S = 0.001
WAKEUP_BYTES = 4096
STOP_S = 0.1  # after which a call that is abandoned is noticed


class InterruptRequested(KeyboardInterrupt):
    """The command was interrupted.

    A class of our own, because Python ends a process by SIGINT, whatever it says, once a plain KeyboardInterrupt has left a
    string that was executed, and dataclasses execute strings.
    """


class Interrupts:
    """The handler of the process's signals. It works from `take_over` on, in the main thread, until `over`."""

    def __init__(self) -> None:
        self._listener: Callable[[], object] | None = None
        self._watcher: Callable[[], object] | None = None
        self._child: Callable[[int], object] | None = None
        self._is_deferring = False
        self._is_raising = False
        self._deferred: list[int] = []
        self._raised_at: float | None = None
        self._is_over = False

    def take_over(self) -> None:
        """Handle the signals from now on. Those that are already ignored (nohup, a script's background job) stay ignored."""
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self)
        signal.signal(signal.SIGALRM, self)
        sys.unraisablehook = self._on_unraisable

    @property
    def was_raised(self) -> bool:
        """Whether InterruptRequested was raised."""
        return self._raised_at is not None

    @property
    def is_pending(self) -> bool:
        """Whether a signal has come that is deferred."""
        return bool(self._deferred)

    def ignore_all(self) -> None:
        """Ignore all further signals: the exit code is decided and the interpreter is shutting down."""
        self._is_over = True
        for number in (*SIGNALS, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)

    def ignore_hangup(self) -> None:
        """Ignore SIGHUP: the remaining work does not depend on the terminal."""
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal. Raises InterruptRequested, but never twice, and not while signals are deferred or routed."""
        if self._is_over:
            return
        if self._is_raising:
            self._is_raising = False
            raise InterruptRequested
        if self._child is not None:
            if number in (signal.SIGTERM, signal.SIGHUP):
                self._child(number)
        elif self._listener is not None:
            self._listener()
        elif self._is_deferring:
            self._deferred.append(number)
            if self._watcher is not None:
                self._watcher()
        elif self._raised_at is None or number == signal.SIGALRM:
            self._raised_at = time.monotonic()
            raise InterruptRequested
        elif time.monotonic() - self._raised_at > PATIENCE_S:
            # The clean-up hangs. What we leave behind is what `kill -9` would leave, and is found in the same way.
            os.write(2, b"interrupted\n")
            os._exit(INTERRUPTED)

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Defer signals in this context. Signals that no listener received are raised at its end."""
        before, self._is_deferring = self._is_deferring, True
        try:
            yield
        finally:
            self._is_deferring = before
        if self._deferred and not before:
            self.raise_deferred()

    def raise_deferred(self) -> None:
        """Handle the deferred signals as if they came now, where nothing defers them."""
        self._deferred.clear()
        before, self._is_deferring = self._is_deferring, False
        try:
            self(signal.SIGINT, None)
        finally:
            self._is_deferring = before

    @contextlib.contextmanager
    def raising(self) -> Iterator[None]:
        """Raise InterruptRequested in this context, once, instead of deferring or routing the signal.

        For code that takes long, changes nothing, and lets nothing else run.
        """
        try:
            self._is_raising = True
            yield
        finally:
            self._is_raising = False

    @contextlib.contextmanager
    def routed_to(self, listener: Callable[[], object]) -> Iterator[None]:
        """Route signals to `listener`, deferred ones at once. It may be called at any instant."""
        before, self._listener = self._listener, listener
        try:
            for _ in self._deferred:
                listener()
            self._deferred.clear()
            yield
        finally:
            self._listener = before

    @contextlib.contextmanager
    def noticed_by(self, watcher: Callable[[], object]) -> Iterator[None]:
        """Call `watcher` when a signal is deferred in this context, or has been. It may be called at any instant.

        The signal stays deferred, for the next listener or the end of the deferral: `watcher` only makes the code that delays
        it come to an end.
        """
        before, self._watcher = self._watcher, watcher
        try:
            if self._deferred:
                watcher()
            yield
        finally:
            self._watcher = before

    @contextlib.contextmanager
    def forwarded_to(self, child: Callable[[int], object]) -> Iterator[None]:
        """Forward signals to a child that has the terminal: Ctrl-C and Ctrl-\\ reach it without our help.

        Signals to this process alone, SIGTERM and SIGHUP, are forwarded. So are earlier deferred signals: they may
        have come before there was a child. Signals stay caught, because the child would inherit that they are ignored.
        """
        quit_before = signal.signal(signal.SIGQUIT, self) if self._is_ours() else None
        self._child = child
        try:
            for number in filter(SIGNALS.__contains__, self._deferred):
                child(number)
            self._deferred.clear()
            yield
        finally:
            self._child = None
            if quit_before is not None:
                signal.signal(signal.SIGQUIT, quit_before)

    def _is_ours(self) -> bool:
        """Return whether this handler is installed. A test that calls a function leaves the process's signals alone."""
        return any(signal.getsignal(number) is self for number in SIGNALS)

    def _on_unraisable(self, unraisable: UnraisableHookArgs) -> None:
        """Raise again a little later an error that Python dropped in a finaliser or a weak reference's callback."""
        if issubclass(unraisable.exc_type, InterruptRequested):
            signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
        else:
            sys.__unraisablehook__(unraisable)


def interrupts() -> Interrupts:
    """Return the installed handler, or a handler that never receives anything where none is (a test that calls a function)."""
    handlers = (signal.getsignal(number) for number in SIGNALS)
    return next((handler for handler in handlers if isinstance(handler, Interrupts)), Interrupts())


@contextlib.contextmanager
def wakeup_sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield a socket that is readable after every signal, and its other end, through which threads can do the same.

    Python runs a handler in the main thread, between two byte codes. A signal that comes after the last byte code before
    the thread blocks in the kernel, or that the kernel gives to another thread, only sets a flag: a thread that waits for a
    lock or in epoll sleeps on. On a busy machine that gap is milliseconds wide, since a thread that lets the interpreter
    lock go waits until another has taken it. A listener on this socket cannot miss the signal: what the C handler
    writes to it stays there (signal.set_wakeup_fd). Outside the main thread, no signal writes to it.
    """
    import socket
    import threading

    reader, writer = socket.socketpair()
    writer.setblocking(False)
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False) if is_main else -1
    try:
        yield reader, writer
    finally:
        if is_main:
            signal.set_wakeup_fd(before)
        reader.close()
        writer.close()


def run_deferring_signals(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Return the result of `asyncio.run(main())`. Signals are deferred from before the loop exists until it is closed."""
    with interrupts().deferred(), contextlib.closing(ReusableLoop()) as loop:
        return loop.run(main)


async def cancelled_by_signals(what: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine. Each deferred signal cancels it.

    Raises asyncio.CancelledError then. A second signal ends the clean-up after the first.
    """
    import asyncio

    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(what)
    last = -PATIENCE_S

    def cancel() -> None:
        nonlocal last
        if time.monotonic() - last >= PATIENCE_S:
            last = time.monotonic()
            loop.call_soon_threadsafe(task.cancel)

    with interrupts().noticed_by(cancel):
        return await task


class ReusableLoop:
    """An event loop that can be used again and rests in between. It defers signals as `run_deferring_signals` does."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None

    def run(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of `main()`. The first call creates the loop, which wakes up for every signal."""
        import asyncio

        with interrupts().deferred(), wakeup_sockets() as (reader, _):
            self._runner = self._runner or asyncio.Runner()
            loop = self._runner.get_loop()
            loop.add_reader(reader, reader.recv, WAKEUP_BYTES)
            try:
                return self._runner.run(main())
            except asyncio.CancelledError:
                # By a signal, which an exception that leaves `deferred` would drop.
                if not interrupts().is_pending:
                    raise
                interrupts().raise_deferred()
                raise InterruptRequested from None
            finally:
                loop.remove_reader(reader)

    def close(self) -> None:
        """End the loop, if there is one. The next `run` makes a new loop."""
        if self._runner is not None:
            with interrupts().deferred():
                self._runner.close()
                self._runner = None

    @property
    def is_open(self) -> bool:
        """Whether there is a loop, to which something may belong."""
        return self._runner is not None


@contextlib.contextmanager
def repeated(action: Callable[[], object], every_s: float, name: str, join_s: float | None = None) -> Iterator[None]:
    """Call `action` at this interval in seconds as long as the block runs, in a thread that ends with the process.

    Errors of files are passed over: a terminal, or a file server, may be gone. At the end the action in hand is waited for,
    at most `join_s` seconds.
    """
    import threading

    is_over = threading.Event()

    def work() -> None:
        # Signals are for the main thread, which may wait in the kernel for what only a signal ends.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        while not is_over.wait(every_s):
            with contextlib.suppress(OSError, ValueError):
                action()

    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(join_s)


def thread_map(
    function: Callable[[T], R], items: Iterable[T], *, jobs: int, stop: Callable[[], object] = lambda: None
) -> tuple[R, ...]:
    """Return `function(item)` for every item, in order, with at most `jobs` calls at a time.

    The first exception of a call, or an interrupt, calls `stop`, which should make the running calls return soon. Calls that have
    not begun are cancelled. The exception is raised when all threads have ended.

    Signals are deferred meanwhile: a signal that is raised while a thread is started leaves a thread that the pool does
    not know, and does not wait for. Future.result() is not used to wait: it misses signals (see wakeup_sockets).
    """
    from concurrent.futures import ThreadPoolExecutor

    handler = interrupts()
    with wakeup_sockets() as (reader, writer), ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:

        def wake(_: Future[R]) -> None:
            with contextlib.suppress(OSError):  # its buffer is full, so the reader is awake; or nobody waits any more
                writer.send(b"\0")

        try:
            with handler.deferred():
                futures = [pool.submit(function, item) for item in items]
                for future in futures:
                    future.add_done_callback(wake)
                while not (handler.is_pending or _failed(futures) or all(future.done() for future in futures)):
                    reader.recv(WAKEUP_BYTES)
            if failed := _failed(futures):
                failed.result()
            return tuple(future.result() for future in futures)
        except BaseException:
            # Cancel what waits first: `stop` ends calls, after which the threads would take the next items.
            pool.shutdown(wait=False, cancel_futures=True)
            stop()
            pool.shutdown(wait=True)
            raise


def abandonable(ask: Callable[[], T], is_stopped: Callable[[], bool], within_s: float | None) -> T:
    """Return the result of a call in a separate thread: a call that waits for a silent server cannot be ended.

    Raises EnvironmentFailed soon after `is_stopped` says so, TimeoutError when the call has not ended in time.
    """
    import threading
    from concurrent.futures import Future, wait

    answer: Future[T] = Future()

    def work() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    began = time.monotonic()
    while not wait([answer], STOP_S).done:
        if is_stopped():
            raise EnvironmentFailed("interrupted")
        if within_s is not None and time.monotonic() - began > within_s:
            raise TimeoutError(f"no end within {within_s:g} s")
    return answer.result()


def _failed(futures: Iterable[Future[R]]) -> Future[R] | None:
    return next((future for future in futures if future.done() and future.exception() is not None), None)
