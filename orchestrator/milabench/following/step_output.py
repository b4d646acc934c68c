"""Reads the output of a step from its records, also while it is written."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from milabench.errors import NothingSelected
from milabench.events.attempts import attempts
from milabench.events.model import End, Line
from milabench.events.names import encode_text
from milabench.events.rundir import Run, open_run
from milabench.events.wire import decode
from milabench.execute.locks import holder_of, share_holder
from milabench.following.appended import Appended
from milabench.shown import some_of
from milabench.workflow.run_lookup import find_step, last_attempt, resolve_run

LOOK_EVERY_S = 0.3


def step_output(
    step: str,
    name: str | None,
    base: Path | None,
    *,
    attempt: int | None = None,
    follow: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Iterator[bytes]:
    """Yield the output of a step's attempt, by default the last, in pieces. When followed, until it ends or nobody writes.

    `say` gets a sentence where several steps have the name. Raises NothingSelected for an unknown run or step, and for an
    attempt without output.
    """
    run = resolve_run(base, name).run
    step, others = find_step(run, step)
    if others:
        say(f"{step}, the last of {len(others) + 1} steps. Also {some_of(others, 3)}")
    number = attempt if attempt is not None else last_attempt(run, step, 1)
    path = run.path / f"{run.stem(step, number)}.data"
    if not follow and not path.exists():
        raise NothingSelected(f"{run.name}: {step} has no output: there is no {path.name}")
    records, is_over = Appended(path), False
    while True:
        # Before reading: what was written until then is read.
        is_over = is_over or not follow or not is_active(run, step, number)
        before = records.offset
        for line in records.lines():
            try:
                event = decode(line, step)
            except ValueError:
                continue
            if isinstance(event, Line):
                yield encode_text(event.text)
            is_over = is_over or isinstance(event, End)
        if records.offset > before:
            continue
        if is_over:
            return
        time.sleep(LOOK_EVERY_S)


def is_active(run: Run, step: str, attempt: int) -> bool:
    """Return whether this attempt may still write: it has an orchestrator, or a job that goes on or waits, and has not ended."""
    run = open_run(run.path)
    own = [share for share in run.shares.values() if step in share.steps]
    is_executed = any(share.is_waiting or share_holder(run.path, share.name) is not None for share in own)
    if not is_executed and holder_of(run.path) is None:
        return False
    by_step = attempts(run.journal)
    return not any(tried.number == attempt and tried.outcome is not None for tried in by_step.get(step, ()))
