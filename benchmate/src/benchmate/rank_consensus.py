"""Ending ranks that train in lock-step at the same step.

A rank that ends alone leaves the others waiting in a collective operation, for ever or until it aborts them.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from benchmate.frameworks import process_group

if TYPE_CHECKING:
    from torch.distributed import Store

LAST_STEP_TIMEOUT_S = 10
"""How long a rank waits for the others, which are at most a step behind."""
MAX_LEAD = 256
"""Steps by which a rank can be ahead of another in lock-step. A rank that is further ahead stops at once."""
LOOK_AGAIN_S = 0.001
"""Seconds between two reads of rank 0's decision."""


class RankConsensus:
    """Finds the last step through the key-value store of torch.distributed, once a rank has its own window.

    Each rank reports its count when it is complete. Rank 0, when all are, proposes a step ahead of all of them. A rank that has
    not passed it agrees, and waits there for the decision. Rank 0 decides when it is there itself: to stop, if all have agreed.
    Else it proposes another step and goes on. So no rank queues a collective operation that another does not join, however far a
    host runs ahead of its device (NCCL), and however many steps have no such operation (gradient accumulation).
    """

    def __init__(self, task: str, rank: int, world_size: int) -> None:
        self._prefix = f"benchmate/{task}"
        self._rank = rank
        self._count_keys = [f"{self._prefix}/count/{other}" for other in range(world_size)]
        self._has_met = self._is_decided = False
        self._last_step: int | None = None
        """The step proposed last, to which this rank has agreed."""
        self._margin = 2
        """Steps from the rank that is furthest to the next proposal."""

    def may_stop(self, count: int) -> bool:
        """Return whether this rank, `count` steps in and complete, may end now. Outside the window only: it asks the store."""
        store = _store()
        if store is None or len(self._count_keys) < 2:
            return True
        if not self._is_decided:
            store.set(self._count_keys[self._rank], str(count))
            self._is_decided = self._lead(store, count) if self._rank == 0 else self._follow(store, count)
        return self._is_decided

    def _lead(self, store: Store, count: int) -> bool:
        if self._last_step is None:
            if not store.check(self._count_keys):
                return False
        elif count < self._last_step:
            return False
        elif store.check([self._agreed_key(other) for other in range(1, len(self._count_keys))]):
            store.set(f"{self._prefix}/stop/{self._last_step}", "1")
            return True
        counts = [int(store.get(key)) for key in self._count_keys]
        self._last_step = max(other for other in counts if other < count + 2 * MAX_LEAD) + self._margin
        self._margin *= 2
        store.set(f"{self._prefix}/proposed", str(self._last_step))
        return False

    def _follow(self, store: Store, count: int) -> bool:
        key = f"{self._prefix}/proposed"
        while store.check([key]):
            proposed = int(store.get(key))
            if proposed != self._last_step:
                if 0 < count - proposed < MAX_LEAD:
                    return False
                self._last_step = proposed
                store.set(self._agreed_key(self._rank), "1")
            if count < proposed:
                return False
            if store.check([f"{self._prefix}/stop/{proposed}"]):
                return True
            time.sleep(LOOK_AGAIN_S)
        return False

    def _agreed_key(self, rank: int) -> str:
        return f"{self._prefix}/agreed/{self._last_step}/{rank}"

    def meet(self) -> None:
        """Wait until every rank has stopped: a rank that leaves while another is in their last collective makes gloo abort it."""
        from datetime import timedelta

        store = _store()
        if store is None or not self._is_decided or self._has_met:
            return
        self._has_met = True
        # A rank that is missing, or a store that has gone with its rank, must not keep this one.
        with contextlib.suppress(RuntimeError, OSError):
            store.set(f"{self._prefix}/stopped/{self._rank}", "1")
            keys = [f"{self._prefix}/stopped/{other}" for other in range(len(self._count_keys))]
            store.wait(keys, timedelta(seconds=LAST_STEP_TIMEOUT_S))


def _store() -> Store | None:
    """Return the store behind the process group of this program. None when it has none."""
    distributed = process_group()
    if distributed is None:
        return None
    store: Store = distributed.distributed_c10d._get_default_store()
    return store
