"""Checks of what a monitor read of the devices."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from milabench.analysis.measure import measure
from milabench.checks.check import StepContext
from milabench.checks.registry import NAMES, checks_for, parse_checks
from milabench.errors import UsageError
from milabench.events.model import Data, Event, Meta, Verdict

WINDOW = Data(step="s", data={"task": "train", "window": {"start": 10.0, "stop": 20.0, "start_ns": 1, "stop_ns": 2}})


def sample(time: float, key: str = "0", **readings: Any) -> Event:
    return Data(step="s", data={"task": "main", "gpudata": {key: {"uuid": "u", **readings}}, "time": time})


def samples(start: float = 10.0, stop: float = 20.0, **readings: Any) -> list[Event]:
    """Ten a second."""
    return [sample(start + tick / 10, **readings) for tick in range(round((stop - start) * 10) + 1)]


def found(
    name: str,
    events: Iterable[Event],
    settings: Any = None,
    *,
    devices: tuple[int, ...] = (0,),
    ranks: int | None = None,
    may_use_one: bool = False,
) -> Verdict:
    context = StepContext(step="s", devices=devices, ranks=ranks, may_use_one=may_use_one)
    (check,) = checks_for(context, [name], {name: settings} if settings is not None else {})
    return check.verdict(measure("s", events))


USAGE = {"gpu_load_threshold": 0.5, "gpu_mem_threshold": 0.1}


def test_an_idle_device_fails() -> None:
    said = found("usage", [*samples(load=0.02, memory=[10, 1000]), WINDOW], USAGE)
    assert said.verdict == "fail"
    assert said.message == "load of device 0 is 2.0%, below 50.0%; memory of device 0 is 1.0%, below 10.0%"


def test_a_busy_device_passes_with_its_numbers() -> None:
    said = found("usage", [*samples(load=0.9, memory=[500, 1000]), WINDOW], USAGE)
    assert said.verdict == "pass"
    assert said.numbers["devices"]["0"] == {"load": pytest.approx(0.9), "memory": 0.5, "samples": 101}


def test_only_the_window_counts() -> None:
    before, after = samples(0, 9.9, load=0.0, memory=[0, 1000]), samples(20.1, 30, load=0.0, memory=[0, 1000])
    assert found("usage", [*before, *samples(load=1.0, memory=[500, 1000]), *after, WINDOW], USAGE).verdict == "pass"


def test_one_idle_device_of_two_fails() -> None:
    events = [*samples(load=1.0, memory=[900, 1000]), *samples(key="1", load=0.0, memory=[900, 1000]), WINDOW]
    assert found("usage", events, USAGE).message == "load of device 1 is 0.0%, below 50.0%"


def test_a_load_that_cannot_be_read_is_not_zero() -> None:
    said = found("usage", [*samples(memory=[900, 1000]), WINDOW], USAGE)
    assert (said.verdict, said.message) == ("warn", "not read in the window: load of device 0")


def test_devices_that_nobody_read_are_a_warning_where_there_should_be_some() -> None:
    assert found("usage", [WINDOW], USAGE).verdict == "warn"
    assert found("usage", [WINDOW], USAGE, devices=()).verdict == "pass"


def test_an_instance_that_sees_several_devices_has_to_use_one_of_them() -> None:
    # A plan of `njobs`: the program takes the device that it wants.
    events = [*samples(load=0.9, memory=[500, 1000]), *samples(load=0.0, memory=[5, 1000], key="1"), WINDOW]
    assert found("usage", events, USAGE, devices=(0, 1)).verdict == "fail"
    assert found("usage", events, USAGE, devices=(0, 1), may_use_one=True).verdict == "pass"


def test_usage_is_off_unless_the_suite_has_thresholds() -> None:
    assert checks_for(StepContext(step="s"), ["usage"], {}) == ()
    assert checks_for(StepContext(step="s"), ["throttle"], {"throttle": False}) == ()


def test_a_thermal_slowdown_fails_and_is_named() -> None:
    said = found("throttle", [*samples(throttle=["hw_thermal", "sw_power_cap"]), WINDOW])
    assert said.verdict == "fail"
    assert said.message == "slowed down: device 0 in 100.0% of the samples (hw_thermal)"


@pytest.mark.parametrize("count", [1, 2])
def test_one_sample_in_a_hundred_is_let_pass(count: int) -> None:
    events = [sample(10 + n / 10, throttle=["hw_slowdown"] if n < count else []) for n in range(100)]
    assert found("throttle", [*events, WINDOW]).verdict == ("pass" if count == 1 else "fail")


def test_one_sample_of_a_short_window_is_let_pass() -> None:
    # Of thirty samples one is more than one in a hundred.
    events = [sample(10 + n / 10, throttle=["hw_slowdown"] if n == 3 else []) for n in range(30)]
    assert found("throttle", [*events, WINDOW]).verdict == "pass"


def slowed_to(clocks: Sequence[float], reasons: Sequence[str], key: str = "0", memory: float = 2619) -> list[Event]:
    """Ten samples in the window with these reasons for the clocks below the first one's, and none for the others."""
    return [
        sample(10.5 + n, key, sm_clock_MHz=clock, mem_clock_MHz=memory, throttle=reasons if clock < clocks[0] else [])
        for n, clock in enumerate(clocks)
    ]


