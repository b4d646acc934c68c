"""Metrics from log lines: which numbers are found, and what becomes of them."""

from __future__ import annotations

import itertools
import json
import math
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milabench.analysis.log_child import LogChild, log_fold
from milabench.analysis.log_metrics import REDUCTIONS, LogFold, LogMetric, LogSeries, metrics_of, number_in
from milabench.analysis.search_limits import TICK_S, search_watch
from milabench.config.schema import REDUCTIONS as OF_SUITES

LOG = """\
INFO:root:Epoch[0] Batch [49]	Speed: 829.012392 samples/sec	accuracy=0.172578
INFO:root:Epoch[0] Batch [99]	Speed: 844.157227 samples/sec	accuracy=0.206563
INFO:root:Epoch[0] Batch [149]	Speed: 835.582445 samples/sec	accuracy=0.230781
INFO:root:[Epoch 0] training: accuracy=0.248027
INFO:root:[Epoch 0] time cost: 69.030488
INFO:root:[Epoch 0] validation: accuracy=0.296484
INFO:root:Epoch[1] Batch [49]	Speed: 797.687061 samples/sec	accuracy=0.322344
INFO:root:Epoch[1] Batch [99]	Speed: 821.444257 samples/sec	accuracy=0.329883
INFO:root:Epoch[1] Batch [149]	Speed: 810.339386 samples/sec	accuracy=0.342969
INFO:root:[Epoch 1] training: accuracy=0.351983
INFO:root:[Epoch 1] time cost: 61.266612
INFO:root:[Epoch 1] validation: accuracy=0.393930
"""
NUMBER = r"(\d+\.\d+|\d+)"


def metric(pattern: str, reduce: str = "last", **more: Any) -> LogMetric:
    return LogMetric(name="m", pattern=re.compile(pattern), reduce=reduce, **more)


def found(lines: Sequence[str], *metrics: LogMetric) -> tuple[LogSeries, ...]:
    fold = LogFold(metrics)
    for line in lines:
        fold.observe(line)
    return fold.series()


KNOWN = json.loads((Path(__file__).parents[2] / "golden" / "known_answers.json").read_text())["seed003"]


@pytest.mark.parametrize(
    ("reduce", "answer"),
    [
        ("mean", "average"),
        ("median", "median"),
        ("p90", "p90_linear"),
        ("std", "stdev"),
        ("harmonic", "harmonic"),
        ("count", "n"),
    ],
)
def test_reductions_of_the_documents_speeds_are_the_known_answers(reduce: str, answer: str) -> None:
    (speed,) = found(LOG.splitlines(keepends=True), metric(f"Speed: {NUMBER} samples/sec", reduce))
    assert speed.value == pytest.approx(KNOWN[answer], rel=1e-12)


def test_the_documents_other_metrics_are_the_known_answers() -> None:
    training, validation, time, halved = found(
        LOG.splitlines(keepends=True),
        metric(f"training: accuracy={NUMBER}"),
        metric(f"validation: accuracy={NUMBER}"),
        metric(f"time cost: {NUMBER}", "sum"),
        metric(f"time cost: {NUMBER}", "sum", scale=0.5),
    )
    assert (training.value, validation.value) == (KNOWN["last_training"], KNOWN["last_validation"])
    assert (time.value, halved.value) == (pytest.approx(KNOWN["total_time"]), pytest.approx(65.14855))


def test_the_documents_log_has_the_documents_numbers() -> None:
    series = found(
        LOG.splitlines(keepends=True),
        metric(f"Speed: {NUMBER} samples/sec", "mean"),
        metric(f"training: accuracy={NUMBER}"),
        metric(f"validation: accuracy={NUMBER}"),
        metric(f"time cost: {NUMBER}", "sum"),
    )
    assert [one.value for one in series] == [823.037128, 0.351983, 0.39393, 130.2971]


