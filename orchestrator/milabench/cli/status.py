"""`milabench status`: how far a run is, and who carries it out."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from milabench.workflow.run_lookup import RunHandle

SHOWN = 10


@click.command("status", help="Say how far a run is. Default: the latest run.")
@click.argument("run", required=False)
@click.option("--base", type=click.Path(path_type=Path), envvar="MILABENCH_BASE", help="Default: ./results.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")
def command(run: str | None, base: Path | None, as_json: bool) -> int:
    """Hand the command line's values on; see the help text above."""
    from milabench.workflow.run_lookup import resolve_run

    found = resolve_run(base, run)
    now = time.time()
    click.echo(json.dumps(status_json(found, now), indent=1) if as_json else "\n".join(status_lines(found, now)))
    return 0


def status_json(found: RunHandle, now: float) -> dict[str, Any]:
    """The state of a run, its orchestrator, and the steps that run."""
    from milabench.analysis.run_status import status_json as standing_json

    return {
        "schema": 1,
        **standing_json(found.standing, found.state),
        "path": str(found.run.path),
        "orchestrator": None if found.holder is None else found.holder.to_json(),
        "running": [
            {"step": each.step, "attempt": each.number, "pid": each.entry.get("pid"), "seconds": now - each.began}
            for each in found.standing.running
            if found.holder is not None and each.began is not None
        ],
    }


def status_lines(found: RunHandle, now: float) -> list[str]:
    """The same for a person."""
    from milabench.execute.detach import LOG
    from milabench.report.labels import duration

    standing, holder = found.standing, found.holder
    told = [f"{found.run.name}: {found.state}" + (f", by {holder}" if holder is not None else "")]
    done = sum(each is not None and each.outcome is not None for each in standing.steps.values())
    counts = ", ".join(
        f"{count} {'not done' if outcome == 'missing' else outcome}" for outcome, count in standing.counts.items()
    )
    told.append(f"steps    {done}/{len(standing.steps)} done: {counts}")
    for each in standing.running:
        if holder is not None:
            since = f" for {duration(now - each.began)}" if each.began is not None else ""
            told.append(f"running  {each.step}{since} (pid {each.entry.get('pid')})")
    failed = [each for each in standing.steps.values() if each is not None and each.outcome == "failed"]
    told += [f"failed   {each.step}: {each.why}: {each.detail}" for each in failed[:SHOWN]]
    if len(failed) > SHOWN:
        told.append(f"         and {len(failed) - SHOWN} more")
    told.append(f"records  {found.run.path}")
    if found.is_detached:
        told.append(f"says     {found.run.path / LOG}")
        told.append(f"watch    milabench resume {found.run.path}")
    if holder is None and standing.counts.keys() - {"passed", "skipped"}:
        told.append(f"way out  milabench resume {found.run.path}")
    return told
