"""The content of every verb's `--help` and `--help-all`, the variable of each option, and `--no-color`.

`--help` shows the options that people need every day. `--help-all` shows all, each with its variable.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from copy import copy
from itertools import chain

import click

from milabench.cli.front_page import OPTIONS

TYPED = "milabench.typed"
"""The key of `click.Context.meta` below which the words of the command line are kept."""
MOST_SHOWN = 12  # options of a verb that `--help` shows whole


class RareOption(click.Option):
    """An option that few people need: `--help` of a verb with many options leaves it to `--help-all`."""


def with_variables(command: click.Command) -> click.Command:
    """Let each option of a command be given as MILABENCH_<OPTION> too. The command line wins."""
    for each in _with_subcommands(command):
        _name_numbers(each)
        for option in _options(each):
            if option.envvar is None and not option.is_eager:
                option.envvar = "MILABENCH_" + long_name(option).lstrip("-").replace("-", "_").upper()
    return command


def with_help(
    command: click.Command, show_all: Callable[[click.Context], None] | None = None, text: str = ""
) -> click.Command:
    """Give a command, and the commands of a group, `--help`, `--help-all` and `--no-color`.

    `show_all` and its `text` are what `--help-all` does in place of showing all options.
    """
    for each in _with_subcommands(command):
        if any(option.name == "help_all" for option in _options(each)):
            continue  # a verb that was imported before
        _name_numbers(each)
        each.params += [
            _flag(("--no-color",), _without_colour, OPTIONS["--no-color"]),
            _flag(("--help-all",), show_all or _show_all, text or "Show all options, with their variables."),
            _flag(("-h", "--help"), _show_common, OPTIONS["-h, --help"]),
        ]
        if each.context_settings.get("ignore_unknown_options"):
            # What is not ours belongs to the program that is started.
            each.params = [option for option in each.params if option.name != "no_color"]
    return command


def long_name(option: click.Option) -> str:
    """Return an option's long name, `--override` of `-s, --override`."""
    return max(option.opts, key=len)


def common_options(command: click.Command) -> list[click.Option]:
    """Return the options that `--help` shows: all of them where they are few."""
    options = [option for option in _options(command) if not option.hidden]
    own = [option for option in options if not option.is_eager]
    if len(own) <= MOST_SHOWN:
        return options
    return [option for option in options if not isinstance(option, RareOption)]


def _with_subcommands(command: click.Command) -> Iterable[click.Command]:
    subcommands = command.commands.values() if isinstance(command, click.Group) else ()
    return chain([command], *map(_with_subcommands, subcommands))


def _options(command: click.Command) -> Iterable[click.Option]:
    return (option for option in command.params if isinstance(option, click.Option))


def _name_numbers(command: click.Command) -> None:
    """Let the help say N for a number, where click says INTEGER RANGE."""
    for option in _options(command):
        if option.metavar is None and isinstance(option.type, click.types.IntParamType | click.types.FloatParamType):
            option.metavar = "N"


def _flag(names: tuple[str, ...], callback: Callable[[click.Context], None], text: str) -> click.Option:
    """Return an option that only does something, before the others are read."""

    def called(context: click.Context, _: click.Parameter, value: bool) -> None:
        if value and not context.resilient_parsing:
            callback(context)

    return click.Option(names, is_flag=True, is_eager=True, expose_value=False, callback=called, help=text)


def _without_colour(_: click.Context) -> None:
    # The programs that we start, and the libraries that we use, ask this variable.
    os.environ["NO_COLOR"] = "1"
    os.environ.pop("FORCE_COLOR", None)


def _show_common(context: click.Context) -> None:
    shown = common_options(context.command)
    click.echo(_page(context, shown))
    count = sum(not option.hidden for option in _options(context.command)) - len(shown)
    if count:
        click.echo(f"\n{count} more option{'s' * (count > 1)}: {context.command_path} --help-all")
    context.exit()


def _show_all(context: click.Context) -> None:
    click.echo(_page(context, map(_with_variable, _options(context.command))))
    context.exit()


def _with_variable(option: click.Option) -> click.Option:
    if not isinstance(option.envvar, str):
        return option
    shown = copy(option)
    shown.help = f"{option.help or ''} [env: {option.envvar}]".lstrip()
    return shown


def _page(context: click.Context, options: Iterable[click.Option]) -> str:
    """Return the help of a command as if it had only these options."""
    command = copy(context.command)
    arguments = (each for each in command.params if not isinstance(each, click.Option))
    command.params = [*arguments, *options]
    return command.get_help(context)