@given(st.lists(st.decimals(-(10**9), 10**9, places=6), min_size=1, max_size=40))
def test_a_mean_and_a_sum_are_those_of_the_decimal_numbers_rounded_once(numbers: list[Decimal]) -> None:
    lines = [f"v={number:f}\n" for number in numbers]
    total, average = found(lines, metric(r"v=(\S+)", "sum"), metric(r"v=(\S+)", "mean"))
    exact = sum(map(Fraction, numbers))
    assert (total.value, average.value) == (float(exact), float(exact / len(numbers)))


def test_a_sum_of_numbers_beyond_all_measure_is_none() -> None:
    lines = ["v=1e308\n", "v=-1e308\n", "v=3\n"]
    for reduce in ("sum", "mean", "std", "harmonic", "max"):
        (series,) = found(lines, metric(r"v=(\S+)", reduce))
        assert (series.value, series.problem) == (None, f"metric m: {reduce} of 3 values is not a finite number")


@pytest.mark.parametrize("reduce", ["median", "min", "max", "p50", "p90", "p95", "p99", "mean", "harmonic"])
def test_among_numbers_that_are_none_nothing_is_the_smallest_or_the_median(reduce: str) -> None:
    for order in itertools.permutations(("nan", "1", "2", "3")):
        (series,) = found([f"v={number}\n" for number in order], metric(r"v=(\S+)", reduce))
        assert (series.value, series.problem) == (None, f"metric m: {reduce} of 4 values is not a finite number")


def test_the_raw_series_is_kept_with_its_spread() -> None:
    (series,) = found(LOG.splitlines(), metric(f"Speed: {NUMBER}", "mean"))
    assert list(series.values) == [829.012392, 844.157227, 835.582445, 797.687061, 821.444257, 810.339386]
    assert series.spread == pytest.approx(0.0206, abs=1e-4)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("829.01", 829.01),
        ("1e-05", 1e-05),
        ("1.5e-03", 1.5e-03),
        ("-3.2", -3.2),
        (".5", 0.5),
        ("5.", 5.0),
        ("007", 7.0),
        ("1,234.5", 1234.5),
        ("1_000", 1000.0),
        ("+inf", math.inf),
        ("-Infinity", -math.inf),
        ("loss = 0.5, ", 0.5),
        ("no number", None),
        ("banana", None),
        ("3 of 5", None),
        ("", None),
    ],
)
def test_numbers_are_read_as_people_and_programs_write_them(text: str, number: float | None) -> None:
    assert number_in(text) == number


@pytest.mark.parametrize("text", ["1,2", "1,23", "12,34,5"])
def test_a_list_is_no_number(text: str) -> None:
    assert number_in(text) is None


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("loss 1.5e-03", 1.5e-03),
        ("loss 1e-05,", 1e-05),
        ("loss -3.2", -3.2),
        ("loss: -3", -3.0),
        ("loss .5", 0.5),
        ("loss -.5", -0.5),
        ("loss 1,234.5", 1234.5),
        ("loss 1,2", 1.0),
        ("loss 007", 7.0),
        ("loss 0.5.", 0.5),
        ("loss-3", 3.0),
        ("loss of 2.5 items", 2.5),
    ],
)
def test_a_group_for_digits_and_a_point_cuts_no_number(line: str, number: float) -> None:
    (series,) = found([f"{line}\n"], metric(rf"loss\D*?{NUMBER}"))
    assert list(series.values) == [number]


def test_what_a_pattern_asks_for_behind_its_group_is_not_taken_into_the_number() -> None:
    (series,) = found(["took 12.5 s\n"], metric(r"took (\d+)\.\d+ s"))
    assert list(series.values) == [12.0]


def test_a_line_in_pieces_is_put_together_pipe_by_pipe() -> None:
    fold = LogFold([metric(rf"Speed: {NUMBER} samples")])
    for text, pipe in (
        ("Speed: 82", "stdout"),
        ("Speed: 1 sam", "stderr"),
        ("9.5 samples\n", "stdout"),
        ("ples", "stderr"),
    ):
        fold.observe(text, pipe)
    assert list(fold.series()[0].values) == [829.5, 1.0]


