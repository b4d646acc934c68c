"""An A/B run as its records tell: pair by pair, side against side."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from milabench import pages as html
from milabench.analysis.ab_run import launches
from milabench.analysis.paired_comparison import AB, Pair, paired_verdicts, with_ratio
from milabench.analysis.summary import summarise
from milabench.analysis.summary_model import Summary
from milabench.ci import junit
from milabench.errors import RecordError
from milabench.report import brief, markdown, text
from tests.recorded_run import Recorded, rates, record


def told(*, is_same: bool = False, differs: str = "") -> dict[str, Any]:
    pair = {"A": "x@A", "B": "x@B", "same_steps": is_same}
    return {"ab": {"suites": ["a.yaml", "b.yaml"], "pairs": {"x": pair}, "differs": differs}}


def side(name: str, *values: float, units: str = "images/s", tag: str = "D0") -> list[Recorded]:
    """A replicate for each rate."""
    return [
        Recorded(bench=f"x@{name}", repeat=repeat, tag=tag, events=rates(*[value] * 30, units=units))
        for repeat, value in enumerate(values)
    ]


def summary(base: Path, *steps: Recorded, is_same: bool = False, differs: str = "") -> Summary:
    return summarise(record(base, *steps, manifest=told(is_same=is_same, differs=differs)))


def ab(base: Path, *steps: Recorded, is_same: bool = False) -> AB:
    found = summary(base, *steps, is_same=is_same).ab
    assert found is not None
    return found


def test_the_ratio_is_of_pairs_so_that_what_drifts_cancels(tmp_path: Path) -> None:
    drift = (100.0, 130.0, 70.0, 110.0, 90.0)
    (pair,) = ab(tmp_path, *side("A", *drift), *side("B", *(1.1 * value for value in drift))).pairs
    assert (pair.pairs, pair.verdict) == (5, "FASTER")
    assert pair.ratio == pytest.approx(1.1)


def test_a_pair_whose_sides_ran_on_different_nodes_is_doubtful(tmp_path: Path) -> None:
    rows = [*side("A", *[100.0] * 3), *side("B", *[101.0] * 3)]
    same = ab(tmp_path / "same", *(replace(step, node="n1") for step in rows)).pairs[0]
    apart = ab(tmp_path / "apart", *(replace(step, node="n2" if "B" in step.bench else "n1") for step in rows)).pairs[0]
    assert ("nodes-differ" in same.doubts, "nodes-differ" in apart.doubts) == (False, True)


def test_a_pair_of_which_one_side_failed_is_left_out(tmp_path: Path) -> None:
    a, b = side("A", 1, 2, 3, 4), side("B", 1, 2, 3, 9)
    b[3] = replace(b[3], outcome="failed", why="exit")
    (pair,) = ab(tmp_path, *a, *b).pairs
    assert (pair.pairs, pair.ratio) == (3, pytest.approx(1.0))


def test_a_launch_without_all_of_its_instances_is_left_out(tmp_path: Path) -> None:
    steps = [*side("A", 10, 20, tag="D0"), *side("A", 40, tag="D1")]
    (bench,) = summary(tmp_path, *steps).benchmarks
    assert launches(bench) == {0: pytest.approx(40.0)}  # twice the geometric mean of 10 and 40


def test_where_there_is_nothing_to_compare_it_says_why(tmp_path: Path) -> None:
    (pair,) = ab(tmp_path, *side("A", 1, 2, 3), *side("B", 1, 2, 3, units="tokens/s")).pairs
    assert (pair.ratio, pair.why) == (None, "A is in images/s, B in tokens/s")
    (pair,) = ab(tmp_path, *side("A", 1, 2, 3)).pairs
    assert (pair.ratio, pair.why) == (None, "no number on B")
    assert pair.verdict == "INCONCLUSIVE"


def test_the_same_on_both_sides_is_the_noise_of_at_least_one_per_cent(tmp_path: Path) -> None:
    quiet = ab(tmp_path, *side("A", 5, 5, 5), *side("B", 5, 5, 5), is_same=True).pairs[0]
    loud = ab(tmp_path, *side("A", 5, 6, 5), *side("B", 6, 5, 5), is_same=True).pairs[0]
    assert quiet.noise == pytest.approx(0.01)
    assert loud.ci95 is not None
    assert loud.noise == pytest.approx(loud.ci95[1] - 1, rel=0.01)
    assert ab(tmp_path, *side("A", 5, 5, 5), *side("B", 5, 5, 5)).pairs[0].noise is None


def test_an_ab_run_has_no_score_and_its_reports_name_the_suites(tmp_path: Path) -> None:
    found = summary(tmp_path, *side("A", 9, 9, 9), *side("B", 5, 5, 5))
    assert found.to_json()["score"]["value"] is None
    for page in (text.render([found]), markdown.render([found])):
        assert "A and B are compared in pairs, below" in page
        assert "a.yaml" in page
        assert "SLOWER" in page


def test_the_verdict_is_the_first_line_of_every_report_and_what_differs_stands_in_it(tmp_path: Path) -> None:
    found = summary(tmp_path, *side("A", 9, 9.1, 9), *side("B", 5, 5.1, 5), differs="pyyaml 6.0.1 / 6.0.2")
    assert found.ab is not None
    assert found.ab.sentence.startswith("SLOWER: x: B is 0.55")
    assert text.render([found]).startswith(found.ab.sentence)
    assert brief.render([found]).startswith(found.ab.sentence)
    assert markdown.render([found]).startswith("**SLOWER: x: B is 0.55")
    for page in (text.render([found]), html.render([found])):
        assert "pyyaml 6.0.1 / 6.0.2" in page
    assert "0 of 0" not in html.render([found])


def test_a_pair_is_a_case_of_the_servers_report_that_fails_where_it_is_slower(tmp_path: Path) -> None:
    slower = summary(tmp_path / "slower", *side("A", 9, 9.1, 9), *side("B", 5, 5.1, 5))
    (case,) = ET.fromstring(junit.render([slower])).findall(".//testcase[@name='x']")
    assert [failure.get("message") for failure in case.findall("failure")] == ["SLOWER"]
    faster = summary(tmp_path / "faster", *side("A", 5, 5.1, 5), *side("B", 9, 9.1, 9))
    (case,) = ET.fromstring(junit.render([faster])).findall(".//testcase[@name='x']")
    assert case.findall("failure") == []


def test_the_worst_verdict_is_that_of_the_run_and_several_commands_are_named_by_themselves() -> None:
    base = {n: 1.0 + n / 1e3 for n in range(5)}
    quick = with_ratio(Pair(bench="b", a="a", b="b"), base, dict.fromkeys(range(5), 2.0))
    slow = with_ratio(Pair(bench="c", a="a", b="c"), base, dict.fromkeys(range(5), 0.5))
    pairs = paired_verdicts([quick, slow, Pair(bench="d", a="a", b="d", why="no number")])
    found = AB(suites=("a", "each of the others"), pairs=pairs)
    assert found.verdict == "SLOWER"
    assert re.sub(r" \[[^]]*\]", "", found.sentence) == (
        "SLOWER: c is 0.4990 x a; FASTER: b is 1.9960 x a; INCONCLUSIVE: d and a: no number"
    )


@pytest.mark.parametrize(
    "odd",
    [
        {"ab": 3},
        {"ab": {"pairs": [1]}},
        {"ab": {"pairs": {"x": 3}}},
        {"aim": 3, "replicates": [1]},
        {"aim": {"precision": "x"}, "replicates": {"x": 3, "y": {"planned": []}}},
    ],
)
def test_a_manifest_of_another_shape_is_refused(tmp_path: Path, odd: dict[str, Any]) -> None:
    with pytest.raises(RecordError, match=r"was altered: (ab|aim)\b.* is .*, not "):
        record(tmp_path, *side("A", 1), manifest=odd)


def test_a_pair_without_sides_is_shown_as_one_without_a_number(tmp_path: Path) -> None:
    text.render([summarise(record(tmp_path, *side("A", 1), manifest={"ab": {"pairs": {"x": None}}}))])


def test_a_report_says_how_often_each_was_run_and_why(tmp_path: Path) -> None:
    aim = {"precision": 0.01, "budget_s": 7200}
    steps = [replace(step, bench="x") for step in side("A", 100.0, 101.0, 99.0)]
    replicates = {
        "x": {"wanted": None, "planned": 7},
        "y": {"wanted": 20, "planned": 7},
        "z": {"wanted": 20, "planned": 20, "log_spread": 0.02},  # of an earlier version
    }
    page = text.render([summarise(record(tmp_path, *steps, manifest={"aim": aim, "replicates": replicates}))])
    assert "x: 7 repeats for a precision of 1 %; reached ± 3.6 %" in page
    assert "y: 7 of 20 repeats: the budget of 2 h 0 min reaches no further" in page
    assert "z: 20 repeats for a precision of 1 %" in page
