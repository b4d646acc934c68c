"""`milabench gc`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from milabench.cli.options import base_option, json_option, seconds_of, terminal_session
from milabench.errors import DONE, STEPS_FAILED
from milabench.execute.sizes import size_text

if TYPE_CHECKING:
    from milabench.garbage.collection import Removal
    from milabench.garbage.disk_use import StoredItem, Survey

_SHOWN = 40


@click.command("gc")
@base_option
@click.option("--remove", is_flag=True, help="Remove unused items. Default: only show them.")
@click.option(
    "--runs-older-than",
    "older_than_s",
    callback=seconds_of,
    metavar="DURATION",
    help="Count finished runs of before this time (90d, 12h) as unused.",
)
@click.option(
    "--keep", type=click.IntRange(0), metavar="N", help="Count finished runs as unused, but for the N newest."
)
@click.option(
    "--forget",
    multiple=True,
    metavar="SUITE",
    help="Treat files that only this suite uses as unused, although its file exists.",
)
@json_option
def command(
    base: Path | None,
    remove: bool,
    older_than_s: float | None,
    keep: int | None,
    forget: tuple[str, ...],
    as_json: bool,
) -> int:
    """Show the disk space of environments, programs, data and runs, and remove unused ones."""
    from milabench.garbage.base_survey import Policy, survey_base
    from milabench.garbage.collection import collect_garbage

    session, policy, removal = terminal_session(), Policy(older_than_s=older_than_s, keep=keep), None
    if remove:
        survey, removal = collect_garbage(base, policy, session, forget=forget)
    else:
        survey = survey_base(base, policy, forget=forget)
    if as_json:
        click.echo(json.dumps({**survey.to_json(), **(_removal_json(removal) if removal else {})}, indent=1))
    else:
        lines = item_lines("unused", survey.unused) if removal is None else item_lines("removed", removal.removed)
        click.echo("\n".join([survey_table(survey), *lines]))
    if survey.note:
        session.note(survey.note)
    if removal is None:
        for item in survey.items:
            if item.problem:
                session.note(f"{item.path}: cannot be removed: {item.problem}")
        session.info(_outlook(survey))
        return DONE
    for line in removal.failures:
        session.error(line)
    session.info(f"gc: {len(removal.removed)} removed, {size_text(removal.freed)} freed")
    return STEPS_FAILED if removal.failures else DONE


def survey_table(survey: Survey) -> str:
    """Return a line for each kind of item, and the total."""
    from milabench.report.text_table import text_table

    value = survey.to_json()
    rows = [
        [kind, str(part["count"]), size_text(part["bytes"]), str(part["unused"]), size_text(part["reclaimable_bytes"])]
        for kind, part in {**value["kinds"], "total": value["total"]}.items()
        if part["count"] or kind == "total"
    ]
    return "\n".join(text_table("kind | #count | #size | #unused | #reclaimable", rows))


def item_lines(heading: str, items: Sequence[StoredItem]) -> list[str]:
    """Return a line for each thing, the largest first."""
    largest_first = sorted(items, key=lambda item: item.usage.size, reverse=True)
    lines = [_item_line(item) for item in largest_first[:_SHOWN]]
    more = len(largest_first) - len(lines)
    return [*(["", f"{heading}:"] if lines else []), *lines, *([f"  and {more} more"] if more else [])]


def _item_line(item: StoredItem) -> str:
    from milabench.shown import visible_line
    from milabench.workflow.files import display_path

    size, freed = size_text(item.usage.size), size_text(item.usage.freed)
    part = "" if freed == size else f", of which {freed} are freed"
    return visible_line(f"  {display_path(item.path)}  {size}{part}  {item.why}")


def _outlook(survey: Survey) -> str:
    """Return the effect of --remove."""
    if not survey.unused:
        return "gc: nothing is unused"
    reclaimable = survey.reclaimable
    shared = reclaimable.size - reclaimable.freed
    rest = f". {size_text(shared)} more has other names too, most often in the cache of uv (`uv cache prune`)"
    return f"gc: --remove frees {size_text(reclaimable.freed)}{rest if shared else ''}"


def _removal_json(removal: Removal) -> dict[str, object]:
    return {
        "removed": [str(item.path) for item in removal.removed],
        "freed_bytes": removal.freed,
        "failures": list(removal.failures),
    }
