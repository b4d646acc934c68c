"""`benchmate.timings` of milabench 1.3: steps that a program ends itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from voir.helpers import current_overseer

from benchmate.configuration import getenv
from benchmate.metrics import Push, record_push
from benchmate.records import as_number

T = TypeVar("T")


def total_observations() -> int:
    """Return how many observations a program is asked for: VOIR_EARLYSTOP_COUNT and VOIR_EARLYSTOP_SKIP together."""
    return getenv("VOIR_EARLYSTOP_COUNT", int, 60) + getenv("VOIR_EARLYSTOP_SKIP", int, 5)


class StepTimer:
    """Times steps: `step(n)` adds items to the current step, `end()` ends it and gives its rate to `pusher`.

    A step begins when the previous step ends, the first when the timer is made. `sync` waits for the device, at each end.
    """

    def __init__(self, pusher: Push, sync: Callable[[], object] = lambda: None) -> None:
        self.pusher = pusher
        self.sync = sync
        self.n_size: Any = 0
        self.n_obs = 0
        self.total_obs = total_observations()
        self.timesteps: Any = 0
        # Known here only: a step may be ended in a thread of its own, which has no overseer.
        overseer = current_overseer.get()
        self._is_ours = pusher is record_push or (overseer is not None and pusher == overseer.give)
        self._began_ns = time.perf_counter_ns()

    @property
    def start_time(self) -> float:
        """When the step began, in seconds of the clock of time.perf_counter."""
        return self._began_ns / 1e9

    def step(self, step_size: Any) -> None:
        """Add items to the step."""
        self.n_size += step_size

    def end(self) -> None:
        """End the step."""
        self.sync()
        began_ns, self._began_ns = self._began_ns, time.perf_counter_ns()
        host_ns = self._began_ns - began_ns
        n, self.n_size = self.n_size, 0
        self.n_obs += 1
        self.pusher(rate=n / (host_ns / 1e9), units="items/s", task="train", **self._observation(n, began_ns, host_ns))
        self.pusher(progress=(self.n_obs, self.total_obs), task="early_stop")

    def _observation(self, n: object, t0_ns: int, host_ns: int) -> Mapping[str, object]:
        """Return the keys that make an observation of a rate, for our own functions.

        The program's functions may not know them.
        """
        if not self._is_ours:
            return {}
        return {"n": as_number(n), "elapsed": host_ns / 1e9, "t0_ns": t0_ns, "host_ns": host_ns}

    def log(self, **kwargs: Any) -> None:
        """Give any other measurement to `pusher`."""
        self.pusher(**kwargs)
