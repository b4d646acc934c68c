from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from milabench.analysis.summary import summarise
from milabench.analysis.summary_model import BenchSummary, Summary
from milabench.events.rundir import open_run
from tests.recorded_run import Recorded, data, message, rates, record


def only(summary: Summary) -> BenchSummary:
    (bench,) = summary.benchmarks
    return bench


def test_a_replicate_is_a_process_and_its_steps_are_not_pooled(tmp_path: Path) -> None:
    steps = [Recorded(repeat=number, events=rates(*[value] * 50)) for number, value in enumerate((100.0, 110.0, 121.0))]
    bench = only(summarise(record(tmp_path, *steps)))
    assert len(bench.processes) == 3
    assert bench.perf == pytest.approx(110.0)
    assert bench.spread == pytest.approx(math.log(1.1))
    half = 4.302652729749462 * math.log(1.1) / math.sqrt(3)
    assert bench.ci95 == pytest.approx((110 * math.exp(-half), 110 * math.exp(half)))
    assert bench.spread_within == pytest.approx(0)
    assert (bench.spread_devices, bench.spread_processes) == (None, pytest.approx(math.log(1.1)))


def test_below_three_processes_there_is_no_interval(tmp_path: Path) -> None:
    bench = only(summarise(record(tmp_path, *(Recorded(repeat=number, events=rates(5.0)) for number in range(2)))))
    assert (bench.ci95, len(bench.processes)) == (None, 2)


def test_devices_and_replicates_spread_apart(tmp_path: Path) -> None:
    steps = [
        Recorded(tag=f"D{device}", devices=(device,), repeat=repeat, events=rates(100.0 * 2**device * 1.1**repeat))
        for device in range(2)
        for repeat in range(2)
    ]
    bench = only(summarise(record(tmp_path, *steps)))
    assert bench.spread_devices == pytest.approx(math.log(2) / math.sqrt(2))
    assert bench.spread_processes == pytest.approx(math.log(1.1) / math.sqrt(2))
    assert (bench.ngpu, bench.instances, len(bench.processes)) == (2, 2, 4)


def test_perf_is_one_devices_rate_and_the_score_all_of_them(tmp_path: Path) -> None:
    steps = [Recorded(tag=f"D{device}", devices=(device,), events=rates(100.0)) for device in range(2)]
    bench = only(summarise(record(tmp_path, *steps)))
    assert (bench.perf, bench.score) == (pytest.approx(100.0), pytest.approx(200.0))


def test_a_job_on_all_devices_is_one_process_and_one_instance(tmp_path: Path) -> None:
    ranks = (*rates(100.0, rank=0), *rates(100.0, rank=1))
    step = Recorded(bench="ddp", tag="", devices=(0, 1), method="multigpu", events=ranks)
    bench = only(summarise(record(tmp_path, step)))
    assert (bench.perf, bench.score, bench.ngpu) == (pytest.approx(200.0), pytest.approx(200.0), 2)


def test_the_nodes_of_a_job_are_one_process_whose_slowest_node_sets_the_time(tmp_path: Path) -> None:
    fast = rates(100.0, 100.0, rank=0)
    slow = tuple(data(task="train", rate=50.0, units="images/s", elapsed=2.0, n=100.0, rank=1) for _ in range(2))
    steps = [
        Recorded(bench="llm", tag="", node=node, method="multinode", events=events)
        for node, events in (("node0", fast), ("node1", slow))
    ]
    bench = only(summarise(record(tmp_path, *steps)))
    assert len(bench.processes) == 1
    assert bench.perf == pytest.approx(400 / 4.0)


def test_a_job_of_which_one_node_failed_is_no_process(tmp_path: Path) -> None:
    steps = [
        Recorded(bench="llm", tag="", node="node0", method="multinode", events=rates(100.0)),
        Recorded(bench="llm", tag="", node="node1", method="multinode", outcome="failed", why="lost-node"),
    ]
    bench = only(summarise(record(tmp_path, *steps)))
    assert (bench.outcome, bench.perf, len(bench.processes)) == ("failed", None, 0)


def test_a_benchmark_of_which_one_device_failed_adds_nothing_to_the_score(tmp_path: Path) -> None:
    run = record(
        tmp_path,
        Recorded(events=rates(100.0)),
        Recorded(tag="D1", devices=(1,), outcome="failed", why="exit", detail="ValueError: bad", events=rates(900.0)),
    )
    summary = summarise(run)
    bench = only(summary)
    assert (bench.outcome, bench.perf, bench.score) == ("failed", pytest.approx(100.0), None)
    assert (summary.verdict, summary.score.value, summary.score.complete) == ("failed", None, (0, 1))
    assert [(one.step, one.why, one.detail) for one in bench.failures] == [("digits.D1", "exit", "ValueError: bad")]


