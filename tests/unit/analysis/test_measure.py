from __future__ import annotations

from typing import Any

import pytest

from milabench.analysis.measure import measure
from milabench.events.model import Data, Error, Event, Message, Other
from tests.recorded_run import complete_window


def data(**values: Any) -> Event:
    return Data(step="s", data=values)


def observed(*elapsed: float, n: float = 32, start: int = 0, **more: Any) -> list[Event]:
    found, now = [], start
    for one in elapsed:
        record = {"task": "train", "rate": n / one, "units": "images/s", "elapsed": one, "n": n, "t0_ns": now, **more}
        found.append(data(**record))
        now += round(one * 1e9)
    return found


def test_throughput_is_all_items_over_all_seconds_and_not_the_mean_of_rates() -> None:
    rate = measure("s", observed(0.1, 0.1, 0.4)).throughput
    assert rate is not None
    assert rate.value == pytest.approx(160)
    assert (rate.units, rate.direction, rate.basis, rate.observations) == (
        "images/s",
        "higher",
        "ratio-of-totals",
        3,
    )


def test_warm_up_is_left_out_and_kept_in_the_series() -> None:
    found = measure("s", [*observed(1.0, warmup=True), *observed(0.1, 0.1)])
    assert found.throughput is not None
    assert found.throughput.value == pytest.approx(320)
    assert list(found.series[0].warmup) == [1, 0, 0]


def test_what_lies_outside_of_the_declared_window_is_left_out() -> None:
    window = data(
        task="train", window={"start_ns": int(1e9), "stop_ns": int(3e9), "start": 1.0, "stop": 3.0, "why": "n"}
    )
    found = measure("s", [*observed(1.0, 1.0, 1.0, 5.0), window])
    assert found.throughput is not None
    assert found.throughput.value == pytest.approx(32)
    assert found.throughput.observations == 2


def test_a_step_lies_in_the_window_by_the_hosts_clock_also_where_the_device_works_behind_it() -> None:
    window = data(task="train", window={"start_ns": 0, "stop_ns": 3_000_000})
    steps = [
        data(task="train", rate=32.0, units="images/s", elapsed=1.0, n=32, t0_ns=i * 1_000_000, host_ns=1_000_000)
        for i in range(5)
    ]
    found = measure("s", [*steps, window]).throughput
    assert found is not None
    assert found.observations == 3


def test_the_windows_of_several_ranks_are_one_that_holds_them_all() -> None:
    windows = [data(task="train", window={"start_ns": a, "stop_ns": b}) for a, b in ((10, 50), (5, 40))]
    found = measure("s", [*observed(1e-8, start=20), *windows]).window
    assert found is not None
    assert (found.start_ns, found.stop_ns) == (5, 50)


def test_a_window_without_observations_gives_no_rate() -> None:
    window = data(task="train", window={"start_ns": int(90e9), "stop_ns": int(99e9)})
    assert measure("s", [*observed(1.0), window]).throughput is None


def test_aggregated_entries_count_with_all_their_items_and_seconds() -> None:
    found = measure("s", [*observed(0.1), *observed(1.0, n=320, steps=10, start=100_000_000)]).throughput
    assert found is not None
    assert found.value == pytest.approx(320)
    assert found.totals[0].steps == 11


def test_ranks_add_their_items_and_the_slowest_one_sets_the_time() -> None:
    found = measure("s", [*observed(1.0, 1.0, rank=0), *observed(1.5, 1.5, rank=1)]).throughput
    assert found is not None
    assert found.value == pytest.approx(4 * 32 / 3.0)


def test_training_is_the_main_task_even_when_validation_comes_first() -> None:
    validation = data(task="validation", rate=1.0, units="images/s", elapsed=1.0, n=1)
    found = measure("s", [validation, *observed(0.1)])
    assert found.task == "train"
    assert found.throughput is not None
    assert found.throughput.value == pytest.approx(320)


def test_the_spread_within_is_the_variation_of_single_observations() -> None:
    found = measure("s", observed(1.0, 0.5, 1.0, 0.5)).throughput
    assert found is not None and found.spread_within is not None
    assert found.spread_within == pytest.approx(18.475208614 / 48)


def test_rates_by_the_programs_clock_say_so_and_leave_out_the_warm_up() -> None:
    about = {"task": "train", "units": "Tflops", "clock": "program"}
    warm = [data(**about, rate=0.1, time=100.0 + i, warmup=True) for i in range(3)]
    rest = [data(**about, rate=rate, time=103.0 + i) for i, rate in enumerate([320.0, 80.0] * 10)]
    found = measure("s", warm + rest).throughput
    assert found is not None
    assert (found.value, found.units, found.observations) == (pytest.approx(128.0), "Tflops", 20)
    assert found.doubts == ("program-clock",)


def test_rates_of_milabench_1_3_give_their_harmonic_mean_after_warm_up_and_are_marked() -> None:
    slow = [data(task="train", rate=1.0, units="items/s", time=100.0 + i) for i in range(10)]
    rest = [data(task="train", rate=rate, units="items/s", time=110.0 + i) for i, rate in enumerate([320.0, 80.0] * 10)]
    found = measure("s", slow + rest).throughput
    assert found is not None
    assert (found.basis, found.observations) == ("compat", 20)
    assert found.value == pytest.approx(128)


