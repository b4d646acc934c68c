"""The check of the host, by readings whose answer is known."""

from __future__ import annotations

import math
from typing import Any

import pytest

from milabench.analysis.measure import measure
from milabench.checks.check import StepContext
from milabench.checks.host import ContendedCheck
from milabench.events.model import Config, Data, End, Event, Verdict

START, STOP = 1000.3, 1030.6  # between two readings, as always


def readings(count: int = 34, first: float = 999.0, *, processors: int = 4, **used: float) -> list[Event]:
    """One a second; what each counter grows by a second: `own`, `siblings`, `foreign`, `steal`, `delay`, `memory`."""
    ours = used.get("own", 0.0) + used.get("siblings", 0.0)
    events: list[Event] = []
    for second in range(count):
        host: dict[str, Any] = {
            "processors": processors,
            "busy_s": 50 + second * (ours + used.get("foreign", 0.0)),
            "ours_s": 50 + second * ours,
            "steal_s": second * used.get("steal", 0.0),
            "pressure_s": {"cpu": 0.0, "memory": second * used.get("memory", 0.0), "io": 0.0},
            "swap_bytes": 0,
        }
        process: dict[str, Any] = {"cpu_s": 7 + second * used.get("own", 0.0), "host": host}
        if "delay" in used:
            process["run_delay_s"] = second * used["delay"]
        events.append(Data(step="s", data={"task": "main", "process": process, "time": first + second}))
    return events


def judged(*events: Event, start: float = START, stop: float = STOP) -> Verdict:
    window = {"start": start, "stop": stop, "start_ns": 1, "stop_ns": 2}
    return of(*events, Data(step="s", data={"task": "train", "window": window}))


def of(*events: Event) -> Verdict:
    return ContendedCheck(StepContext(step="s")).verdict(measure("s", events))


def doubt_of(verdict: Verdict) -> str | None:
    return ContendedCheck(StepContext(step="s")).doubt_for(verdict)


def test_an_idle_host_passes_with_its_numbers() -> None:
    said = judged(*readings(own=3.9, foreign=0.03))
    assert said.verdict == "pass"
    assert said.numbers["foreign"] == pytest.approx(0.03)
    assert said.numbers["own"] == pytest.approx(3.9)
    assert said.numbers["share"] == pytest.approx(0.03 / 4)


@pytest.mark.parametrize(("foreign", "verdict"), [(0.079, "pass"), (0.081, "warn")])
def test_others_may_use_two_percent_of_our_processors(foreign: float, verdict: str) -> None:
    assert judged(*readings(own=2.0, foreign=foreign)).verdict == verdict


def test_stolen_time_counts_as_that_of_others() -> None:
    said = judged(*readings(own=2.0, foreign=0.05, steal=0.05))
    assert (said.verdict, said.message) == (
        "warn",
        "others used 0.05 of the 4 processors, 0.05 were stolen (2.5%)",
    )


def test_instances_of_the_group_are_not_foreign_to_each_other() -> None:
    assert judged(*readings(own=1.0, siblings=2.9)).verdict == "pass"


def test_waiting_for_others_counts_against_what_we_used_ourselves() -> None:
    """One foreign process on one of 64 processors: 1.6 % of the machine, but half of a program of one thread."""
    said = judged(*readings(processors=64, own=0.5, foreign=0.5, delay=0.5))
    assert said.verdict == "warn"
    assert said.numbers["share"] < 0.02
    assert (
        said.message
        == "others used 0.50 of the 64 processors (0.8%); the program waited for a processor 50% of the time and used 0.50"
    )
    assert judged(*readings(processors=64, own=1.0, foreign=0.5, delay=0.01)).verdict == "pass"


def test_a_program_that_mostly_sleeps_may_wait_for_each_wake_up() -> None:
    assert judged(*readings(processors=64, own=0.05, foreign=0.1, delay=0.005)).verdict == "pass"


def test_a_program_that_waits_for_its_own_threads_is_not_contended() -> None:
    said = judged(*readings(processors=64, own=63.0, foreign=0.5, delay=60.0))
    assert said.verdict == "pass"
    assert said.numbers["run_delay"] == pytest.approx(60.0)
    assert said.numbers["waited"] == pytest.approx(0.5)


def test_lack_of_memory_is_named() -> None:
    said = judged(*readings(own=3.0, memory=0.1))
    assert said.verdict == "warn"
    assert said.message.endswith("memory was short in 10.0% of the time")


def test_what_lies_outside_the_window_does_not_count() -> None:
    """Others stop just as the window begins; the readings do not stand at its ends."""
    quiet = readings(40, first=999.8, own=2.0)
    for second, event in enumerate(quiet):
        event.data["process"]["host"]["busy_s"] += 4.0 * min(0, second - 1)  # type: ignore[union-attr]
    said = judged(*quiet, start=1000.8)
    assert (said.verdict, said.numbers["foreign"]) == ("pass", pytest.approx(0, abs=1e-9))


def test_a_step_without_a_window_is_judged_as_a_whole() -> None:
    assert of().numbers == {"readings": 0}
    said = of(*readings(20, own=1.0, foreign=0.5))
    assert (said.verdict, said.numbers["foreign"]) == ("warn", pytest.approx(0.5))


