"""`milabench completion`: what makes a shell complete commands, options and benchmark names; and the names themselves.

A shell asks at every tab, so names come from a glance at the suite's lines, without reading what they mean.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import click
from click.shell_completion import CompletionItem

SHELLS = ("bash", "zsh", "fish")
# The keys of a file that are not benchmarks.
_FILE_KEYS = ("include", "system", "multirun", "profile")
_TOP = re.compile(r"""(?:"((?:[^"\\]|\\.)+)"|'([^']+)'|([^\s#"'{}\[\]&*!|>%@`,-][^:#]*?))\s*:(?:\s|$)""")
_INCLUDE = re.compile(r"[\w./~+-]+\.ya?ml")
_TAGS = re.compile(r"[{\s,]tags:\s*\[([^\]]*)\]")
_MATRIX = re.compile(r"[{\s]matrix:")
_MAX_FILES = 100


@click.command("completion", help="Print what makes a shell complete commands, options and benchmark names.")
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> int:
    """Print the script; each shell is told where to put it by a comment on the first line."""
    from click.shell_completion import ShellComplete, get_completion_class

    from milabench.cli import PROGRAM
    from milabench.cli.verbs import verbs

    found = get_completion_class(shell)
    assert found is not None
    # Not the class's own `source`: that of bash starts a bash only to learn its version.
    script = ShellComplete.source(found(verbs, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE"))
    click.echo(f"# {_WAYS_IN[shell]}\n{script}", nl=False)
    return 0


_WAYS_IN = {
    "bash": "milabench completion bash > ~/.local/share/bash-completion/completions/milabench",
    "zsh": "milabench completion zsh > ~/.zfunc/_milabench, with ~/.zfunc in fpath",
    "fish": "milabench completion fish > ~/.config/fish/completions/milabench.fish",
}


def complete_benchmark(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Benchmarks that begin so."""
    return [CompletionItem(name) for name in benchmarks(ctx) if name.startswith(incomplete)]


def complete_selection(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Benchmarks and tags for the last entry of a comma list."""
    before, comma, last = incomplete.rpartition(",")
    return [CompletionItem(before + comma + word) for word in selectors(ctx) if word.startswith(last)]


def benchmarks(ctx: click.Context) -> list[str]:
    """The names of the suite that the command line, or the environment, asks for; none where it cannot be read."""
    texts = list(_texts(ctx))
    if any(_MATRIX.search(text) for text in texts) and (found := _all_names(ctx)) is not None:
        return found
    return list(dict.fromkeys(name for text in texts for name in _names(text)))


def selectors(ctx: click.Context) -> list[str]:
    """The names, then the tags."""
    tags = {tag.strip(" \"'") for text in _texts(ctx) for found in _TAGS.finditer(text) for tag in found[1].split(",")}
    return list(dict.fromkeys([*benchmarks(ctx), *sorted(tags - {""})]))


def _all_names(ctx: click.Context) -> list[str] | None:
    """The names with those of matrix jobs, which only reading all of the suite can tell; None where it cannot be read."""
    from milabench.config.read import read_suite
    from milabench.errors import MilabenchError

    path = _suite(ctx)
    try:
        return list(read_suite([path] if path is not None else [], env=os.environ).benchmarks)
    except MilabenchError:
        return None


def _names(text: str) -> Iterator[str]:
    """The keys at the left edge that are benchmarks; a matrix, whose jobs have names of their own, is left out."""
    keys = [match for line in re.finditer(r"^\S.*", text, re.MULTILINE) if (match := _TOP.match(text, line.start()))]
    for number, match in enumerate(keys):
        name = re.sub(r"\\(.)", r"\1", match[1]) if match[1] else match[2] or match[3]
        body = text[match.end() : keys[number + 1].start() if number + 1 < len(keys) else len(text)]
        if name not in _FILE_KEYS and not name.startswith("_") and name != "*" and not _MATRIX.search(body):
            yield name


def _texts(ctx: click.Context) -> Iterator[str]:
    """The text of the suite and of what it includes, each file once."""
    seen: set[Path] = set()
    waiting = [path] if (path := _suite(ctx)) is not None else []
    while waiting and len(seen) < _MAX_FILES:
        path = waiting.pop()
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, ValueError):
            continue
        seen.add(path)
        yield text
        for found in re.finditer(r"^include:(.*(?:\n[ -].*)*)", text, re.MULTILINE):
            included = [path.parent / Path(name).expanduser() for name in _INCLUDE.findall(found[1])]
            waiting += [each for each in included if each not in seen]


def _suite(ctx: click.Context) -> Path | None:
    asked = ctx.params.get("config_file") or os.environ.get("MILABENCH_CONFIG")
    if asked:
        return Path(asked).expanduser()
    root = Path(__file__).resolve().parents[3]
    standard = (folder / "config" / "standard.yaml" for folder in (Path.cwd(), root))
    return next((path for path in standard if path.is_file()), None)
