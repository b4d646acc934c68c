"""The exit code of a build server's job, and its reports, from recorded runs."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

from milabench.ci.ci_reports import Gates, write_reports
from milabench.events.rundir import Run
from milabench.workflow.options import CollectingReporter, ReportRequest, Session
from tests.recorded_run import Recorded, rates, record

Decide = Callable[..., int]
ASKED = "benchmarks: {digits: {minimum: %s images/s}}\n"


def run(base: Path, name: str, level: float, bench: str = "digits", outcome: str = "passed") -> Run:
    steps = [
        Recorded(bench=bench, repeat=repeat, events=rates(*[level * (1 + repeat / 1000)] * 3)) for repeat in range(3)
    ]
    return record(base, *steps, Recorded(bench="other", outcome=outcome, events=rates(1, 1, 1)), name=name)


@pytest.fixture
def decide(tmp_path: Path) -> Decide:
    """Return the exit code of a job whose run ended with `code`; a run of another level is its baseline."""

    def of(measured: Run, baseline: Run | None, minimum: float | None = None, code: int = 0) -> int:
        criteria = tmp_path / "criteria.yaml"
        criteria.write_text(ASKED % minimum)
        gates = Gates(
            reports=tmp_path / "reports",
            reference=None if baseline is None else str(baseline.path),
            criteria=None if minimum is None else criteria,
        )
        request = ReportRequest(runs=(str(measured.path),), base=tmp_path)
        return write_reports(request, gates, code, Session(CollectingReporter()))

    return of


def test_criteria_decide_before_the_run_and_the_run_before_the_comparison(decide: Decide, tmp_path: Path) -> None:
    slow, fast = run(tmp_path, "slow", 800), run(tmp_path, "fast", 1000)
    assert decide(fast, slow) == 0
    assert decide(slow, fast) == 1
    assert decide(slow, fast, 700) == 1
    assert decide(slow, fast, 900) == 7
    assert decide(slow, None, 800.8) == 8
    assert decide(slow, fast, 900, code=1) == 7
    assert decide(slow, None, 700, code=1) == 1
    failures = ET.parse(tmp_path / "reports" / "report.xml").getroot().get("failures")
    assert failures == "0"


def test_a_slower_benchmark_is_a_failure_in_the_servers_report(decide: Decide, tmp_path: Path) -> None:
    assert decide(run(tmp_path, "slow", 800), run(tmp_path, "fast", 1000)) == 1
    failed = ET.parse(tmp_path / "reports" / "comparison.xml").getroot().findall(".//failure")
    assert [failure.get("message") for failure in failed] == ["SLOWER"]
    assert "SLOWER" in (tmp_path / "reports" / "summary.md").read_text()


def test_a_baseline_of_other_benchmarks_is_3_and_the_reports_are_written(decide: Decide, tmp_path: Path) -> None:
    one, two = run(tmp_path, "one", 800, outcome="failed"), run(tmp_path, "two", 800, "else", outcome="failed")
    assert decide(one, two) == 3
    assert (tmp_path / "reports" / "report.json").is_file()