def test_a_step_that_never_ended_is_missing(tmp_path: Path) -> None:
    summary = summarise(record(tmp_path, Recorded(events=rates(5.0), outcome=None), is_ended=False))
    bench = only(summary)
    assert (bench.outcome, bench.counts["missing"], summary.is_ended) == ("missing", 1, False)
    assert bench.failures[0].why == "missing"


def test_a_skipped_benchmark_is_listed_with_its_reason_and_counts_against_completeness(tmp_path: Path) -> None:
    run = record(
        tmp_path,
        Recorded(events=rates(5.0)),
        manifest={"suite": {"llama": {"weight": 2.0}}},
        skipped=[{"bench": "llama", "why": "not fetched"}],
    )
    summary = summarise(run)
    skipped = summary.benchmarks[1]
    assert (skipped.bench, skipped.outcome, skipped.weight, skipped.skipped[0].detail) == (
        "llama",
        "skipped",
        2.0,
        "not fetched",
    )
    assert (summary.score.complete, summary.verdict) == ((1, 2), "passed")


def test_a_number_of_the_quick_profile_is_suspect_because_it_is_short(tmp_path: Path) -> None:
    bench = only(summarise(record(tmp_path, Recorded(events=rates(5.0)), manifest={"profile": "quick"})))
    assert (bench.validity, bench.doubts) == ("suspect", ("short",))


def test_a_doubt_for_doubt_that_the_end_tells_is_kept(tmp_path: Path) -> None:
    bench = only(summarise(record(tmp_path, Recorded(events=rates(5.0), reasons=("abort-at-exit",)))))
    assert (bench.validity, bench.doubts) == ("suspect", ("abort-at-exit",))


def test_processes_that_report_different_units_have_no_common_rate(tmp_path: Path) -> None:
    steps = [Recorded(events=rates(5.0)), Recorded(repeat=1, events=rates(5.0, units="tokens/s"))]
    bench = only(summarise(record(tmp_path, *steps)))
    assert (bench.perf, bench.score, bench.validity, bench.doubts) == (None, None, "invalid", ("mixed",))


def test_on_a_processor_no_gpu_is_claimed(tmp_path: Path) -> None:
    run = record(tmp_path, Recorded(events=rates(5.0)), manifest={"system": {"arch": "cpu", "nodes": []}})
    assert only(summarise(run)).ngpu == 0


def test_a_metric_where_less_is_better_scores_its_inverse(tmp_path: Path) -> None:
    latency = data(metric="latency", value=0.5, units="s", direction="lower", main=True)
    bench = only(summarise(record(tmp_path, Recorded(events=(latency,)))))
    assert (bench.perf, bench.direction, bench.score) == (pytest.approx(0.5), "lower", pytest.approx(2.0))


@pytest.mark.parametrize(
    ("why", "is_flaky"),
    [("exit", True), ("time-limit", True), ("out-of-memory", True), ("job-failed", True)]
    + [(why, False) for why in ("job-cancelled", "preempted", "node-failed", "job-lost")],
)
def test_a_step_whose_nodes_were_taken_away_is_not_flaky(tmp_path: Path, why: str, is_flaky: bool) -> None:
    run = record(tmp_path, Recorded(outcome="failed", why=why, events=rates(100.0)))
    again = {"step": "digits.D0", "attempt": 2, "state": "ended", "outcome": "passed"}
    with (run.path / "journal.jsonl").open("a") as journal:
        journal.write(json.dumps(again) + "\n")
    bench = only(summarise(open_run(run.path)))
    assert bench.outcome == "passed"
    assert bool(bench.flaky) == is_flaky


def test_the_last_attempt_of_a_step_decides(tmp_path: Path) -> None:
    run = record(tmp_path, Recorded(events=rates(5.0), outcome="failed", why="exit"))
    journal = run.path / "journal.jsonl"
    again = {"step": "digits.D0", "attempt": 2, "state": "ended", "outcome": "passed"}
    journal.write_text(journal.read_text() + json.dumps(again) + "\n")
    assert only(summarise(open_run(run.path))).outcome == "passed"


