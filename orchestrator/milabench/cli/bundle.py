"""`milabench bundle`: runs, with all that they were made with, in one file that tells when it was changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from milabench.bundle.create import RunParts
    from milabench.events.rundir import Run

_COMPLETE = ".complete"
_RENDERED = ".requirements.txt"


@click.command("bundle", help="Pack runs into one file that `milabench verify` can check. Default: the latest run.")
@click.argument("runs", nargs=-1)
@click.option("--base", type=click.Path(path_type=Path), envvar="MILABENCH_BASE", help="Default: ./results.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The zip file to write."
)
@click.option(
    "--sign", "key", type=click.Path(path_type=Path, dir_okay=False), metavar="KEY", help="Sign with this SSH key."
)
@click.option("--json", "as_json", is_flag=True, help="Say what was written as JSON.")
def command(runs: tuple[str, ...], base: Path | None, output: Path, key: Path | None, as_json: bool) -> int:
    """Hand the command line's values on; see the help text above."""
    from milabench import __version__
    from milabench.bundle.create import create_bundle
    from milabench.workflow.results import resolve_runs

    parts = [bundle_parts(run) for run in resolve_runs(base, runs)]
    made = create_bundle(output, parts, version=__version__, key=key)
    if as_json:
        value = {"schema": 1, "bundle": str(output), "chain": made.chain, "runs": list(made.runs)}
        click.echo(
            json.dumps({**value, "files": len(made.files), "notes": list(made.notes), "signed": key is not None})
        )
    else:
        for note in made.notes:
            click.echo(f"note: {note}", err=True)
        click.echo(f"written to {output}: {len(made.runs)} runs, {len(made.files)} files, chain {made.chain}")
    return 0


def bundle_parts(run: Run) -> RunParts:
    """A run with its numbers, its report, and the locks of its environments as far as they are still there."""
    from milabench.bundle.create import SUMMARY, RunParts
    from milabench.report import markdown
    from milabench.workflow.results import recompute_summary
    from milabench.workflow.summaries import summary_of

    report = markdown.render([summary_of(run)])
    locks, notes = locks_of(run)
    return RunParts(
        run=run,
        computed={
            SUMMARY: json.dumps(recompute_summary(run), indent=1, sort_keys=True) + "\n",
            "report.md": report.replace(f"{run.path}/", ""),
        },
        locks=locks,
        notes=notes,
    )


def locks_of(run: Run) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """(what each environment of a run was made of, as its store kept it; what could not be found)."""
    told = run.manifest.get("locks")
    store = run.path.parent.parent / "venv" / ".store"
    found: dict[str, bytes] = {}
    notes = []
    for group, digest in sorted(told.items()) if isinstance(told, dict) else ():
        folder = store / f"{group}-{str(digest)[:16]}"
        try:
            found[f"{group}/requirements.txt"] = (folder / _RENDERED).read_bytes()
            found[f"{group}/environment.json"] = (folder / _COMPLETE).read_bytes()
        except OSError:
            notes.append(
                f"{run.name}: the environment {group} ({str(digest)[:16]}) is no longer there: no lock file of it"
            )
    return found, tuple(notes)
