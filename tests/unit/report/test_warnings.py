"""Each warning names the launch, the step and the seconds that it is about, in text, page and JSON; what to do about it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from milabench import pages as html
from milabench.analysis.summary import summarise
from milabench.analysis.summary_model import Summary
from milabench.events.model import Data, Event
from milabench.report import brief, model, text
from milabench.report import json as json_report
from milabench.report.labels import percents
from tests.changed_values import replace
from tests.recorded_run import Recorded, complete_window, record

S = 10**9


def launch(level: float = 1.0, frozen_at: int = -1) -> tuple[Event, ...]:
    """200 steps of 0.1 s, one of which may be 8 s longer."""
    now, events = 0.0, list[Event](complete_window(steps=60))
    for index in range(200):
        lasted_s = 0.1 * level * (1 + index % 7 / 1000) + (8.0 if index == frozen_at else 0.0)
        times = {"t0_ns": round(now * S), "host_ns": round(lasted_s * S), "elapsed": lasted_s}
        events.append(Data(step="", data={"task": "train", "units": "items/s", "n": 8, "rate": 8 / lasted_s, **times}))
        now += lasted_s
    return tuple(events)


def summary_of(base: Path, *launches: tuple[Event, ...], **options: object) -> Summary:
    steps = [Recorded(repeat=at, events=events) for at, events in enumerate(launches)]
    argv = ["milabench", "run", "--base", "b", "--config", "my suite.yaml", "--select", "digits"]
    words = {"config_file": "/x/my suite.yaml", "base": "/x/b", "select": "digits", "repeat": 3, "profile": "default"}
    return summarise(record(base, *steps, manifest={"argv": argv, "options": {**words, **options}}))


def test_a_stall_is_named_with_its_step_and_launch_everywhere(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, launch(), launch(), launch(frozen_at=149))
    where = "8 s at step 150 of repeat 2"
    assert summary.benchmarks[0].imprecision is not None
    for shown in (brief.render([summary]), text.render([summary]), html.render([summary])):
        assert where in shown
    (component, *_) = summary.to_json()["benchmarks"][0]["uncertainty"]["components"]
    assert (component["name"], component["repeat"], component["step"]) == ("stalls", 2, 150)
    assert component["seconds"] == pytest.approx(8, rel=0.01)
    assert json_report.render([summary]).count('"step": 150') == 2  # of the component, and of the repeat
    assert model.next_line(summary).endswith(f": again, once the cause of the pauses is found (digits: {where})")


def test_a_launch_that_is_unlike_the_others_is_named_and_more_are_asked_for(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, launch(), launch(1.4), launch())
    assert "between repeats, repeat 1 furthest off; 5 % asked" in brief.render([summary])
    assert model.next_line(summary) == (
        "`milabench run --config '/x/my suite.yaml' --base /x/b --profile default --precision 5% --select digits`: "
        "as many repeats as 5 % needs"
    )
    precise = replace(
        summary, aim={"precision": 0.04}, options={**summary.options, "precision": "4%", "budget": "1h", "repeat": None}
    )
    assert model.next_line(precise) == (
        "`milabench run --config '/x/my suite.yaml' --base /x/b --profile default --repeat 6 --select digits`: "
        "twice as many repeats"
    )


def test_where_more_repeats_do_not_help_the_report_says_so_and_proposes_something_else(tmp_path: Path) -> None:
    levels = (1.0, 1.4, 1.2)  # each differs from the others, and each stood still for as long
    steps = [launch(level, frozen_at=149) for level in levels]
    summary = replace(summary_of(tmp_path, *steps), aim={"precision": 0.05}, replicates={"digits": {"planned": 3}})
    assert summary.benchmarks[0].uncertainty is not None
    assert summary.benchmarks[0].uncertainty.components[0].name == "launches"
    (said,) = [line for line in text.render([summary]).splitlines() if "3 repeats for a precision" in line]
    assert re.fullmatch(r" +digits: 3 repeats for a precision of 5 %; reached ± \d+ %\. More do not help: stalls", said)
    assert ": again, once the cause of the pauses is found (digits: 8 s at step 150 " in model.next_line(summary)


def test_a_check_names_the_launches_that_it_is_about(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, launch(), launch(), launch())
    warned = {"check": "loss", "verdict": "warn", "numbers": {}, "message": "the loss did not move"}
    bench = replace(
        summary.benchmarks[0],
        validity="suspect",
        doubts=("dropped", "overlap"),
        doubt_repeats={"dropped": (1,)},
        validations=[{**warned, "step": f"digits.D0.R{at}"} for at in (0, 2)],
    )
    assert model.warnings_of(bench) == {
        "dropped": "repeat 1: records were lost",
        "overlap": "ranks or instances measured together for less than 95 % of the time",
        "loss": "repeat 0, 2: the loss did not move",
    }
    assert "dropped: repeat 1: records were lost" in html.render([replace(summary, benchmarks=(bench,))])
    assert model.next_line(replace(summary, benchmarks=(bench,))) == (
        f"`milabench report {summary.run} --full --base /x/b`: why 1 number is suspect"
    )


def test_a_reason_of_some_launches_has_them_in_the_report(tmp_path: Path) -> None:
    steps = [Recorded(repeat=at, events=launch(), reasons=("dropped",) if at == 1 else ()) for at in range(3)]
    (bench,) = summarise(record(tmp_path, *steps)).benchmarks
    assert bench.to_json()["reason_repeats"] == {"dropped": [1]}


@pytest.mark.parametrize(
    ("argv", "again"),
    [
        (["--base", "b", "sleep 1"], "milabench bench --runs 3 --base b 'sleep 1'"),
        (["--runs", "2", "--", "ls", "--runs"], "milabench bench --runs 3 -- ls --runs"),
        (["--runs=2", "a", "b c"], "milabench bench --runs 3 a 'b c'"),
    ],
)
def test_commands_are_measured_again_by_the_words_that_were_typed(tmp_path: Path, argv: list[str], again: str) -> None:
    summary = summary_of(tmp_path, launch(), launch())
    assert f"`{again}`" in model.next_line(replace(summary, argv=["milabench", "bench", *argv]))


def test_shares_above_one_are_no_powers_of_ten() -> None:
    assert [percents(each) for each in (0.0025, 0.01, 0.994, 1.0, 5.18)] == ["0.25 %", "1 %", "99 %", "100 %", "518 %"]


def test_a_score_without_a_number_and_a_reference_is_relative_to_nothing(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, launch())
    none = replace(summary, score=replace(summary.score, value=None, reference=None, is_compat=True))
    assert model.score_line(none).startswith("none (") and "None" not in model.score_line(none)
