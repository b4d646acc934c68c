"""`milabench install`."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import click

from milabench import seams
from milabench.cli.options import (
    collected_as,
    display_option,
    file_option,
    is_on_command_line,
    rare_option,
    suite_options,
    terminal_session,
)
from milabench.workflow.options import InstallSettings, SuiteOptions


@click.command("install")
@suite_options(environment=True, nodes="executes")
@file_option("--from", "capsule", help="Install the suite of this capsule, without a network.")
@click.option("--force", is_flag=True, help="Recreate existing environments.")
@click.option("--update", is_flag=True, help="Recreate unpinned environments with the newest packages.")
@rare_option("--frozen", is_flag=True, help="Install from locks whose requirements have changed since.")
@click.option("--ignore-space", is_flag=True, help="Begin although the disk seems too small.")
@click.option("--jobs", type=click.IntRange(1), default=min(4, os.cpu_count() or 1), help="Installations at a time.")
@display_option
@collected_as("settings", InstallSettings)
def command(
    options: SuiteOptions,
    capsule: Path | None,
    settings: InstallSettings,
    display: str,
) -> int | None:
    """Install the environments and programs of the selected benchmarks."""
    if capsule is not None:
        from milabench.workflow.preflight import command_line

        for name, given in (("--config", is_on_command_line("config_file")), ("--update", settings.update)):
            if given:
                raise click.UsageError(f"--from already names the suite and its contents. Leave out {name}")
        session = terminal_session(display)
        seams.handler("install --from")(capsule, options, session, settings)
        # The suite that was installed last is the default of its base.
        session.info(f"next: `{command_line('run', replace(options, config_file=None))}`")
        return None
    from milabench.workflow.allocation import run_in_partition
    from milabench.workflow.install import install

    session = terminal_session(display)
    code = run_in_partition(options, session)
    if code is not None:
        return code
    install(options, session, settings)
    return None
