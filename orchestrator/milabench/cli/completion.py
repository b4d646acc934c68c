"""`milabench completion`, and the names that a shell completes.

A shell asks at every tab, so names come from the suite's lines alone, without interpreting them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from milabench.cli import COMPLETION
from milabench.devices.regular_file import MIB, read_regular
from milabench.errors import MilabenchError, RecordError, UsageError
from milabench.workflow.files import base_folder, suite_file
from milabench.workflow.suites_used import last_chosen

SHELLS = ("bash", "zsh", "fish")
# The keys of a file that are not benchmarks.
_FILE_KEYS = ("include", "system", "multirun", "profile", "precision")
# A key at the start of a line: in double quotes, in single quotes, or plain.
_TOP = re.compile(r"""(?:"((?:[^"\\]|\\.)+)"\s*|'([^']+)'\s*|([^\s#"'{}\[\]&*!|>%@`,-][^:#\n]*)):(?:\s|$)""")
_WORD = re.compile(r"[\w./~+-]+")
_TAGS = re.compile(r"[{\s,]tags:\s*\[([^\]]*)\]")
_MATRIX = re.compile(r"[{\s]matrix:")
# A shell inserts a name as it is, so what it would run behind Enter is not offered: `a$(rm x)`.
_OBEYED = re.compile(r"[$`;&|<>()\\!\x00-\x1f\x7f]")
# The Tab key waits for the answer, and a file may include a whole tree.
_MAX_FILES = 100


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print a shell's completion script for commands, options and benchmark names. Its first line says where to save it."""
    from click.shell_completion import ShellComplete, get_completion_class

    from milabench.cli.front_page import PROGRAM
    from milabench.cli.verbs import verbs

    completion_class = get_completion_class(shell)
    assert completion_class is not None
    # Not the class's own `source`: that of bash starts a bash only to learn its version.
    script = ShellComplete.source(completion_class(verbs, {}, PROGRAM, COMPLETION))
    click.echo(f"# {_INSTALL[shell]}\n{script}", nl=False)


_INSTALL = {
    "bash": "milabench completion bash > ~/.local/share/bash-completion/completions/milabench",
    "zsh": "milabench completion zsh > ~/.zfunc/_milabench, with ~/.zfunc in fpath",
    "fish": "milabench completion fish > ~/.config/fish/completions/milabench.fish",
}


def benchmarks(ctx: click.Context) -> list[str]:
    """Return the benchmarks of the requested suite. Empty where it cannot be read."""
    texts = list(_texts(ctx))
    # The names of variants are only known to the reader of suites, which takes longer than Tab should; only where there are any.
    if any(_MATRIX.search(text) for text in texts) and (names := _all_names(ctx)) is not None:
        return _inert(names)
    return _inert(name for text in texts for name in _names(text))


def selectors(ctx: click.Context) -> list[str]:
    """Return the names, then the tags."""
    tags = {tag.strip(" \"'") for text in _texts(ctx) for match in _TAGS.finditer(text) for tag in match[1].split(",")}
    return _inert([*benchmarks(ctx), *sorted(tags - {""})])


def known_runs(ctx: click.Context) -> list[str]:
    """Return `latest` and the names of the runs below the base, the newest first."""
    folder = base_folder(ctx.params.get("base")) / "runs"
    try:
        found = [(entry.stat().st_mtime, entry.name) for entry in os.scandir(folder) if entry.is_dir()]
    except OSError:
        return []
    return _inert(["latest", *(name for _, name in sorted(found, reverse=True))])


def _inert(names: Iterable[str]) -> list[str]:
    """Return the names that no shell runs anything of, each once."""
    return [name for name in dict.fromkeys(names) if not _OBEYED.search(name)]


def _all_names(ctx: click.Context) -> list[str] | None:
    """Return the names, including matrix variants, for which the suite must be read. None where it cannot be read."""
    from milabench.config.read import read_suite

    path = _suite(ctx)
    try:
        return list(read_suite([path] if path is not None else [], env=os.environ).benchmarks)
    except MilabenchError:
        return None


def _names(text: str) -> Iterator[str]:
    """Yield the top-level keys that are benchmarks, without matrices, whose variants have their own names."""
    keys = [match for line in re.finditer(r"^\S.*", text, re.MULTILINE) if (match := _TOP.match(text, line.start()))]
    for number, match in enumerate(keys):
        name = re.sub(r"\\(.)", r"\1", match[1]) if match[1] else match[2] or match[3].rstrip()
        body = text[match.end() : keys[number + 1].start() if number + 1 < len(keys) else len(text)]
        if name not in _FILE_KEYS and not name.startswith("_") and name != "*" and not _MATRIX.search(body):
            yield name


def _texts(ctx: click.Context) -> Iterator[str]:
    """Yield the text of the suite and of the files that it includes, each once."""
    seen: set[Path] = set()
    waiting = [path] if (path := _suite(ctx)) is not None else []
    while waiting and len(seen) < _MAX_FILES:
        path = waiting.pop()
        try:
            text = read_regular(path, 64 * MIB).decode()
        except (OSError, ValueError):
            continue
        seen.add(path)
        yield text
        for match in re.finditer(r"^include:(.*(?:\n[ -].*)*)", text, re.MULTILINE):
            names = [name for name in _WORD.findall(match[1]) if name.endswith((".yaml", ".yml"))]
            included = [path.parent / Path(name).expanduser() for name in names]
            waiting += [file for file in included if file not in seen]


def _suite(ctx: click.Context) -> Path | None:
    file = ctx.params.get("config_file") or os.environ.get("MILABENCH_CONFIG")
    try:
        if not file:
            base = ctx.params.get("base") or os.environ.get("MILABENCH_BASE")
            chosen = last_chosen(base_folder(Path(base) if base else None))
            return suite_file(None) if chosen is None else chosen.path
        return suite_file(Path(file).expanduser())
    except (RecordError, UsageError):
        return None
