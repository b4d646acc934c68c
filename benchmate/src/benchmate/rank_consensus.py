"""When several ranks train in lock-step: ending all of them at the same step.

A rank that ends alone leaves the others waiting in a collective operation, for ever or until it aborts them.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

PATIENCE_S = 10  # for the others at the last step; they are at most a step behind


class RankConsensus:
    """Asks, once a rank has its own window, whether all have theirs; talks through the key-value store of torch.distributed.

    Each rank says when it is complete. Rank 0, seeing that all are, names a step two ahead: no rank can be further than one step
    ahead of it, so each still learns of it in time. Ranks that are not in lock-step end at the first step after they learn.
    """

    def __init__(self, task: str, rank: int, world_size: int) -> None:
        self._prefix = f"benchmate/{task}"
        self._rank = rank
        self._everybody = [f"{self._prefix}/complete/{other}" for other in range(world_size)]
        self._has_said = self._has_met = False
        self._end: int | None = None

    def may_stop(self, count: int) -> bool:
        """Whether this rank, `count` steps in and complete, may end now. A few store operations, outside the window only."""
        if self._end is None:
            store = _store()
            if store is None or len(self._everybody) < 2:
                return True
            if not self._has_said:
                store.set(self._everybody[self._rank], "1")
                self._has_said = True
            key = f"{self._prefix}/end"
            if self._rank == 0:
                if not store.check(self._everybody):
                    return False
                self._end = count + 2
                store.set(key, str(self._end))
            elif store.check([key]):
                self._end = int(store.get(key))
            else:
                return False
        return count >= self._end

    def meet(self) -> None:
        """Wait until every rank has stopped: one that leaves while another is in their last collective makes gloo abort it."""
        from datetime import timedelta

        store = _store()
        if store is None or self._end is None or self._has_met:
            return
        self._has_met = True
        # One that is not there, or a store that has gone with its rank, keeps nobody.
        with contextlib.suppress(RuntimeError, OSError):
            store.set(f"{self._prefix}/stopped/{self._rank}", "1")
            names = [f"{self._prefix}/stopped/{other}" for other in range(len(self._everybody))]
            store.wait(names, timedelta(seconds=PATIENCE_S))


def _store() -> Any | None:
    """The store behind the process group of this program; None when it has none."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.distributed_c10d._get_default_store()
