"""The verbs with their help texts, in groups; one is imported when it is used, `--help` and completion import none.

Each option can be given as a variable too.
"""

from __future__ import annotations

import importlib
import keyword
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

PROGRAM = "milabench"
GROUPS = {
    "Measure": {
        "quickstart": "Install, prepare, run and report a small suite: a first look.",
        "install": "Install the environments and programs of the selected benchmarks.",
        "prepare": "Download or generate the data and models of the selected benchmarks.",
        "run": "Run and measure the selected benchmarks.",
        "resume": "Resume an incomplete run, or rerun what failed in it.",
        "plan": "Show what install, prepare or run would do.",
        "size": "Find the largest batch size of a benchmark that fits.",
    },
    "Read results": {
        "report": "Report on runs.",
        "history": "Show a benchmark's trend over runs, and where its level changed.",
        "db": "Keep and query the results of many runs.",
        "import": "Convert results of milabench 1.3 and of nccl-tests into runs.",
        "export": "Write the results of runs to a Parquet file.",
        "bundle": "Create a tamper-evident archive of runs.",
        "verify": "Check that an archive has not been modified.",
    },
    "Compare and decide": {
        "compare": "Compare systems: which is faster, by how much, with what confidence.",
        "accept": "Check a run against acceptance criteria.",
        "baseline": "Compute what is expected of the nodes and devices of a fleet.",
        "outliers": "Find the nodes and devices that differ from a baseline.",
    },
    "Manage runs": {
        "runs": "List the runs with their verdicts.",
        "status": "Show a run's progress.",
        "logs": "Show a step's output.",
        "replay": "Replay a recorded run.",
        "cancel": "End an active run.",
        "cleanup": "Kill processes left by crashed runs.",
        "gc": "Show what takes space below the base, and remove what is unused.",
    },
    "Environment": {
        "list": "List the benchmarks of the suite.",
        "config": "Show, explain or check the suite's configuration.",
        "nodes": "Check the machines of a system.",
        "doctor": "Check whether this machine can run the suite.",
        "dev": "Open a shell, or run a command, in a benchmark's environment.",
    },
    "Tools": {
        "init": "Copy the shipped suites and benchmarks into a folder, to edit them.",
        "new": "Create a benchmark from a template.",
        "pin": "Write the lock files of the selected benchmarks.",
        "driver": "Run a task of a .cfg file and extract its metrics from its log.",
        "timing-audit": "Show how the method of timing a model's call changes the result.",
        "ops": "Time operators, record and replay execution traces.",
        "completion": "Print a shell's completion script.",
    },
}
COMMANDS = {verb: text for verbs in GROUPS.values() for verb, text in verbs.items()}
WIDTH = max(map(len, COMMANDS))  # of the first column, the same in all groups


def with_variables(command: click.Command) -> click.Command:
    """Let each option of a command be given as MILABENCH_<OPTION> too; the command line wins."""
    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            with_variables(subcommand)
    for option in command.params:
        if isinstance(option, click.Option) and option.envvar is None and not option.is_eager:
            option.envvar = "MILABENCH_" + max(option.opts, key=len).lstrip("-").replace("-", "_").upper()
    return command


class VerbGroup(click.Group):
    """A group whose commands are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs, group by group."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the verb's command, from the module of its name."""
        if cmd_name not in COMMANDS:
            return None
        module = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name.replace("-", "_")
        command = importlib.import_module(f"milabench.cli.{module}").command
        assert isinstance(command, click.Command)
        return with_variables(command)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the verbs that begin with this text, or the options before them; import none of the verbs."""
        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        from click.shell_completion import CompletionItem

        return [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve as click does, and suggest the nearest verbs for an unknown one."""
        name = args[0] if args else ""
        if name and name not in COMMANDS and not name.startswith("-"):
            import difflib

            near = difflib.get_close_matches(name, COMMANDS, n=2)
            hint = f"; did you mean {' or '.join(near)}?" if near else "; `milabench --help` lists them"
            raise click.UsageError(f"no command '{name}'{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs in their groups, without importing them."""
        for group, verbs in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(name.ljust(WIDTH), text) for name, text in verbs.items()])


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from milabench.version import __version__

        click.echo(f"milabench {__version__}")
        ctx.exit()


@click.group(
    cls=VerbGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 all passed, 1 a step did not pass, 2 usage or configuration, 3 nothing selected, "
    "4 install or prepare failed, 5 a node could not be reached, 6 records unreadable or altered, "
    "7 acceptance FAIL, 8 acceptance INCONCLUSIVE, 130 interrupted.",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print the version."
)
@click.option("--traceback", is_flag=True, help="Show the Python traceback of an error.")
def verbs(traceback: bool) -> None:
    """Benchmarks for machine learning systems: install, prepare, run, report."""
