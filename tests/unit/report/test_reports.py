"""The golden files are read in review like code; UPDATE_GOLDEN=1 writes them anew."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from milabench import pages as html
from milabench.analysis.rescoring import milabench13_summary
from milabench.analysis.summary import summarise
from milabench.analysis.summary_model import JobSummary, Summary
from milabench.events.model import Event, Meta
from milabench.events.rundir import Run
from milabench.report import brief, markdown, text
from milabench.report import csv as csv_report
from milabench.report import json as json_report
from milabench.report.labels import format_number
from milabench.report.registry import FORMATS
from milabench.report.rerun import rerun_line
from milabench.report.run_tables import window_tables
from milabench.report.system_lines import system_lines
from tests.changed_values import replace
from tests.recorded_run import Recorded, data, message, rates, record

ENDINGS = {"brief": "brief.txt", "text": "txt", "markdown": "md", "json": "json", "csv": "csv", "junit": "junit.xml"}
META = Meta(step="", data={"python": "3.11.7", "packages": {"torch": "2.13.0", "numpy": "2.4.0", "click": "8.5"}})


def told(*, rate: float) -> tuple[Event, ...]:
    return (
        META,
        *rates(rate * 0.98, rate, rate * 1.02),
        data(metric="first_step", value=1.234, units="s", direction="lower"),
        data(metric="memory_reserved_peak", value=2 * 2**30, units="B", direction="lower", part="run"),
        data(metric="accuracy", value=0.975, units="", direction="higher"),
        data(task="train", loss=2.3),
        data(task="train", loss=0.4),
        message("no power sensor: energy is not known"),
    )


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> Summary:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("recorded"))  # so that the paths in the report are the same everywhere
        return summarise(recorded())


def recorded() -> Run:
    digits = [
        Recorded(tag=f"D{device}", devices=(device,), repeat=repeat, events=told(rate=800.0 + 10 * repeat + device))
        for repeat in range(3)
        for device in range(2)
    ]
    cases = [
        data(metric="tflops", value=value, units="TFLOP/s", direction="higher", main=True, case=case)
        for case, value in (("fp32", 50.0), ("bf16", 800.0))
    ]
    return record(
        Path("base"),
        *digits,
        Recorded(bench="flops", tag="", events=tuple(cases), weight=0.0),
        Recorded(
            bench="ppo|cleanrl",
            outcome="failed",
            why="exit",
            detail="ValueError: \x1b[31mbad *batch*\x1b[0m",
            stderr="Traceback ...\n",
        ),
        Recorded(bench="sft", tag="", method="multigpu", devices=(0, 1), outcome=None, weight=2.0),
        skipped=[{"bench": "llama", "why": "not fetched"}],
        manifest={"suite": {"llama": {"weight": 1.0}}},
    )


def rounded(report: str) -> str:
    """The report with ten digits of each number: the last ones are the mathematical library's."""
    return re.sub(r"\d+\.\d{9,}", lambda match: f"{float(match[0]):.10g}", report)


@pytest.mark.parametrize("form", list(ENDINGS))
def test_a_report_is_what_the_golden_file_shows(summary: Summary, form: str, root: Path) -> None:
    found = rounded(FORMATS[form].renderer.render([summary]))
    golden = root / "tests" / "golden" / f"report.{ENDINGS[form]}"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(found)
    assert found == golden.read_text()


def test_several_runs_are_reported_one_after_the_other(summary: Summary) -> None:
    one = text.render([summary])
    assert text.render([summary, summary]) == one + "\n" + one
    assert [run["run"] for run in json.loads(json_report.render([summary, summary]))["runs"]] == [summary.run] * 2
    rows = list(csv.DictReader(io.StringIO(csv_report.render([summary, summary]))))
    assert len(rows) == 2 * len(summary.benchmarks)


def test_the_json_report_of_a_run_is_its_summary_and_names_its_schema(summary: Summary) -> None:
    report = json.loads(json_report.render([summary]))
    assert report.pop("$schema") == "urn:milabench:schema:report"
    assert report == json.loads(json.dumps(summary.to_json()))


