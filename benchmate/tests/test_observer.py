"""The observer, in this process, with a sink that keeps what it is given."""

from __future__ import annotations

import itertools
import os
import re
import weakref
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import pytest

from benchmate import observation_writer
from benchmate.configuration import parse_config
from benchmate.errors import BenchmateError
from benchmate.observed_loops import ObservedIterable, ObservedIterator, Steps, observe_iterable
from benchmate.ring import EPOCH_END, LOST, MILLI, WARM_UP, WINDOW_START, WINDOW_STOP, take_entries
from benchmate.session import Session


class Stop(BaseException):
    pass


class Sink:
    """Keeps records; has no folder for rings, so that the session reads its own."""

    ring_folder = None
    dropped = records = bytes = 0

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []
        self.controls: list[Any] = []

    def record(self, event, data):
        self.events.append((event, data))

    def control(self, line):
        self.controls.append(line)

    def answer(self, timeout_s):
        return {"go": 1.0}

    def forked(self):
        pass

    def close(self):
        pass

    def of(self, key):
        return [data for event, data in self.events if event == "data" and key in data]


def measuring(warmup=2, window=3, seconds=0.0, stop: type[BaseException] | None = Stop, **more) -> Session:
    rules = {"warmup_steps": warmup, "warmup_s": seconds, "window_steps": window, "window_s": seconds, **more}
    return Session(parse_config({"measure": rules}), Sink(), stop_exception=stop)


def flags(sink: Sink) -> list[str]:
    marks = []
    for data in sink.of("rate"):
        marks.append(("w" if data.get("warmup") else "m") + ("e" if data.get("epoch_end") else ""))
    return marks


def go_through(iterable) -> None:
    for _ in iterable:
        pass


def test_the_program_ends_when_the_window_is_complete():
    here = measuring()
    seen = []
    with pytest.raises(Stop):
        for item in ObservedIterable(range(100), here.observer("train", "items/s"), 1):
            seen.append(item)
    assert seen == [0, 1, 2, 3, 4]
    here.finish()
    assert flags(here.sink) == ["w", "w", "m", "m", "m"]


def test_no_batch_is_fetched_after_the_window():
    fetched = []

    def batches():
        for index in range(100):
            fetched.append(index)
            yield index

    here = measuring()
    with pytest.raises(Stop):
        go_through(ObservedIterator(batches(), here.observer("train", "items/s"), 1))
    assert fetched == [0, 1, 2, 3, 4]


def test_epochs_shorter_than_the_window_are_marked_and_go_on():
    here = measuring(warmup=1, window=5)
    loader = ObservedIterable([[1, 2], [3, 4]], here.observer("train", "items/s"), len)
    with pytest.raises(Stop):
        while True:
            go_through(loader)
    here.finish()
    assert flags(here.sink) == ["w", "me", "m", "me", "m", "m"]


def test_an_epoch_that_ends_in_the_warm_up_is_marked_too():
    here = measuring(warmup=10)
    loader = ObservedIterable(range(2), here.observer("train", "items/s"), 1)
    go_through(loader)
    go_through(loader)
    here.finish()
    assert flags(here.sink) == ["w", "we", "w", "we"]


def test_both_the_steps_and_the_seconds_must_be_reached():
    here = measuring(warmup=1, window=2, seconds=0.02)
    with pytest.raises(Stop):
        go_through(ObservedIterable(iter(int, 1), here.observer("train", "items/s"), 1))
    here.finish()
    (window,) = [data["window"] for data in here.sink.of("window")]
    assert window["stop_ns"] - window["start_ns"] >= 20_000_000
    warm = [data for data in here.sink.of("rate") if data.get("warmup")]
    assert warm[-1]["t0_ns"] + warm[-1]["host_ns"] - warm[0]["t0_ns"] >= 20_000_000


def test_no_warm_up_means_the_first_step_counts():
    here = measuring(warmup=0, window=3)
    with pytest.raises(Stop):
        go_through(ObservedIterable(range(9), here.observer("train", "items/s"), 1))
    here.finish()
    assert flags(here.sink) == ["m", "m", "m"]
    (window,) = [data["window"] for data in here.sink.of("window")]
    assert window["start_ns"] == here.sink.of("rate")[0]["t0_ns"]


