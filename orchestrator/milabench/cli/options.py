"""The options that several verbs share, each written once, and the value they become."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click

from milabench.cli.completion_hooks import selections
from milabench.devices.registry import ARCHS
from milabench.plan.profile import PROFILES


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
    ask_nodes: bool = False
    accept_new_host_keys: bool = False
    ignore_node_checks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How much is to be measured: how long, how often or how precisely, in how many seconds at most, beside which suite."""

    repeat: int | None = None
    profile: str | None = None
    precision: float | None = None
    budget_s: float | None = None
    ab: tuple[Path, Path] | None = None


LEAST_PRECISION = 1e-4
_DURATION_PART = r"(\d+(?:\.\d+)?)\s*([smhd])"
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def fraction_of(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """`1%`, `0.5 %` or 0.01 as a fraction. Raises BadParameter, also for a bare 1, which may mean either."""
    if value is None:
        return None
    text = value.strip()
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        number = math.nan
    fraction = number / 100 if text.endswith("%") else number
    if not LEAST_PRECISION <= fraction < 1:
        raise click.BadParameter(f"'{value}' is no precision; give a percentage such as 1%, at least 0.01%", ctx, param)
    return fraction


def seconds_of(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """`90s`, `30m`, `4h`, `2d`, `1h30m` in seconds. Raises BadParameter, also for a number without its unit."""
    if value is None:
        return None
    text = value.strip().lower()
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in re.findall(_DURATION_PART, text))
    if re.sub(_DURATION_PART, "", text).strip() or seconds <= 0:
        raise click.BadParameter(f"'{value}' is no length of time; give 90s, 30m, 4h or 1h30m", ctx, param)
    return seconds


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


def is_on_command_line(name: str) -> bool:
    """Whether a value of the verb that runs was typed, and does not come from a variable or a default."""
    context = click.get_current_context(silent=True)
    return context is not None and context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


_ACCEPT = click.option(
    "--accept-new-host-keys",
    is_flag=True,
    help="Record the keys of nodes that no known_hosts file names. A key that changed is refused all the same.",
)
_REACH = (
    _ACCEPT,
    click.option("--ignore-node-checks", is_flag=True, help="Go on although `milabench nodes check` finds fault."),
)
_ASK = (
    click.option("--ask-nodes", is_flag=True, help="Ask the other nodes what they are. Default: what the file says."),
    _ACCEPT,
)


def suite_options(
    *, selection: bool = True, environment: bool = False, reach: bool = False, ask: bool = False, nodes: bool = False
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Give a verb the shared options; its function receives them as one `options: SuiteOptions`.

    A verb that does something on nodes says `reach`: all are asked what they are first. One that may ask says `ask`, one
    that is about them `nodes`.
    """

    def decorate(function: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(function)
        def collected(**values: Any) -> int:
            shared = {field.name: values.pop(field.name) for field in fields(SuiteOptions) if field.name in values}
            return function(options=SuiteOptions(**{"ask_nodes": reach, **shared}), **values)

        wanted = _SUITE + (_SELECTION if selection else ()) + (_ENVIRONMENT if environment else ())
        wanted += _REACH if reach else _ASK if ask else (_ACCEPT,) if nodes else ()
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


detach_option = click.option(
    "--detach",
    is_flag=True,
    help="Leave the terminal as soon as the run has begun; `milabench resume` shows it as it goes on.",
)


def plan_options(function: Callable[..., int]) -> Callable[..., int]:
    """Give a verb the options that decide how much is measured; its function receives them as one `extent: Extent`."""

    @functools.wraps(function)
    def collected(**values: Any) -> int:
        extent = {field.name: values.pop(field.name) for field in fields(Extent)}
        return function(extent=Extent(**extent), **values)

    for option in reversed(_EXTENT):
        collected = option(collected)
    return collected


_EXTENT = (
    click.option(
        "--repeat", type=click.IntRange(1), help="Fresh processes per benchmark. Default: as the profile says."
    ),
    click.option(
        "--profile", type=click.Choice(list(PROFILES)), help="How long is measured. Default: what the suite says."
    ),
    click.option(
        "--precision",
        callback=fraction_of,
        metavar="PERCENT",
        help="Run a pilot of five, and then each benchmark as often as a 95% interval of this half-width takes, "
        "decided once. Default of the profile rigorous: 1%.",
    ),
    click.option(
        "--budget",
        "budget_s",
        callback=seconds_of,
        metavar="DURATION",
        help="Run no more replicates than fit in 90s, 30m, 4h, and say what was cut.",
    ),
    click.option(
        "--ab",
        nargs=2,
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="A.yaml B.yaml",
        help="Measure two suites in turn, in pairs, and compare them pair by pair. Default: five pairs.",
    ),
)


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