def test_few_rates_of_milabench_1_3_lose_at_most_half_to_warm_up() -> None:
    found = measure("s", [data(task="train", rate=2.0, units="items/s") for _ in range(4)]).throughput
    assert found is not None
    assert found.observations == 2


def test_a_program_without_observations_is_known_by_its_main_metrics() -> None:
    found = measure(
        "s",
        [
            data(metric="tflops", value=4.0, units="TFLOP/s", direction="higher", main=True, case="fp32"),
            data(metric="tflops", value=16.0, units="TFLOP/s", direction="higher", main=True, case="bf16"),
            data(metric="accuracy", value=0.9, units="", direction="higher"),
        ],
    ).throughput
    assert found is not None
    assert (found.basis, found.units, found.direction, found.observations) == ("metric", "TFLOP/s", "higher", 2)
    assert found.value == pytest.approx(8.0)


def test_a_metric_that_is_not_flagged_is_no_rate() -> None:
    assert measure("s", [data(metric="accuracy", value=0.9)]).throughput is None


def test_a_metric_that_is_reported_again_replaces_the_older_value() -> None:
    found = measure("s", [data(metric="accuracy", value=0.1), data(metric="accuracy", value=0.9)])
    assert found.metric("accuracy") == 0.9
    assert len(found.metrics) == 1


def test_the_memory_peak_is_the_allocators_largest_part_in_mib() -> None:
    found = measure(
        "s",
        [
            data(metric="memory_reserved_peak", value=3 * 2**30, units="B", part="setup"),
            data(metric="memory_reserved_peak", value=1 * 2**30, units="B", part="run"),
            data(metric="host_memory_peak", value=9 * 2**30, units="B"),
        ],
    )
    assert found.memory_peak_mib == 3072


def test_the_memory_peak_of_a_device_is_the_highest_sample_not_the_mean() -> None:
    samples = [data(task="main", gpudata={"0": {"memory": [used, 81920], "load": 0.5}}) for used in (0, 700, 749, 200)]
    assert measure("s", samples).memory_peak_mib == 749


def test_memory_in_an_unknown_unit_is_no_peak() -> None:
    assert measure("s", [data(metric="host_memory_peak", value=1, units="pages")]).memory_peak_mib is None


def test_losses_are_followed_from_first_to_last_and_non_numbers_are_counted() -> None:
    found = measure("s", [data(task="train", loss=loss) for loss in (2.0, None, 1.0)]).losses
    assert (found.first, found.last, found.count, found.nonfinite) == (2.0, 1.0, 3, 1)


def test_an_instrument_that_failed_is_an_error() -> None:
    event = Other(step="s", event="overseer_error", data={"type": "KeyError", "message": "x"})
    assert measure("s", [event]).errors == [Error(step="s", type="KeyError", message="x")]


def test_a_message_said_twice_is_kept_once() -> None:
    assert measure("s", [Message(step="s", text="no power sensor")] * 2).messages == ("no power sensor",)


@pytest.mark.parametrize(
    "record",
    [
        {"rate": None, "nonfinite": ["rate"]},
        {"rate": "fast"},
        {"rate": True},
        {"rate": None, "elapsed": 0.0, "n": 1},
        {"rate": 10**400},
        {"metric": "x", "value": None},
        {"window": {"start_ns": 5, "stop_ns": 1}},
        {"window": {}},
        {"window": 3},
        {"gpudata": {"0": None}},
        {"gpudata": {"0": {"memory": []}}},
        {"loss": "nan"},
    ],
)
def test_a_record_that_cannot_be_used_changes_no_number(record: dict[str, Any]) -> None:
    good = observed(0.1, 0.2)
    mixed, clean = measure("s", [data(task="train", **record), *good]), measure("s", good)
    assert mixed.throughput is not None and clean.throughput is not None
    assert mixed.throughput.value == clean.throughput.value
    assert set(mixed.throughput.doubts) - set(clean.throughput.doubts) <= {"nonfinite"}
    assert [metric for metric in mixed.metrics if metric.name != "nonfinite"] == list(clean.metrics)
    assert mixed.window == clean.window


def test_nothing_at_all_is_a_measurement_without_numbers() -> None:
    found = measure("s", [])
    assert (found.throughput, found.end, found.memory_peak_mib, found.first_step_s) == (None, None, None, None)


def test_a_program_that_never_left_its_warm_up_shows_its_later_half_marked_as_such() -> None:
    found = measure("s", observed(1.0, 1.0, 0.1, 0.1, warmup=True)).throughput
    assert found is not None
    assert found.basis == "warm-up"
    assert found.totals[0].observations == 2


@pytest.mark.parametrize(
    ("costs", "doubts", "share"),
    [
        ([{"host_s": 0.006, "dropped": 0}], (), 0.006),
        ([{"host_s": 0.004, "dropped": 0}] * 2, (), 0.004),  # of two ranks, side by side
        ([{"host_s": 0.0, "dropped": 3}], ("dropped",), 0.0),
        ([{"host_s": None}], (), 0.0),
    ],
)
def test_what_observing_cost_and_lost_is_held_against_the_number(
    costs: list[dict[str, Any]], doubts: tuple[str, ...], share: float
) -> None:
    events = [
        *complete_window(),
        *observed(0.5, warmup=True),
        *observed(0.25, 0.25, start=500_000_000),
        *(data(overhead=cost) for cost in costs),
    ]
    rate = measure("s", events).throughput
    assert rate is not None
    assert (rate.doubts, rate.effects["observing"]) == (doubts, pytest.approx(share))
