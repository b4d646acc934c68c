"""The attempts at each step, from a journal: a step may be retried in a run, or when the run is resumed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast, get_args

from milabench.events.model import OutcomeName
from milabench.events.values import finite_number

LONE_NODES = ("", "local")
"""The name of a node that is not told from others."""
_OUTCOMES = get_args(OutcomeName)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An attempt at a step, from its journal.

    `began` and `ended` are unix seconds. `outcome` is None while it has not ended. `entry` merges all its
    entries of the journal, later values winning.
    """

    step: str
    number: int
    began: float | None = None
    ended: float | None = None
    outcome: OutcomeName | None = None
    entry: Mapping[str, Any] = field(default_factory=dict)

    @property
    def why(self) -> str:
        """Why it failed, in the vocabulary of docs/reference/protocol.md, section 5. Empty when it did not."""
        return str(self.entry.get("why") or "")

    @property
    def node(self) -> str:
        """The node that it was given to. Empty where none was, as for a job that never began."""
        return str(self.entry.get("node") or "")

    @property
    def detail(self) -> str:
        """A line for a person. Empty when there is nothing to say."""
        return str(self.entry.get("detail") or "")


def with_node(step: str, node: str) -> str:
    """Return the step's id and the node that it ran on: ids count the nodes, whose names may be numbers as well."""
    return step if node in LONE_NODES else f"{step} on {node}"


def attempts(journal: Iterable[Mapping[str, object]]) -> dict[str, tuple[Attempt, ...]]:
    """Return the attempts that were begun, or decided without a beginning, by step and in order. A planned step has none yet."""
    entries: dict[str, dict[int, dict[str, Any]]] = {}
    for entry in journal:
        step, state = entry.get("step"), entry.get("state")
        if not isinstance(step, str) or state not in ("started", "ended"):
            continue
        number = entry.get("attempt", 1)
        number = number if isinstance(number, int) and not isinstance(number, bool) else 1
        numbers = entries.setdefault(step, {})
        # A resumed run may end what an earlier one started: entries of one attempt are merged, later values winning.
        numbers[number] = {**numbers.get(number, {}), **entry, state: entry.get("t")}
    return {
        step: tuple(_attempt(step, number, numbers[number]) for number in sorted(numbers))
        for step, numbers in entries.items()
    }


def last_word(step_attempts: tuple[Attempt, ...]) -> Attempt | None:
    """Return the attempt that counts: the last that passed, else the last. None without any."""
    passed = [attempt for attempt in step_attempts if attempt.outcome == "passed"]
    return next(reversed(passed or step_attempts), None)


def _attempt(step: str, number: int, entry: dict[str, Any]) -> Attempt:
    began, ended = finite_number(entry.pop("started", None)), finite_number(entry.pop("ended", None))
    outcome = entry.get("outcome")
    return Attempt(
        step=step,
        number=number,
        began=began,
        ended=ended,
        outcome=cast("OutcomeName | None", outcome if outcome in _OUTCOMES else None),
        entry=entry,
    )
