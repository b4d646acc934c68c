"""Numbers that are means over cases: doubts of the cases are the mean's, and means over other cases are not compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from milabench.analysis.case_sets import cases_of, differing
from milabench.analysis.compare import compare_systems
from milabench.analysis.comparison_model import Comparison, System
from milabench.analysis.measure import measure
from milabench.analysis.summary import summarise
from milabench.analysis.summary_model import BenchSummary, Summary
from milabench.events.model import Data
from tests.recorded_run import Recorded, data, record

TIMES = {"mm": 2.0, "bmm": 8.0, "conv": 4.0}


def case(name: str, value: float, **more: Any) -> Data:
    return data(metric="time", value=value, units="s", direction="lower", case=name, main=True, **more)


def replicates(*cases: tuple[str, ...], level: float = 1.0) -> list[Recorded]:
    """A replicate for each tuple of cases."""
    return [
        Recorded(bench="ops", repeat=repeat, events=tuple(case(name, level * TIMES[name]) for name in names))
        for repeat, names in enumerate(cases)
    ]


def summary(base: Path, steps: list[Recorded], name: str = "run") -> Summary:
    return summarise(record(base / name, *steps, name=name))


def only(found: Summary) -> BenchSummary:
    (bench,) = found.benchmarks
    return bench


def compared(base: Path, ours: list[Recorded], theirs: list[Recorded]) -> Comparison:
    a, b = summary(base, ours, "a"), summary(base, theirs, "b")
    return compare_systems([System(name="a", summary=a), System(name="b", summary=b)])


@pytest.mark.parametrize(
    ("told", "reasons"),
    [
        ({}, ()),
        ({"reasons": ["zeros"]}, ("zeros",)),
        ({"converged": True}, ()),
        ({"converged": False}, ("unconverged",)),
        ({"converged": False, "reasons": ["unconverged"]}, ("unconverged",)),
        ({"reasons": "zeros"}, ()),
        ({"reasons": [3, None, "a\nb\x1b[31m", "x" * 99]}, ("a b", "x" * 40)),
    ],
)
def test_what_a_program_doubts_of_a_case_is_doubtful_for_the_mean(
    told: dict[str, Any], reasons: tuple[str, ...]
) -> None:
    rate = measure("s", [case("mm", 2.0, **told), case("bmm", 8.0)]).throughput
    assert rate is not None
    assert (rate.value, rate.doubts) == (pytest.approx(4.0), reasons)


def test_a_doubt_about_what_is_not_the_headline_is_none_about_it() -> None:
    aside = data(metric="backward", value=3.0, units="s", direction="lower", converged=False)
    rate = measure("s", [case("mm", 2.0), aside]).throughput
    assert rate is not None
    assert rate.doubts == ()


def test_a_benchmark_of_which_one_case_is_unconverged_is_suspect(tmp_path: Path) -> None:
    steps = [Recorded(bench="ops", events=(case("mm", 2.0), case("bmm", 8.0, converged=False)))]
    bench = only(summary(tmp_path, steps))
    assert (bench.validity, bench.doubts) == ("suspect", ("unconverged",))
    assert [metric.get("reasons") for metric in bench.metrics[1:]] == [None, ["unconverged"]]


def test_replicates_of_other_cases_are_no_replicates_of_each_other(tmp_path: Path) -> None:
    whole = ("mm", "bmm")
    assert only(summary(tmp_path, replicates(whole, whole, whole), "whole")).validity == "valid"
    lacking = only(summary(tmp_path, replicates(whole, whole, ("mm",)), "lacking"))
    assert (lacking.validity, lacking.doubts) == ("suspect", ("cases-differ",))


def test_a_mean_over_fewer_cases_is_not_compared_with_one_over_all(tmp_path: Path) -> None:
    # Without its slowest case B would be called twice as fast.
    found = compared(tmp_path, replicates(*[("mm", "bmm")] * 3), replicates(*[("mm",)] * 3))
    assert found.rows[0].contrasts == (None,)
    assert found.excluded == (("ops", "b is of other cases than a: 1 of 2 cases are not in both: time bmm"),)
    assert found.indices[0].complete == (0, 1)


def test_the_same_cases_are_compared_whichever_came_first(tmp_path: Path) -> None:
    found = compared(tmp_path, replicates(*[("mm", "bmm")] * 3), replicates(*[("bmm", "mm")] * 3, level=0.5))
    (contrast,) = found.rows[0].contrasts
    assert contrast is not None
    assert (contrast.ratio, contrast.verdict) == (pytest.approx(2.0), "FASTER")


def test_ranks_tell_the_same_cases() -> None:
    metrics = [{"metric": "time", "case": "mm", "main": True, "rank": rank, "step": "x"} for rank in range(8)]
    assert cases_of(metrics) == {"time mm"}
    assert cases_of(metrics, ["y"]) == frozenset()


def test_what_differs_is_named_and_the_rest_counted() -> None:
    ours, theirs = frozenset("abcdef"), frozenset("f")
    assert differing(ours, theirs) == "5 of 6 cases are not in both: a; b; c and 2 more"
    assert differing(ours, ours) == differing(ours, frozenset()) == ""


def job(*events: Data) -> list[Recorded]:
    """A job of two nodes, each with what it told."""
    return [
        Recorded(bench="allreduce", tag="", node=f"node{place}", method="multinode", events=(event,))
        for place, event in enumerate(events)
    ]


def test_a_metric_of_a_job_is_no_sum_over_its_nodes(tmp_path: Path) -> None:
    bench = only(summary(tmp_path, job(case("mm", 4.0), case("mm", 9.0))))
    assert bench.perf == pytest.approx(6.0)


def test_what_any_node_of_a_job_doubts_is_doubtful_for_the_job(tmp_path: Path) -> None:
    bench = only(summary(tmp_path, job(case("mm", 4.0), case("mm", 4.0, converged=False))))
    assert bench.doubts == ("unconverged",)
