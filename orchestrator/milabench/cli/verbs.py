"""The group of all verbs: imports one when it is used, and lets each option be given as a variable too."""

from __future__ import annotations

import importlib
import keyword
from typing import TYPE_CHECKING

import click

from milabench.cli import COMMANDS

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def with_variables(command: click.Command) -> click.Command:
    """The command, each of whose options may be given as MILABENCH_<OPTION> too; the command line wins."""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            with_variables(each)
    for option in command.params:
        if isinstance(option, click.Option) and option.envvar is None and not option.is_eager:
            option.envvar = "MILABENCH_" + max(option.opts, key=len).lstrip("-").replace("-", "_").upper()
    return command


class VerbGroup(click.Group):
    """A group whose commands are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs in the order in which a user meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb's command, from the module of its name."""
        if cmd_name not in COMMANDS:
            return None
        module = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name.replace("-", "_")
        command = importlib.import_module(f"milabench.cli.{module}").command
        assert isinstance(command, click.Command)
        return with_variables(command)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The verbs that begin so, or the options that stand before them; imports none of the verbs."""
        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        from click.shell_completion import CompletionItem

        return [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the nearest verbs named when there is none of that name."""
        name = args[0] if args else ""
        if name and name not in COMMANDS and not name.startswith("-"):
            import difflib

            near = difflib.get_close_matches(name, COMMANDS, n=2)
            hint = f"; did you mean {' or '.join(near)}?" if near else "; `milabench --help` lists them"
            raise click.UsageError(f"no command '{name}'{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table of verbs, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from milabench import __version__

        click.echo(f"milabench {__version__}")
        ctx.exit()


@click.group(
    cls=VerbGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Benchmarks for machine learning systems: install, prepare, run, report.",
    epilog="Exit codes: 0 all passed, 1 a step did not pass, 2 usage or configuration, 3 nothing selected, "
    "4 install or prepare failed, 5 a node could not be reached, 6 records unreadable or altered, "
    "7 acceptance FAIL, 8 acceptance INCONCLUSIVE, 130 interrupted.",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print the version."
)
@click.option("--traceback", is_flag=True, help="Show where in the program an error came from.")
def verbs(traceback: bool) -> None:
    """Hold the options that stand before the verb."""
