"""An event loop of asyncio whose timers are good to tens of microseconds: epoll's own are whole milliseconds, rounded up."""

from __future__ import annotations

import asyncio
import select
import selectors
from collections.abc import Collection, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class _PreciseSelector(selectors.EpollSelector):
    """Waits in select(2), whose limit has microseconds, for the single descriptor of epoll."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout > 0:
            select.select([self.fileno()], [], [], timeout)
            timeout = 0
        return super().select(timeout)


def run_precisely(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of a coroutine, run in a separate loop. Its leftover tasks are cancelled."""
    loop = asyncio.SelectorEventLoop(_PreciseSelector())
    try:
        return loop.run_until_complete(coroutine)
    finally:
        # Also where a signal has ended the loop in the midst of it.
        loop.run_until_complete(_cancel(asyncio.all_tasks(loop)))
        loop.close()


async def _cancel(tasks: Collection[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