def test_the_line_that_reruns_a_benchmark_keeps_the_options_and_selects_it_alone(summary: Summary) -> None:
    assert rerun_line(summary, "ppo") == "milabench run --config 'my suite.yaml' --repeat 3 --select ppo"
    wheel = "/home/joe/my env/lib/python3.12/site-packages/milabench/shipped/config/quickstart.yaml"
    shipped = replace(summary, options={**summary.options, "config_file": wheel})
    assert rerun_line(shipped, "ppo") == "milabench run --config quickstart --select ppo"
    by_jobs = replace(shipped, jobs=(JobSummary(share="s1", stage="ended"),))
    assert rerun_line(by_jobs, "ppo") == "milabench run --config quickstart --submit --select ppo"


def placed(*spans: tuple[float, float], **more: Any) -> tuple[Event, ...]:
    """Steps of eight items: begin and duration in seconds."""
    about = {"task": "train", "units": "items/s", "n": 8, **more}
    return tuple(
        data(rate=8 / lasted, elapsed=lasted, t0_ns=round(begin * 1e9), host_ns=round(lasted * 1e9), **about)
        for begin, lasted in spans
    )


def windows(steps: Iterable[Recorded], path: Path) -> dict[str, dict[str, str]]:
    """The table of windows, by benchmark and heading; empty where there is none."""
    return {
        row[0]: dict(zip(table.headings, row, strict=True))
        for table in window_tables(summarise(record(path, *steps)))
        for row in table.rows
    }


def test_the_table_of_windows_says_what_is_behind_a_number(tmp_path: Path) -> None:
    """A pause of 2 s, a step of 1.5 s among steps of 0.1 s, and 4 s between the steps of another."""
    steps = [(index / 10, 0.1) for index in range(100)]
    span = {"name": "validation", "start_ns": 10_000_000_000, "stop_ns": 12_000_000_000}
    paused = (*placed(*steps), data(task="main", pause=span), *placed((12.0, 1.5)))
    apart = placed(*steps[:40], *((8 + begin, lasted) for begin, lasted in steps[:40]))
    # 10 of 110 steps take twice as long: that is warm-up, too, though nobody declared it.
    slow = placed(*((0.2 * index, 0.2) for index in range(3)), warmup=True)
    slow += placed(*((0.6 + 0.2 * index, 0.2) for index in range(10)))
    slow += placed(*((2.6 + begin, lasted) for begin, lasted in steps))
    found = windows(
        [
            Recorded(bench="paused", events=paused),
            Recorded(bench="apart", events=apart),
            Recorded(bench="apart", repeat=1, events=placed(*steps[:40], *((4.1 + b, s) for b, s in steps[:40]))),
            Recorded(bench="slow", events=slow),
            Recorded(bench="plain", events=placed(*steps)),
        ],
        tmp_path,
    )
    assert "plain" not in found
    assert found["paused"]["pauses, not in perf"] == "validation 14.8%"
    assert found["paused"]["longest stall"] == "1.4 s at step 101 of paused.D0"
    assert found["apart"]["rate within steps"] == "80.00 items/s"
    assert found["apart"]["between steps"] == "33.3% of the time"
    assert found["slow"]["warm-up"] == "13 of 113 steps; 9.1% of the window"


def test_all_formats_have_the_windows_and_the_old_score_its_rate(tmp_path: Path) -> None:
    gap = placed(*((index / 10, 0.1) for index in range(40)), *((8 + index / 10, 0.1) for index in range(40)))
    summary = summarise(record(tmp_path, Recorded(bench="apart", events=gap)))
    for form in ("text", "markdown", "html"):
        shown = FORMATS[form].renderer.render([summary])
        assert "33.3% of the time" in shown, form
        assert "80.00 items/s" in shown, form
    (bench,) = json.loads(json_report.render([summary]))["benchmarks"]
    rate = next(metric for metric in bench["metrics"] if metric["metric"] == "rate")
    assert rate["value"] == bench["perf"] == pytest.approx(640 / 12)
    assert (rate["steps_rate"], rate["between_steps"]) == (pytest.approx(80.0), pytest.approx(1 / 3))
    # exp(ln(rate + 1)) of one benchmark: milabench 1.3 knew nothing but the steps.
    assert milabench13_summary(summary).score.value == pytest.approx(81.0)


def test_an_unfinished_run_says_so_first(tmp_path: Path) -> None:
    found = summarise(record(tmp_path, Recorded(events=rates(5.0)), is_ended=False))
    assert "incomplete or still running" in text.render([found])


