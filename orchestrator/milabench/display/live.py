"""Progress as a table on a terminal that is redrawn on change, at most once a second, and else every two, for its times.

Never by a thread of its own: who executes calls `tick`.

It may share the machine with a measurement: a redraw is cheap because the rows are laid out here, as a single text, and not
by rich's tables (34 ms for 64 rows).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TextIO

from rich.console import Console
from rich.live import Live as RichLive
from rich.text import Text

from milabench.display.base import STYLES, Display, Tally, ending_of, progress_text, rate_text
from milabench.plan.model import Plan
from milabench.shown import visible_line

ROWS = 30
REDRAW_S = 1.0
STILL_S = 2.0  # a table with times in it that stands longer looks as if the program hung


@dataclass(slots=True)
class _Row:
    """A step that is running."""

    began: float
    last: dict[str, Any] = field(default_factory=dict)


class Live(Display):
    """Shows the steps that run, and above them, once, each that has ended.

    `size` is columns and lines. The terminal's where None. `tick` may be called at any time, to bring to the screen a
    change that came too soon after another, and the time that has passed.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        colours: bool = True,
        clock: Callable[[], float] = time.monotonic,
        size: tuple[int | None, int | None] = (None, None),
    ) -> None:
        self._clock = clock
        self._began = clock()
        self._drawn = -REDRAW_S
        self._is_stale = False
        self._tally = Tally()
        self._running: dict[str, _Row] = {}
        self._ended: list[Text] = []
        self._activities: Sequence[str] = ()
        # Activities come from a thread of their own, beside messages; steps never come at the same time.
        self._drawing = threading.RLock()
        self._is_open = True
        self._console = Console(
            file=stream,
            force_terminal=True,
            no_color=not colours,
            width=size[0],
            height=size[1],
            highlight=False,
            emoji=False,
        )
        # No thread of rich: it would wake up, several times a second, beside the benchmark.
        self._live = RichLive(
            console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False, transient=True
        )
        self._live.start()

    def on_estimate(self, seconds: Mapping[str, float]) -> None:
        """Keep them for the time left."""
        self._tally.seconds = seconds

    def on_plan(self, plan: Plan) -> None:
        """Remember the amount of work, and show skipped parts."""
        self._tally.expect(plan)
        for skipped in plan.skipped:
            self._say(f"  skipped: {skipped.why}", skipped.bench, "yellow")
        self._changed()

    def on_start(self, step: str) -> None:
        """Add a row."""
        self._running[step] = _Row(began=self._clock())
        self._changed()

    def on_progress(self, step: str, last: Mapping[str, object]) -> None:
        """Change a row."""
        row = self._running.get(step)
        if row is not None:
            row.last.update(last)
            self._changed()

    def on_end(self, step: str, outcome: str, reason: str, number: str = "") -> None:
        """Move a row above the table."""
        self._tally.outcomes[step] = outcome
        row = self._running.pop(step, None)
        parts = [ending_of(outcome, reason), number]
        if row is not None:
            parts.append(f"{self._clock() - row.began:.1f} s")
        self._say(f"  {'  '.join(filter(None, parts))}", step, STYLES.get(outcome, ""))
        self._changed()

    def on_message(self, text: str) -> None:
        """Show the message above the table."""
        with self._drawing:
            for line in text.splitlines():
                self._say(line)
            self._changed()

    def on_activities(self, rows: Sequence[str]) -> None:
        """Show them as the table."""
        with self._drawing:
            if self._is_open:
                self._activities = rows
                self._draw()

    @property
    def is_redrawn(self) -> bool:
        """Until it is closed."""
        return self._is_open

    def tick(self) -> None:
        """Redraw a second after the last time if something changed since, after two for the elapsed times."""
        with self._drawing:
            has_times = self._is_open and bool(self._tally.planned or self._running)
            wait_s = REDRAW_S if self._is_stale else STILL_S
            if (self._is_stale or has_times) and self._clock() - self._drawn >= wait_s:
                self._draw()

    def close(self) -> None:
        """Leave the ended steps, and the tally, on the screen."""
        with self._drawing, suppress(OSError, ValueError):  # the terminal may be gone
            self._is_open = False
            self._draw()
            self._live.update(Text(""), refresh=False)
            self._live.stop()
            if self._tally.planned:
                self._console.print(Text(str(self._tally)))

    def _say(self, text: str, name: str = "", style: str = "") -> None:
        self._ended.append(Text.assemble((visible_line(name), style), visible_line(text)))

    def _changed(self) -> None:
        self._is_stale = True
        self.tick()

    def _draw(self) -> None:
        self._is_stale = False
        self._drawn = self._clock()
        ended, self._ended = self._ended, []
        # Refreshed before the lines are printed, too: rich draws below them what it showed last.
        self._live.update(self._table(), refresh=True)
        if ended:
            self._console.print(Text("\n").join(ended), overflow="fold")

    def _table(self) -> Text:
        now = self._clock()
        rows = list(self._running.items())
        left = self._tally.left({step: now - row.began for step, row in rows})
        lines = [f"{self._tally}  [{now - self._began:.0f} s{left}]"] if self._tally.planned or rows else []
        lines += [f"  {row}" for row in self._activities[: max(1, min(ROWS, self._console.size.height - 3))]]
        # rich cuts off what is higher than the terminal; two lines are for the tally and for what is left out.
        shown = rows[: max(1, min(ROWS, self._console.size.height - 3))]
        width = max((len(step) for step, _ in shown), default=0)
        for step, row in shown:
            progress, rate = progress_text(row.last), rate_text(row.last)
            lines.append(f"  {step:<{width}}  {now - row.began:6.0f} s  {progress:>9}  {rate}".rstrip())
        if len(rows) > len(shown):
            lines.append(f"  and {len(rows) - len(shown)} more")
        return Text("\n".join(map(visible_line, lines)), no_wrap=True, overflow="ellipsis")