def test_a_window_between_two_readings_is_not_judged_and_says_so() -> None:
    said = judged(*readings(own=1.0, foreign=3.0), stop=START + 1.9)
    assert (said.verdict, said.numbers) == ("pass", {"readings": 2})
    assert judged(*readings(own=1.0, foreign=3.0), stop=START + 2.9).verdict == "warn"


def test_a_monitor_that_ended_within_the_window_leaves_it_unknown_whose_the_rest_was() -> None:
    said = judged(*readings(10, own=1.0))
    assert (said.verdict, said.message) == ("warn", "the processors were not read in the whole window")
    assert doubt_of(said) == "sensor-lost"


def test_a_long_window_without_a_reading_is_not_taken_for_a_quiet_host() -> None:
    said = judged()
    assert (said.verdict, said.message, said.numbers) == ("warn", "nobody read the processors", {"readings": 0})
    assert doubt_of(said) == "sensor-lost"
    assert judged(stop=START + 4).verdict == "pass"


@pytest.mark.parametrize("config", [{"timed": True}, {"metrics": {"speed": {"pattern": "(.*)"}}}])
@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_launch_with_too_few_readings_of_the_host_is_not_taken_for_undisturbed(
    config: dict[str, Any], count: int
) -> None:
    said = of(Config(step="s", data=config), *readings(count, own=1.0))
    assert (said.verdict, said.numbers) == ("warn", {"readings": count})
    assert doubt_of(said) == "sensor-lost"


def launched(**host: float | str) -> Verdict:
    """The verdict on a launch of 0.1 s by what the agent read before and after it."""
    used = {"processors": 2, "seconds": 0.1, "busy_s": 0.02, "ours_s": 0.02, "steal_s": 0.0, "resolution_s": 0.01}
    end = End(step="s", outcome="passed", wall_s=0.1, host={**used, **host} if host else {})
    return of(Config(step="s", data={"timed": True}), end)


@pytest.mark.parametrize(
    ("host", "verdict", "share"),
    [
        ({"busy_s": 0.02}, "pass", 0.0),
        ({"busy_s": 0.03}, "pass", 0.0),  # a tick: nobody knows whose
        ({"busy_s": 0.01}, "pass", 0.0),
        ({"busy_s": 0.13}, "warn", 0.5),  # the other processor
        ({"steal_s": 0.02}, "warn", 0.05),
        ({"busy_s": 0.033, "resolution_s": 0.0}, "warn", 0.065),
    ],
)
def test_a_short_launch_is_judged_by_the_agents_own_readings(
    host: dict[str, float], verdict: str, share: float
) -> None:
    said = launched(**host)
    assert (said.verdict, said.numbers["share"]) == (verdict, pytest.approx(share))
    # What others took has a size: it is a component of the number's uncertainty, and no reason to suspect it.
    assert doubt_of(said) is None
    assert said.numbers["slowed"] == said.numbers["share"]


@pytest.mark.parametrize("host", [{}, {"seconds": 0.0}, {"processors": 0}, {"busy_s": "much"}])
def test_a_short_launch_without_readings_is_not_taken_for_undisturbed(host: dict[str, float | str]) -> None:
    assert launched(**host).message == "nobody read the processors"


@pytest.mark.parametrize("config", [{"timed": True}, {"metrics": {"speed": {"pattern": "(.*)"}}}])
def test_three_readings_of_a_launch_are_enough_to_judge_it(config: dict[str, Any]) -> None:
    said = of(Config(step="s", data=config), *readings(3, own=1.0))
    assert (said.verdict, said.numbers["readings"]) == ("pass", 3)


def test_a_short_window_in_a_program_that_prints_metrics_too_is_judged_as_a_window() -> None:
    said = judged(Config(step="s", data={"metrics": {"speed": {}}}), *readings(own=1.0), stop=START + 1.9)
    assert (said.verdict, said.numbers) == ("pass", {"readings": 2})


def test_a_short_program_without_a_reading_is_judged_by_its_window_elsewhere() -> None:
    said = of(Config(step="s", data={"timed": False, "metrics": {}}))
    assert (said.verdict, said.numbers) == ("pass", {"readings": 0})


@pytest.mark.parametrize(("wall_s", "reason"), [(600.0, "sensor-lost"), (4.0, None), (None, None)])
def test_a_long_launch_without_a_window_that_nobody_read_the_host_of_is_in_doubt(
    wall_s: float | None, reason: str | None
) -> None:
    """Of a command, whose number nothing else judges, a short one is too."""
    assert doubt_of(of(End(step="s", outcome="passed", wall_s=wall_s))) == reason


@pytest.mark.parametrize("odd", [None, math.nan, "x", [], {"processors": 0}, {"processors": "x", "busy_s": True}])
def test_odd_readings_are_no_readings(odd: Any) -> None:
    events = [Data(step="s", data={"process": {"cpu_s": 1, "host": odd}, "time": 1000.0 + s}) for s in range(40)]
    assert judged(*events).numbers == {"readings": 0}
