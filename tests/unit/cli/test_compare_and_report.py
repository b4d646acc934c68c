"""The verbs `compare` and `report` from option to file, in this process; what they print is held by the golden files."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from milabench.cli import compare, report
from milabench.errors import ConfigError, NothingSelected, RecordError, UsageError
from milabench.events.rundir import Run, open_run
from milabench.following import status_command as status
from milabench.workflow.summaries import stat_digest, store_summary, summary_of
from tests.changed_values import replace
from tests.recorded_run import Recorded, rates, record

Invoke = Callable[..., Result]
SHAPE = (1.0, 1.01, 0.99, 1.005)


@pytest.fixture
def invoke(tmp_path: Path) -> Invoke:
    def run(command: Any, *argv: str | Path) -> Result:
        return CliRunner().invoke(
            command, [*map(str, argv), "--base", str(tmp_path)], standalone_mode=False, catch_exceptions=False
        )

    return run


def made(base: Path, name: str, level: float = 100.0, bench: str = "digits", **more: Any) -> Run:
    steps = [Recorded(bench=bench, repeat=at, events=rates(*[level * each] * 5)) for at, each in enumerate(SHAPE)]
    return record(base, *steps, name=name, **more)


def told(invoke: Invoke, command: Any, *argv: str | Path) -> Any:
    return json.loads(invoke(command, *argv, "--json").stdout)


def test_runs_are_compared_by_name_and_told_by_name(tmp_path: Path, invoke: Invoke) -> None:
    made(tmp_path, "a"), made(tmp_path, "b", 120.0)
    found = invoke(compare.command, "a", "b", "--json")
    comparison = json.loads(found.stdout)["comparison"]
    assert [system["name"] for system in comparison["systems"]] == ["a", "b"]
    assert comparison["benchmarks"][0]["contrasts"][0]["verdict"] == "FASTER"
    assert found.return_value == 0


def test_slower_ends_with_1(tmp_path: Path, invoke: Invoke) -> None:
    made(tmp_path, "a"), made(tmp_path, "b", 80.0)
    assert invoke(compare.command, "a", "b").return_value == 1


def test_what_failed_only_on_the_other_system_ends_with_1(tmp_path: Path, invoke: Invoke) -> None:
    both = [Recorded(bench="other", repeat=at, events=rates(5.0)) for at in range(3)]
    record(tmp_path, Recorded(events=rates(5.0)), *both, name="a")
    record(tmp_path, Recorded(outcome="failed", why="exit"), *both, name="b")
    assert invoke(compare.command, "a", "b").return_value == 1
    assert invoke(compare.command, "b", "a").return_value == 0


@pytest.mark.parametrize(
    ("command", "words"),
    [(report.command, ("--format", form)) for form in ("text", "brief", "markdown", "html", "csv", "junit")]
    + [(status.command, ())],
)
def test_a_failure_names_the_machine_and_not_only_its_number(
    tmp_path: Path, invoke: Invoke, command: Any, words: tuple[str, ...]
) -> None:
    steps = [
        Recorded(node=f"node{at + 1}", suffix=f"node{at}", events=rates(5.0), outcome=outcome, why=why)
        for at, (outcome, why) in enumerate([("passed", None), ("failed", "lost-node"), ("passed", None)])
    ]
    record(tmp_path, *steps)
    shown = invoke(command, "latest", *words).stdout
    assert "digits.D0.node1 on node2" in shown


def test_a_flaky_step_names_the_machine_on_which_it_failed(tmp_path: Path, invoke: Invoke) -> None:
    run = record(tmp_path, Recorded(node="node2", suffix="node1", events=rates(5.0), outcome="failed", why="exit"))
    again = {"step": "digits.D0.node1", "attempt": 2, "node": "node2", "state": "ended", "outcome": "passed"}
    with (run.path / "journal.jsonl").open("a") as journal:
        journal.write(json.dumps(again) + "\n")
    shown = invoke(report.command, run.path, "--full").stdout
    assert "digits.D0.node1 on node2: passed at attempt 2. Attempt 1: exit" in shown


def test_the_command_that_status_shows_can_be_pasted(tmp_path: Path, invoke: Invoke) -> None:
    run = record(tmp_path / "my base", Recorded(outcome="failed", why="exit"))
    assert (
        f"next: `milabench resume '{run.path}'`: runs the steps that did not pass"
        in invoke(status.command, run.path).stdout
    )


def test_runs_of_one_name_are_told_apart(tmp_path: Path, invoke: Invoke) -> None:
    first, second = made(tmp_path, "a"), made(tmp_path, "a", 120.0)
    systems = told(invoke, compare.command, first.path, second.path)["comparison"]["systems"]
    assert [system["name"] for system in systems] == [first.name, second.name]
    systems = told(invoke, compare.command, first.path, first.path)["comparison"]["systems"]
    assert [system["name"] for system in systems] == [f"{first.name}#1", f"{first.name}#2"]
    assert "compared with itself" in invoke(compare.command, first.path, first.path).stderr


@pytest.mark.parametrize("data", ["images", "images\udcff"], ids=["UTF-8", "other"])
@pytest.mark.parametrize(
    ("value", "differs"), [(32, False), (32.0, True), (True, True), ("32", False), (33, True), (None, True)]
)
def test_what_manifests_say_alike_is_told_from_what_only_counts_alike(
    tmp_path: Path, invoke: Invoke, data: str, value: object, differs: bool
) -> None:
    for name, each in (("a", 32), ("b", value), ("c", value)):
        argv = {"--batch": each, "--data": data}
        made(tmp_path, name, manifest={"suite": {"digits": {"argv": argv}}})
    rows = told(invoke, compare.command, "a", "b", "c", "--across")["comparison"]["benchmarks"]
    assert [side["counts"] for side in rows[0]["sides"]] == [True] * 3
    said = invoke(compare.command, "a", "b", "c", "--across", "--why").stdout
    assert ("argv.--batch" in said) == differs


def test_several_runs_of_a_system_are_named_by_commas(tmp_path: Path, invoke: Invoke) -> None:
    for name, level in (("a1", 100.0), ("a2", 102.0), ("b1", 120.0), ("b2", 123.0)):
        made(tmp_path, name, level)
    comparison = told(invoke, compare.command, "a1,a2", " b1, b2 ")["comparison"]
    assert [system["name"] for system in comparison["systems"]] == ["a1,a2", "b1,b2"]
    sides = comparison["benchmarks"][0]["sides"]
    assert [side["sessions"] for side in sides] == [[4, 4], [4, 4]]
    assert sides[0]["value"] == pytest.approx((100.0 * 102.0) ** 0.5, rel=2e-3)


def test_runs_of_one_system_with_one_name_are_called_by_it(tmp_path: Path, invoke: Invoke) -> None:
    runs = [made(tmp_path, name) for name in ("a", "a", "b")]
    comparison = told(invoke, compare.command, f"{runs[0].path},{runs[1].path}", runs[2].path)["comparison"]
    assert [system["name"] for system in comparison["systems"]] == ["a", "b"]
    assert comparison["systems"][0]["sessions"] == [runs[0].name, runs[1].name]


def test_a_comma_in_the_name_of_a_run_or_a_file_is_no_separator(tmp_path: Path, invoke: Invoke) -> None:
    run = made(tmp_path, "a,b")
    made(tmp_path, "b", 120.0)
    report_file = tmp_path / "c,d.json"
    report_file.write_text(invoke(report.command, "b", "--json").stdout)
    for name in ("a,b", run.name, run.path):
        comparison = told(invoke, compare.command, name, report_file)["comparison"]
        assert [len(system["sessions"]) for system in comparison["systems"]] == [1, 1]


def test_a_run_is_one_session_of_a_system(tmp_path: Path, invoke: Invoke) -> None:
    made(tmp_path, "a"), made(tmp_path, "b")
    with pytest.raises(UsageError, match="given twice for the same system"):
        invoke(compare.command, "a,a", "b")


def test_a_copy_or_a_report_of_a_run_is_no_other_session(tmp_path: Path, invoke: Invoke) -> None:
    run, _ = made(tmp_path, "a"), made(tmp_path, "b")
    copy, report_file = tmp_path / "copies" / run.path.name, tmp_path / "a.json"
    shutil.copytree(run.path, copy)
    report_file.write_text(invoke(report.command, "a", "--json").stdout)
    for same in (copy, report_file):
        with pytest.raises(UsageError, match="given twice for the same system"):
            invoke(compare.command, f"a,{same}", "b")


def test_the_page_of_several_runs_names_the_run_of_each_step(tmp_path: Path, invoke: Invoke) -> None:
    a1, a2, b = made(tmp_path, "a1"), made(tmp_path, "a2", 102.0), made(tmp_path, "b", 120.0)
    page = invoke(compare.command, "a1,a2", "b", "--format", "html").stdout
    assert f"{a1.name} digits.D0" in page and f"{a2.name} digits.D0" in page
    assert f"{b.name} digits.D0" not in page


def test_other_arguments_are_compared_across_only(tmp_path: Path, invoke: Invoke) -> None:
    for name, level, size in (("a", 100.0, 64), ("b", 120.0, 128)):
        made(tmp_path, name, level, manifest={"suite": {"digits": {"argv": {"--batch-size": size}}}})
    with pytest.raises(NothingSelected, match="--across compares other arguments"):
        invoke(compare.command, "a", "b")
    comparison = told(invoke, compare.command, "a", "b", "--across")["comparison"]
    assert comparison["benchmarks"][0]["contrasts"][0]["verdict"] == "FASTER"
    assert comparison["differs"] == "--batch-size 64 / 128"


def test_one_run_is_no_comparison(tmp_path: Path, invoke: Invoke) -> None:
    made(tmp_path, "a")
    with pytest.raises(UsageError, match=r"is a single run. Name two or more"):
        invoke(compare.command, "a")


def test_runs_of_different_suites_have_nothing_in_common(tmp_path: Path, invoke: Invoke) -> None:
    made(tmp_path, "a", bench="x"), made(tmp_path, "b", bench="y")
    with pytest.raises(NothingSelected, match="no benchmark in common"):
        invoke(compare.command, "a", "b")


@pytest.mark.parametrize("margin", ["0", "-1%", "200%", "much", "nan"])
def test_a_margin_that_is_none_is_refused(tmp_path: Path, invoke: Invoke, margin: str) -> None:
    with pytest.raises(Exception, match="expected"):
        invoke(compare.command, "a", "b", "--margin", margin)


def test_a_run_still_going_is_compared_as_far_as_it_is(tmp_path: Path, invoke: Invoke) -> None:
    made(tmp_path, "a")
    record(tmp_path, Recorded(events=rates(5.0)), Recorded(bench="y", outcome=None), name="b", is_ended=False)
    warnings = told(invoke, compare.command, "a", "b")["comparison"]["warnings"]
    assert any(warning.startswith("b: the run is incomplete or still active") for warning in warnings)


def test_a_json_report_stands_in_for_its_run(tmp_path: Path, invoke: Invoke) -> None:
    made(tmp_path, "a"), made(tmp_path, "b", 120.0)
    invoke(report.command, "a", "-o", tmp_path / "a.json")
    by_file, by_run = (told(invoke, compare.command, a, "b")["comparison"] for a in (tmp_path / "a.json", "a"))
    assert by_file["indices"] == by_run["indices"]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"schema": 9}', "\x00", '{"schema": 1, "benchmarks": [1]}'])
def test_a_file_that_is_no_report_is_refused(tmp_path: Path, invoke: Invoke, content: str) -> None:
    made(tmp_path, "a")
    (tmp_path / "odd.json").write_text(content)
    with pytest.raises(RecordError, match=r"odd\.json"):
        invoke(compare.command, "a", tmp_path / "odd.json")


def test_the_format_follows_the_files_ending(tmp_path: Path, invoke: Invoke) -> None:
    made(tmp_path, "a")
    for ending, begins in ((".md", "# a."), (".csv", "run,"), (".xml", "<?xml"), (".txt", "run "), (".json", "{")):
        invoke(report.command, "a", "-o", tmp_path / f"out{ending}")
        assert (tmp_path / f"out{ending}").read_text().startswith(begins)
    with pytest.raises(UsageError, match="no format ends in"):
        invoke(report.command, "a", "-o", tmp_path / "out.pdf")
    with pytest.raises(UsageError, match="two formats"):
        invoke(report.command, "a", "--json", "--format", "csv")


def test_a_score_is_relative_to_a_run_a_file_or_what_the_system_file_said(tmp_path: Path, invoke: Invoke) -> None:
    made(tmp_path, "ref", 50.0)
    made(tmp_path, "b", 100.0), made(tmp_path, "c", 100.0, manifest={"reference": "ref"})
    invoke(report.command, "ref", "-o", tmp_path / "ref.json")
    for argv in (("b", "--reference", "ref"), ("b", "--reference", tmp_path / "ref.json"), ("c",)):
        score = told(invoke, report.command, *argv)["score"]
        assert score["value"] == pytest.approx(2.0)
        assert score["reference"].startswith("ref.2026-03-14_12-00-00 (2 x H100, milabench 2.0.0, 2026-03-14,")


def test_a_reference_in_a_system_file_that_is_gone_is_only_warned_of(tmp_path: Path, invoke: Invoke) -> None:
    made(tmp_path, "c", manifest={"reference": "gone"})
    found = invoke(report.command, "c")
    assert "no reference: no run is called 'gone'" in found.stderr
    with pytest.raises(NothingSelected):
        invoke(report.command, "c", "--reference", "gone")


def test_the_score_of_milabench_1_3_is_named_so(tmp_path: Path, invoke: Invoke) -> None:
    made(tmp_path, "a")
    assert "compat: the score of milabench 1.3" in invoke(report.command, "a", "--score", "compat").stdout
    with pytest.raises(UsageError, match="is not relative to a reference"):
        invoke(report.command, "a", "--score", "compat", "--reference", "a")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "is empty"),
        ("- a\n", "expected a mapping, got a list"),
        ("digits: much\n", "digits: expected a number"),
        ("digits: -1\n", "digits: expected a number that is at least 0"),
        ("weights: {digits: .nan}\n", "weights.digits: expected a number"),
        ("digits: 0\n", "no weight is above zero"),
        ("a: [\n", "weights.yaml"),
    ],
)
def test_a_bad_weight_profile_is_refused_with_its_place(
    tmp_path: Path, invoke: Invoke, content: str, says: str
) -> None:
    made(tmp_path, "a")
    (tmp_path / "weights.yaml").write_text(content)
    with pytest.raises(ConfigError, match=says):
        invoke(report.command, "a", "--weights", tmp_path / "weights.yaml")


def test_a_weight_profile_for_another_suite_is_refused(tmp_path: Path, invoke: Invoke) -> None:
    made(tmp_path, "a")
    (tmp_path / "weights.yaml").write_text("llama: 1\n")
    with pytest.raises(UsageError, match="name no benchmark of this run: digits"):
        invoke(report.command, "a", "--weights", tmp_path / "weights.yaml")


def test_costs_come_from_the_system_file_or_a_file_of_the_reader(tmp_path: Path, invoke: Invoke) -> None:
    costs = {"price": 8766.0, "years": 1, "power_W": 1000, "electricity": 0.5, "currency": "EUR"}
    made(tmp_path, "a", manifest={"costs": costs}), made(tmp_path, "b", manifest={"costs": costs})
    mix = told(invoke, compare.command, "a", "b")["comparison"]["job_mix"]["systems"]
    assert [one["cost"] for one in mix] == pytest.approx([1.5, 1.5])
    (tmp_path / "costs.yaml").write_text(
        "b: {price: 17532, years: 1, power_W: 1000, electricity: 0.5, currency: EUR}\n"
    )
    mix = told(invoke, compare.command, "a", "b", "--costs", tmp_path / "costs.yaml")["comparison"]["job_mix"][
        "systems"
    ]
    assert [one["cost"] for one in mix] == pytest.approx([1.5, 2.5])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("prize: 1\n", "unknown key 'prize'"),
        ("price: -1\n", "price: expected a number above 0"),
        ("c: {price: 1}\n", "no such system is compared"),
    ],
)
def test_bad_costs_are_refused(tmp_path: Path, invoke: Invoke, content: str, says: str) -> None:
    made(tmp_path, "a"), made(tmp_path, "b")
    (tmp_path / "costs.yaml").write_text(content)
    with pytest.raises(ConfigError, match=says):
        invoke(compare.command, "a", "b", "--costs", tmp_path / "costs.yaml")


def test_a_summary_is_kept_and_used_while_it_is_of_these_records(tmp_path: Path) -> None:
    run = made(tmp_path, "a")
    whole = summary_of(run)
    marked = replace(whole, benchmarks=(replace(whole.benchmarks[0], perf=7.0),))
    store_summary(run.path, marked, stat_digest(run.path))
    assert summary_of(run).benchmarks[0].perf == 7.0
    # A copy has other times and the same contents.
    for path in run.path.glob("*.data"):
        os.utime(path, ns=(1, 1))
    assert summary_of(run).benchmarks[0].perf == 7.0
    with next(run.path.glob("*R1.data")).open("ab") as file:
        file.write(b'{"event":"message","data":{"message":"late"},"pipe":"data"}\n')
    again = summary_of(open_run(run.path))
    assert again.benchmarks[0].perf == whole.benchmarks[0].perf
    assert "late" in again.benchmarks[0].messages


def test_a_stored_summary_that_was_altered_is_computed_again(tmp_path: Path) -> None:
    run = made(tmp_path, "a")
    whole = summary_of(run)
    kept = run.path / "summary.json"
    altered = json.loads(kept.read_text())
    altered["benchmarks"][0]["perf"] = 7.0
    kept.write_text(json.dumps(altered))
    assert summary_of(run) == whole
    assert json.loads(kept.read_text())["benchmarks"][0]["perf"] == whole.benchmarks[0].perf


@pytest.mark.parametrize("content", [b"", b"{", b'{"schema":1}', b'{"made_of":{"analysis":1}}', b"\xff"])
def test_a_stored_summary_that_is_damaged_is_computed_again(tmp_path: Path, content: bytes) -> None:
    run = made(tmp_path, "a")
    whole = summary_of(run)
    (run.path / "summary.json").write_bytes(content)
    assert summary_of(run) == whole


def test_nothing_is_written_into_a_run_that_goes_on_or_is_not_ours(tmp_path: Path) -> None:
    going = record(tmp_path, Recorded(events=rates(5.0)), name="b", is_ended=False)
    old = tmp_path / "runs" / "old"
    old.mkdir()
    (old / "bert.D0.data").write_text('{"event": "start", "data": {}, "pipe": null}\n')
    for run in (going, open_run(old)):
        summary_of(run)
        assert not (run.path / "summary.json").exists()


def test_a_moved_run_tells_its_logs_where_they_are_now(tmp_path: Path) -> None:
    run = record(tmp_path, Recorded(outcome="failed", why="exit", stderr="no\n"))
    summary_of(run)
    moved = tmp_path / "elsewhere"
    run.path.rename(moved)
    (failure,) = summary_of(open_run(moved)).benchmarks[0].failures
    assert failure.log == str(moved / "digits.D0.stderr")