def test_a_loader_that_ends_early_ends_its_window_with_a_reason():
    here = measuring(window=50)
    go_through(ObservedIterable(range(6), here.observer("train", "items/s"), 1))
    here.finish()
    assert [data["window"]["why"] for data in here.sink.of("window")] == ["ended"]
    assert {"task": "train", "progress": [4, 50]} in here.sink.of("progress")


def test_an_empty_loader_is_mentioned():
    here = measuring()
    go_through(ObservedIterable([], here.observer("train", "items/s"), 1))
    assert ("message", {"message": "train: a loader yielded nothing"}) in here.sink.events


def test_an_evaluation_loader_does_not_end_the_program():
    here = measuring()
    go_through(ObservedIterable(range(50), here.observer("validation", "items/s"), 1))
    here.finish()
    assert len(here.sink.of("rate")) == 50
    assert [data["window"]["why"] for data in here.sink.of("window")] == ["complete"]


def test_evaluation_inside_a_training_step_is_a_task_of_its_own():
    here = measuring(window=4)
    validation = ObservedIterable(range(3), here.observer("validation", "items/s"), 1)
    with pytest.raises(Stop):
        for index in ObservedIterable(range(100), here.observer("train", "items/s"), 1):
            if index == 1:
                go_through(validation)
    here.finish()
    tasks = [data["task"] for data in here.sink.of("rate")]
    assert (tasks.count("train"), tasks.count("validation")) == (6, 3)


def test_two_loops_of_one_task_that_overlap_are_refused_at_once():
    here = measuring(window=100)
    observer = here.observer("train", "items/s")
    inner = ObservedIterable(range(2), observer, 1)
    seen = []
    with pytest.raises(Stop):
        for index in ObservedIterable(range(4), observer, 10):
            seen.append(index)
            go_through(inner)
    here.finish()
    assert seen == [0]
    ((why, text),) = here.failures
    assert why == "probe"
    places = re.findall(r"the loop at test_observer.py:\d+", text)
    assert len(set(places)) == 2
    assert "write `when=lambda loader: ...`" in text
    assert here.sink.of("window") == []


def lasting(seconds):
    begin_ns = perf_counter_ns()
    while perf_counter_ns() - begin_ns < seconds * 1e9:
        pass


def test_the_step_in_which_a_loop_is_left_counts_if_it_has_worked_on_its_batch():
    here = measuring(window=1000)
    loader = ObservedIterable(range(100), here.observer("train", "items/s"), 1)
    for leaves_before in (False, True, False):
        for index in loader:
            if leaves_before and index == 4:
                break
            lasting(0.001)
            if index == 4:
                break
    here.finish()
    assert len(here.sink.of("rate")) == 5 + 4 + 5


def test_a_loop_that_is_left_half_way_through_its_steps_is_refused():
    here = measuring(window=1000)
    loader = ObservedIterable(range(100), here.observer("train", "items/s"), 1)
    with pytest.raises(Stop):
        for _ in range(100):
            for index in loader:
                lasting(0.001 if index == 4 else 0.004)
                if index == 4:
                    break
    ((_, text),) = here.failures
    assert "half way through a step" in text
    assert here.observers["train"].count < 100


def test_loops_that_only_look_at_their_first_batch_are_refused():
    here = measuring(window=1000)
    loader = ObservedIterable(range(100), here.observer("train", "items/s"), 1)
    with pytest.raises(Stop):
        for _ in range(20):
            next(iter(loader))
    ((_, text),) = here.failures
    assert "left in its first step repeatedly" in text


def test_two_sources_that_end_steps_in_turn_are_refused():
    here = measuring(window=1000)
    observer = here.observer("train", "items/s")
    first, second = Steps(observer), Steps(observer)
    for _ in range(5):
        first(1)
    second(1)  # one after the other is no matter
    with pytest.raises(Stop):
        first(1)
    ((_, text),) = here.failures
    assert "end steps in turn" in text


def test_what_ends_a_step_need_not_be_hashable():
    @dataclass
    class Optimizer:
        lr: float

    here = measuring(window=1000)
    end_step = Steps(here.observer("train", "items/s"))
    first, second = Optimizer(0.1), Optimizer(0.1)
    for _ in range(5):
        end_step(1, source=first)
    end_step(1, source=second)
    with pytest.raises(Stop):
        end_step(1, source=first)
    assert "the Optimizer and the Optimizer end steps in turn" in here.failures[0][1]


