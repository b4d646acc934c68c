"""One vocabulary: retired words and names stay away from pages, help texts, messages and code; a public name means one thing.

`python -m tests.unit.test_vocabulary` prints which retired words are still in the sources, and where.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import click
import pytest

from tests.figures import SHARED_NAMES
from tests.pages import ROOT, Page, pages
from tests.structure import CONTROL_PLANE, INSTRUMENTS, Module, modules, repeated_names

# Phrases of texts -> what to write instead. Matched in lower case, with any white space between words.
PHRASES: Mapping[str, str] = {
    r"(what|processes that) (dead|killed|a dead|a killed) (runs?|ones?) left": "leftover processes of crashed runs",
    r"outlived (its|their) leader": "leftover processes",
    r"says? how far": "show the progress",
    r"what (a|the) steps? said": "a step's output",
    r"as it went on": "replay",
    r"(hold|holds|held|holding)( \S+){0,3} against": "check against, compare with",
    r"tells? when (it|they) (was|were) changed": "tamper-evident",
    r"anew": "again, recreate",
    r"matrix may become": "variants a matrix may expand to",
    r"times as fast as it was": "playback speed",
    r"good places": "confidence level",
    r"(fall|falls|fell|falling) out": "is an outlier",
    r"no run is going on": "no active run",
    r"is no benchmark, group or tag": "unknown benchmark, group or tag",
    r"given up:": "say what happened",
    r"somebody else (is|has|had|holds|was|runs|owns)": "another process, another user",
    r"is missing: the": "missing option",
    r"what is asked( for)?": "criteria, requested",
    r"nobody reads": "the control plane stopped reading",
    r"(is|was|were|are|be|been) cut off": "incomplete, interrupted, truncated",
    r"without a word": "stderr is empty",
    r"cannot be noted": "cannot write the completion marker",
    r"laid out in time": "overlaps",
    r"whatever but": "any exit except",
    r"goes on only with": "only its own steps fail",
    r"another measurement": "not comparable",
    r"(above|below) 1 is better": "> 1 means better",
    r"where less is better": "for lower-is-better metrics",
    r"is in the store once": "keyed by",
    r"side by side": "concurrent (instances), in columns (tables)",
    r"signs? of life": "heartbeat",
    r"ways? out": "hint",
    r"give or take": "±",
    r"(measure|measures|measured|measuring) at the same time": "overlapping, concurrent",
    r"(is|was|were|are|be|been) struck|strikes": "killed",
    r"(go|goes|gone|going|went) on with": "continue",
    r"in the place of": "instead of",
    r"is none's": "belongs to nobody",
    r"(is|are|was|were) told (by|of|to|as|at|in|with|all|so|here)": "reported, passed",
    r"by whomever": "by any process",
}
# Variables, parameters and attributes that say nothing about what they hold.
IDENTIFIERS: Mapping[str, str] = {
    "told": "payload, output, message",
    "said": "payload, output, message",
    "way_out": "hint",
    "late_for": "stragglers",
}

PAGES = [page for page in pages() if page.name != "docs/reference/command-line.md"]  # made of the help texts


# Words with one fixed meaning; the glossary has more.
TERMS = (
    *(
        "suite",
        "benchmark",
        "variant",
        "step",
        "launch",
        "replicate",
        "instance",
        "group",
        "rank",
        "node",
        "device",
        "slot",
    ),
    *("plan", "run", "run directory", "event", "record", "observation", "window", "warm-up", "measurement", "summary"),
    *("comparison", "report", "check", "verdict", "validity", "outcome", "attempt"),
)


@pytest.mark.parametrize("term", TERMS)
def test_a_fixed_term_is_in_the_glossary(term: str) -> None:
    assert (ROOT / "docs" / "glossary.md").read_text().count(f"**{term}** |") == 1


def retired_in(text: str) -> list[str]:
    """Return the retired phrases of a text, as they stand in it."""
    return [match[0] for match in _phrases().finditer(" ".join(text.lower().split()))]


@cache
def _phrases() -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{'|'.join(PHRASES)})(?!\w)")


@pytest.mark.parametrize(
    ("text", "retired"),
    [
        ("Make anew what is already\n  there.", ["anew"]),
        ("Hold a run against criteria.", ["hold a run against"]),
        ("A slot holds one instance; criteria are checked against it.", []),
        ("Recreate existing environments.", []),
        ("instances that run side by side", ["side by side"]),
    ],
)
def test_a_retired_phrase_is_seen(text: str, retired: list[str]) -> None:
    assert retired_in(text) == retired


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_a_page_uses_no_retired_word(page: Page) -> None:
    # A block shows what a program prints: what the sources say.
    assert retired_in(page.prose) == []


def test_no_help_text_uses_a_retired_word() -> None:
    assert {name: words for name, text in help_texts() if (words := retired_in(text))} == {}


@pytest.mark.parametrize("tree", [CONTROL_PLANE, INSTRUMENTS], ids=["milabench", "benchmate"])
def test_no_message_or_docstring_uses_a_retired_word(tree: Path) -> None:
    within = {path: module for path, module in sources().items() if path.startswith(_relative(tree))}
    assert dict(retired_texts(within)) == {}


def test_no_variable_says_nothing() -> None:
    assert dict(retired_identifiers(sources())) == {}


def test_a_page_that_the_sources_name_exists() -> None:
    names = {page.path.name for page in pages()}
    # A page by its name alone, or by its path.
    named = {path for module in sources().values() for path in re.findall(r"[\w/-]+(?:\.\d+)?\.md\b", module.source)}
    named -= {f"{name}.md" for name in ("report", "acceptance", "comparison", "summary")}  # files that users write
    assert {path for path in named if not ((ROOT / path).exists() if "/" in path else path in names)} == set()


@pytest.mark.parametrize("tree", [CONTROL_PLANE, INSTRUMENTS], ids=["milabench", "benchmate"])
def test_a_public_name_is_defined_once_in_a_distribution(tree: Path) -> None:
    repeated = repeated_names(modules(tree))
    assert {name: where for name, where in repeated.items() if name not in SHARED_NAMES} == {}


@cache
def sources() -> Mapping[str, Module]:
    """Return the modules of both distributions, by path."""
    return {
        _relative(module.path): module for tree in (CONTROL_PLANE, INSTRUMENTS) for module in modules(tree).values()
    }


def help_texts() -> Iterator[tuple[str, str]]:
    """Yield every text that `--help` shows, with the command or option that it belongs to."""
    from milabench.cli.verbs import COMMANDS, verbs

    yield from ((f"milabench: {name}", text) for name, text in COMMANDS.items())
    yield from _help_texts(verbs, "milabench")


def _help_texts(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
    yield name, " ".join(filter(None, (command.help, command.short_help, command.epilog)))
    for option in command.params:
        if isinstance(option, click.Option):
            yield f"{name} {option.opts[0]}", option.help or ""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for each in command.list_commands(context):
            child = command.get_command(context, each)
            assert child is not None
            yield from _help_texts(child, f"{name} {each}")


def retired_texts(trees: Mapping[str, Module]) -> Iterator[tuple[str, list[str]]]:
    """Yield `file:line` of string literals and docstrings with retired phrases, with these."""
    for path, module in trees.items():
        for node in ast.walk(module.tree):
            text = _text_of(node)
            if text and (words := retired_in(text)):
                assert isinstance(node, ast.expr)
                yield f"{path}:{node.lineno}", words


def _text_of(node: ast.AST) -> str:
    match node:
        case ast.JoinedStr(values=values):
            return "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in values)
        case ast.Constant(value=str(text)):
            return text
    return ""


def _relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def retired_identifiers(trees: Mapping[str, Module]) -> Iterator[tuple[str, str]]:
    """Yield `file:line` of names that are bound or used, and are retired, with the name."""
    for path, module in trees.items():
        for node in ast.walk(module.tree):
            match node:
                case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) if name in IDENTIFIERS:
                    yield f"{path}:{node.lineno}", name


def main() -> None:
    """Print what is left in the sources."""
    remaining = {
        "help texts": list(help_texts_with_retired()),
        "messages and docstrings": list(retired_texts(sources())),
        "variables": list(retired_identifiers(sources())),
        "public names defined twice": [
            (name, where)
            for tree in (CONTROL_PLANE, INSTRUMENTS)
            for name, where in repeated_names(modules(tree)).items()
            if name not in SHARED_NAMES
        ],
    }
    for title, entries in remaining.items():
        print(f"== {title}: {len(entries)}")
        for entry in entries:
            print("  ", entry if isinstance(entry, str) else ": ".join(map(str, entry)))


def help_texts_with_retired() -> Iterator[tuple[str, list[str]]]:
    yield from ((name, words) for name, text in help_texts() if (words := retired_in(text)))


if __name__ == "__main__":
    main()
