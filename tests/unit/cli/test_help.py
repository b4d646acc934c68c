"""What `--help` and `--help-all` show, at every verb."""

from __future__ import annotations

import re

import click
import pytest
from click.testing import CliRunner

from milabench import cli
from milabench.cli import front_page
from milabench.cli.front_page import COMMANDS, GROUPS, REMOVED
from milabench.cli.help import MOST_SHOWN, common_options, long_name
from milabench.cli.verbs import verbs

OPTION = re.compile(r"^  (?:-\w, )?(--[a-z-]+)", re.M)


def shown(*argv: str) -> str:
    return CliRunner().invoke(verbs, argv, prog_name="milabench", standalone_mode=False, catch_exceptions=False).output


def every() -> list[tuple[str, click.Command]]:
    found, pending = [], [(name, verbs.get_command(click.Context(verbs), name)) for name in COMMANDS]
    for name, command in pending:
        assert command is not None
        found.append((name, command))
        if isinstance(command, click.Group):
            pending += [(f"{name} {child}", each) for child, each in command.commands.items()]
    return found


def test_the_verbs_stand_in_at_most_four_groups_with_a_line_each() -> None:
    assert len(GROUPS) <= 4
    text = shown("--help-all")
    for name, line in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(line)}$", text, re.M), name
    assert [line for line in COMMANDS.values() if line.endswith(".") or not line[0].isupper()] == []


def test_the_first_page_shows_the_main_job_and_one_line_that_leads_to_the_rest() -> None:
    text = shown("--help")
    verbs_shown = re.findall(r"^  ([a-z][a-z-]*) {2,}[A-Z]", text, re.M)
    assert verbs_shown == list(front_page.MAIN)
    assert len(verbs_shown) == 14
    rest = re.search(r"^  (\d+) more commands: milabench --help-all$", text, re.M)
    assert rest is not None
    assert int(rest[1]) + len(verbs_shown) == len(COMMANDS)
    assert len(text.splitlines()) <= 35


def test_the_front_page_says_of_the_options_what_they_are() -> None:
    options = [option for option in verbs.params if isinstance(option, click.Option) and not option.hidden]
    assert {", ".join(sorted(each.opts, key=len)): each.help for each in options} == front_page.OPTIONS
    assert verbs.help == front_page.ABOUT


@pytest.mark.parametrize("columns", ["", "0", "40", "60", "80", "200", "wide"])
@pytest.mark.parametrize("argv", [["--help"], ["-h"], ["help"], ["--help-all"]])
def test_the_front_page_is_the_same_by_click_and_without(
    argv: list[str], columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    printed = []
    for words in (argv, ["--traceback", *argv]):  # with any other option it is click that reads the line
        monkeypatch.setattr("sys.argv", ["milabench", *words])
        assert cli.run_command_line() == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert max(map(len, printed[0].splitlines())) <= 80


def test_help_of_run_shows_what_people_need_and_how_to_see_the_rest() -> None:
    text = shown("run", "--help")
    options = set(OPTION.findall(text)) - {"--help", "--help-all", "--no-color"}
    assert len(options) <= MOST_SHOWN
    assert {"--config", "--select", "--profile", "--repeat", "--dry-run"} <= options
    rest = re.search(r"^(\d+) more options: milabench run --help-all$", text, re.M)
    assert rest is not None
    whole = set(OPTION.findall(shown("run", "--help-all")))
    assert len(whole) == int(rest[1]) + len(options) + 3


def test_a_verb_with_few_options_shows_all_of_them() -> None:
    assert "more option" not in shown("status", "--help")
    assert "--run" in shown("status", "--help")


@pytest.mark.parametrize(("name", "command"), every(), ids=[name for name, _ in every()])
def test_help_all_shows_every_option_with_its_variable(name: str, command: click.Command) -> None:
    if isinstance(command, click.Group):
        return
    text = " ".join(shown(*name.split(), "--help-all").split())
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden:  # one that was removed
            assert long_name(option) in text
            # What is about one command has no variable: a shell's own would change all commands.
            assert option.is_eager or option.envvar == () or f"[env: {option.envvar}]" in text, long_name(option)
    assert shown(*name.split(), "--help-all") == shown(*name.split(), "--help-all")


def test_help_leaves_the_options_as_they_are() -> None:
    before = shown("run", "--help-all")
    shown("run", "--help")
    assert shown("run", "--help-all") == before


def test_no_verb_shows_more_than_fits_a_screen() -> None:
    many = {name: len(common_options(command)) for name, command in every() if len(common_options(command)) > 16}
    assert many == {}


@pytest.mark.parametrize("line", ["help", "help run", "help db query"])
def test_help_is_a_word_too(line: str) -> None:
    words = line.split()[1:]
    assert shown(*line.split()) == shown(*words, "--help")


@pytest.mark.parametrize("name", REMOVED)
def test_a_verb_that_was_removed_says_what_there_is_instead(name: str) -> None:
    with pytest.raises(click.UsageError, match=f"'{name}' was removed. ") as error:
        shown(name, "whatever", "--option")
    assert error.value.exit_code == 2


def test_help_of_an_unknown_verb_names_the_nearest() -> None:
    with pytest.raises(click.UsageError, match=r"no command 'reprot'. Did you mean report"):
        shown("help", "reprot")


@pytest.mark.parametrize("name", [name for name, command in every() if isinstance(command, click.Group)])
def test_the_line_of_a_command_in_a_group_is_whole(name: str) -> None:
    assert "..." not in shown(name, "--help").partition("Commands:")[2]


def test_help_says_the_default_that_there_is() -> None:
    text = " ".join(shown("report", "--help").split())
    assert "from the output file's ending, else brief." in text and "else text." not in text
    assert "else text." in " ".join(shown("tender", "explain", "--help").split())
    text = " ".join(shown("quickstart", "--help").split())
    assert "shipped suite. Default: quickstart." in text and "standard" not in text
