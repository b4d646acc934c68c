"""The interface of a display, and the texts and the tally that all displays share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from milabench.events.model import Line
from milabench.events.values import one_line
from milabench.events.wire import decode
from milabench.plan.model import Plan
from milabench.shown import counted

# The colour of a step that did not pass, in rich's words.
STYLES = {"failed": "bold red", "missing": "red", "cancelled": "yellow", "skipped": "yellow"}


class Display:
    """Shows progress. The base class shows nothing. Benchmarks run meanwhile, so it does little, and never polls.

    Called from a single thread. All but `close` may raise when the terminal is gone, and are then not called again.
    """

    def on_estimate(self, seconds: Mapping[str, float]) -> None:
        """Keep how long a repeat of each benchmark takes, as far as that is known. Called before `on_plan`."""

    def on_plan(self, plan: Plan) -> None:
        """Show the plan that is about to run."""

    def on_start(self, step: str) -> None:
        """Show that a step's process was started."""

    def on_progress(self, step: str, last: Mapping[str, object]) -> None:
        """Show how a step is doing: `{"task", "rate", "units", "is_warmup", "progress": [made, wanted], "case"}`, each optional.

        The rate is the rate so far: of the window, or of the warm-up while it lasts. With the current `case`,
        progress counts cases, including the current one.
        """

    def on_line(self, step: str, payload: bytes) -> None:
        """Show output of a step, `line` records that are not decoded yet."""

    def on_end(self, step: str, outcome: str, reason: str, number: str = "") -> None:
        """Show that a step has ended, started or not. `reason` is empty when it passed, `number` where it is not known yet."""

    def on_message(self, text: str) -> None:
        """Show a message between the steps."""

    def on_activities(self, rows: Sequence[str]) -> None:
        """Show the current activities outside of steps. May be called from another thread than the others."""

    @property
    def is_redrawn(self) -> bool:
        """Whether it owns the lower lines of a terminal: messages then go to `on_message`, not to the stream."""
        return False

    def tick(self) -> None:
        """Show delayed changes, and the passing time. Called about once a second, also when nothing happens."""

    def close(self) -> None:
        """End the display."""


@dataclass(slots=True)
class Tally:
    """How many steps there are, and how many ended how. Of a step that was tried several times, its last end."""

    planned: int = 0
    # By step: a step that is retried replaces its own outcome, so that no attempt is counted twice.
    outcomes: dict[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Of a repeat, by benchmark."""
    _expected: dict[str, float | None] = field(default_factory=dict, init=False)
    """Seconds by step. None where unknown, 0 for a step that runs together with an earlier step."""

    def expect(self, plan: Plan) -> None:
        """Keep how many steps a plan has, and how long they take."""
        self.planned = len(plan.steps)
        for first, *others in plan.groups():
            self._expected |= {first.id: self.seconds.get(first.bench), **{step.id: 0.0 for step in others}}

    def left(self, running: Mapping[str, float]) -> str:
        """Return `, about 3 min left`. Empty where nothing is known. `running` are steps with the seconds since their start."""
        open_steps = {step: seconds for step, seconds in self._expected.items() if step not in self.outcomes}
        known = [
            max(0.0, seconds - running.get(step, 0.0)) for step, seconds in open_steps.items() if seconds is not None
        ]
        if not any(known):
            return ""
        return f", {'more than' if None in open_steps.values() else 'about'} {_rounded(sum(known))} left"

    @property
    def done(self) -> str:
        """Return `3/9`."""
        return f"{len(self.outcomes)}/{self.planned}"

    def __str__(self) -> str:
        """Return `3/9 done: 2 passed, 1 failed`."""
        counts = ", ".join(f"{count} {outcome}" for outcome, count in Counter(self.outcomes.values()).items())
        return f"{self.done} done" + (f": {counts}" if counts else "")


def _rounded(seconds: float) -> str:
    """Return `40 s`, `3 min`, `2.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def rate_text(last: Mapping[str, object]) -> str:
    """Return `812.40 images/s so far`, or `... warm-up` before the window. Empty when there is no rate."""
    rate = last.get("rate")
    if isinstance(rate, bool) or not isinstance(rate, int | float):
        return ""
    parts = (shortened(rate), str(last.get("units") or ""), "warm-up" if last.get("is_warmup") else "so far")
    return " ".join(filter(None, parts))


def shortened(number: float) -> str:
    """Format a number in four or more digits, of steady width while it hardly changes."""
    size = abs(number)
    if size >= 1e7 or 0 < size < 1e-3:
        return f"{number:.3e}"
    return f"{number:.1f}" if size >= 1000 else f"{number:.2f}" if size >= 10 else f"{number:.4f}"


def progress_text(last: Mapping[str, object]) -> str:
    """Return `20/60`, or `75 steps` once past the wanted count, or `concurrency=8, 3 of 7`. Empty when unknown."""
    match last.get("progress"):
        case [int(made), int(wanted)] if last.get("case"):
            return f"{last['case']}, {made} of {wanted}"
        case [int(made), int(wanted)] if made < wanted:
            return f"{made}/{wanted}"
        case [int(made), *_]:
            return counted(made, "step")
        case _:
            return ""


def ending_of(outcome: str, reason: str) -> str:
    """Return `passed`, or `failed: exit: ValueError: bad`, on a line and without control characters."""
    reason_line = one_line(reason)
    return f"{outcome}: {reason_line}" if reason_line else outcome


def lines_of(payload: bytes) -> Iterator[str]:
    """Yield the text of `line` records."""
    # Decoded here, not by who calls: without --verbose nobody pays for it while a benchmark is measured.
    for record in payload.split(b"\n"):
        try:
            event = decode(record, "")
        except ValueError:
            continue
        if isinstance(event, Line):
            yield one_line(event.text)
