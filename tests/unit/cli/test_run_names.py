"""How runs are named: as arguments or with --run, by path, by name or by a word, at every verb that takes runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import click
import pytest

from milabench.analysis.run_status import run_status
from milabench.cli.verbs import COMMANDS, verbs, with_verb_joined
from milabench.errors import NothingSelected
from milabench.events.runs_folder import find_run
from milabench.execute.locks import Orchestrator
from milabench.following.runs_command import runs_table
from milabench.workflow.run_lookup import RunHandle
from tests.commands import Said
from tests.recorded_run import Recorded, rates, record

Milabench = Callable[..., Said]
# The verbs that take runs, with what else they need to tell which one they took; the others take none.
ONE = ("status", "logs", "replay", "cancel", "resume", "accept", "stacks")
BESIDE_OTHERS = ("accept plan", "accept recheck", "accept looks")  # what they take besides, other tests give them
SEVERAL = ("report", "compare", "bundle", "export", "db add", "baseline", "outliers", "project")


def command_of(line: str) -> click.Command:
    command: click.Command = verbs
    for word in with_verb_joined(line.split()):
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), word)
        assert found is not None
        command = found
    return command


@pytest.mark.parametrize("verb", [*ONE, *SEVERAL, *BESIDE_OTHERS])
def test_every_verb_that_takes_runs_takes_them_both_ways(verb: str) -> None:
    params = {name for each in command_of(verb).params for name in each.opts}
    assert {"--run", "runs" if verb in SEVERAL else "run"} <= params


def test_no_other_verb_takes_runs() -> None:
    takes = {name for name in COMMANDS if {"run", "runs"} & {each.name for each in command_of(name).params}}
    # The run of import-meter is followed by the file of the meter, so that it has to be there.
    assert takes == {*ONE, *SEVERAL, *BESIDE_OTHERS, "import-meter"} - {"db add"}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A base with three runs of the same second: of those the last by name is the latest."""
    for name in ("first", "second", "third one"):
        record(tmp_path, Recorded(events=rates(100.0)), name=name)
    return tmp_path


def reported(milabench: Milabench, base: Path, *argv: str) -> list[str]:
    """The names of the runs that a report is on."""
    said = milabench("report", "--json", "--base", str(base), *argv)
    assert said.code == 0, said.err
    found = json.loads(said.out)
    return [unquote(one["run"].partition(".")[0]) for one in found.get("runs", [found])]


@pytest.mark.parametrize(
    ("argv", "names"),
    [
        ((), ["third one"]),
        (("latest",), ["third one"]),
        (("latest~1",), ["second"]),
        (("latest~2", "latest"), ["first", "third one"]),
        (("--run", "first"), ["first"]),
        (("--run", "first", "--run", "third one"), ["first", "third one"]),
    ],
)
def test_a_run_is_named_by_word_or_name(
    milabench: Milabench, base: Path, argv: tuple[str, ...], names: list[str]
) -> None:
    assert reported(milabench, base, *argv) == names


def test_a_number_behind_a_name_is_an_earlier_run_of_it(tmp_path: Path) -> None:
    paths = [record(tmp_path, Recorded(events=rates(100.0)), name="node").path for _ in range(3)]
    assert [find_run(tmp_path, word).path for word in ("node", "node~1", "node~2")] == paths[::-1]
    with pytest.raises(NothingSelected, match="node~3"):
        find_run(tmp_path, "node~3")


def test_a_run_in_progress_has_steps_to_do_and_the_time_since_it_began(tmp_path: Path) -> None:
    run = record(tmp_path, Recorded(events=rates(100.0), outcome=None), is_ended=False)
    holder = Orchestrator(pid=1, pid_start=1, boot="b", host="h", user="u", marker="m", since=0.0)
    table = runs_table([RunHandle(run=run, status=run_status(run), holder=holder)])
    assert ("1 to do" in table, "missing" in table, " 0.0 s" in table) == (True, False, False)


def test_a_variable_names_runs_where_the_command_line_does_not(
    milabench: Milabench, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILABENCH_RUN", "third one")
    assert reported(milabench, base) == ["third one"]
    assert reported(milabench, base, "second") == ["second"]
    assert milabench("status", "--base", str(base)).out.startswith("third")
    assert milabench("status", "second", "--base", str(base)).out.startswith("second.")
    monkeypatch.setenv("MILABENCH_RUN", "first:third one")
    assert reported(milabench, base) == ["first", "third one"]


def test_the_output_of_a_step_of_a_run_is_named_both_ways(milabench: Milabench, base: Path) -> None:
    here = ("--base", str(base))
    said = [milabench("logs", "digits", *words, *here) for words in (("first",), ("--run", "first"))]
    assert said[0] == said[1]
    assert said[0].code == 0


@pytest.mark.parametrize("verb", ["report first", "status first", "logs digits first", "compare first second"])
def test_both_ways_at_once_are_refused(milabench: Milabench, base: Path, verb: str) -> None:
    said = milabench(*verb.split(), "--run", "second", "--base", str(base))
    assert said.code == 2
    assert said.err == "error: name runs as arguments or with --run, not both ways\n"


def test_a_run_called_latest_is_that_run(milabench: Milabench, base: Path) -> None:
    record(base, Recorded(events=rates(1.0)), name="latest")
    assert reported(milabench, base, "latest") == ["latest"]


@pytest.mark.parametrize("verb", ["compare", "baseline -o x.json"])
def test_what_needs_runs_says_how_they_are_named(milabench: Milabench, verb: str) -> None:
    said = milabench(*verb.split())
    assert said.code == 2
    assert "missing argument RUNS: a run directory, the name of a run below the base, latest" in said.err


def test_before_the_first_run_there_is_no_latest(milabench: Milabench, base: Path) -> None:
    said = milabench("report", "latest~9", "--base", str(base))
    assert said.code == 3
    assert "no run is called 'latest~9'" in said.err


def test_a_file_to_write_given_as_a_run_is_answered_with_its_option(milabench: Milabench, base: Path) -> None:
    said = milabench("report", "page.html", "--base", str(base))
    assert (said.code, said.err.endswith(". To write that file, give -o page.html\n")) == (3, True)


@pytest.mark.parametrize("place", ["{}/runs/first", "{}/runs/third one"])
def test_a_path_may_end_in_the_name_that_a_run_was_given(milabench: Milabench, base: Path, place: str) -> None:
    elsewhere = base / "another base"
    path = place.format(base)
    assert reported(milabench, elsewhere, path) == [Path(path).name]
    assert reported(milabench, elsewhere, "--runs", path) == [Path(path).name]  # as milabench 1.3 has it
    said = milabench("report", str(base / "runs" / "fir"))
    assert (said.code, said.err) == (6, f"error: {base}/runs/fir: no such run directory\n")
