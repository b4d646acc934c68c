"""The verb `project` from recorded runs to table, JSON and page; and that no command takes its values for measured ones."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.exceptions import BadParameter
from click.testing import CliRunner, Result

from milabench.acceptance import accept_command as accept
from milabench.cli import compare, report
from milabench.errors import MilabenchError, NothingSelected, RecordError, UsageError
from milabench.procurement import project_command as project
from tests.recorded_run import Recorded, data, rates, record
from tests.scaled_runs import COUNTS, on_nodes, usl

Invoke = Callable[..., Result]


@pytest.fixture
def invoke(tmp_path: Path) -> Invoke:
    def run(command: Any, *argv: str | Path) -> Result:
        return CliRunner().invoke(
            command, [*map(str, argv), "--base", str(tmp_path)], standalone_mode=False, catch_exceptions=False
        )

    return run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Runs on 1 to 16 nodes."""
    base = tmp_path_factory.mktemp("scaled")
    return [str(on_nodes(base, count, usl(count)).path) for count in COUNTS]


def projection(invoke: Invoke, *argv: str | Path) -> Any:
    return json.loads(invoke(project.command, *argv, "--json").stdout)["projection"]


def only(invoke: Invoke, *argv: str | Path) -> Any:
    (bench,) = projection(invoke, *argv)["benchmarks"]
    return bench


@pytest.mark.slow
def test_the_law_behind_the_runs_is_chosen_and_its_projection_holds_the_truth(invoke: Invoke, runs: list[str]) -> None:
    bench = only(invoke, *runs, "--to", "128,32")
    standing = {law["law"]: law["standing"] for law in bench["laws"]}
    assert standing == {"ideal": "ruled out", "amdahl": "ruled out", "usl": "chosen"}
    assert [(row["count"], row["law"]) for row in bench["projected"]] == [(32, "usl"), (128, "usl")]
    for row in bench["projected"]:
        low, high = row["prediction_interval"]
        assert low < usl(row["count"]) < high
        assert low <= row["law_interval"][0] and row["law_interval"][1] <= high


def test_measured_and_projected_rows_share_neither_a_list_nor_a_key(invoke: Invoke, runs: list[str]) -> None:
    bench = only(invoke, *runs)
    assert [row["count"] for row in bench["measured"]] == list(COUNTS)
    assert [row["count"] for row in bench["projected"]] == [32, 64, 128], "2, 4 and 8 times the largest measured"
    assert "value" not in bench["projected"][0] and "projected_value" not in bench["measured"][0]
    assert [round(row["efficiency"], 3) for row in bench["measured"]] == [
        round(usl(count) / usl(1) / count, 3) for count in COUNTS
    ]


def test_the_law_without_the_largest_count_is_tested_on_it(invoke: Invoke, runs: list[str]) -> None:
    test = only(invoke, *runs)["back_test"]
    assert (test["held_out"], test["law"], test["is_within"]) == (16, "usl", True)
    assert test["projected_value"] == pytest.approx(test["measured_value"], rel=0.01)


@pytest.mark.slow
def test_a_back_test_that_fails_is_said(tmp_path: Path, invoke: Invoke) -> None:
    for count, level in ((1, 100), (2, 200), (4, 400), (8, 800), (16, 700)):
        on_nodes(tmp_path, count, level)
    told = invoke(project.command, *(f"on{count}" for count in COUNTS)).stdout
    assert re.search(r"back-test .*without 16, ideal projects 1600.* OUTSIDE its interval", told)


def test_a_law_of_two_counts_has_no_interval_that_the_third_could_be_in(invoke: Invoke, runs: list[str]) -> None:
    assert only(invoke, *runs[:3])["back_test"]["is_within"] is None
    assert re.search(
        r"back-test .* of the measured 373\.\d+, no interval$", invoke(project.command, *runs[:3]).stdout, re.M
    )


def test_the_text_puts_what_is_projected_into_a_table_of_its_own(invoke: Invoke, runs: list[str]) -> None:
    lines = invoke(project.command, *runs).stdout.splitlines()
    title = lines.index("bert: projected, measured by nobody, samples/s")
    assert lines[title + 1].startswith("nodes (projected) |")
    assert [line.split("|")[0].strip() for line in lines[title + 3 : title + 6]] == ["32", "64", "128"]
    measured = lines.index("bert: measured, samples/s")
    assert [line.split("|")[0].strip() for line in lines[measured + 3 : measured + 8]] == list(map(str, COUNTS))