def test_a_run_of_nothing_is_still_a_report(tmp_path: Path) -> None:
    found = summarise(record(tmp_path, manifest={"system": {}, "profile": "quick"}))
    shown = text.render([found])
    assert "not recorded" in shown
    assert "score: none without a reference" in shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, ""),
        (0.0, "0"),
        (0.00001234, "1.234e-05"),
        (0.5, "0.5000"),
        (12.345, "12.35"),
        (823.037128, "823.04"),
        (12345.67, "12345.7"),
        (1.5e9, "1.5e+09"),
    ],
)
def test_numbers_are_short_and_have_four_digits_or_more(value: float | None, shown: str) -> None:
    assert format_number(value) == shown


@pytest.mark.parametrize(
    ("profile", "result"),
    [
        ("quick", "1 of 1 step passed, 0 valid (quick: a first look)"),
        ("default", "1 of 1 step passed; 0 of 1 numbers valid"),
    ],
)
def test_the_head_says_how_many_numbers_are_valid(tmp_path: Path, profile: str, result: str) -> None:
    one = replace(short_of_everything(tmp_path), profile=profile)
    assert f"result    {result}\n" in text.render([one])
    assert f"- **result**: {result}\n" in markdown.render([one])
    assert f">{result}. Measured on " in html.render([one])


def test_the_head_says_which_size_was_measured(tmp_path: Path) -> None:
    found = summarise(record(tmp_path, Recorded(events=rates(5.0)), manifest={"suite": {"digits": {"size": "tiny"}}}))
    for form in (brief, text, markdown):
        assert re.search(r"size\W+tiny\n", form.render([found])), form.__name__
    assert re.search(r"size(<[^>]*>)+tiny<", html.render([found]))
    assert found.to_json()["sizes"] == ["tiny"]
    assert "| size" not in text.render([replace(found, benchmarks=())])


def test_no_format_has_a_score_unless_it_is_relative_to_something(tmp_path: Path) -> None:
    for profile in ("quick", "default"):
        alone = replace(short_of_everything(tmp_path / profile), profile=profile)
        assert alone.score.value is None and alone.to_json()["score"]["value"] is None
        # An earlier version's JSON report has the mean of raw rates.
        old = replace(alone, score=replace(alone.score, value=271.83))
        for form in (brief, text, markdown, html):
            assert "none without a reference" in form.render([old]) and "271.83" not in form.render([old])
            relative = replace(old, score=replace(old.score, reference="older run"))
            assert "older run" in form.render([relative])


def short_of_everything(tmp_path: Path) -> Summary:
    """A run of one benchmark whose window was not complete."""
    summary = summarise(record(tmp_path, Recorded(bench="a", events=rates(2.0, 2.0, 2.0))))
    return replace(summary, benchmarks=[replace(summary.benchmarks[0], validity="suspect", doubts=("short",))])


def suite_of_six(path: Path, profile: str) -> Summary:
    """A run as the quickstart leaves it on a busy machine: six benchmarks, four kinds of doubts."""
    names = ("digits", "flax", "flops", "ppo", "pykeen", "sft")
    about = {name: f"What {name} is in words: it stresses one thing or another, in items/s" for name in names}
    steps = [
        Recorded(bench=name, repeat=at, events=rates(*[12832.6 + at] * 3, units="env steps/s"))
        for name in names
        for at in range(1 if profile == "quick" else 3)
    ]
    summary = summarise(record(path, *steps, manifest={"about": about, "profile": profile, "system": CPU}))
    busy = ("sensor-lost", "contended", "nonfinite", "dropped")
    doubted = [
        replace(bench, validity="suspect", doubts=busy[: 1 + at % 4], ratio=1.0, reference_validity="suspect (dropped)")
        for at, bench in enumerate(summary.benchmarks)
    ]
    reference = "epyc-vm (2-core virtual machine (AMD EPYC), milabench 0.1.0, 2026-11-22, profile default)"
    score = replace(summary.score, value=0.9483, ci95=(0.7343, 1.2247), reference=reference, suspects=6)
    return replace(summary, benchmarks=tuple(doubted), score=score)


