"""A map over threads that never loses an interrupt."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from milabench.execute.interrupts import WAKEUP_BYTES, interrupts, wakeup_sockets

_T = TypeVar("_T")
_R = TypeVar("_R")


def thread_map(
    function: Callable[[_T], _R], items: Iterable[_T], *, jobs: int, stop: Callable[[], object] = lambda: None
) -> tuple[_R, ...]:
    """Return `function(item)` for every item, in order, with at most `jobs` calls at a time.

    The first exception of a call, or an interrupt, calls `stop`, which should make the running calls return soon; what has
    not begun is cancelled. It is raised when all threads have ended.

    Signals are deferred meanwhile: one that is raised while a thread is started leaves a thread that the pool does not know of,
    and does not wait for. Future.result() is not used to wait: it misses signals (see wakeup_sockets).
    """
    handler = interrupts()
    with wakeup_sockets() as (reader, writer), ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:

        def wake(_: Future[_R]) -> None:
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


def _failed(futures: Iterable[Future[_R]]) -> Future[_R] | None:
    return next((future for future in futures if future.done() and future.exception() is not None), None)
