"""`milabench status`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from milabench.cli.options import base_option, json_option, run_argument
from milabench.shown import visible_line

if TYPE_CHECKING:
    from milabench.workflow.run_lookup import RunHandle

SHOWN = 10


@click.command("status")
@run_argument
@base_option
@json_option
def command(run: str | None, base: Path | None, as_json: bool) -> None:
    """Show a run's progress. Default: the latest run."""
    from milabench.workflow.run_lookup import resolve_run

    handle, now = resolve_run(base, run), time.time()
    # A name of the records makes no line of its own.
    lines = [] if as_json else map(visible_line, status_lines(handle, now))
    click.echo(json.dumps(handle_json(handle, now), indent=1) if as_json else "\n".join(lines))


def handle_json(handle: RunHandle, now: float) -> dict[str, Any]:
    """Return the state of a run, its orchestrator, and the steps that run."""
    from milabench.analysis.run_status import status_json

    return {
        "schema": 1,
        **status_json(handle.status, handle.state),
        "path": str(handle.run.path),
        "orchestrator": None if handle.holder is None else handle.holder.to_json(),
        "allocation": None if handle.allocation is None else handle.allocation.to_json(),
        "running": [
            {"step": tried.step, "attempt": tried.number, "pid": tried.entry.get("pid"), "seconds": now - tried.began}
            for tried in handle.status.running
            if handle.holder is not None and tried.began is not None
        ],
    }


def status_lines(handle: RunHandle, now: float) -> list[str]:
    """Return the status as text for a person."""
    from milabench.execute.detach import LOG
    from milabench.report.labels import duration
    from milabench.workflow.allocation import held_text

    path, status, holder = handle.run.path, handle.status, handle.holder
    lines = [f"{handle.run.name}: {handle.state_text}" + (f", by {holder}" if holder is not None else "")]
    if killed := handle.kills_for_memory:
        times = f"{killed} time{'s' * (killed > 1)}"
        lines.append(
            f"memory   since it began, the kernel killed {times} for lack of memory, perhaps its orchestrator too"
        )
    if handle.allocation is not None:
        lines.append(f"nodes    {handle.allocation}{'' if holder is not None else held_text(handle.allocation)}")
    done = sum(tried is not None and tried.outcome is not None for tried in status.steps.values())
    counts = ", ".join(
        f"{count} {'not done' if outcome == 'missing' else outcome}" for outcome, count in status.counts.items()
    )
    lines.append(f"steps    {done}/{len(status.steps)} done: {counts}")
    for tried in status.running if holder is not None else ():
        since = f" for {duration(now - tried.began)}" if tried.began is not None else ""
        lines.append(f"running  {tried.step}{since} (pid {tried.entry.get('pid')})")
    failed = [tried for tried in status.steps.values() if tried is not None and tried.outcome == "failed"]
    lines += [f"failed   {tried.step}: {tried.why}: {tried.detail}" for tried in failed[:SHOWN]]
    if len(failed) > SHOWN:
        lines.append(f"         and {len(failed) - SHOWN} more")
    lines.append(f"records  {path}")
    if handle.is_detached:
        lines += [f"log      {path / LOG}", f"watch    milabench resume {path}"]
    if holder is None and status.counts.keys() - {"passed", "skipped"}:
        lines.append(f"resume   milabench resume {path}")
    return lines
