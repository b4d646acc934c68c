"""The command line: one module per command; this one finds them, and holds the only `except` of the control plane."""

from __future__ import annotations

import contextlib
import importlib
import signal
import sys
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, cast

import click

from orchestrator.errors import INTERRUPTED, NOT_WRITTEN, MilabenchError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

PROGRAM = "milabench"
# Each verb's help stands here so that `--help` and completion import none of the modules behind it.
COMMANDS = {
    "install": "Make the environments of the selected benchmarks and fetch their programs.",
    "prepare": "Make or fetch the data and models that the selected benchmarks need.",
    "run": "Run and measure the selected benchmarks.",
    "resume": "Go on with a run that was cut off, or run what failed in it.",
    "report": "Report on runs.",
    "runs": "List the runs with their verdicts.",
    "status": "Say how far a run is.",
    "logs": "Show what a step said.",
    "cancel": "End a run that is going on.",
    "replay": "Show a run again as it went on.",
    "cleanup": "End what dead runs left.",
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


def with_variables(command: click.Command) -> click.Command:
    """The command, each of whose options may be given as MILABENCH_<OPTION> too; the command line wins."""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            with_variables(each)
    for option in command.params:
        if isinstance(option, click.Option) and option.envvar is None and not option.is_eager:
            option.envvar = "MILABENCH_" + max(option.opts, key=len).lstrip("-").replace("-", "_").upper()
    return command


class Unbroken:
    """Standard error that nobody need read: a closed pipe or a full disk behind it ends no run and no install."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, or drop what cannot be written."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, or drop what cannot be written."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


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
    sys.stderr = cast(TextIO, Unbroken(sys.stderr))
    for number in (signal.SIGTERM, signal.SIGHUP):
        # Ended politely is ended as by Ctrl-C: what was started is ended first. Where it was said to be ignored, it is.
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
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
    except OSError as error:
        if "--traceback" in sys.argv:
            raise
        click.echo(f"error: {error.filename or 'output'}: {error.strerror or error}", err=True)
        code = NOT_WRITTEN
    sys.exit(code if isinstance(code, int) else 0)
