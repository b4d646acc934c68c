"""The command line: one module per command; this one finds them, and holds the only `except` of the control plane."""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, NoReturn

import click

from orchestrator.errors import INTERRUPTED, MilabenchError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

PROGRAM = "milabench"
# Each verb's help stands here so that `--help` and completion import none of the modules behind it.
COMMANDS = {
    "install": "Make the environments of the selected benchmarks and fetch their programs.",
    "prepare": "Make or fetch the data and models that the selected benchmarks need.",
    "run": "Run and measure the selected benchmarks.",
    "report": "Report on runs.",
    "list": "List the benchmarks of the suite.",
    "plan": "Show what install, prepare or run would do.",
    "config": "Show, explain or check what the suite means.",
    "size": "Find the largest batch size of a benchmark that fits.",
    "dev": "Open a shell in a benchmark's environment, or run a command there.",
    "doctor": "Say what this machine is and whether the suite can run on it.",
    "new": "Make a benchmark from a template.",
    "pin": "Write the lock files of the selected benchmarks.",
    "completion": "Print what makes a shell complete commands, options and names.",
}


class Verbs(click.Group):
    """A group whose commands are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs in the order in which a user meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb's command, from the module of its name."""
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"orchestrator.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

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
        from orchestrator import __version__

        click.echo(f"milabench {__version__}")
        ctx.exit()


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Benchmarks for machine learning systems: install, prepare, run, report.",
    epilog="Exit codes: 0 all passed, 1 a step did not pass, 2 usage or configuration, 3 nothing selected, "
    "4 install or prepare failed, 5 a node could not be reached, 6 records unreadable, 130 interrupted.",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print the version."
)
@click.option("--traceback", is_flag=True, help="Show where in the program an error came from.")
def verbs(traceback: bool) -> None:
    """Hold the options that stand before the verb."""


def main() -> NoReturn:
    """Run the command line and end the process with its exit code (docs/protocol.md, section 5)."""
    try:
        code = verbs.main(prog_name=PROGRAM, standalone_mode=False)
    except MilabenchError as error:
        if "--traceback" in sys.argv:
            raise
        click.echo(f"error: {error}", err=True)
        code = error.exit_code
    except click.ClickException as error:
        click.echo(f"error: {error.format_message()}", err=True)
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        code = INTERRUPTED
    except BrokenPipeError:
        # The reader of our output (head, less) went away; that is its business, not an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code if isinstance(code, int) else 0)
