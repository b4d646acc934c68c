"""`milabench logs`: what a step said, as it says it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from milabench.errors import NothingSelected

if TYPE_CHECKING:
    from milabench.events.rundir import Run

LOOK_EVERY_S = 0.3


@click.command("logs", help="Show what a step said (its id, or its benchmark's name where that has one step).")
@click.argument("step")
@click.option("--run", "run_name", metavar="RUN", help="Default: the latest run.")
@click.option("--base", type=click.Path(path_type=Path), envvar="MILABENCH_BASE", help="Default: ./results.")
@click.option("--attempt", type=click.IntRange(1), help="Default: the last one.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the step ends.")
def command(step: str, run_name: str | None, base: Path | None, attempt: int | None, follow: bool) -> int:
    """Hand the command line's values on; see the help text above."""
    from milabench.workflow.run_lookup import find_step, resolve_run

    run = resolve_run(base, run_name).run
    name = find_step(run, step)
    number = attempt if attempt is not None else last_attempt(run, name)
    path = run.path / f"{run.stem(name, number)}.data"
    if not follow and not path.exists():
        raise NothingSelected(f"{run.name}: {name} has said nothing: there is no {path.name}")
    for text in log_lines(path, name, follow=follow, run=run, attempt=number):
        sys.stdout.buffer.write(text)
        sys.stdout.flush()
    return 0


def last_attempt(run: Run, step: str) -> int:
    """The number of the attempt that left the newest file."""
    number = 1
    while (run.path / f"{run.stem(step, number + 1)}.data").exists():
        number += 1
    return number


def log_lines(path: Path, step: str, *, follow: bool, run: Run, attempt: int) -> Iterator[bytes]:
    """The text of the `line` records of a file, in pieces; when followed, until the step has ended or nobody writes."""
    from milabench.events.model import End, Line
    from milabench.events.tail import Appended
    from milabench.events.wire import decode

    records, is_over = Appended(path), False
    while True:
        # Before reading: what was written until then is read.
        is_over = is_over or not follow or not is_going(run, step, attempt)
        for line in records.lines():
            try:
                event = decode(line, step)
            except ValueError:
                continue
            if isinstance(event, Line):
                yield event.text.encode("utf-8", "surrogateescape")
            is_over = is_over or isinstance(event, End)
        if is_over:
            return
        time.sleep(LOOK_EVERY_S)


def is_going(run: Run, step: str, attempt: int) -> bool:
    """Whether this attempt may still say something: somebody carries the run out, and it has not ended."""
    from milabench.events.attempts import attempts
    from milabench.events.rundir import open_run
    from milabench.execute.run_lock import holder_of

    if holder_of(run.path) is None:
        return False
    tried = attempts(open_run(run.path).journal).get(step, ())
    return not any(each.number == attempt and each.outcome is not None for each in tried)
