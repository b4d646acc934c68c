"""`milabench job`, which batch scripts call. `milabench run --submit` writes those."""

from __future__ import annotations

from pathlib import Path

import click

from milabench.cli.options import display_option, terminal_session


@click.command("job", hidden=True)
@click.option("--run", "path", required=True, type=click.Path(path_type=Path), help="The run directory.")
@click.option("--share", required=True, metavar="NAME", help="The share of the run, such as s1.")
@display_option
def command(path: Path, share: str, display: str) -> int:
    """Carry out a share of a run, inside the job that was submitted for it."""
    from milabench.jobs.share_job import carry_out_share

    return carry_out_share(path, share, terminal_session(display))
