"""What a message tells the user to type can be typed: the options that it names are options of the command that it names."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from milabench.cli.verbs import verbs, with_verb_joined

Milabench = Callable[..., Any]

PACKAGE = Path(__file__).resolve().parents[3] / "orchestrator" / "milabench"
COMMAND = re.compile(r"`milabench ([^`]+)`")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


def command_of(words: list[str]) -> click.Command:
    """The command that these words begin with, a verb or one of a group."""
    command: click.Command = verbs
    for word in with_verb_joined(words):
        if not isinstance(command, click.Group):
            break
        found = command.get_command(click.Context(command), word)
        if found is None:
            break
        command = found
    return command


def options_of(command: click.Command) -> set[str]:
    return {"--help"} | {name for each in command.params for name in (*each.opts, *each.secondary_opts)}


def texts(path: Path) -> Iterator[str]:
    """Every text of a module, with `{}` for what is put into it."""
    inner: set[int] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            inner |= {id(value) for value in node.values}
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.value


RECOMMENDED = sorted(
    {
        (path.relative_to(PACKAGE).as_posix(), match[1])
        for path in PACKAGE.rglob("*.py")
        if "`milabench " in path.read_text()  # most have none, and every collection comes past here
        for text in texts(path)
        for match in COMMAND.finditer(text)
        if "--" in match[1]
    }
)


@pytest.mark.parametrize(("where", "line"), RECOMMENDED)
def test_a_command_that_is_recommended_has_these_options(where: str, line: str) -> None:
    options = options_of(command_of(line.split()))
    assert not {option for option in OPTION.findall(line) if option not in options}, where


def test_there_are_such_messages() -> None:
    assert len(RECOMMENDED) > 10


SUITES = {
    "disabled": "one: {enabled: false, command: [echo], plan: {method: njobs, n: 1}}\n",
    "empty": "{}\n",
    "one": "one: {tags: [t], command: [echo], plan: {method: njobs, n: 1}}\n",
}
# Every verb that reads a suite, with what else it demands.
VERBS = {
    **dict.fromkeys(("install", "prepare", "run", "list", "doctor", "pin", "quickstart"), ()),
    **{f"plan {phase}": () for phase in ("install", "prepare", "run")},
    **{f"config {what}": () for what in ("show", "check")},
    "config explain": ("one.command",),
    "nodes check": (),
    "size": ("one",),
    "dev": ("one", "--", "true"),
}


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("verb", VERBS)
def test_where_nothing_is_selected_the_way_out_is_an_option_of_the_command(
    milabench: Milabench, tmp_path: Path, verb: str, suite: str
) -> None:
    file = tmp_path / "suite.yaml"
    file.write_text(SUITES[suite])
    command = command_of(verb.split())
    options = options_of(command)
    selecting = ["--select", "nothing"] if suite == "one" and "--select" in options else []
    if suite == "one" and not selecting:
        pytest.skip("selects by its argument")
    said = milabench(*verb.split(), "--config", str(file), *selecting, *VERBS[verb])
    own = COMMAND.sub("", said.err)  # but for those of another command, which is named
    assert not {option for option in OPTION.findall(own) if option not in options}, said.err


@pytest.mark.parametrize("what", ["show", "explain"])
def test_the_configuration_of_a_suite_of_which_all_is_disabled_is_shown(
    milabench: Milabench, tmp_path: Path, what: str
) -> None:
    file = tmp_path / "suite.yaml"
    file.write_text(SUITES["disabled"])
    named = {"show": (), "explain": ("one.enabled",)}[what]
    said = milabench("config", what, "--config", str(file), *named)
    assert (said.code, said.err) == (0, "")
    assert re.search(r"enabled(: | = )false", said.out)


def test_the_check_of_a_suite_of_which_all_is_disabled_says_so(milabench: Milabench, tmp_path: Path) -> None:
    file = tmp_path / "suite.yaml"
    file.write_text(SUITES["disabled"])
    said = milabench("config", "check", "--config", str(file))
    assert said.code == 0
    assert said.err == (
        f"{file}: every benchmark is disabled. `milabench run --select NAME` runs a benchmark anyway\n1 file is valid\n"
    )


def test_the_nodes_of_a_suite_of_which_all_is_disabled_are_checked(milabench: Milabench, tmp_path: Path) -> None:
    file = tmp_path / "suite.yaml"
    file.write_text(SUITES["disabled"])
    said = milabench("nodes", "check", "--config", str(file))
    assert (said.code, said.err) == (
        2,
        "error: no nodes: give a system file that has some with --system FILE or MILABENCH_SYSTEM\n",
    )