def test_of_updates_that_overwrite_each_other_the_last_one_counts() -> None:
    fold = LogFold([metric(r"at (\d+)%")])
    for text in ("at 10%\r", "at 50%\r", "at 100%\n"):
        fold.observe(text, "stderr")
    assert list(fold.series()[0].values) == [100.0]


def test_a_line_that_never_ends_takes_bounded_memory() -> None:
    fold = LogFold([metric("v=([0-9]+)")])
    for _ in range(20):
        fold.observe("v=1 " * 4096)
    assert len(fold.series()[0].values) == 20 * 4096


def test_not_a_number_is_read_and_is_no_result() -> None:
    (series,) = found(["loss: 0.5\n", "loss: nan\n"], metric(r"loss: (\S+)"))
    assert math.isnan(series.values[1])
    assert (series.value, series.problem) == (None, "metric m: last of 2 values is not a finite number")
    assert series.spread is None


@pytest.mark.parametrize(
    ("reduce", "number"),
    [
        *(("last", 4.0), ("first", 1.0), ("mean", 2.5), ("median", 2.5), ("min", 1.0), ("max", 4.0), ("sum", 10.0)),
        *(("count", 4.0), ("p50", 2.5), ("p90", 3.7), ("p95", 3.85), ("p99", 3.97), ("harmonic", 1.92)),
        ("std", 1.2909944487358056),
    ],
)
def test_several_numbers_become_one(reduce: str, number: float) -> None:
    (series,) = found(["v=1\n", "v=2\n", "v=3 v=4\n"], metric(r"v=(\d)", reduce))
    assert series.value == pytest.approx(number)


def test_every_reduction_that_a_suite_may_name_is_there() -> None:
    assert set(OF_SUITES) <= set(REDUCTIONS)


def test_a_log_without_a_match_is_a_problem_unless_matches_are_counted() -> None:
    none, count = found(["nothing\n"], metric(r"v=(\d)"), metric(r"v=(\d)", "count"))
    assert (none.value, none.problem) == (None, r"metric m: no line of the output matched 'v=(\\d)'")
    assert (count.value, count.problem) == (0.0, "")


def test_a_match_around_several_numbers_asks_for_a_group() -> None:
    (series,) = found(["epoch 3 loss 0.5\n"], metric(r"epoch \d+ loss \S+"))
    assert series.unread == 1
    assert series.problem.endswith("matched, but around no single number. Put a group around the number")


def test_a_deviation_needs_two_values_and_a_harmonic_mean_positive_ones() -> None:
    std, harmonic = found(["v=0\n"], metric(r"v=(\d)", "std"), metric(r"v=(\d)", "harmonic"))
    assert (std.value, harmonic.value) == (None, None)


def test_what_a_recorded_configuration_asks_for_is_read_and_nonsense_passed_over() -> None:
    config = {
        "metrics": {
            "speed": {"pattern": "Speed: (.*)", "reduce": "mean", "units": "items/s", "direction": "higher"},
            "broken": {"pattern": "("},
            "odd": {"pattern": "x", "reduce": "mode"},
            "none": 3,
        }
    }
    expected = LogMetric(
        name="speed", pattern=re.compile("Speed: (.*)"), reduce="mean", units="items/s", direction="higher"
    )
    assert metrics_of(config) == (expected,)
    assert metrics_of({}) == ()


FOREVER = r"(a+)+$"
ENDLESS = 35 * "a" + "b\n"  # so many steps that no machine comes to their end


def test_a_pattern_that_takes_too_long_on_a_line_is_given_up_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("milabench.analysis.log_metrics.LINE_S", 0.1)
    fold = LogFold([metric(r"ok (\d+)"), metric(FOREVER), metric(r"^o\w (\d+)")])
    for text, pipe in (("ok 1\n", "stdout"), ("ok 2\n", "stderr"), (f"ok 3 {ENDLESS}", "stdout"), (ENDLESS, "stdout")):
        fold.observe(text, pipe)
    first, given_up, last = fold.series()
    assert list(first.values) == list(last.values) == [1, 2, 3]
    assert given_up.value is None
    assert "'(a+)+$' took more than 0.1 s on line 2 of stdout." in given_up.problem


