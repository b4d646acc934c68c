"""The options that several verbs share, each written once, and the value they become."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click

from orchestrator.cli.completing import selections
from orchestrator.facts.model import ARCHS
from orchestrator.plan.profile import PROFILES


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteOptions:
    """What the shared options said: which suite and system, where, which benchmarks, in which environments."""

    config_file: Path | None = None
    system_file: Path | None = None
    base: Path | None = None
    overrides: tuple[str, ...] = ()
    max_jobs: int | None = None
    arch: str | None = None
    select: str | None = None
    exclude: str | None = None
    use_current_env: bool = False


_SUITE = (
    click.option(
        "-c",
        "--config",
        "config_file",
        type=click.Path(path_type=Path),
        envvar="MILABENCH_CONFIG",
        help="Suite file. Default: config/standard.yaml.",
    ),
    click.option(
        "--system",
        "system_file",
        type=click.Path(path_type=Path),
        envvar="MILABENCH_SYSTEM",
        help="System file: nodes, accelerators, folders.",
    ),
    click.option(
        "--base",
        type=click.Path(path_type=Path),
        envvar="MILABENCH_BASE",
        help="Folder for environments, data and runs. Default: ./results.",
    ),
    click.option(
        "-s", "--override", "overrides", multiple=True, metavar="KEY=VALUE", help="Replace a value of the suite."
    ),
    click.option(
        "--max-jobs",
        type=click.IntRange(1),
        metavar="N",
        help="Most benchmarks that one matrix may become. Default: 100000.",
    ),
    click.option(
        "--arch",
        type=click.Choice(list(ARCHS)),
        envvar="MILABENCH_GPU_ARCH",
        help="Kind of accelerator. Default: what the system file says, else what is found.",
    ),
)
_SELECTION = (
    click.option(
        "--select",
        envvar="MILABENCH_SELECT",
        shell_complete=selections,
        metavar="EXPR",
        help="Names, globs, groups or tags; comma lists, or and/or/not.",
    ),
    click.option(
        "--exclude",
        envvar="MILABENCH_EXCLUDE",
        shell_complete=selections,
        metavar="EXPR",
        help="The same language; what matches is left out.",
    ),
)
_ENVIRONMENT = (
    click.option(
        "--use-current-env",
        is_flag=True,
        envvar="MILABENCH_USE_CURRENT_ENV",
        help="Use the active interpreter as every benchmark's environment; install nothing.",
    ),
)


def suite_options(
    *, selection: bool = True, environment: bool = False
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Give a verb the shared options; its function receives them as one `options: SuiteOptions`."""

    def decorate(function: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(function)
        def collected(**values: Any) -> int:
            shared = {field.name: values.pop(field.name) for field in fields(SuiteOptions) if field.name in values}
            return function(options=SuiteOptions(**shared), **values)

        wanted = _SUITE + (_SELECTION if selection else ()) + (_ENVIRONMENT if environment else ())
        for option in reversed(wanted):
            collected = option(collected)
        return collected

    return decorate


display_option = click.option(
    "--display",
    type=click.Choice(["auto", "live", "plain", "none"]),
    default="auto",
    show_default=True,
    envvar="MILABENCH_DISPLAY",
    help="How progress is shown: a table that is redrawn, lines, or nothing. auto: a table on a terminal.",
)


def plan_options(function: Callable[..., int]) -> Callable[..., int]:
    """Give a verb the options that decide how much is measured: `repeat` and `profile`."""
    repeat = click.option(
        "--repeat", type=click.IntRange(1), help="Fresh processes per benchmark. Default: as the profile says."
    )
    profile = click.option(
        "--profile", type=click.Choice(list(PROFILES)), help="How long is measured. Default: what the suite says."
    )
    return repeat(profile(function))


validations_option = click.option(
    "--validations",
    metavar="all|none|NAME,...",
    envvar="MILABENCH_VALIDATIONS",
    help="Checks of what was measured. Default: all; of a run that was made, those that were asked for then.",
)


def effort_options(function: Callable[..., int]) -> Callable[..., int]:
    """Give a verb the options that decide how hard is tried: `wait`, `max_retries` and `maxfail`."""
    decorate = (
        click.option(
            "--wait",
            is_flag=True,
            envvar="MILABENCH_WAIT",
            help="Wait while another run measures on these devices, instead of refusing.",
        ),
        click.option(
            "--max-retries",
            type=click.IntRange(0),
            default=0,
            show_default=True,
            envvar="MILABENCH_MAX_RETRIES",
            help="Times that what failed is tried again at once; every attempt is kept.",
        ),
        click.option(
            "--maxfail",
            type=click.IntRange(1),
            envvar="MILABENCH_MAXFAIL",
            metavar="N",
            help="Start nothing more after N failed steps.",
        ),
    )
    for option in reversed(decorate):
        function = option(function)
    return function
