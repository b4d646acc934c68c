"""`milabench stacks`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from milabench.cli.options import base_option, json_option, run_argument, terminal_session
from milabench.shown import visible_line

if TYPE_CHECKING:
    from milabench.records.hang_evidence import JobMember


@click.command("stacks")
@click.argument("step")
@run_argument
@base_option
@json_option
def command(step: str, run: str | None, base: Path | None, as_json: bool) -> None:
    """Show where the processes of STEP are, and which rank the others wait for. Default: of the latest run.

    A running step is looked at now, on all its nodes, and goes on. Of a step that hung, the evidence is shown.
    """
    from msgspec import to_builtins

    from milabench.hangs.steps_looked_at import looked_at

    members = looked_at(step, run, base, terminal_session())
    if as_json:
        click.echo(json.dumps({"schema": 1, "steps": to_builtins(members)}, indent=1))
        return
    for line in stacks_text(members):
        click.echo(visible_line(line))


def stacks_text(members: Sequence[JobMember]) -> Iterator[str]:
    """Yield the finding, then each stack with its processes, then missing evidence."""
    from milabench.hangs.judgement import distinct_stacks, hang_sentence

    yield hang_sentence(members) or "none of its processes was found"
    for ranks, frames in distinct_stacks(members):
        has_ranks = ranks[0].process is None or ranks[0].process.rank is not None
        names = ", ".join(str(rank.number) for rank in ranks)
        yield ""
        yield f"{'rank' if has_ranks else 'process'}{'s' * (len(ranks) > 1)} {names}: {ranks[0].doing}"
        shown = [frame for frame in frames if not frame[1].startswith("<frozen")]
        width = max((len(function) for function, _, _ in shown), default=0)
        for function, file, line in shown:
            yield f"  {function:<{width}}  {file}:{line}"
    absent = dict.fromkeys(why for member in members if member.evidence for why in member.evidence.absent)
    if absent:
        yield ""
        yield from (f"not available: {why}" for why in absent)