def test_markdown_has_the_same_tables(invoke: Invoke, runs: list[str]) -> None:
    told = invoke(project.command, *runs, "--format", "markdown").stdout
    assert "## Bert: measured, samples/s" in told and "## Bert: projected, measured by nobody, samples/s" in told


def test_devices_are_counted_where_runs_do_not_differ_in_nodes(tmp_path: Path, invoke: Invoke) -> None:
    for devices in (1, 2, 4):
        on_nodes(tmp_path, 1, 50.0 * devices, devices=devices, name=f"d{devices}")
    bench = only(invoke, "d1", "d2", "d4")
    assert (bench["of"], [row["count"] for row in bench["measured"]]) == ("devices", [1, 2, 4])


def test_of_says_what_is_counted(invoke: Invoke, runs: list[str]) -> None:
    bench = only(invoke, *runs, "--of", "devices")
    assert (bench["of"], [row["count"] for row in bench["measured"]]) == ("devices", [2 * n for n in COUNTS])


def test_nodes_with_unlike_numbers_of_devices_are_no_count(tmp_path: Path, invoke: Invoke) -> None:
    for nodes, devices in ((1, 1), (2, 2), (4, 2)):
        on_nodes(tmp_path, nodes, 100.0 * nodes * devices, devices=devices)
    with pytest.raises(NothingSelected, match=r"devices per node differ \(1, 2\). Project it --of devices"):
        invoke(project.command, "on1", "on2", "on4")
    assert [row["count"] for row in only(invoke, "on1", "on2", "on4", "--of", "devices")["measured"]] == [1, 4, 8]


def test_a_run_of_the_former_version_counts_the_machines_that_it_says(tmp_path: Path, invoke: Invoke) -> None:
    # Its records are those of the first machine.
    for machines in (1, 2, 4):
        on_nodes(tmp_path, 1, 100.0 * machines, name=f"m{machines}", config={"num_machines": machines})
    bench = only(invoke, "m1", "m2", "m4")
    assert (bench["of"], [row["count"] for row in bench["measured"]]) == ("nodes", [1, 2, 4])
    assert [row["count"] for row in only(invoke, "m1", "m2", "m4", "--of", "devices")["measured"]] == [2, 4, 8]


def test_several_runs_with_one_count_are_its_sessions(tmp_path: Path, invoke: Invoke, runs: list[str]) -> None:
    on_nodes(tmp_path, 4, 1.1 * usl(4), name="again4")
    row = only(invoke, *runs, "again4")["measured"][2]
    assert (row["count"], len(row["runs"])) == (4, 2)
    assert row["value"] == pytest.approx(usl(4) * 1.1**0.5, rel=0.01)


def test_one_count_is_refused_in_one_line(tmp_path: Path, invoke: Invoke) -> None:
    on_nodes(tmp_path, 4, 400.0), on_nodes(tmp_path, 4, 404.0, name="again")
    with pytest.raises(NothingSelected) as caught:
        invoke(project.command, "on4", "again", "--of", "nodes")
    assert str(caught.value) == (
        "nothing can be projected: bert: a single measured count (4 nodes) shows no scaling. Measure at a second count"
    )
    assert caught.value.exit_code == 3


def test_a_count_that_failed_takes_no_part_and_is_named(tmp_path: Path, invoke: Invoke, runs: list[str]) -> None:
    steps = [
        Recorded(bench="bert", node=f"n{at}", repeat=0, outcome="failed", why="exit", events=rates(1.0))
        for at in range(32)
    ]
    record(tmp_path, *steps, name="on32", manifest={"suite": {"bert": {"argv": {"--batch": 32}}}})
    bench = only(invoke, *runs, "on32")
    assert [row["count"] for row in bench["measured"]] == list(COUNTS)
    assert [(row["count"], row["why"][:6]) for row in bench["left_out"]] == [(32, "failed")]


