"""Ending ranks that train in lock-step at the same step.

A rank that ends alone leaves the others waiting in a collective operation, for ever or until it aborts them.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol

from benchmate.frameworks import process_group

if TYPE_CHECKING:
    from datetime import timedelta

LAST_STEP_TIMEOUT_S = 10
"""How long a rank waits for the others, which are at most a step behind."""


class Store(Protocol):
    """The members of torch.distributed.Store that are used here."""

    def set(self, key: str, value: str, /) -> None: ...
    def get(self, key: str, /) -> bytes: ...
    def check(self, keys: list[str], /) -> bool: ...
    def wait(self, keys: list[str], timeout: timedelta, /) -> None: ...


class RankConsensus:
    """Finds the last step through the key-value store of torch.distributed, once a rank has its own window.

    Each rank reports when it is complete. Rank 0, seeing that all are, names a step two ahead: no rank can be further than one
    step ahead of it, so each learns of it in time. Ranks that are not in lock-step end at the first step after they learn of it.
    """

    def __init__(self, task: str, rank: int, world_size: int) -> None:
        self._prefix = f"benchmate/{task}"
        self._rank = rank
        self._complete_keys = [f"{self._prefix}/complete/{other}" for other in range(world_size)]
        self._has_reported = self._has_met = False
        self._last_step: int | None = None

    def may_stop(self, count: int) -> bool:
        """Return whether this rank, `count` steps in and complete, may end now. Outside the window only: it asks the store."""
        if self._last_step is None:
            store = _store()
            if store is None or len(self._complete_keys) < 2:
                return True
            if not self._has_reported:
                store.set(self._complete_keys[self._rank], "1")
                self._has_reported = True
            key = f"{self._prefix}/end"
            if self._rank == 0:
                if not store.check(self._complete_keys):
                    return False
                self._last_step = count + 2
                store.set(key, str(self._last_step))
            elif store.check([key]):
                self._last_step = int(store.get(key))
            else:
                return False
        return count >= self._last_step

    def meet(self) -> None:
        """Wait until every rank has stopped: one that leaves while another is in their last collective makes gloo abort it."""
        from datetime import timedelta

        store = _store()
        if store is None or self._last_step is None or self._has_met:
            return
        self._has_met = True
        # A rank that is missing, or a store that has gone with its rank, must not keep this one.
        with contextlib.suppress(RuntimeError, OSError):
            store.set(f"{self._prefix}/stopped/{self._rank}", "1")
            keys = [f"{self._prefix}/stopped/{other}" for other in range(len(self._complete_keys))]
            store.wait(keys, timedelta(seconds=LAST_STEP_TIMEOUT_S))


def _store() -> Store | None:
    """Return the store behind the process group of this program; None when it has none."""
    distributed = process_group()
    if distributed is None:
        return None
    store: Store = distributed.distributed_c10d._get_default_store()
    return store
