"""The life of a case: what is called when, how often, what is timed, how it fails."""

from __future__ import annotations

from typing import Any

import pytest

from benchmate.cases import lifecycle
from benchmate.cases.lifecycle import MAX_ITERATIONS, next_iterations, run_case
from benchmate.cases.memory_peaks import device_files
from benchmate.cases.options import RunBudget
from benchmate.cases.registry import Case, Skip, State

calls: list[str] = []


def case(subject: Any, **params: Any) -> Case:
    return Case(name="x", family=0, instance=0, subject=subject, params=params)


@pytest.fixture(autouse=True)
def _forget_calls() -> None:
    calls.clear()


class Recorder:
    def setup(self) -> None:
        calls.append(f"setup {self.batch}")  # type: ignore[attr-defined]

    def run(self) -> None:
        calls.append("run")

    def teardown(self) -> None:
        calls.append("teardown")


def test_an_instance_has_its_values_as_attributes_before_set_up() -> None:
    said = run_case(case(Recorder, batch=16), RunBudget())
    assert (said["outcome"], said["iterations"], calls) == ("passed", 1, ["setup 16", "run", "teardown"])


def test_a_function_gets_its_values_as_keyword_arguments() -> None:
    seen = []
    run_case(case(lambda task, batch: seen.append((task, batch)), task="MNLI", batch=16), RunBudget())
    assert seen == [("MNLI", 16)]


def test_run_is_called_as_often_as_asked_and_set_up_once() -> None:
    assert run_case(case(Recorder, batch=1), RunBudget(iterations=5))["iterations"] == 5
    assert calls == ["setup 1", *["run"] * 5, "teardown"]


def test_the_device_is_waited_for_before_both_readings_of_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "_synchronise", lambda: calls.append("synchronise"))
    monkeypatch.setattr(lifecycle, "perf_counter_ns", lambda: calls.append("clock") or 0)
    run_case(case(lambda: calls.append("run")), RunBudget())
    assert calls == ["synchronise", "synchronise", "clock", "run", "synchronise", "clock"]


def test_what_is_run_to_warm_up_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0, 0, 400_000_000, 1_100_000_000, 5, 12])
    monkeypatch.setattr(lifecycle, "perf_counter_ns", lambda: next(now))
    said = run_case(case(lambda: calls.append("run")), RunBudget(warmup_s=1.0))
    assert (said["wall_ns"], len(calls)) == (7, 3)


def test_trials_grow_until_one_lasts_the_least_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0]
    monkeypatch.setattr(lifecycle, "perf_counter_ns", lambda: clock[0])

    def run() -> None:
        clock[0] += 1_000_000

    said = run_case(case(run), RunBudget(iterations=None, min_time_s=0.1))
    assert (said["iterations"], said["wall_ns"]) == (100, 100_000_000)


@pytest.mark.parametrize(
    ("iterations", "took_ns", "after"),
    [(1, 1.0, 10), (100, 5e7, 280), (100, 9.9e8, 142), (1, 0.0, 10), (MAX_ITERATIONS, 1.0, MAX_ITERATIONS)],
)
def test_a_trial_is_predicted_from_one_that_lasted_a_tenth_of_the_time(
    iterations: int, took_ns: float, after: int
) -> None:
    least_ns = 1e8 if took_ns < 9e8 else 1e9
    assert next_iterations(iterations, took_ns, least_ns) == after


class Failing(Recorder):
    def run(self) -> None:
        raise ValueError("no\n such thing")


def test_teardown_is_called_also_when_run_fails() -> None:
    said = run_case(case(Failing, batch=1), RunBudget())
    assert said == {"outcome": "failed", "why": "exit", "detail": "run: ValueError: no such thing"}
    assert calls == ["setup 1", "teardown"]


class FailingLate(Recorder):
    def teardown(self) -> None:
        raise OSError("disk")


def test_a_failure_in_teardown_is_a_failure() -> None:
    assert run_case(case(FailingLate, batch=1), RunBudget())["detail"] == "teardown: OSError: disk"


class OutOfMemoryError(RuntimeError):
    """As torch calls it."""


class ArrayMemoryError(MemoryError):
    """As numpy calls it."""


class WithoutText(Exception):
    def __str__(self) -> str:
        raise TypeError


ON_THE_HOST = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 bytes. Error code 12"


@pytest.mark.parametrize(
    ("error", "why", "detail"),
    [
        (MemoryError(), "out-of-memory", "run: MemoryError"),
        (OutOfMemoryError("CUDA out of memory"), "out-of-memory", "run: OutOfMemoryError: CUDA out of memory"),
        (ArrayMemoryError("8 PiB"), "out-of-memory", "run: ArrayMemoryError: 8 PiB"),
        (RuntimeError(ON_THE_HOST), "out-of-memory", f"run: RuntimeError: {ON_THE_HOST}"),
        (OSError(12, "Cannot allocate memory"), "out-of-memory", "run: OSError: [Errno 12] Cannot allocate memory"),
        (OSError(2, "No such file"), "exit", "run: FileNotFoundError: [Errno 2] No such file"),
        (SystemExit(0), "exit", "run: SystemExit: 0"),
        (WithoutText(), "exit", "run: WithoutText: <WithoutText: TypeError instead of a text>"),
    ],
)
def test_what_a_case_raises_is_why_it_failed(error: BaseException, why: str, detail: str) -> None:
    def run() -> None:
        raise error

    assert run_case(case(run), RunBudget()) == {"outcome": "failed", "why": why, "detail": detail}


def test_a_case_may_say_that_it_cannot_be_measured_here() -> None:
    def run() -> None:
        raise Skip("needs fbgemm")

    assert run_case(case(run), RunBudget()) == {"outcome": "skipped", "detail": "needs fbgemm"}


class Making(Recorder):
    def __init__(self) -> None:
        self.batch = 3


def test_an_attribute_that_the_constructor_makes_is_not_overwritten() -> None:
    said = run_case(case(Making, batch=1), RunBudget())
    assert said["detail"] == "setup: RuntimeError: Making makes an attribute batch itself. Rename the parameter"


def test_a_case_tells_its_items_bytes_counters_and_label() -> None:
    def run(state: State) -> None:
        state.items, state.bytes, state.label = 8, 1024, "fused"
        state.counters["hits"] = 3

    said = run_case(case(run), RunBudget())
    told = {key: said[key] for key in ("items", "bytes", "counters", "label")}
    assert told == {"items": 8, "bytes": 1024, "counters": {"hits": 3}, "label": "fused"}


def test_memory_of_set_up_and_run_is_told_apart() -> None:
    class Large:
        def setup(self) -> None:
            bytearray(b"x" * 300_000_000)

        def run(self) -> None:
            bytearray(b"x" * 30_000_000)

    said = run_case(case(Large), RunBudget())
    if said["notes"]:
        pytest.skip(said["notes"][0])
    memory = said["memory"]
    assert memory["host_memory_peak_setup"] - memory["host_memory_start"] > 290_000_000
    assert 20_000_000 < memory["host_memory_peak_run"] - memory["host_memory_start"] < 200_000_000


def test_a_process_that_computes_is_known_by_its_open_files() -> None:
    assert device_files(["/dev/null", "/dev/nvidiactl", "pipe:[1]"]) == []
    assert device_files(["/dev/nvidia-uvm"]) == ["/dev/nvidia-uvm"]
    assert device_files(["/dev/kfd", "/dev/dri/renderD128"]) == ["/dev/kfd", "/dev/dri/renderD128"]