def test_what_lower_clocks_may_have_cost_is_their_share_of_the_time_and_how_much_lower_they_were() -> None:
    half = [2000.0] * 8 + [1000.0] * 2
    two = [*slowed_to(half, ["hw_thermal"]), *slowed_to([2000.0] * 7 + [1500.0] * 3, ["sw_thermal"], key="1")]
    said = found("throttle", [*two, WINDOW], devices=(0, 1))
    # At a time the slowest device counts: 0.25, 0.5 and 0.5 of ten samples.
    assert (said.verdict, said.numbers["slowed"]) == ("fail", pytest.approx(0.125))
    about = Meta(step="s", data={"accelerators": [{"index": 0, "sm_clock_max_mhz": 2500}]})
    said = found("throttle", [about, *slowed_to(half, ["hw_slowdown"]), WINDOW])
    assert said.numbers["slowed"] == pytest.approx(0.2 * 0.6)
    slow_memory = [*slowed_to(half[:8], []), *slowed_to([2000.0, 1900.0], ["power_brake"], memory=1309.5)]
    assert found("throttle", [*slow_memory, WINDOW]).numbers["slowed"] == pytest.approx(0.5 / 8)
    assert found("throttle", [*slowed_to([2000.0] * 10, []), WINDOW]).numbers["slowed"] == 0


def test_what_clocks_do_not_bound_stays_a_doubt() -> None:
    hot = samples(throttle=["hw_thermal"], sm_clock_MHz=1200)
    (check,) = checks_for(StepContext(step="s"), ["throttle"], {})
    about = Meta(step="s", data={"accelerators": [{"index": 0, "sm_clock_max_mhz": 1600}]})
    for events, slowed in (
        ([*hot, WINDOW], None),  # no other clock was seen: the highest may be this one
        ([*samples(throttle=["hw_thermal"]), *samples(throttle=[], sm_clock_MHz=1200), WINDOW], None),
        ([about, *hot, WINDOW], pytest.approx(0.25)),
    ):
        said = found("throttle", events)
        assert (said.numbers.get("slowed"), check.doubt_for(said)) == (slowed, "throttled" if slowed is None else None)


def test_devices_that_do_not_say_whether_they_are_slowed_down_are_a_warning() -> None:
    said = found("throttle", [*samples(load=1.0), WINDOW])
    assert (said.verdict, said.message) == ("warn", "no device reported whether it was slowed down")
    assert found("throttle", [WINDOW]).verdict == "pass"


def test_a_software_power_cap_is_normal_and_its_share_is_told() -> None:
    events = [*samples(throttle=["sw_power_cap"]), WINDOW]
    assert found("throttle", events).verdict == "pass"
    assert found("power", events).numbers == {"at_limit": {"0": 1.0}}


def test_a_power_limit_below_the_default_is_a_warning_for_the_steps_own_devices() -> None:
    limited = {"index": 0, "power_limit_w": 450, "power_limit_default_w": 700}
    meta = Meta(step="s", data={"accelerators": [limited]})
    said = found("power", [meta])
    assert (said.verdict, said.message) == ("warn", "power limit below its default: device 0 to 450 of 700 W")
    assert "slowed" not in said.numbers  # nobody read the clocks
    assert found("power", [meta], devices=(1,)).verdict == "pass"
    capped = found("power", [meta, *slowed_to([1800.0] * 5 + [1350.0] * 5, ["sw_power_cap"]), WINDOW])
    assert (capped.verdict, capped.numbers["slowed"]) == ("warn", pytest.approx(0.125))