def test_other_work_takes_part_only_across(tmp_path: Path, invoke: Invoke) -> None:
    for count in (1, 2, 4):
        on_nodes(tmp_path, count, 100.0 * count, argv={"--batch": 128 // count})
    with pytest.raises(NothingSelected, match="does other work than 1 node: --batch"):
        invoke(project.command, "on1", "on2", "on4")
    assert len(only(invoke, "on1", "on2", "on4", "--across")["measured"]) == 3


def test_unlike_devices_have_no_common_law(tmp_path: Path, invoke: Invoke) -> None:
    on_nodes(tmp_path, 1, 100.0), on_nodes(tmp_path, 2, 150.0, device="A100")
    with pytest.raises(UsageError, match=r"different machines, H100 \(on1.*\) and A100 \(on2.*\)"):
        invoke(project.command, "on1", "on2")


def timed(base: Path, seconds: Callable[[int], float]) -> list[str]:
    """Runs of a job over 1 to 16 nodes whose main metric is a time."""
    paths = []
    for count in COUNTS:
        job = {"bench": "job", "tag": "", "method": "multinode", "group": "g"}
        metric = {"metric": "time", "units": "s", "direction": "lower", "case": "all", "main": True}
        steps = [
            Recorded(
                **job,
                node=f"n{node}",
                repeat=repeat,
                events=() if node else (data(**metric, value=seconds(count) * (1 + 0.001 * repeat)),),
            )
            for repeat in range(3)
            for node in range(count)
        ]
        paths.append(str(record(base, *steps, name=f"on{count}").path))
    return paths


def test_a_time_that_grows_is_not_projected(tmp_path: Path, invoke: Invoke) -> None:
    with pytest.raises(NothingSelected, match="job: it is a time that grows with nodes: the laws are of throughput"):
        only(invoke, *timed(tmp_path, lambda count: 2.0 + 0.5 * math.log2(count)))


def test_of_a_time_that_falls_one_over_it_is_what_scales(tmp_path: Path, invoke: Invoke) -> None:
    bench = only(invoke, *timed(tmp_path, lambda count: 100 * 100 / usl(count)))
    assert (bench["units"], bench["is_inverse"], bench["projected"][0]["law"]) == ("1/(s)", True, "usl")
    assert bench["projected"][0]["projected_value"] == pytest.approx(usl(32) / 1e4, rel=0.02)
    last = bench["measured"][-1]
    assert last["ci95"][0] < last["value"] < last["ci95"][1] and last["efficiency"] == pytest.approx(
        usl(16) / 1600, rel=0.01
    )


def test_three_counts_leave_a_law_open_and_say_so(invoke: Invoke, runs: list[str]) -> None:
    assert only(invoke, *runs[:3])["unsettled_laws"] == ["usl"]
    assert "3 counts neither choose nor rule out usl" in invoke(project.command, *runs[:3]).stdout
    assert only(invoke, *runs)["unsettled_laws"] == []


# ------------------------------------------------------------------------------------------------------------- how far


@pytest.mark.slow
def test_beyond_eight_times_the_largest_measured_count_somebody_has_to_answer_for_it(
    invoke: Invoke, runs: list[str]
) -> None:
    assert invoke(project.command, *runs, "--to", "128").exit_code == 0
    with pytest.raises(
        UsageError, match=r"bert: project to 129: beyond 8 times the largest measured count \(16\).*--bound"
    ):
        invoke(project.command, *runs, "--to", "129")
    told = projection(invoke, *runs, "--to", "128,129", "--bound", "256: simulated by the vendor, 2026-11-01")
    assert told["bound"] == {"count": 256, "why": "simulated by the vendor, 2026-11-01"}
    assert [row["rests_on_bound"] for row in told["benchmarks"][0]["projected"]] == [False, True]
    text = invoke(project.command, *runs, "--to", "129", "--bound", "256: simulated by the vendor").stdout
    assert "declared bound: 256, simulated by the vendor" in text
    with pytest.raises(UsageError, match=r"the declared bound of 16 is not beyond the largest measured count \(16\)"):
        invoke(project.command, *runs, "--bound", "16: simulated")
    with pytest.raises(UsageError, match="project to 257: beyond the declared bound of 256"):
        invoke(project.command, *runs, "--to", "257", "--bound", "256: simulated")


@pytest.mark.parametrize("bound", ["256", "256:", ": who", "many: who", "0: who", ""])
def test_a_bound_without_a_count_or_without_anybody_is_refused(invoke: Invoke, runs: list[str], bound: str) -> None:
    with pytest.raises(UsageError, match="--bound: expected a count and who answers for it"):
        invoke(project.command, *runs, "--bound", bound)


@pytest.mark.parametrize("to", ["0", "-1", "8.5", "x", "", "64,,128", "²", "9" * 5000])
def test_a_count_that_is_none_is_refused(invoke: Invoke, runs: list[str], to: str) -> None:
    with pytest.raises(BadParameter, match="expected whole numbers above zero"):
        invoke(project.command, *runs, f"--to={to}")


@pytest.mark.parametrize(
    ("argv", "error", "told"),
    [
        ((0, 0), UsageError, "is given twice"),
        ((0, 1, "--benchmark", "gpt"), UsageError, "no benchmark 'gpt' in these runs. They have bert"),
        ((0, "on3"), NothingSelected, "on3"),
        ((0, 1, "--format", "csv"), UsageError, "--format csv: choose one of text, markdown, html, json"),
    ],
)
def test_bad_input_is_refused_in_one_line(
    invoke: Invoke, runs: list[str], argv: Sequence[str | int], error: type[MilabenchError], told: str
) -> None:
    with pytest.raises(error, match=told) as caught:
        invoke(project.command, *(runs[word] if isinstance(word, int) else word for word in argv))
    assert "\n" not in str(caught.value)


# ------------------------------------------------------------------------------------ nobody takes it for measured


@pytest.fixture
def projected(tmp_path: Path, invoke: Invoke, runs: list[str]) -> Path:
    path = tmp_path / "projected.json"
    invoke(project.command, *runs, "-o", path)
    return path


@pytest.mark.parametrize(
    "argv",
    [
        (compare.command, "RUN", "FILE"),
        (compare.command, "FILE", "RUN"),
        (report.command, "RUN", "--reference", "FILE"),
        (project.command, "RUN", "FILE"),
        (accept.command, "RUN", "--criteria", "CRITERIA", "--reference", "FILE"),
    ],
    ids=["compare", "compare-first", "reference", "project", "accept"],
)
def test_no_command_takes_a_projection_for_a_run(
    tmp_path: Path, invoke: Invoke, runs: list[str], projected: Path, argv: tuple[Any, ...]
) -> None:
    criteria = tmp_path / "accept.yaml"
    criteria.write_text("benchmarks:\n  bert:\n    minimum: 0.9 x reference\n")
    words = {"RUN": runs[0], "FILE": projected, "CRITERIA": criteria}
    with pytest.raises(RecordError, match="holds projected values, which nobody measured"):
        invoke(argv[0], *(words.get(word, word) for word in argv[1:]))


def test_a_projected_row_among_the_measured_ones_of_a_report_is_refused(
    tmp_path: Path, invoke: Invoke, runs: list[str], projected: Path
) -> None:
    measured = json.loads(invoke(report.command, runs[-1], "--json").stdout)
    row = json.loads(projected.read_text())["projection"]["benchmarks"][0]["projected"][0]
    forged = tmp_path / "forged.json"
    for forgery in (row, {**row, "bench": "bert"}, {**measured["benchmarks"][0], **row}):
        forged.write_text(json.dumps({**measured, "benchmarks": [*measured["benchmarks"], forgery]}))
        with pytest.raises(RecordError, match="holds projected values"):
            invoke(compare.command, runs[0], forged)


def test_a_row_of_the_page_is_marked_and_apart(invoke: Invoke, runs: list[str]) -> None:
    page = invoke(project.command, *runs, "--format", "html").stdout
    apart = page[page.index('<div class="projected">') :]
    assert [apart.count(f"</span>\N{NO-BREAK SPACE}{count}</span>") for count in (32, 64, 128)] == [1, 1, 1]
    assert page.count('class="dots point e"') == len(COUNTS), "only measured values are points"
    assert page.count("band-of-law") == 1 and page.count('class="line law') == 3


def test_two_counts_project_without_an_interval_and_say_why(invoke: Invoke, runs: list[str]) -> None:
    bench = only(invoke, *runs[:2])
    assert {(row["law"], row["prediction_interval"], row["law_interval"]) for row in bench["projected"]} == {
        ("ideal", None, None)
    }
    page = invoke(project.command, *runs[:2], "--format", "html").stdout
    assert "two measured counts settle no law but ideal" in page and "band-of-law" not in page
    assert "2 counts neither choose nor rule out amdahl, usl" in page
