"""`accept recheck`: an installed system today beside its acceptance, and the calendar of rechecks."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.recorded_run import Recorded, data, rates, record

Milabench = Callable[..., Any]
THEN, NOW = "2026-11-01T09:00:00+00:00", "2028-11-01T09:00:00+00:00"
RUNS = Path(__file__).resolve().parents[2] / "runs"
SUITE: Mapping[str, Any] = {"argv": {"--batch-size": 64}, "install_group": "torch"}


def written(
    base: Path,
    name: str,
    values: Mapping[str, Sequence[float]],
    *,
    units: str = "items/s",
    devices: int = 1,
    created: str = THEN,
    suite: Mapping[str, Any] = SUITE,
    failed: str = "",
    **more: Any,
) -> Path:
    """A run of some benchmarks, with these numbers of their launches."""
    steps = [
        Recorded(
            bench=bench,
            tag=f"D{device}",
            devices=(device,),
            repeat=repeat,
            group=f"{bench}.{repeat}",
            events=rates(*[value] * 3, units=units),
            outcome="failed" if bench == failed else "passed",
        )
        for bench, numbers in values.items()
        for repeat, value in enumerate(numbers)
        for device in range(devices)
    ]
    manifest = {"created": created, "suite": {bench: dict(suite) for bench in values}, "locks": {"torch": "a" * 64}}
    return record(base, *steps, name=name, manifest={**manifest, **more}).path


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / "base"


def rechecked(milabench: Milabench, now: Path, then: Path, *more: str, limit: str = "0.9") -> tuple[int, Any]:
    said = milabench("accept", "recheck", str(now), "--minimum", limit, "--against", str(then), "--json", *more)
    return said.code, json.loads(said.out)


def of(found: Any, bench: str | None, criterion: str = "recheck") -> Any:
    (check,) = [check for check in found["checks"] if (check["bench"], check["criterion"]) == (bench, criterion)]
    return check


def test_k_euro_4_each_benchmark_decides_and_no_mean(milabench: Milabench, base: Path) -> None:
    """K-EURO-4: installed 100 250 40, now 93 224 37, limit 0.90; EuroHPC hosting agreement, clause "Performance Testing"."""
    then = written(base, "then", {"a": [100], "b": [250], "c": [40]})
    now = written(base, "now", {"a": [93], "b": [224], "c": [37]}, created=NOW)
    code, found = rechecked(milabench, now, then)
    assert [of(found, bench)["value"] for bench in "abc"] == pytest.approx([0.93, 0.896, 0.925], rel=1e-12)
    assert [of(found, bench)["verdict"] for bench in "abc"] == ["PASS", "FAIL", "PASS"]
    assert (code, found["verdict"]) == (7, "FAIL")
    assert "drift in 731 days: -8.3" in found["notes"][0]  # the geometric mean is above the limit


def test_k_euro_5_the_lower_bound_says_how_sure(milabench: Milabench, base: Path) -> None:
    """K-EURO-5, computed; EuroHPC hosting agreement, clause "Performance Testing".

    91.8 92.6 90.9 91.5 92.2 per cent of what was installed: at least 91.178 at 95 % confidence.
    """
    # What was installed as a constant: its launches are the same.
    then = written(base, "then", {"a": [100, 100, 100]})
    now = written(base, "now", {"a": [91.8, 92.6, 90.9, 91.5, 92.2]}, created=NOW)
    code, found = rechecked(milabench, now, then)
    check = of(found, "a")
    assert check["value"] == pytest.approx(0.9179814667169963, rel=1e-12)
    assert check["bounds"][0] == pytest.approx(0.9117834914865557, rel=1e-9)
    assert (code, check["verdict"]) == (0, "PASS")
    assert rechecked(milabench, now, then, limit="92 %")[0] == 7


def test_a_ratio_of_exactly_the_limit_is_kept(milabench: Milabench, base: Path) -> None:
    then = written(base, "then", {"a": [100, 100, 100]})
    now = written(base, "now", {"a": [90, 90, 90]}, created=NOW)
    assert rechecked(milabench, now, then)[0] == 0


def test_times_are_inverted(milabench: Milabench, base: Path) -> None:
    """Of a benchmark that takes 10 % longer, 1 / 1.1 is left."""
    runs = []
    for name, value, created in (("then", 10.0, THEN), ("now", 11.0, NOW)):
        step = Recorded(
            bench="a", events=(data(metric="time", value=value, units="s", direction="lower", main=True, case="x"),)
        )
        manifest = {"created": created, "suite": {"a": SUITE}}
        runs.append(record(base, step, name=name, manifest=manifest).path)
    found = rechecked(milabench, runs[1], runs[0])[1]
    assert of(found, "a")["value"] == pytest.approx(1 / 1.1, rel=1e-12)
    assert of(found, "a")["verdict"] == "PASS"


def test_a_device_that_is_gone_counts(milabench: Milabench, base: Path) -> None:
    then = written(base, "then", {"a": [100, 100]}, devices=2)
    now = written(base, "now", {"a": [100, 100]}, devices=1, created=NOW)
    code, found = rechecked(milabench, now, then)
    assert (code, of(found, "a")["value"]) == (7, pytest.approx(0.5, rel=1e-12))


def test_devices_that_were_added_do_not_hide_that_each_is_slower(milabench: Milabench, base: Path) -> None:
    then = written(base, "then", {"a": [100, 100]}, devices=1)
    now = written(base, "now", {"a": [60, 60]}, devices=2, created=NOW)
    code, found = rechecked(milabench, now, then)
    check = of(found, "a")
    assert (code, check["verdict"], check["value"]) == (8, "INCONCLUSIVE", pytest.approx(1.2, rel=1e-12))
    assert check["missing"] == "as many devices as then: 2, and 1 then"
    assert not any("drift" in note for note in found["notes"])


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"suite": {**SUITE, "argv": {"--batch-size": 32}}}, "--batch-size 64 / 32"),
        ({"locks": {"torch": "b" * 64}}, "lock file aaaaaaaaaaaa / bbbbbbbbbbbb"),
        ({"profile": "quick"}, "profile default / quick"),
    ],
)
def test_another_suite_is_no_recheck_and_one_line_says_what_differs(
    milabench: Milabench, base: Path, change: Mapping[str, Any], word: str
) -> None:
    then = written(base, "then", {"a": [100]})
    now = written(base, "now", {"a": [120]}, created=NOW, **change)
    code, found = rechecked(milabench, now, then)
    assert (code, of(found, "a")["verdict"]) == (8, "INCONCLUSIVE")
    suite = of(found, None, "suite")
    assert word in suite["found"]
    assert "\n" not in suite["found"]


def test_the_same_suite_has_the_same_digest_on_another_day(milabench: Milabench, base: Path) -> None:
    then = written(base, "then", {"a": [100]})
    digests = {
        of(rechecked(milabench, written(base, name, {"a": [100]}, created=NOW), then)[1], None, "suite")["found"]
        for name in ("one", "two")
    }
    assert len(digests) == 1
    assert digests.pop().startswith("the same: sha256 ")


def test_what_was_not_run_is_undecided_and_what_failed_has_failed(milabench: Milabench, base: Path) -> None:
    then = written(base, "then", {"a": [100], "b": [100], "c": [100]})
    now = written(base, "now", {"a": [100], "c": [100]}, created=NOW, failed="c")
    code, found = rechecked(milabench, now, then)
    assert of(found, "b", "runs")["verdict"] == "INCONCLUSIVE"
    assert of(found, "c", "runs")["verdict"] == "FAIL"
    assert (code, of(found, "a")["verdict"]) == (7, "PASS")


def test_other_units_decide_nothing(milabench: Milabench, base: Path) -> None:
    then = written(base, "then", {"a": [100]})
    now = written(base, "now", {"a": [100]}, created=NOW, units="images/s")
    code, found = rechecked(milabench, now, then)
    assert (code, of(found, "a")["missing"]) == (8, "the same units: it was in items/s then")


def test_a_bundle_or_report_is_the_run_that_was_accepted_and_a_report_of_before_lacks_its_suite(
    milabench: Milabench, base: Path, tmp_path: Path
) -> None:
    then = written(base, "then", {"a": [100]})
    now = written(base, "now", {"a": [95]}, created=NOW)
    bundle, report = tmp_path / "then.zip", tmp_path / "then.json"
    assert milabench("bundle", str(then), "-o", str(bundle)).code == 0
    assert milabench("report", str(then), "-o", str(report)).code == 0
    assert rechecked(milabench, now, bundle)[0] == 0
    assert rechecked(milabench, now, report)[0] == 0
    value = json.loads(report.read_text())
    del value["manifest"]
    report.write_text(json.dumps(value))
    code, found = rechecked(milabench, now, report)
    assert (code, of(found, None, "suite")["found"]) == (8, "not recorded")


def test_a_doubtful_number_decides_nothing_unless_the_criteria_allow_its_reason(
    milabench: Milabench, base: Path, tmp_path: Path
) -> None:
    then = written(base, "then", {"a": [100]})
    step = Recorded(bench="a", events=rates(100, 100, 100, units="items/s"), reasons=("power-limited",))
    manifest = {"created": NOW, "suite": {"a": SUITE}, "locks": {"torch": "a" * 64}}
    now = record(base, step, name="now", manifest=manifest).path
    code, found = rechecked(milabench, now, then)
    assert (code, "power-limited" in of(found, "a")["missing"]) == (8, True)
    criteria = tmp_path / "accept.yaml"
    criteria.write_text("benchmarks: {a: {allow: [power-limited]}}\n")
    assert rechecked(milabench, now, then, "--criteria", str(criteria))[0] == 0


def test_every_format_has_the_verdict_and_the_notes(milabench: Milabench, base: Path) -> None:
    then = written(base, "then", {"a": [100]})
    now = written(base, "now", {"a": [80]}, created=NOW)
    for name in ("text", "markdown", "html", "junit"):
        said = milabench("accept", "recheck", str(now), "--against", str(then), "--format", name)
        assert (said.code, "0.8 x then" in said.out, "drift in 731 days" in " ".join(said.out.split())) == (
            7,
            True,
            True,
        )
    root = ET.fromstring(said.out)
    assert (root.get("failures"), root.get("tests")) == ("1", "3")


def test_rechecks_are_counted_from_the_acceptance(milabench: Milabench, base: Path) -> None:
    then = written(base, "then", {"a": [100]})
    now = written(base, "now", {"a": [100]}, created=NOW)
    _, found = rechecked(milabench, now, then, "--every", "2 years")
    assert found["notes"][-1] == "rechecks every 2 years: 2028-11-01, 2030-11-01, 2032-11-01, 2034-11-01, 2036-11-01"
    _, found = rechecked(milabench, now, then, "--every", "6 months", "--from", "2026-08-31")
    assert found["notes"][-1].startswith("rechecks every 6 months: 2027-02-28, 2027-08-31, 2028-02-29, ")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "--against"),
        (["--minimum", "1.5", "--against", "then"], "'1.5' is no share"),
        (["--against", "now"], "is the run that --against now names"),
        (["--against", "then", "--reference", "then"], "--reference"),
        (["--against", "then", "--from", "2026-11-01"], "--from goes with --every"),
        (["--against", "then", "--every", "often"], "'2 years', '6 months'"),
        (["--against", "then", "--every", "9999 years"], "beyond the year 9999"),
    ],
)
def test_wrong_use_is_one_line(milabench: Milabench, base: Path, options: list[str], words: str) -> None:
    written(base, "then", {"a": [100]})
    now = written(base, "now", {"a": [100]}, created=NOW)
    said = milabench("accept", "recheck", str(now), *options)
    assert (said.code, said.out) == (2, "")
    assert words in said.err.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--plan"], "--plan was removed. Use `milabench accept plan`"),
        (["--recheck", "0.9", "--against", "then"], "--recheck was removed. Use `milabench accept recheck"),
        (["--sequential", "--alpha", "0.05"], "--sequential was removed. Use `milabench accept looks`"),
        (["--cap", "5"], "--cap was removed. Use `milabench accept looks`"),
        (["--calendar", "a.ics"], "--calendar was removed. --every prints the dates"),
    ],
)
def test_an_old_spelling_is_answered_with_the_new_one(milabench: Milabench, options: list[str], words: str) -> None:
    said = milabench("accept", "now", *options)
    assert (said.code, said.out) == (2, "")
    assert words in said.err


def test_a_variable_for_another_way_contradicts_nothing(
    milabench: Milabench, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    then, now = written(base, "then", {"a": [100]}), written(base, "now", {"a": [100]}, created=NOW)
    for name, value in (("ALPHA", "0.01"), ("REFERENCE", "then"), ("FROM", "2026-01-01")):
        monkeypatch.setenv(f"MILABENCH_{name}", value)
    assert rechecked(milabench, now, then)[0] == 0


def test_runs_in_the_wrong_order_are_refused(milabench: Milabench, base: Path) -> None:
    then, now = written(base, "then", {"a": [100]}), written(base, "now", {"a": [100]}, created=NOW)
    said = milabench("accept", "recheck", str(then), "--against", str(now))
    assert (said.code, "Name the run of today first" in said.err) == (2, True)


CRITERIA = "title: nodes\nbenchmarks:\n  a: {minimum: 0.9 x reference}\n  b: {minimum: 90 items/s}\n"


def test_a_plan_has_launches_from_the_reference(milabench: Milabench, base: Path, tmp_path: Path) -> None:
    then = written(base, "then", {"a": [99, 100, 101, 100], "b": [99, 101, 100, 100]})
    criteria = tmp_path / "accept.yaml"
    criteria.write_text(CRITERIA)
    said = milabench("accept", "plan", "--criteria", str(criteria), "--reference", str(then), "--json")
    plan = json.loads(said.out)
    assert (said.code, plan["schema"], plan["is_complete"]) == (0, 1, True)
    assert [check["launches"] for check in plan["checks"]] == [3, 3]
    assert (plan["hours"], plan["node_hours"]) == (None, None)  # the records of then have no durations
    for name in ("text", "markdown", "html"):
        shown = milabench("accept", "plan", "--criteria", str(criteria), "--reference", str(then), "--format", name)
        assert (shown.code, "at least 0.9 x reference" in shown.out) == (0, True)
        assert "the hours are not known" in " ".join(shown.out.split())


def test_the_hours_of_a_plan_are_those_of_the_launches_that_were_recorded(milabench: Milabench, tmp_path: Path) -> None:
    criteria = tmp_path / "accept.yaml"
    criteria.write_text("benchmarks: {flops: {minimum: 0.9 x reference}}\n")
    said = milabench("accept", "plan", "--criteria", str(criteria), "--reference", str(RUNS / "system_a"), "--json")
    plan = json.loads(said.out)
    (bench,) = plan["benchmarks"]
    assert plan["hours"] == bench["hours"]
    entries = [json.loads(line) for line in (RUNS / "system_a" / "journal.jsonl").read_text().splitlines()]
    times = {
        (entry["step"], entry["state"]): entry["t"] for entry in entries if str(entry.get("step")).startswith("flops.")
    }
    lasted = sorted(ended - times[step, "started"] for (step, state), ended in times.items() if state == "ended")
    assert len(lasted) == 3
    assert bench["seconds_each"] == pytest.approx(lasted[1], rel=1e-9)
    assert bench["hours"] == pytest.approx(bench["launches"] * lasted[1] / 3600, rel=1e-9)


def test_a_criterion_without_a_plan_is_inconclusive(milabench: Milabench, base: Path, tmp_path: Path) -> None:
    then = written(base, "then", {"a": [99, 100, 101, 100]})
    criteria = tmp_path / "accept.yaml"
    criteria.write_text(CRITERIA)
    said = milabench("accept", "plan", "--criteria", str(criteria), "--reference", str(then))
    assert (said.code, "b minimum: a measurement of its rate in the pilot" in said.out) == (8, True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "--criteria FILE"),
        (["--criteria", "a.yaml"], "name a run of such a system"),
        (["--criteria", "a.yaml", "--reference", "then", "--power", "1"], "--power 1: no number of repeats"),
        (
            ["--criteria", "a.yaml", "--reference", "then", "--format", "csv"],
            "choose one of text, markdown, html, json",
        ),
    ],
)
def test_a_plan_that_cannot_be_made_is_one_line(
    milabench: Milabench, base: Path, tmp_path: Path, options: list[str], words: str
) -> None:
    written(base, "then", {"a": [99, 100, 101, 100]})
    (tmp_path / "a.yaml").write_text("benchmarks: {a: {minimum: 1 items/s}}\n")
    said = milabench("accept", "plan", *options)
    assert (said.code, said.out) == (2, "")
    assert words in said.err.strip().splitlines()[-1]


def growing(base: Path, name: str, values: Sequence[float], planned: int) -> Path:
    """A run of which so many launches have passed, and nothing says how it ended."""
    steps = [
        Recorded(
            bench="a",
            repeat=repeat,
            group=f"a.{repeat}",
            events=rates(*[values[repeat]] * 3, units="items/s") if repeat < len(values) else (),
            outcome="passed" if repeat < len(values) else None,
        )
        for repeat in range(planned)
    ]
    return record(base, *steps, name=name, is_ended=False).path


def test_a_run_that_grows_is_judged_launch_by_launch(milabench: Milabench, base: Path, tmp_path: Path) -> None:
    criteria = tmp_path / "accept.yaml"
    criteria.write_text("benchmarks: {a: {minimum: 90 items/s}}\nfailure_rate: 0\n")
    numbers = (100.0, 100.1, 99.9, 100.05, 99.95, 100.02)
    codes, missing = [], []
    for launches in range(2, 7):
        run = growing(base, f"after{launches}", numbers[:launches], 8)
        said = milabench("accept", "looks", str(run), "--criteria", str(criteria), "--json")
        codes.append(said.code)
        (check,) = [check for check in json.loads(said.out)["checks"] if check["criterion"] == "minimum"]
        missing.append(check["missing"])
    assert codes == sorted(codes, reverse=True)
    assert (codes[0], codes[-1]) == (8, 0)
    assert missing[0] == "repeats: 2 of at least 3"
    # The same run, judged as one that has to be complete, is not.
    assert milabench("accept", str(run), "--criteria", str(criteria)).code != 0


def test_a_failed_step_of_a_growing_run_counts(milabench: Milabench, base: Path, tmp_path: Path) -> None:
    criteria = tmp_path / "accept.yaml"
    criteria.write_text("failure_rate: 20 %\nbenchmarks: {a: {required: false, failure_rate: 20 %}}\n")
    outcomes = ("passed", "failed", "failed", "failed", "failed", None, None)
    steps = [
        Recorded(bench="a", repeat=n, events=rates(*[100.0] * 3), outcome=outcome) for n, outcome in enumerate(outcomes)
    ]
    run = record(base, *steps, name="grows", is_ended=False).path
    said = milabench("accept", "looks", str(run), "--criteria", str(criteria), "--bad-failure-rate", "60 %", "--json")
    found = json.loads(said.out)
    rates_of = [check for check in found["checks"] if check["criterion"] == "failure_rate"]
    assert [check["verdict"] for check in rates_of] == ["FAIL", "FAIL"]
    # ln 3 for a failure, -ln 2 for a pass: the sum reaches ln 18 at the fourth failure.
    assert all("4 of 5 so far, rejected after 5" in check["found"] for check in rates_of)
    assert "against 60.00%" in rates_of[0]["asked"]


def test_a_growing_run_in_every_format(milabench: Milabench, base: Path, tmp_path: Path) -> None:
    criteria = tmp_path / "accept.yaml"
    criteria.write_text("benchmarks: {a: {minimum: 90 items/s}}\n")
    run = growing(base, "grows", (100.0, 100.1, 99.9, 100.0, 100.0), 5)
    for name in ("text", "markdown", "html", "junit", "csv"):
        said = milabench("accept", "looks", str(run), "--criteria", str(criteria), "--format", name)
        assert (said.code, "of at most 5 repeats" in " ".join(said.out.split())) == (0, True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "--criteria FILE"),
        (["--boundary", "pocock", "--criteria", "a.yaml"], "--boundary was removed. Error rates are shared"),
        (["--criteria", "a.yaml", "--cap", "2"], "--cap 2: give 3 to 100 repeats"),
        (["--criteria", "a.yaml", "--alpha", "0.6", "--beta", "0.6"], "below 1 together"),
        (["--criteria", "a.yaml", "--bad-failure-rate", "1 %"], "0 < good < bad < 1"),
    ],
)
def test_a_sequential_plan_that_is_none_is_one_line(
    milabench: Milabench, base: Path, tmp_path: Path, options: list[str], words: str
) -> None:
    growing(base, "grows", (100.0, 100.1, 99.9), 5)
    (tmp_path / "a.yaml").write_text("failure_rate: 5 %\n")
    said = milabench("accept", "looks", *options)
    assert (said.code, said.out) == (2, "")
    assert words in said.err.strip().splitlines()[-1]