def test_a_foreign_process_in_the_window_fails() -> None:
    other = {"pid": 77, "memory_MiB": 2048.0, "own": False}
    own = {"pid": 5, "memory_MiB": 1.0, "own": True}
    said = found("foreign", [sample(15, processes=[own, other]), WINDOW])
    assert (said.verdict, said.message) == ("fail", "foreign processes: 77 on device 0")
    assert said.numbers == {"devices": {"0": {"77": 2048.0}}}
    assert found("foreign", [sample(30, processes=[other]), WINDOW]).verdict == "pass"


def test_a_process_of_another_container_is_not_called_foreign() -> None:
    assert found("foreign", [sample(15, processes=[{"pid": 77}]), WINDOW]).verdict == "pass"


def test_an_accelerator_of_which_nothing_was_read_is_a_warning_and_a_processor_is_not() -> None:
    said = found("sensor", [WINDOW])
    assert (said.verdict, said.message.partition(":")[0]) == ("warn", "no accelerator was read")
    assert found("sensor", [WINDOW], devices=()).verdict == "pass"
    assert found("sensor", []).verdict == "pass"


def test_a_sensor_that_was_lost_in_the_window_is_a_warning() -> None:
    said = found("sensor", [*samples(10, 12, load=1.0), sample(12.1, lost="fell off the bus"), WINDOW])
    assert (said.verdict, said.message) == ("warn", "device 0 stopped answering: fell off the bus")
    assert found("sensor", [*samples(load=1.0), sample(25, lost="gone"), WINDOW]).verdict == "pass"


def test_readings_that_stop_before_the_window_does_are_a_warning() -> None:
    assert found("sensor", [*samples(10, 15, load=1.0), WINDOW]).verdict == "warn"


def test_fatal_errors_of_the_device_are_a_warning() -> None:
    events = [sample(11, ecc={"uncorrected": 2}), sample(19.5, ecc={"uncorrected": 3}, xid=[79]), WINDOW]
    assert found("sensor", events).message == "device 0 reported Xid 79; device 0 has 1 new uncorrected memory errors"


def test_errors_that_the_memory_corrected_are_counted_and_are_no_doubt() -> None:
    events = [
        sample(11, ecc={"corrected": 5}),
        sample(15, ecc={"corrected": 5}),
        sample(19.5, ecc={"corrected": 8}),
        WINDOW,
    ]
    verdict = found("sensor", events)
    assert verdict.verdict == "pass"
    assert verdict.numbers["devices"]["0"]["ecc_corrected"] == 3


def test_errors_that_a_program_causes_say_nothing_of_the_device() -> None:
    # A step that is ended at the end of its window leaves Xid 45; an index out of bounds 13, 31 or 43.
    said = found("sensor", [sample(12, xid=[31]), sample(20.5, xid=[45]), WINDOW])
    assert (said.verdict, said.numbers["devices"]["0"]["xid"]) == ("pass", [31, 45])
    assert found("sensor", [*samples(10, 20.5), sample(22, xid=[79]), WINDOW]).verdict == "pass"


def metered(factor: float) -> list[Event]:
    return [sample(9.5 + n / 10, power_W=300.0, energy_J=1000 + 30 * n * factor) for n in range(120)]


def test_a_counter_that_agrees_with_power_passes_with_both() -> None:
    said = found("energy", [*metered(1.0), WINDOW])
    assert said.verdict == "pass"
    assert said.numbers["devices"]["0"] == {"counter_J": pytest.approx(3000), "integral_J": pytest.approx(3000)}


def test_a_counter_that_disagrees_by_more_than_a_twentieth_and_half_a_second_is_a_warning() -> None:
    assert found("energy", [*metered(1.12), WINDOW]).verdict == "warn"
    assert found("energy", [*metered(1.08), WINDOW]).verdict == "pass"


