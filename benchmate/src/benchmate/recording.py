"""The interface of a session for observers and loss recorders: `session` knows them, they know only this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from benchmate.configuration import Config
from benchmate.ring import Ring

if TYPE_CHECKING:
    from benchmate.answers import Answers


class Recording(Protocol):
    """A destination for records, and the decisions that concern the whole process. Implemented by `session.Session`."""

    config: Config
    rank: int
    world_size: int
    rank_label: Mapping[str, int]
    stop_exception: type[BaseException] | None
    relay: str | None
    passed_barrier: bool
    satisfied: set[str]
    paused_ns: int
    answers: Answers | None

    @property
    def is_measuring(self) -> bool:
        """Whether a task that is to end the program lacks its window."""

    def record(self, event: str, data: Mapping[str, object]) -> None:
        """Send a record."""

    def message(self, text: str, *, once: bool = False) -> None:
        """Send a line for the reader of the run."""

    def fail(self, why: str, detail: str) -> None:
        """Fail the step, whatever the program's exit code will be."""

    def refuse(self, why: str) -> None:
        """Fail the step, for its loop cannot be counted right. `stop` then ends the program."""

    def open_ring(self, task: str, units: str, kind: str, capacity: int = ...) -> Ring:
        """Open a ring and announce it to its reader."""

    def drain(self, ring: Ring) -> None:
        """Send the entries of a ring that no other process reads."""

    def first_step(self, end_ns: int) -> None:
        """Record the end of the first step of the process. Later calls do nothing."""

    def wait_for_go(self) -> None:
        """Wait at the start barrier."""

    def record_collectives(self, task: str, ends_ns: Sequence[int], unix_minus_mono_ns: int) -> None:
        """Record when this rank entered the collectives of its last steps."""

    def begin_window(self) -> None:
        """Count memory from here, at the first window of the process."""

    def runs_on(self, task: str, ring: Ring) -> bool:
        """Return whether a task that has its observations must keep running for the rest of its group."""

    def stop(self, reason: str) -> bool:
        """End the program, or return whether the loop itself should end."""
