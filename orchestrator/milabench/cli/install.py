"""`milabench install`."""

from __future__ import annotations

import os

import click

from milabench.cli.options import suite_options, terminal_session
from milabench.workflow.options import SuiteOptions


@click.command("install")
@suite_options(environment=True, reach=True)
@click.option("--force", is_flag=True, help="Recreate existing environments.")
@click.option("--update", is_flag=True, help="Recreate unpinned environments with the newest packages.")
@click.option("--frozen", is_flag=True, help="Install from locks whose requirements have changed since.")
@click.option("--ignore-space", is_flag=True, help="Begin although the disk seems too small.")
@click.option("--jobs", type=click.IntRange(1), default=min(4, os.cpu_count() or 1), help="Installations at a time.")
def command(options: SuiteOptions, force: bool, update: bool, frozen: bool, ignore_space: bool, jobs: int) -> None:
    """Install the environments and programs of the selected benchmarks."""
    from milabench.workflow.install import install

    install(
        options, terminal_session(), force=force, update=update, frozen=frozen, ignore_space=ignore_space, jobs=jobs
    )
