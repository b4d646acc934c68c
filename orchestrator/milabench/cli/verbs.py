"""The verbs. A verb is imported when it is used. `--help` and completion import none."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from milabench import seams
from milabench.cli.front_page import ABOUT, COMMANDS, HIDDEN, OPTIONS, REMOVED, front_page
from milabench.cli.help import TYPED, with_help, with_variables
from milabench.errors import with_remedy

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class VerbGroup(click.Group):
    """A group whose commands are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs, group by group."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the verb's command: of a feature, or from the module of its name."""
        if cmd_name not in COMMANDS and cmd_name not in HIDDEN:
            return None
        name, (feature, _, _) = re.sub("[- ]", "_", cmd_name), seams.VERBS.get(cmd_name, ("", "", ""))
        command = seams.resolved(f"{feature}.{name}_command:command" if feature else f"cli.{name}:command")
        assert isinstance(command, click.Command)
        return with_help(with_variables(command))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the verbs that begin with this text, or the options before them. Import none of the verbs."""
        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        from click.shell_completion import CompletionItem

        one_word = ((name, text) for name, text in COMMANDS.items() if " " not in name)
        return [CompletionItem(name, help=text) for name, text in one_word if name.startswith(incomplete)]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the words of the command line, which some commands repeat, and parse them as click does."""
        ctx.meta[TYPED] = list(args)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve as click does, and suggest the nearest verbs for an unknown name."""
        args = with_verb_joined(args)
        name = args[0] if args else ""
        if name == "help":  # as of git, go and uv
            if not args[1:]:
                click.echo(ctx.get_help())
                ctx.exit()
            return self.resolve_command(ctx, [*args[1:], "--help"])
        if name in REMOVED:
            raise click.UsageError(with_remedy(f"'{name}' was removed", REMOVED[name]), ctx)
        if name and name not in COMMANDS and name not in HIDDEN and not name.startswith("-"):
            import difflib

            if name in seams.VERBS:
                raise click.UsageError(
                    f"'{name}' belongs to the feature {seams.VERBS[name][0]}, which MILABENCH_WITHOUT leaves out", ctx
                )
            near = difflib.get_close_matches(name, COMMANDS, n=2)
            hint = f". Did you mean {' or '.join(near)}?" if near else ". `milabench --help-all` lists them"
            for known in seams.spellings():
                hint = f". {former}" if (former := known.typed_here(args)) else hint
            raise click.UsageError(f"no command '{name}'{hint}", ctx)
        verb, command, rest = super().resolve_command(ctx, args)
        for known in seams.spellings():
            rest = known.as_typed_here(verb or "", rest)
        return verb, command, rest

    def get_help(self, ctx: click.Context) -> str:
        """Return the front page, as wide as click writes the help of a verb."""
        return front_page(ctx.make_formatter().width)


def with_verb_joined(words: list[str]) -> list[str]:
    """Return the words of a command line with a verb of two words, such as `accept plan`, as the first."""
    pair = " ".join(words[:2])
    return [pair, *words[2:]] if pair in seams.VERBS else words


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from milabench.version import __version__

        click.echo(f"milabench {__version__}")
        ctx.exit()


@click.group(cls=VerbGroup, context_settings={"help_option_names": ["-h", "--help"]}, help=ABOUT)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help=OPTIONS["--version"]
)
@click.option("--traceback", is_flag=True, help=OPTIONS["--traceback"])
def verbs(traceback: bool) -> None:
    """Carry out a verb."""
    if unknown := seams.features_left_out() - seams.FEATURES:
        raise click.UsageError(
            f"MILABENCH_WITHOUT: no feature '{min(unknown)}'. Known: {', '.join(sorted(seams.FEATURES))}"
        )


def _show_all_verbs(context: click.Context) -> None:
    click.echo(front_page(context.make_formatter().width, has_all=True))
    context.exit()


with_help(verbs, _show_all_verbs, OPTIONS["--help-all"])