def test_lines_that_take_less_than_the_limit_each_have_one_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milabench.analysis.log_metrics.LOG_S", 0.3)
    monkeypatch.setattr("milabench.analysis.log_metrics.LINE_S", 100.0)
    fold = LogFold([metric(FOREVER, "count"), metric(r"ok (\d+)")])
    for number in itertools.count():
        fold.observe(20 * "a" + f" ok {number}\n")
        given_up, other = fold.series()
        if given_up.failure:
            break
    assert f"took more than 0.3 s on the lines up to line {number + 1}." in given_up.problem
    assert list(other.values) == list(range(number + 1))


def test_what_one_log_took_does_not_count_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milabench.analysis.log_metrics.LINE_S", 0.1)
    slow, quick = LogFold([metric(FOREVER)]), LogFold([metric(r"(\d+)")])
    slow.observe(ENDLESS)
    quick.observe("1\n")
    assert slow.series()[0].failure
    assert quick.series()[0].value == 1
    assert (search_watch().searching, signal.getitimer(signal.ITIMER_VIRTUAL)[0] <= TICK_S) == (None, True)


def test_an_interrupt_in_the_midst_of_a_match_leaves_no_tick_for_what_follows() -> None:
    class Interrupted(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    fold = LogFold([metric(FOREVER)])
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(Interrupted):
            fold.observe(ENDLESS)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert search_watch().searching is None


@pytest.mark.slow
def test_a_program_that_ends_while_the_limit_ticks_ends_as_it_would() -> None:
    # What is freed after Python has taken its signal handlers away lasts longer than a tick.
    program = """
import re
from milabench.analysis.log_metrics import LogFold, LogMetric
held = [[] for _ in range(3_000_000)]
fold = LogFold([LogMetric(name="m", pattern=re.compile("ok"), reduce="count")])
fold.observe("ok 1\\n")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_line_of_any_length_is_searched_in_pieces() -> None:
    fold = LogFold([metric("y(.)", "count")])
    fold.observe("x" * (3 << 20) + "y7\n")
    assert fold.series()[0].value == 1


@pytest.mark.slow
def test_a_thread_has_its_log_searched_by_a_child_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = [metric(r"ok (\d+)", "mean"), metric(FOREVER), metric(r"not (there)")]
    lines = [("ok 1\n", "stdout"), ("\udcff ok", "stderr"), (" 4\n", "stderr"), (ENDLESS, "stdout"), ("ok 7", "stdout")]

    def searched() -> tuple[LogSeries, ...]:
        fold = log_fold(metrics)
        for text, pipe in lines:
            fold.observe(text, pipe)
        return fold.series()

    with ThreadPoolExecutor() as pool:
        by_child = pool.submit(searched).result()
    assert [series.value for series in by_child] == [4.0, None, None]
    assert by_child == searched()


def test_a_log_without_lines_starts_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milabench.analysis.log_child.subprocess.Popen", None)
    metrics = [metric("a"), metric("b", "count")]
    assert LogChild(metrics).series() == LogFold(metrics).series()


def test_a_child_that_ends_is_a_failure_of_every_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milabench.analysis.log_child._PROGRAM", "raise SystemExit(3)")
    child = LogChild([metric("a")])
    for _ in range(10_000):
        child.observe("some text\n")
    (series,) = child.series()
    assert series.problem == "metric m: 'a' was not searched for: the process that does this ended with code 3"


def test_a_recorded_pattern_that_cannot_be_compiled_is_passed_over() -> None:
    for pattern in ("(", "(" * 5000, "a{99999999999}"):
        assert metrics_of({"metrics": {"m": {"pattern": pattern}}}) == ()
