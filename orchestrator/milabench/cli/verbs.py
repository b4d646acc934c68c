"""The verbs with their help texts, in groups; one is imported when it is used, `--help` and completion import none."""

from __future__ import annotations

import importlib
import keyword
from typing import TYPE_CHECKING

import click

from milabench.cli.help import with_help, with_variables
from milabench.cli.milabench13 import as_typed_here, typed_here

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

PROGRAM = "milabench"
GROUPS = {
    "Set up": {
        "quickstart": "Install, prepare, run and report a small suite",
        "doctor": "Check whether this machine can run a suite",
        "list": "List the benchmarks of a suite",
        "config": "Show, explain or check the configuration of a suite",
        "install": "Install the environments and programs of benchmarks",
        "prepare": "Download or generate the data and models of benchmarks",
        "gated": "List the weights and data that need accepted terms",
        "nodes": "Check the machines of a system",
        "init": "Copy the shipped suites and benchmarks, to edit them",
        "new": "Create a benchmark from a template",
        "import-suite": "Turn benchmarks of milabench 1.3 into ours",
        "pin": "Write the lock files of benchmarks from their requirements",
        "dev": "Open a shell or run a command in a benchmark's environment",
        "capsule": "Pack a suite with all it needs, for machines without a network",
        "image": "Write the recipe of a container image",
        "completion": "Print the completion script of a shell",
    },
    "Measure": {
        "plan": "Show what install, prepare or run would do",
        "run": "Run and measure benchmarks",
        "bench": "Measure any command, or compare several",
        "ci": "Do the steps of a build server's job: doctor to exit code",
        "resume": "Resume an incomplete run, or rerun what failed in it",
        "size": "Find the largest batch size that fits",
        "ops": "Time operators; record and replay execution traces",
        "driver": "Run a task of a .cfg file and extract metrics from its log",
        "timing-audit": "Compare methods of timing the calls of a model",
    },
    "Follow and manage runs": {
        "runs": "List runs with their verdicts",
        "status": "Show the progress of a run",
        "logs": "Show the output of a step",
        "replay": "Replay a recorded run",
        "cancel": "End an active run",
        "cleanup": "Kill processes left by crashed runs",
        "gc": "Show what takes space on the disk, and remove what is unused",
    },
    "Report, compare and decide": {
        "report": "Report the results of runs",
        "compare": "Compare systems: which is faster, by how much, how surely",
        "history": "Show the trend of a benchmark over runs",
        "accept": "Check a run against acceptance criteria",
        "offers": "Compare all offers to a tender",
        "offer": "Pack an offer to a tender, or verify one",
        "tender": "Check a tender, explain every number of a score",
        "rehearse": "Try a tender on simulated offers: how often is it right",
        "budget": "How many nodes match, what money buys, what fits in a power",
        "project": "Project measured nodes or devices to larger counts",
        "baseline": "Compute what is expected of the machines of a fleet",
        "outliers": "Find the nodes and devices that differ from a baseline",
        "db": "Keep and query the results of many runs",
        "import": "Convert results of other programs into runs",
        "import-meter": "Add what a power meter measured to a run",
        "export": "Write results for Parquet, Prometheus or OpenTelemetry",
        "bundle": "Create a tamper-evident archive of runs",
        "verify": "Verify an archive of runs",
    },
}
COMMANDS = {verb: text for verbs in GROUPS.values() for verb, text in verbs.items()}
# What other programs call: neither listed nor completed.
HIDDEN = {"job": "Carry out a share of a run, inside the job that was submitted for it"}
WIDTH = max(map(len, COMMANDS))  # of the first column, the same in all groups


class VerbGroup(click.Group):
    """A group whose commands are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs, group by group."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the verb's command, from the module of its name."""
        if cmd_name not in COMMANDS and cmd_name not in HIDDEN:
            return None
        module = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name.replace("-", "_")
        command = importlib.import_module(f"milabench.cli.{module}").command
        assert isinstance(command, click.Command)
        return with_help(with_variables(command))

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
        if name == "help":  # as of git, go and uv
            if not args[1:]:
                click.echo(ctx.get_help())
                ctx.exit()
            return self.resolve_command(ctx, [*args[1:], "--help"])
        if name and name not in COMMANDS and name not in HIDDEN and not name.startswith("-"):
            import difflib

            near = difflib.get_close_matches(name, COMMANDS, n=2)
            hint = f"; did you mean {' or '.join(near)}?" if near else "; `milabench --help` lists them"
            if former := typed_here(args):
                hint = f"; {former}"
            raise click.UsageError(f"no command '{name}'{hint}", ctx)
        verb, command, rest = super().resolve_command(ctx, args)
        return verb, command, as_typed_here(verb or "", rest)

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
    "7 acceptance FAIL, 8 acceptance INCONCLUSIVE, 130 interrupted.\n\n"
    "`--help-all` behind a command shows all of its options with their variables, `--help` those that most people need.",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print the version."
)
@click.option("--traceback", is_flag=True, help="Show the Python traceback of an error.")
def verbs(traceback: bool) -> None:
    """Benchmarks for machine learning systems: install, prepare, run, report."""


with_help(verbs)
for each in verbs.params:
    if each.name == "help_all" and isinstance(each, click.Option):
        each.hidden = True  # without a command there are no more options than `--help` shows