def test_a_first_batch_taken_with_next_does_not_hide_the_loop():
    here = measuring()
    loader = ObservedIterable(range(100), here.observer("train", "items/s"), 1)
    kept = iter(loader)
    next(kept)
    with pytest.raises(Stop):
        go_through(loader)


def test_without_the_runner_a_loop_ends_early_only_when_asked():
    here = measuring(stop=None)
    assert list(ObservedIterable(range(100), here.observer("train", "items/s"), 1)) == list(range(100))
    here = measuring(stop=None)
    loader = ObservedIterable(range(100), here.observer("train", "items/s", True), 1)
    assert list(loader) == [0, 1, 2, 3, 4]
    assert list(loader) == []


def test_a_marked_step_lasts_from_one_call_to_the_next():
    here = measuring()
    mark = Steps(here.observer("train", "tokens/s"))
    with pytest.raises(Stop):
        for index in range(100):
            mark(index)
    here.finish()
    assert [data["n"] for data in here.sink.of("rate")] == [1, 2, 3, 4, 5]
    assert len([data for data in here.sink.of("metric") if data["metric"] == "first_step"]) == 1


def test_fractional_item_counts_are_kept_to_a_thousandth():
    here = measuring(window=100)
    mark = Steps(here.observer("train", "epochs/s"))
    for _ in range(3):
        mark(0.125)
    (first, second) = take_entries(here.observers["train"].ring.memory)
    assert first.flags & MILLI
    assert (first.items, second.items) == (0.125, 0.125)


def test_an_observed_loader_behaves_like_the_loader():
    class Loader(list):
        batch_size = 4

    loader = Loader([1, 2, 3])
    observed: Any = observe_iterable(loader, measuring().observer("train", "items/s"), 1)
    observed.epoch = 5
    assert (len(observed), observed.batch_size, observed[1], 2 in observed, loader.epoch) == (3, 4, 2, True, 5)
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = observed.nothing_like_it


def test_an_observed_iterable_has_a_length_and_new_iterators_where_the_iterable_has():
    class Batches:
        """Hands out what its inner iterator has."""

        inner = iter([0])

        def __iter__(self):
            return iter([1, 2])

        def __getattr__(self, name):
            return getattr(self.inner, name)

    observer = measuring(window=100).observer("train", "items/s")
    observed = observe_iterable(Batches(), observer, 1)
    assert [list(observed), list(observed)] == [[1, 2], [1, 2]]
    for iterable in (Batches(), iter([1])):
        assert not hasattr(type(observe_iterable(iterable, observer, 1)), "__len__")


def test_a_batch_that_the_program_has_dropped_is_gone_before_the_next_is_made():
    class Batch(list):
        pass

    class Batches:
        before: Any = None

        def __iter__(self):
            return self

        def __next__(self):
            assert self.before is None or self.before() is None
            batch = Batch()
            self.before = weakref.ref(batch)
            return batch

    iterator = iter(observe_iterable(Batches(), measuring(window=100).observer("train", "items/s"), 1))
    for _ in range(5):
        next(iterator)


def test_next_works_on_an_observed_generator():
    observed = ObservedIterator(iter([1, 2]), measuring().observer("train", "items/s"), 1)
    assert (next(observed), next(observed)) == (1, 2)
    with pytest.raises(StopIteration):
        next(observed)


def test_an_exception_of_the_loader_passes_through():
    def batches():
        yield 1
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        go_through(ObservedIterator(batches(), measuring().observer("train", "items/s"), 1))


def test_an_unknown_task_is_refused():
    with pytest.raises(BenchmateError, match="expected one of train, validation, inference"):
        measuring().observer("trian", "items/s")


def test_the_program_runs_until_every_stopping_task_has_its_window():
    here = measuring(window=2)
    train, inference = here.observer("train", "items/s"), here.observer("inference", "items/s", True)
    go_through(ObservedIterable(range(10), train, 1))
    with pytest.raises(Stop):
        go_through(ObservedIterable(range(10), inference, 1))


# Memory: what the reader does not take in time is summed, not dropped