def test_a_passed_step_without_a_rate_says_so(tmp_path: Path) -> None:
    bench = only(summarise(record(tmp_path, Recorded(events=rates(5.0, warmup=True)))))
    assert (bench.outcome, bench.perf, bench.validity) == ("passed", None, None)
    assert bench.messages == (
        "no observation after warm-up: no rate. Shorten the warm-up with `--profile quick` or a smaller `voir.options.skip`",
    )


@pytest.mark.parametrize("value", [0, -3])
def test_a_passed_step_whose_number_has_no_ratio_says_so(tmp_path: Path, value: float) -> None:
    main = data(metric="errors", value=value, units="", direction="lower", main=True)
    bench = only(summarise(record(tmp_path, Recorded(events=[main]))))
    assert (bench.outcome, bench.perf, bench.validity) == ("passed", None, None)
    assert bench.messages == (
        "its number is not above zero, so it has no result: results are compared by their ratios",
    )


def test_a_failed_step_without_a_detail_tells_its_first_error(tmp_path: Path) -> None:
    from milabench.events.model import Error

    error = Error(step="", type="ValueError", message="bad batch\nsecond line")
    run = record(tmp_path, Recorded(events=(error, message("hello")), outcome="failed", why="exit"))
    assert only(summarise(run)).failures[0].detail == "ValueError: bad batch"


def test_a_run_without_steps_did_not_pass(tmp_path: Path) -> None:
    assert summarise(record(tmp_path)).verdict == "failed"


def test_the_json_form_has_the_keys_of_the_protocol(tmp_path: Path) -> None:
    told = summarise(record(tmp_path, Recorded(events=rates(5.0)))).to_json()
    assert {"schema", "run", "system", "profile", "verdict", "benchmarks", "score"} <= set(told)
    promised = [
        *("bench", "outcome", "counts", "ngpu", "processes", "perf", "units", "direction", "ci95", "spread_within"),
        *("spread_devices", "spread_processes", "memory_peak_MiB", "energy_J", "first_step_s", "weight", "score"),
        *("validity", "reasons", "failures", "metrics"),
    ]
    assert set(promised) <= set(told["benchmarks"][0])
    assert {"value", "ci95", "reference", "complete"} <= set(told["score"])
    assert {"planned", "passed", "failed", "skipped", "missing"} <= set(told["benchmarks"][0]["counts"])


def old_record(event: str, value: Any, pipe: str | None = "data") -> str:
    return json.dumps({"event": event, "data": value, "pipe": pipe}) + "\n"


def test_a_run_of_milabench_1_3_is_summarised_from_its_records(tmp_path: Path) -> None:
    folder = tmp_path / "tuto.2024-05-01_10:11:12.123456"
    folder.mkdir()
    config = {"name": "bert-fp16", "weight": 2.0, "plan": {"method": "per_gpu"}, "tag": ["bert-fp16", "D0"]}
    gpus = {"0": {"product": "A100", "memory": {"used": 1, "total": 40960}}}
    meta = {"cpu": {"count": 64, "brand": "EPYC"}, "accelerators": {"arch": "cuda", "gpus": gpus}}
    for device, return_code in ((0, 0), (1, 1)):
        lines = [
            old_record("config", config, None),
            old_record("meta", meta, None),
            old_record("start", {"command": ["voir", "main.py"], "time": 1.0}, None),
            *(old_record("data", {"task": "train", "rate": 40.0, "units": "items/s"}) for _ in range(30)),
            old_record("data", {"task": "main", "gpudata": {"0": {"memory": [1234.0, 40960.0], "load": 0.9}}}),
            old_record("end", {"command": ["voir"], "time": 9.0, "return_code": return_code}, None),
        ]
        (folder / f"bert-fp16.D{device}.data").write_text("".join(lines))
    summary = summarise(open_run(folder))
    bench = only(summary)
    assert (bench.bench, bench.outcome, bench.counts["passed"], bench.counts["failed"]) == ("bert-fp16", "failed", 1, 1)
    assert (bench.perf, bench.units, bench.weight, bench.ngpu) == (pytest.approx(40.0), "items/s", 2.0, 2)
    assert bench.memory_peak_mib == 1234
    assert summary.system["nodes"][0]["devices"][0]["name"] == "A100"


def test_the_devices_of_one_launch_are_no_replicates(tmp_path: Path) -> None:
    steps = [Recorded(tag=f"D{device}", devices=(device,), events=rates(100.0 + device)) for device in range(4)]
    found = only(summarise(record(tmp_path, *steps)))
    assert (len(found.processes), found.replicates) == (4, 1)
    assert found.ci95 is None
    assert found.spread_devices is not None
