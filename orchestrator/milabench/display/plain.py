"""Progress as plain lines: a line for each change of state, and occasional lines in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TextIO

from milabench.display.base import STYLES, Display, Tally, ending_of, lines_of, progress_text, rate_text
from milabench.plan.model import Plan
from milabench.shown import counted, visible_line

# What a terminal obeys for each of the styles.
_CODES = {"bold red": "1;31", "red": "31", "yellow": "33"}


class Plain(Display):
    """Writes lines such as `[   12.3s] 3/9 digits.D0: passed, 812.40 images/s, 9.1 s` to a text stream.

    `every_s`: the minimum time between progress lines of a step. Where none comes for as long, a line says so.
    `is_verbose` shows the steps' own output too,
    `colours`: failures are coloured.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        every_s: float = 10.0,
        is_verbose: bool = False,
        colours: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._has_colours = colours
        self._every_s = every_s
        self._is_verbose = is_verbose
        self._clock = clock
        self._began = clock()
        self._tally = Tally()
        self._started: dict[str, float] = {}
        self._last_printed: dict[str, float] = {}
        self._last: dict[str, Mapping[str, object]] = {}
        self._unsaid: set[str] = set()
        """Steps that have made observations since the last line about them."""
        self._activities_shown = self._began
        self._phase = ""
        self._said = self._began

    def on_estimate(self, seconds: Mapping[str, float]) -> None:
        """Keep them for the time left."""
        self._tally.seconds = seconds

    def on_plan(self, plan: Plan) -> None:
        """Print how much there is to do, unless it is more of the same."""
        self._tally.expect(plan)
        if plan.phase == self._phase:
            return
        self._phase = plan.phase
        benches = len({step.bench for step in plan.steps})
        self._say(f"{plan.phase}: {counted(len(plan.steps), 'step')} of {counted(benches, 'benchmark')}")
        for skipped in plan.skipped:
            self._say(f"{skipped.bench}: skipped: {skipped.why}", "skipped")

    def on_start(self, step: str) -> None:
        """Print that the step began."""
        self._started[step] = self._clock()
        self._say(f"{self._tally.done} {step}: started{self._left()}")

    def on_progress(self, step: str, last: Mapping[str, object]) -> None:
        """Print the first observation, and then one observation every few seconds."""
        now = self._clock()
        self._last[step] = {**self._last.get(step, {}), **last}
        last_printed = self._last_printed.get(step)
        self._unsaid.add(step)
        if last_printed is None or now - last_printed >= self._every_s:
            self._say_progress(step, now)

    def _say_progress(self, step: str, now: float) -> bool:
        """Print how a step is doing. Return whether there was anything to say."""
        text = ", ".join(filter(None, (progress_text(self._last[step]), rate_text(self._last[step]))))
        if text:
            first = "" if step in self._last_printed or self._last[step].get("case") else "first observation, "
            self._last_printed[step] = now
            self._unsaid.discard(step)
            self._say(f"{self._tally.done} {step}: {first}{text}")
        return bool(text)

    def on_line(self, step: str, payload: bytes) -> None:
        """Print the output in verbose mode."""
        if self._is_verbose:
            for line in lines_of(payload):
                self._say(f"{step}| {line}")

    def on_end(self, step: str, outcome: str, reason: str, number: str = "") -> None:
        """Print outcome, number and duration."""
        self._tally.outcomes[step] = outcome
        began = self._started.pop(step, None)
        duration = "" if began is None else f"{self._clock() - began:.1f} s"
        parts = (ending_of(outcome, reason), number, duration)
        self._last.pop(step, None)
        self._last_printed.pop(step, None)
        self._unsaid.discard(step)
        if began is not None or outcome != "cancelled":  # what never began is in the report
            self._say(f"{self._tally.done} {step}: {', '.join(filter(None, parts))}", outcome)

    def on_message(self, text: str) -> None:
        """Print the message."""
        for line in text.splitlines():
            self._say(line)

    def on_activities(self, rows: Sequence[str]) -> None:
        """Print them every few seconds."""
        now = self._clock()
        if rows and now - self._activities_shown >= self._every_s:
            self._activities_shown = now
            self._stream.write("".join(f"  {visible_line(row)}\n" for row in rows))
            self._stream.flush()

    def tick(self) -> None:
        """Print the running steps where nothing was printed for a while: a single line, for any number of steps."""
        now = self._clock()
        if not self._started or now - self._said < self._every_s:
            return
        if any(self._say_progress(step, now) for step in self._started if step in self._unsaid):
            return
        in_hand = (step for step in self._started if self._last.get(step, {}).get("case"))
        first = next(in_hand, next(iter(self._started)))
        lasted, others, last = now - self._started[first], len(self._started) - 1, self._last.get(first, {})
        doing = f"preparing, {lasted:.0f} s"
        if self._phase != "prepare":
            what = "no new observation" if first in self._last_printed else "no observation yet"
            doing = f"started {lasted:.0f} s ago, {progress_text(last) if last.get('case') else what}"
        self._say(f"{self._tally.done} {first}{f' and {others} more' if others else ''}: {doing}{self._left()}")

    def _left(self) -> str:
        now = self._clock()
        return self._tally.left({step: now - began for step, began in self._started.items()})

    def close(self) -> None:
        """Print the tally."""
        if self._tally.planned:
            with suppress(OSError, ValueError):  # the stream may be gone
                self._say(str(self._tally))

    def _say(self, text: str, outcome: str = "") -> None:
        self._said = self._clock()
        line = visible_line(text)
        if self._has_colours and outcome in STYLES:
            line = f"\x1b[{_CODES[STYLES[outcome]]}m{line}\x1b[0m"
        self._stream.write(f"[{self._clock() - self._began:7.1f}s] {line}\n")
        self._stream.flush()  # a log file or a pipe is followed while the run goes on