def test_nothing_is_lost_when_nobody_reads(monkeypatch):
    monkeypatch.setattr(observation_writer, "AGGREGATE_AFTER", 500)
    here = measuring(warmup=5, window=10**9)
    observer = here.observer("train", "items/s")
    steps = 200_000
    mark = Steps(observer)
    for _ in range(steps + 1):
        mark(3)
    observer.close()
    assert observer.ring.words[LOST] == 0
    got = here.sink.of("rate")
    assert sum(data.get("steps", 1) for data in got) == steps
    assert sum(data["n"] for data in got) == 3 * steps
    assert [data["batch_id"] for data in got] == sorted(data["batch_id"] for data in got)
    assert sum(data.get("steps", 1) for data in got if data.get("warmup")) == 5
    assert len(got) <= observer.ring.capacity


def test_a_window_that_is_open_has_a_start_and_no_stop():
    here = measuring(window=10)
    go_through(ObservedIterable(range(7), here.observer("train", "items/s"), 1))
    words = here.observers["train"].ring.words
    assert 0 < words[WINDOW_START] <= here.sink.of("rate")[2]["t0_ns"]
    assert words[WINDOW_STOP] == 0


# Every step at its time


class Clock:
    """Times that only a call moves on, by a prime number of nanoseconds each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 10**15
        monkeypatch.setattr("benchmate.loop_observer.perf_counter_ns", self)

    def __call__(self) -> int:
        self.now += 7
        return self.now


@pytest.mark.parametrize(
    ("size", "items"),
    [
        (5, [5] * 900),
        (lambda batch: 3, [3] * 900),
        (lambda batch: batch + 1000, [*range(1000, 1900)]),
        (lambda batch: 2 if batch % 100 else 0.5, [0.5 if batch % 100 == 0 else 2 for batch in range(900)]),
    ],
    ids=["always the same", "counted, the same", "counted, others", "fractions between"],
)
def test_each_step_has_its_own_times_and_items(monkeypatch, size, items):
    Clock(monkeypatch)
    here = measuring(warmup=1, window=10**6)
    go_through(ObservedIterable(range(900), here.observer("train", "items/s"), size))
    here.finish()
    got = here.sink.of("rate")
    assert [data["n"] for data in got] == items
    assert [data["batch_id"] for data in got] == list(range(900))
    # Two looks at the clock in each step, when its batch is there and when it ends.
    assert {data["host_ns"] for data in got} == {14}
    assert {data["parts"]["wait"] for data in got} == {7e-9}
    measured = got[1:]
    assert all(after["t0_ns"] == data["t0_ns"] + 14 for data, after in itertools.pairwise(measured))


def test_a_loop_that_begins_later_does_not_continue_the_one_before(monkeypatch):
    clock = Clock(monkeypatch)
    here = measuring(warmup=1, window=10**6)
    observer = here.observer("train", "items/s")
    go_through(ObservedIterable(range(50), observer, 1))
    clock.now += 10**9
    began_ns = clock.now
    go_through(ObservedIterable(range(50), observer, 1))
    here.finish()
    got = here.sink.of("rate")
    assert {data["host_ns"] for data in got} == {14}
    assert [data["t0_ns"] > began_ns for data in got] == [False] * 50 + [True] * 50


def test_all_steps_but_the_open_one_can_be_read_at_any_time():
    here = measuring(warmup=2, window=10**6)
    observer, read = here.observer("train", "items/s"), []
    for index in ObservedIterable(range(700), observer, 1):
        read += take_entries(observer.ring.memory)
        assert [entry.batch_id for entry in read] == list(range(index))
    assert all(entry.t0_ns + entry.host_ns <= after.t0_ns for entry, after in itertools.pairwise(read))


# Device events


class Device:
    """A device clock with scripted completion: an event is complete once `done` has passed it."""

    def __init__(self) -> None:
        self.recorded = 0
        self.done = 0
        self.out = 0
        self.waited = 0

    def mark(self):
        self.recorded += 1
        self.out += 1
        return [self.recorded]

    def is_complete(self, event):
        return event[0] <= self.done

    def elapsed_ns(self, begin, end):
        return (end[0] - begin[0]) * 1000

    def release(self, event):
        assert event[0] is not None, "released twice"
        event[0] = None
        self.out -= 1

    def wait(self, event):
        self.waited += 1
        self.done = max(self.done, event[0])


@pytest.fixture
def device(monkeypatch):
    device = Device()
    monkeypatch.setattr(observation_writer, "device_clock", lambda: device)
    return device


def test_device_times_are_filled_in_when_their_events_complete(device):
    here = measuring(window=100)
    observer = here.observer("train", "items/s")
    read = []
    for index in ObservedIterable(range(20), observer, 1):
        device.done = device.recorded - 3
        read += take_entries(observer.ring.memory) if index % 4 == 0 else []
    assert device.waited == 1  # where the window begins
    observer.close()
    assert observer.ring.meta["clock"] == "event"
    assert len(here.sink.of("rate")) + len(read) == 20
    got = [data["clock"] for data in here.sink.of("rate")]
    assert "event" in got
    # The first step ended before a device was in use.
    assert [entry.device_ns for entry in read][:2] == [-1, 1000]


def test_device_events_are_reused(device):
    here = measuring(window=10**6)
    loader = ObservedIterable(range(5), here.observer("train", "items/s"), 1)
    for _ in range(500):
        device.done = device.recorded
        go_through(loader)
    assert device.out < 20


def test_a_window_that_ends_the_program_waits_for_its_device_times(device):
    here = measuring(window=5)
    with pytest.raises(Stop):
        go_through(ObservedIterable(range(100), here.observer("train", "items/s"), 1))
    here.finish()
    assert [data["clock"] for data in here.sink.of("rate") if not data.get("warmup")] == ["event"] * 5


def test_a_device_that_never_catches_up_costs_no_memory_and_loses_no_step(device, monkeypatch):
    events = 8
    plain_mark = device.mark
    monkeypatch.setattr(device, "mark", lambda: plain_mark() if device.out < events else None)
    here = measuring(window=10**6)
    observer = here.observer("train", "items/s")
    go_through(ObservedIterable(range(1000), observer, 1))
    observer.close()
    got = here.sink.of("rate")
    assert sum(data.get("steps", 1) for data in got) == 1000
    assert len(got) < 20


# The barrier


def test_at_the_barrier_the_window_begins_after_go(monkeypatch):
    monkeypatch.setattr("benchmate.loop_observer.AFTER_GO_NS", 0)
    here = measuring(barrier=True)
    with pytest.raises(Stop):
        go_through(ObservedIterable(range(100), here.observer("train", "items/s"), 1))
    assert here.sink.controls == [{"ready": True}]
    here.finish()
    assert flags(here.sink) == ["w", "w", "w", "m", "m", "m"]


@pytest.mark.parametrize("after_go_ns", [0, 5_000_000])
def test_a_few_steps_after_go_are_warm_up(monkeypatch, after_go_ns):
    monkeypatch.setattr("benchmate.loop_observer.AFTER_GO_NS", after_go_ns)
    went = []
    monkeypatch.setattr(Sink, "answer", lambda *_: went.append(perf_counter_ns()) or {"go": 1.0})
    here = measuring(warmup=3, window=4, barrier=True)
    with pytest.raises(Stop):
        go_through(ObservedIterable(itertools.count(), here.observer("train", "items/s"), 1))
    here.finish()
    steps = here.sink.of("rate")
    after_go = [step for step in steps if step["t0_ns"] > went[0]]
    warm = [step for step in after_go if step.get("warmup")]
    assert after_go[: len(warm)] == warm
    assert len(warm) >= 1
    measured = after_go[len(warm) :]
    assert len(measured) == 4
    assert all(step["t0_ns"] >= went[0] + after_go_ns for step in measured)
    (window,) = here.sink.of("window")
    assert window["window"]["start_ns"] <= measured[0]["t0_ns"]


def test_during_warm_up_nothing_counts_as_observed():
    here = measuring(warmup=5, window=3)
    observer = here.observer("train", "items/s")
    seen, measured = [], 0
    with pytest.raises(Stop):
        for _ in ObservedIterable(range(100), observer, 1):
            measured += sum(not entry.flags & WARM_UP for entry in take_entries(observer.ring.memory))
            seen.append(measured)
    assert seen == [0, 0, 0, 0, 0, 0, 1, 2]


def test_the_default_rules_are_those_of_quick(monkeypatch):
    assert Session(parse_config({}), Sink()).config.measure.window_steps == 20
    assert os.getpid() > 0
    assert (WARM_UP, EPOCH_END) == (1, 2)