@pytest.mark.parametrize("phase", [0.0, 0.02, 0.04, 0.06, 0.08])
def test_power_averaged_over_a_second_does_not_disagree_in_a_short_window(phase: float) -> None:
    # A load that pulses every 1.7 s from a second before a window of 3 s; a counter that is renewed every 0.1 s.
    ticks = 1000  # of 5 ms, from 5 s before the window
    power = [690.0 if n >= 800 and n * 0.005 % 1.7 < 1.02 else 90.0 for n in range(2 * ticks)]
    energy = [0.0, *itertools.accumulate(watts * 0.005 for watts in power)]
    events = []
    for tick in range(800 + round(phase / 0.005), 1680, 20):
        mean = sum(power[tick - 200 : tick]) / 200
        events.append(sample(10 + (tick - ticks) * 0.005, power_W=mean, energy_J=energy[tick // 20 * 20]))
    window = Data(step="s", data={"task": "train", "window": {"start": 10.0, "stop": 13.0}})
    assert found("energy", [*events, window]).verdict == "pass"


def test_a_device_that_none_of_the_steps_processes_used_fails() -> None:
    idle = [{"pid": 7, "own": False}]
    said = found("placement", [sample(15, processes=idle), sample(15, key="1", processes=[{"pid": 8, "own": True}])])
    assert (said.verdict, said.message) == ("fail", "none of its processes was seen on device 0")


def test_a_planned_device_that_was_not_read_is_a_warning() -> None:
    said = found("placement", [sample(15)], devices=(0, 1))
    assert (said.verdict, said.message) == ("warn", "device 1 was not read")


def test_a_device_that_the_machine_has_lost_fails_though_the_step_did_without() -> None:
    lost = [{"index": 3, "arch": "cuda", "lost": "GPU is lost (NVML error 15)"}]
    said = found("placement", [Meta(step="s", data={"lost_accelerators": lost}), sample(15)], devices=(0,))
    assert (said.verdict, said.message) == (
        "fail",
        "device 3 of the machine does not answer: GPU is lost (NVML error 15)",
    )
    assert said.numbers["lost"] == {"3": "GPU is lost (NVML error 15)"}
    damaged = Meta(step="s", data={"lost_accelerators": ["3", None]})
    assert found("placement", [damaged, sample(15)], devices=(0,)).verdict == "pass"


def test_a_rank_that_never_reported_is_a_warning() -> None:
    events = [Data(step="s", data={"task": "train", "rate": 1.0, "rank": 0})]
    assert found("placement", events, ranks=2).message == "1 of 2 ranks reported"
    assert found("placement", events, ranks=1).verdict == "pass"
    unusable = Data(step="s", data={"task": "train", "rate": None, "rank": 1})
    assert found("placement", [*events, unusable], ranks=2).verdict == "pass"


def packages(key: str, **versions: str) -> Event:
    return Meta(step="s", data={key: versions})


def test_a_package_that_is_not_as_locked_fails_whatever_way_its_name_is_spelled() -> None:
    locked = packages("packages", numpy="2.0", Typing_Extensions="4.1")
    assert (
        found("versions", [locked, packages("installed", numpy="2.0", **{"typing-extensions": "4.1"})]).verdict
        == "pass"
    )
    said = found("versions", [locked, packages("installed", numpy="2.1")])
    assert (said.verdict, said.message) == (
        "fail",
        "numpy 2.1 instead of 2.0, typing-extensions missing instead of 4.1",
    )


def test_without_locks_there_is_nothing_to_compare() -> None:
    assert found("versions", [packages("installed", numpy="2.1")]).numbers == {"compared": 0}


def test_checks_are_chosen_by_name() -> None:
    assert parse_checks("all") == NAMES
    assert parse_checks("none") == ()
    assert parse_checks("usage, error") == ("error", "usage")
    with pytest.raises(UsageError, match=r"unknown check 'usag'. Known: all, none, error"):
        parse_checks("usag")


def losses(*values: float) -> list[Event]:
    return [Data(step="s", data={"task": "train", "loss": value}) for value in values]


@pytest.mark.parametrize(("band", "verdict"), [({"max": 1.0}, "pass"), ({"max": 0.4}, "fail"), ({"min": 0.6}, "fail")])
def test_the_last_loss_must_lie_in_the_declared_band(band: dict[str, float], verdict: str) -> None:
    assert found("loss", losses(3.0, 2.0, 0.5), band).verdict == verdict


def test_a_band_without_a_loss_fails() -> None:
    assert found("loss", [WINDOW], {"max": 1.0}).verdict == "fail"