def test_every_doubt_is_in_words_also_two_of_one_check(tmp_path: Path) -> None:
    summary = summarise(record(tmp_path, Recorded(bench="a", events=rates(2.0, 2.0, 2.0))))

    def doubts(reasons: tuple[str, ...], *messages: str) -> dict[str, str]:
        said = [
            {"step": f"a.node{at}", "check": "contended", "verdict": "warn", "numbers": {}, "message": message}
            for at, message in enumerate(messages)
        ]
        bench = replace(summary.benchmarks[0], validity="suspect", doubts=reasons, validations=said)
        return dict(brief.doubts(replace(summary, benchmarks=(bench,))))

    unread, used = "nobody read the processors", "others used 1.99 of the 2 processors"
    assert doubts(("sensor-lost",), unread) == {"sensor-lost": f"a: {unread}"}
    assert doubts(("contended",), used) == {"contended": f"a: {used}"}
    both = doubts(("contended", "sensor-lost"), used, unread)
    assert both["contended"].startswith("a: other programs used the device")
    assert both["sensor-lost"] == "a: the machine was read too rarely, or a sensor stopped answering"


CPU = {
    "arch": "cpu",
    "nodes": [
        {
            "name": "local",
            "cpu": {"model": "AMD EPYC", "count": 2},
            "devices": [{"index": 0, "name": "AMD EPYC", "arch": "cpu", "memory_MiB": 0}],
        }
    ],
}


@pytest.mark.parametrize("profile", ["quick", "default"])
def test_the_report_of_six_benchmarks_fits_a_screen(tmp_path: Path, profile: str) -> None:
    shown = brief.render([suite_of_six(tmp_path, profile)])
    # What a terminal of 100 columns breaks takes two lines.
    lines = [
        part for line in shown.splitlines() for part in (line[at : at + 100] for at in range(0, len(line) or 1, 100))
    ]
    assert len(lines) <= 24, shown
    assert "What digits is in words" in shown and "1.00 ?" in shown and "6 of them suspect" in shown
    assert lines[-1].startswith("next: `milabench r")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"is_ended": False}, "resume"),
        ({"profile": "quick"}, "--profile default"),
        ({}, "--repeat 3"),
    ],
)
def test_the_last_line_is_the_command_that_the_run_most_lacks(
    tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    summary = replace(summarise(record(tmp_path, Recorded(events=rates(2.0, 2.0, 2.0)))), **changes)
    for form in (brief, text, markdown):
        assert says in form.render([summary]).splitlines()[-1]


def test_a_run_of_three_launches_lacks_another_run_to_compare_with(tmp_path: Path) -> None:
    steps = [Recorded(repeat=at, events=rates(2.0, 2.0, 2.0)) for at in range(3)]
    summary = summarise(record(tmp_path, *steps))
    assert "compare quick.2026-03-14_12-00-00 OTHER" in brief.render([summary]).splitlines()[-1]
    failed = summarise(record(tmp_path / "2", *steps, Recorded(bench="b", outcome="failed", why="exit")))
    assert "milabench resume" in brief.render([failed]).splitlines()[-1]


def test_every_report_says_what_stood_in_for_parts_of_packages(summary: Summary, tmp_path: Path) -> None:
    assert "shims" not in dict(system_lines(summary))
    meta = Meta(step="", data={**META.data, "shims": ["torchvision", "of-a-newer-version"]})
    run = record(tmp_path / "run", Recorded(events=(meta, *told(rate=1.0)[1:])))
    with_shim = summarise(run)
    assert with_shim.software["shims"] == "of-a-newer-version, torchvision"
    for form in (brief, text, markdown, html):
        words = " ".join(form.render([with_shim]).replace("\\", "").split())
        assert "torchvision: the operators of torchvision (nms, roi_align and others) raise an error" in words
        assert "of-a-newer-version: stands in for what a package lacks" in words


def test_what_nodes_have_in_common_stands_once(summary: Summary) -> None:
    nodes = [
        {"name": name, "cpu": {"model": "Xeon", "count": 64}, "memory_MiB": memory, "os": "Debian 12", "kernel": "6.1"}
        for name, memory in (("n1", 1024), ("n2", 2048), ("n3", 1024))
    ]
    lines = dict(system_lines(replace(summary, system={**summary.system, "nodes": nodes})))
    told_once = {name: value for name, value in lines.items() if name.partition(" ")[0] in ("cpu", "memory", "os")}
    assert told_once == {
        "cpu": "64 x Xeon",
        "memory (n1, n3)": "1.0 GiB",
        "memory (n2)": "2.0 GiB",
        "os": "Debian 12 6.1",
    }
    properties = dict(
        next(
            block.pairs
            for block in brief.brief_document(replace(summary, system={**summary.system, "nodes": nodes}))
            if hasattr(block, "pairs")
        )
    )
    assert {"cpu", "nodes"} <= properties.keys() and not any(name.startswith(("memory", "os")) for name in properties)
