"""How long and how often is measured: the profiles of protocol.md, section 8."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A measuring profile.

    Warm-up and window end when both their number of steps and their seconds are reached. `processes` are the fresh processes per
    benchmark. `short` marks every number measured with it.
    """

    name: str
    warmup_steps: int
    warmup_s: float
    window_steps: int
    window_s: float
    processes: int
    short: bool = False


PROFILES = {
    profile.name: profile
    for profile in (
        Profile(name="quick", warmup_steps=5, warmup_s=1, window_steps=20, window_s=3, processes=1, short=True),
        Profile(name="default", warmup_steps=10, warmup_s=5, window_steps=60, window_s=30, processes=3),
        Profile(name="rigorous", warmup_steps=10, warmup_s=5, window_steps=60, window_s=60, processes=5),
    )
}
