"""What a program of `make gpu` says: numbers with their goals, claims, and why it was not shown. Read by runner.py.

Each is a line of JSON in the file that GPU_OUTCOME names, written at once: a program that is ended has said what it had.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, NoReturn

OUTCOME = "GPU_OUTCOME"
BASE = "GPU_BASE"
"""The base of the runs of a part: environments, data and runs."""
SIMULATED = "GPU_SIMULATED"
"""Set where no accelerator is: programs use the simulated one, briefly, and no goal in seconds is judged."""


def is_simulated() -> bool:
    """Return whether the accelerator is a simulation."""
    return os.environ.get(SIMULATED) == "1"


def number(
    what: str,
    value: float,
    units: str,
    *,
    at_most: float | None = None,
    at_least: float | None = None,
    timed: bool = False,
    seen: str = "",
) -> None:
    """Say a number, and the goal that it must meet; one that is `timed` is not judged on a simulation."""
    is_met = (at_most is None or value <= at_most) and (at_least is None or value >= at_least)
    goal = " and ".join(
        f"{word} {limit:g}" for word, limit in (("at least", at_least), ("at most", at_most)) if limit is not None
    )
    is_judged = bool(goal) and not (timed and is_simulated())
    _say(
        {"what": what, "value": value, "units": units, "goal": goal, "met": is_met if is_judged else None, "seen": seen}
    )


def claim(what: str, *, holds: bool, seen: str = "") -> None:
    """Say something that must hold, and what was seen."""
    _say({"what": what, "value": None, "units": "", "goal": "holds", "met": holds, "seen": seen})


def not_shown(what: str) -> None:
    """Say a part of the program that could not be shown here."""
    _say({"not_shown": what})


def skip(reason: str) -> NoReturn:
    """End the program: it cannot show anything here."""
    _say({"skip": reason})
    sys.exit(0)


def _say(line: dict[str, Any]) -> None:
    text = json.dumps(line)
    print(text, flush=True)
    if path := os.environ.get(OUTCOME):
        with open(path, "a", encoding="utf-8") as file:  # noqa: PTH123 - one write a line
            file.write(text + "\n")
