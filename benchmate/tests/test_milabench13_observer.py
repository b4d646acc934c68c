"""BenchObserver, timed iterators and step timers of milabench 1.3: what they count, over our clock and windows."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from test_observer import Stop, flags, measuring
from test_probes import needs_torch
from voir.helpers import current_overseer

import benchmate
from benchmate import session
from benchmate.configuration import parse_config
from benchmate.errors import BenchmateError
from benchmate.metrics import (
    LazyLossPusher,
    LazyMetricPusher,
    ManualTimedIterator,
    StopProgram,
    TimedIterator,
    earlystop_count,
    file_push,
    give_push,
    record_push,
)
from benchmate.observer import BenchObserver
from benchmate.ring import take_entries
from benchmate.session import Session
from benchmate.sink import TableSink
from benchmate.timings import StepTimer, total_observations

BATCHES = [[0] * 4] * 10
COUNTS_ONLY_HERE = ("VOIR_EARLYSTOP_COUNT", "VOIR_EARLYSTOP_SKIP", "BENCHMATE_OBSERVATION_COUNT")


@pytest.fixture(autouse=True)
def _no_recorders_of_another_session(monkeypatch) -> None:
    monkeypatch.setattr(benchmate, "_loss_recorders", {})


@pytest.fixture
def managed(monkeypatch) -> Session:
    """A session with a sink and no runner, which wants five observations, of which two are warm-up."""
    here = measuring(stop=None)
    monkeypatch.setattr(session, "_current", here)
    return here


@pytest.fixture
def alone(monkeypatch) -> Session:
    """A session of a script of its own: nothing listens."""
    here = Session(parse_config({}), TableSink())
    monkeypatch.setattr(session, "_current", here)
    return here


def items(here: Session) -> list[float]:
    here.finish()
    return [data["n"] for data in here.sink.of("rate")]


def consume(iterable: Any) -> int:
    return sum(1 for _ in iterable)


# What milabench 1.3 was seen to count, with the right answer


def test_a_loop_ends_after_the_observations_that_were_asked_for(alone):
    assert consume(BenchObserver(earlystop=6).loader(BATCHES)) == 6
    assert alone.observers["train"].count == 6


def test_later_epochs_end_too_and_nothing_more_is_counted(alone):
    loader = BenchObserver(earlystop=6).loader(BATCHES)
    assert [consume(loader) for _ in range(3)] == [6, 0, 0]
    assert alone.observers["train"].count == 6


def test_stop_program_is_raised_where_that_is_asked_for(alone):
    loader = BenchObserver(earlystop=6, raise_stop_program=True).loader(BATCHES)
    seen = []
    with pytest.raises(StopProgram):
        for batch in loader:
            seen.append(batch)
    assert len(seen) == 6


def test_the_item_in_which_a_loop_is_left_counts(managed):
    for number, _ in enumerate(TimedIterator(BATCHES), 1):
        if number == 4:
            break
    assert items(managed) == [4, 4, 4, 4]


def test_an_item_that_is_only_looked_at_does_not_count(managed):
    loader = TimedIterator(BATCHES)
    assert next(iter(loader)) == BATCHES[0]
    assert consume(itertools.islice(loader, 3)) == 3
    assert items(managed) == [4, 4, 4]


def test_the_last_item_of_a_window_may_be_the_one_in_which_the_loop_is_left(managed):
    for number, _ in enumerate(TimedIterator(BATCHES), 1):
        if number == 5:
            break
    assert items(managed) == [4] * 5
    assert managed.sink.of("window")[0]["window"]["why"] == "complete"


def test_every_item_of_a_step_of_the_program_counts_once(managed):
    managed.observers.clear()
    observer = BenchObserver()
    for number, _ in enumerate(observer.loader(BATCHES, custom_step=True)):
        if number % 2:
            observer.step()
    assert items(managed) == [8] * 5


def test_a_step_of_the_program_may_be_given_its_items(managed):
    observer = BenchObserver(batch_size_fn=len)
    loader = observer.loader(BATCHES, custom_step=True)
    for number, _ in enumerate(loader):
        observer.instance.acc_batch_size = 100 + number
        observer.step()
    assert items(managed) == [100, 101, 102, 103, 104]
    assert len(loader) == 10


@pytest.mark.parametrize(
    ("batch", "n"),
    [
        ({"a": [1, 2, 3], "b": [1, 2, 3]}, 3),
        ({"a": [1, 2], "b": [1, 2], "c": [1, 2]}, 2),
        (([1, 2, 3, 4], [1, 2, 3, 4]), 4),
        ([1, 2, 3], 3),
        ([1, 2], 2),
        ("a text", 1),
        (7, 1),
        ({}, 0),
    ],
)
def test_the_items_of_a_batch_without_tensors(batch, n):
    assert TimedIterator([]).deduce_batch_size(batch) == n


def test_the_items_of_a_batch_with_tensors():
    numpy = pytest.importorskip("numpy", reason="numpy is not installed")
    batch = {"mask": None, "ids": numpy.zeros((5, 7)), "labels": numpy.zeros(5)}
    assert TimedIterator([]).deduce_batch_size(batch) == 5


def test_a_function_counts_the_items_of_a_batch(managed):
    consume(TimedIterator(BATCHES, batch_size_fn=lambda batch: len(batch) * 100))
    assert items(managed) == [400] * 5


def test_earlystop_none_observes_all_in_a_script_of_its_own(alone):
    assert consume(TimedIterator(BATCHES, earlystop=None)) == 10


def test_an_empty_loader_is_no_error(managed):
    assert consume(TimedIterator([])) == 0
    managed.finish()
    assert "a loader yielded nothing" in str(managed.sink.events)


def test_every_rank_records_its_own_items(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    here = measuring(stop=None)
    monkeypatch.setattr(session, "_current", here)
    consume(BenchObserver(rank=1).loader(BATCHES))
    here.finish()
    assert [(data["n"], data["rank"]) for data in here.sink.of("rate")] == [(4, 1)] * 5


# Who decides when it is enough


@pytest.mark.parametrize("name", COUNTS_ONLY_HERE)
def test_the_measuring_profile_decides_under_milabench(managed, monkeypatch, name):
    monkeypatch.setenv(name, "3")
    loader = BenchObserver(earlystop=8).loader(BATCHES)
    assert [consume(loader), consume(loader)] == [5, 0]
    managed.finish()
    assert flags(managed.sink) == ["w", "w", "m", "m", "m"]


@pytest.mark.parametrize("raises", [True, False])
def test_the_runner_ends_the_program_whether_or_not_the_loop_was_to_raise(monkeypatch, raises):
    here = measuring()
    monkeypatch.setattr(session, "_current", here)
    with pytest.raises(Stop):
        consume(TimedIterator(BATCHES, raise_stop_program=raises))
    assert len(items(here)) == 5


def test_the_variables_decide_in_a_script_of_its_own(alone, monkeypatch):
    monkeypatch.setenv("VOIR_EARLYSTOP_COUNT", "3")
    monkeypatch.setenv("VOIR_EARLYSTOP_SKIP", "2")
    assert earlystop_count() == 5
    assert total_observations() == 5
    assert consume(TimedIterator(BATCHES)) == 5
    assert alone.config.measure.warmup_steps == 2
    monkeypatch.setenv("BENCHMATE_OBSERVATION_COUNT", "4")
    assert TimedIterator(BATCHES).early_stop == 4


def test_the_steps_of_a_program_end_its_loop(managed):
    observer = BenchObserver()
    loader = observer.loader(BATCHES, custom_step=True)
    seen = []
    for batch in loader:
        seen.append(batch)
        observer.step()
    assert len(seen) == 5
    assert consume(loader) == 0


def test_the_steps_of_a_program_end_it_under_the_runner(monkeypatch):
    here = measuring()
    monkeypatch.setattr(session, "_current", here)
    observer = BenchObserver()

    def train() -> None:
        for _ in observer.loader(BATCHES, custom_step=True):
            observer.step()

    for _ in range(2):  # a program that catches it ends at its next step
        with pytest.raises(Stop):
            train()
    assert len(items(here)) == 5


def test_an_epoch_after_another_is_the_same_observation(managed):
    loader = BenchObserver().loader(BATCHES[:2])
    assert [consume(loader) for _ in range(4)] == [2, 2, 1, 0]
    managed.finish()
    assert flags(managed.sink) == ["w", "we", "m", "me", "m"]


def test_an_error_in_the_loop_is_the_programs_and_what_it_counted_stays(managed):
    with pytest.raises(ZeroDivisionError):
        for number, _ in enumerate(TimedIterator(BATCHES)):
            1 / (3 - number)
    assert items(managed) == [4] * 4


def test_a_loader_that_raises_has_counted_what_came_before(managed):
    def broken() -> Iterator[list[int]]:
        yield from BATCHES[:3]
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        consume(TimedIterator(broken()))
    assert items(managed) == [4] * 3


# Wrapped loaders


def test_the_same_loader_is_observed_again(managed):
    observer = BenchObserver()
    first = observer.loader(BATCHES)
    assert observer.iterate(BATCHES) is first is observer.loader(first)
    assert observer.original_dataloader() is observer.wrapped is first


def test_a_new_loader_in_each_epoch_is_observed_too(managed):
    observer = BenchObserver()
    for count in (2, 3):
        assert consume(observer.iterate(iter(BATCHES[:count]))) == count
    assert items(managed) == [4] * 5
    assert "several loaders" in str(managed.sink.events)


def test_a_wrapped_loader_is_the_loader_to_its_program(managed):
    class Loader(list):
        batch_size = 4

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

    loader = Loader(BATCHES)
    with TimedIterator.with_give(loader, None, push=print) as wrapped:
        wrapped.set_epoch(3)
        assert (len(wrapped), wrapped.batch_size, wrapped.epoch, bool(wrapped)) == (10, 4, 3, True)
    assert not wrapped.is_done()
    assert consume(wrapped) == 5
    assert (wrapped.is_done(), wrapped.progress()) == (True, 5)


def test_a_step_without_a_loop_of_steps_is_refused(managed):
    observer = BenchObserver()
    observer.loader(BATCHES)
    with pytest.raises(BenchmateError, match="custom_step=True"):
        observer.step()


def test_losses_are_recorded_and_callbacks_called(managed):
    class Loss(float):
        def backward(self) -> str:
            return "graph"

    class Optimizer:
        def step(self, closure: object = None) -> object:
            return closure

    calls = []
    observer = BenchObserver(backward_callback=lambda: calls.append("b"), step_callback=lambda: calls.append("s"))
    loss = observer.criterion(lambda x, *, target: Loss(x - target))(3.0, target=1.0)
    assert loss.backward() == "graph"
    optimizer = observer.optimizer(Optimizer())
    assert optimizer.step(5) == 5
    assert optimizer.step.__self__ is optimizer
    assert calls == ["b", "s"]
    kept = weakref.ref(loss)
    del loss
    assert kept() is None, "nothing but the program keeps a loss"
    assert observer.record_loss(0.5) == 0.5
    managed.finish()
    assert [data["loss"] for data in managed.sink.of("loss")] == [2.0, 0.5]


@needs_torch
@pytest.mark.parametrize("is_observed_first", [True, False])
def test_steps_of_an_optimizer_with_a_scheduler_are_followed_by_the_callback(managed, is_observed_first):
    import torch

    calls = []
    observer = BenchObserver(step_callback=lambda: calls.append("s"))
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=0.5)
    if is_observed_first:
        optimizer = observer.optimizer(optimizer)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    if not is_observed_first:
        optimizer = observer.optimizer(optimizer)
    for _ in range(2):
        parameter.sum().backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    assert calls == ["s", "s"]
    assert parameter.tolist() == pytest.approx([0.45, 0.45])


def test_an_override_of_a_returned_value_needs_an_overseer(managed):
    with pytest.raises(RuntimeError, match="not under voir"):
        BenchObserver().override_return_value(consume, lambda value: value)


# What a program measured itself


def test_rates_of_the_program_have_its_clock_and_a_warm_up(managed):
    push = give_push()
    assert push is record_push
    for rate in range(1, 8):
        push(rate=float(rate), units="Tflops", task="train", time=rate)
    managed.finish()
    rates = managed.sink.of("rate")
    assert [(data["rate"], data["units"], data["time"], data["clock"]) for data in rates] == [
        (float(rate), "Tflops", rate, "program") for rate in range(1, 8)
    ]
    assert flags(managed.sink) == ["w", "w", "m", "m", "m", "m", "m"]
    (window,) = managed.sink.of("window")
    assert window["window"]["why"] == "complete"
    assert managed.sink.of("metric")[0]["metric"] == "first_step"


def test_rates_of_the_program_end_it_under_the_runner(monkeypatch):
    here = measuring()
    monkeypatch.setattr(session, "_current", here)
    given = 0
    with pytest.raises(Stop):
        for given in range(1, 100):
            record_push(rate=given, task="train")
    assert given == 5
    with pytest.raises(Stop):
        record_push(rate=6, task="train")
    assert len(here.sink.of("rate")) == 5


def test_rates_of_another_task_end_nothing(monkeypatch):
    here = measuring()
    monkeypatch.setattr(session, "_current", here)
    for rate in range(10):
        record_push(rate=rate, task="eval")
    assert len(here.sink.of("rate")) == 10


def test_too_few_rates_are_reported(managed):
    record_push(rate=1.0)
    managed.finish()
    assert "ended during warm-up, after 1 rates" in str(managed.sink.events)


def test_an_observed_loop_goes_before_rates_of_the_program(managed):
    for _ in TimedIterator(BATCHES):
        record_push(rate=5.0, task="train")
    assert items(managed) == [4] * 5
    assert "its loop is observed" in str(managed.sink.events)


def test_other_numbers_become_metrics_and_the_rest_records(managed):
    record_push(task="train", memory_peak=12.5, units="MiB", returns={"a": 1}, progress=(1, 2))
    record_push(task="early_stop", progress=(1, 2))
    managed.finish()
    peak = next(data for data in managed.sink.of("metric") if data["metric"] == "memory_peak")
    assert (peak["value"], peak["units"]) == (12.5, "MiB")
    assert managed.sink.of("progress") == [{"task": "train", "returns": {"a": 1}, "progress": (1, 2)}]


def test_a_loss_that_is_no_number_fails_the_step(managed):
    BenchObserver().record_metric(loss=float("nan"))
    assert managed.failures[0][0] == "invalid"


def test_lazy_values_are_given_later():
    class Tensor:
        def detach(self) -> Tensor:
            return self

        def item(self) -> float:
            return 2.5

    losses, given = LazyLossPusher("train"), []
    losses.record(Tensor())
    losses.record(1.0)
    losses.push(lambda **data: given.append((data["loss"], data["task"], data["time"] > 0)))
    losses.push(lambda **data: given.append(data))
    assert given == [(2.5, "train", True), (1.0, "train", True)]
    values, given = LazyMetricPusher("train"), []
    values.record(overhead=1)
    values.push(lambda **data: given.append(data))
    assert given == [{"overhead": 1}]


def test_file_push_writes_lines_of_json(capsys):
    file_push()(rate=2.0)
    assert json.loads(capsys.readouterr().out) == {"task": "train", "rate": 2.0}


def test_a_step_timer_records_whole_observations(managed):
    timer = StepTimer(give_push())
    begin = time.perf_counter()
    for _ in range(6):
        for _ in range(2):
            time.sleep(0.005)
            timer.step(16)
        timer.end()
    seconds = time.perf_counter() - begin
    timer.log(memory_peak=3.0, units="MiB")
    assert items(managed) == [32] * 6
    rates = managed.sink.of("rate")
    assert {data["clock"] for data in rates} == {"host"}
    assert sum(data["elapsed"] for data in rates) == pytest.approx(seconds, rel=0.01)
    assert flags(managed.sink) == ["w", "w", "m", "m", "m", "m"]


def test_a_step_timer_gives_a_function_of_the_program_what_it_knows():
    given = []
    timer = StepTimer(lambda **data: given.append(sorted(data)))
    timer.step(1)
    timer.end()
    assert given == [["rate", "task", "units"], ["progress", "task"]]


def test_a_step_may_be_ended_in_a_thread_of_its_own():
    class Overseer:
        def __init__(self):
            self.given = []

        def give(self, **data):
            self.given.append(data)

    overseer = Overseer()
    token = current_overseer.set(overseer)
    try:
        timer = StepTimer(give_push())
    finally:
        current_overseer.reset(token)
    timer.step(8)
    # As jax calls back: in a thread that has no overseer.
    thread = threading.Thread(target=timer.end)
    thread.start()
    thread.join()
    rate, progress = overseer.given
    assert rate["n"] == 8
    assert rate["elapsed"] == rate["host_ns"] / 1e9
    assert progress["task"] == "early_stop"


# Against another clock


@pytest.mark.parametrize("kind", [TimedIterator, ManualTimedIterator])
def test_the_rate_is_that_of_another_clock(monkeypatch, kind):
    here = measuring(warmup=3, window=12, stop=None)
    monkeypatch.setattr(session, "_current", here)
    loader, ends = kind(itertools.repeat([0] * 64)), []
    for _ in loader:
        time.sleep(0.02)
        if kind is ManualTimedIterator:
            loader.step()
        ends.append(time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW))
    here.finish()
    measured = [data for data in here.sink.of("rate") if not data.get("warmup")]
    rate = sum(data["n"] for data in measured) / sum(data["elapsed"] for data in measured)
    assert rate == pytest.approx(12 * 64 / (ends[14] - ends[2]) * 1e9, rel=0.01)


# With torch

RANK = """
    import os, sys, time, torch
    import torch.distributed as dist
    from benchmate.observer import BenchObserver
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    data = torch.utils.data.TensorDataset(torch.zeros(64, 3), torch.zeros(64, dtype=torch.long))
    loader = torch.utils.data.DataLoader(data, batch_size=2 + rank)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    observer = BenchObserver(earlystop=8)
    criterion = observer.criterion(torch.nn.functional.cross_entropy)
    try:
        for epoch in range(100):
            for x, y in observer.iterate(loader):
                optimizer.zero_grad()
                criterion(model(x), y).backward()
                optimizer.step()
    finally:
        dist.destroy_process_group()
"""


def test_the_items_of_two_ranks_add_up(agent, tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    script = tmp_path / "rank.py"
    script.write_text(textwrap.dedent(RANK))
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"measure": {"warmup_steps": 2, "warmup_s": 0, "window_steps": 5, "window_s": 0}}))
    shared = {
        **os.environ,
        "MILABENCH_SINK": f"unix:{agent.path}",
        "MILABENCH_BENCH_CONFIG": str(config),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(29_000 + os.getpid() % 2000),
        "WORLD_SIZE": "2",
        "OMP_NUM_THREADS": "1",
    }
    words = [sys.executable, "-m", "benchmate.run", str(script)]
    ranks = [subprocess.Popen(words, env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in (0, 1)]
    assert [rank.wait(100) for rank in ranks] == [0, 0]
    agent.close()
    by_rank = {0: [], 1: []}
    for meta, memory in agent.rings:
        if meta["kind"] == "rate":
            by_rank[meta["rank"]] += [entry.items for entry in take_entries(memory)]
    assert [set(sizes) for sizes in by_rank.values()] == [{2}, {3}]
    assert min(len(sizes) for sizes in by_rank.values()) >= 7
