"""What the command line of a program of cases means."""

from __future__ import annotations

import pytest

from benchmate.cases.options import CaseOptions, Output, RunBudget, UsageError, parse_options


def test_by_default_every_case_runs_once_and_a_table_is_shown() -> None:
    assert parse_options([], {}) == CaseOptions()


@pytest.mark.parametrize(
    ("argv", "budget"),
    [
        (["--benchmark_min_time=0.5s"], RunBudget(iterations=None, min_time_s=0.5)),
        (["--benchmark_min_time=2"], RunBudget(iterations=None, min_time_s=2.0)),
        (["--benchmark_min_time=10x"], RunBudget(iterations=10)),
        (["--benchmark_min_time=9s", "--benchmark_min_warmup_time=1", "--benchmark_dry_run"], RunBudget()),
        (["--benchmark_min_warmup_time=0.5"], RunBudget(warmup_s=0.5)),
    ],
)
def test_how_often_run_is_called(argv: list[str], budget: RunBudget) -> None:
    assert parse_options(argv, {}).budget == budget


def test_few_bit_and_google_options_are_synonyms() -> None:
    assert parse_options(["-f", "MNLI"], {}).pattern == parse_options(["--benchmark_filter=MNLI"], {}).pattern
    assert parse_options(["-l"], {}).action == parse_options(["--benchmark_list_tests"], {}).action == "list"


def test_the_environment_gives_google_options_and_the_command_line_wins() -> None:
    env = {"BENCHMARK_REPETITIONS": "9", "BENCHMARK_FILTER": "CoLA"}
    found = parse_options(["--benchmark_repetitions=3"], env)
    assert (found.repetitions, found.pattern.pattern) == (3, "CoLA")


@pytest.mark.parametrize("text", ["", "all"])
def test_an_empty_filter_and_all_mean_everything(text: str) -> None:
    assert parse_options([f"--benchmark_filter={text}"], {}).pattern.pattern == ""


def test_a_filter_after_a_minus_is_negated() -> None:
    found = parse_options(["--benchmark_filter=-MNLI"], {})
    assert (found.pattern.pattern, found.negated) == ("MNLI", True)


@pytest.mark.parametrize(
    ("argv", "outputs"),
    [
        (["-T", "csv", "-o", "out.csv"], [Output(format="csv", path="out.csv")]),
        (["-T", "csv"], [Output(format="csv")]),
        (["--benchmark_format=json"], [Output(format="google-json")]),
        (["--benchmark_out=o.json"], [Output(format="stdout"), Output(format="google-json", path="o.json")]),
        (
            ["--benchmark_format=console", "--benchmark_out=o", "--benchmark_out_format=csv"],
            [Output(format="google-console"), Output(format="google-csv", path="o")],
        ),
    ],
)
def test_results_go_to_standard_output_and_to_files(argv: list[str], outputs: list[Output]) -> None:
    assert list(parse_options(argv, {}).outputs) == outputs


@pytest.mark.parametrize(
    ("text", "lock", "wait_s"),
    [("wait", "wait", None), ("wait:5", "wait", 5.0), ("fail", "fail", None), ("none", "none", None)],
)
def test_how_long_a_lock_is_waited_for(text: str, lock: str, wait_s: float | None) -> None:
    found = parse_options(["--lock", text], {})
    assert (found.lock, found.lock_wait_s) == (lock, wait_s)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (
            ["-f", "RoBERTa/("],
            "-f 'RoBERTa/(': not a regular expression: missing ), unterminated subpattern, at its character 9",
        ),
        (["-t", "0"], "0 would let no case run"),
        (["-t", "soon"], "'soon': expected seconds"),
        (["-d", "nan"], "'nan': expected seconds"),
        (["-T", "xml"], "invalid choice: 'xml'"),
        (["-T", "csv", "--benchmark_format=json"], "both choose the format of standard output"),
        (["--benchmark_min_time=0x"], "'0x': expected seconds or iterations"),
        (["--benchmark_repetitions=0"], "'0': expected a whole number of at least 1"),
        (["--benchmark_dry_run=perhaps"], "'perhaps': expected true or false"),
        (["--benchmark_context=a"], "'a': expected key=value"),
        (["--lock", "wait:"], "'wait:': expected wait, wait:SECONDS, fail or none"),
        (["--benchmark_fliter=x"], "unrecognized arguments: --benchmark_fliter=x"),
    ],
)
def test_a_command_line_that_cannot_be_is_refused_in_a_line(argv: list[str], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_options(argv, {})
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_wrong_variable_is_named() -> None:
    with pytest.raises(UsageError, match="BENCHMARK_FORMAT='xml': expected one of console, json, csv"):
        parse_options([], {"BENCHMARK_FORMAT": "xml"})
