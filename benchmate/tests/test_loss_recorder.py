"""Losses on a device are kept, bounded and detached, and read at the end."""

from __future__ import annotations

import gc
import itertools
import weakref
from typing import ClassVar

import pytest
from test_observer import Sink, measuring

import benchmate
from benchmate.session import Session


class OnDevice:
    """A tensor on an accelerator: reading it counts."""

    reads = 0

    def __init__(self, value: float, detached: bool = False) -> None:
        self.value, self.detached = value, detached
        self.device = type("Device", (), {"type": "cuda"})()

    def detach(self) -> OnDevice:
        return OnDevice(self.value, True)

    def data_ptr(self) -> int:
        return id(self)

    def item(self) -> float:
        assert self.detached
        OnDevice.reads += 1
        return self.value


@pytest.fixture
def here(monkeypatch) -> Session:
    """A session that `benchmate.observe_loss` uses."""
    session = measuring()
    monkeypatch.setattr("benchmate.session._current", session)
    monkeypatch.setattr("benchmate._loss_recorders", {})
    return session


def losses(sink: Sink) -> list[float]:
    return [data["loss"] for data in sink.of("loss")]


def test_a_loss_on_a_device_is_not_read_before_the_end(here):
    OnDevice.reads = 0
    for index in range(5):
        benchmate.observe_loss(OnDevice(float(index)))
    assert OnDevice.reads == 0
    here.finish()
    assert losses(here.sink) == [0, 1, 2, 3, 4]


def test_kept_losses_are_bounded_and_evenly_spread(here):
    for index in range(100_000):
        benchmate.observe_loss(OnDevice(float(index)))
    here.finish()
    got = losses(here.sink)
    assert 256 <= len(got) <= 513
    gaps = {b - a for a, b in itertools.pairwise(got)}
    assert len(gaps) == 1
    assert got[0] == 0


def test_what_has_several_elements_is_not_kept(here):
    class Activations(OnDevice):
        shape = (512, 1024)

    kept = [Activations(1.0) for _ in range(5)]
    for tensor in kept:
        tensor.detach = lambda tensor=tensor: tensor
        benchmate.observe_loss(tensor)
    benchmate.observe_loss(OnDevice(2.0))
    references = [weakref.ref(tensor) for tensor in kept]
    del kept, tensor
    gc.collect()
    assert [reference() for reference in references] == [None] * 5
    here.finish()
    assert losses(here.sink) == [2]


class InOneBuffer(OnDevice):
    """A loss that a captured graph writes: every replay overwrites the one before."""

    buffer: ClassVar = [0.0]

    def detach(self) -> InOneBuffer:
        return InOneBuffer(0, True)

    def data_ptr(self) -> int:
        return 4096

    def clone(self) -> OnDevice:
        return OnDevice(self.buffer[0], True)

    def item(self) -> float:
        return self.buffer[0]


def test_losses_that_a_captured_graph_writes_into_one_buffer_are_copied(here):
    for index in range(5):
        InOneBuffer.buffer[0] = float(index)
        benchmate.observe_loss(InOneBuffer(0))
    here.finish()
    assert losses(here.sink) == [1, 2, 3, 4]  # that there is one buffer is seen at the second loss


def test_host_losses_are_thinned_for_a_late_reader_but_a_nonfinite_one_is_never_missed(here):
    for index in range(100_000):
        benchmate.observe_loss(float(index))
    benchmate.observe_loss(float("nan"))
    here.finish()
    assert len(losses(here.sink)) <= 8192
    assert here.sink.controls == [{"fail": {"why": "invalid", "detail": "loss of train: nan at step 100000"}}]


def test_a_nonfinite_loss_on_a_device_fails_the_step(here):
    benchmate.observe_loss(OnDevice(float("inf")))
    here.finish()
    assert here.sink.controls == [{"fail": {"why": "invalid", "detail": "loss of train: inf at step 0"}}]


def test_every_float_is_checked_though_few_are_written(here):
    for index in range(100_000):
        benchmate.observe_loss(float("inf") if index == 99_000 else 1.0)
    here.finish()
    assert len(losses(here.sink)) < 1000
    assert here.sink.controls == [{"fail": {"why": "invalid", "detail": "loss of train: inf at step 99000"}}]


def test_a_loss_of_every_epoch_is_written(here, monkeypatch):
    clock = itertools.count(0, 60_000_000)
    monkeypatch.setattr("benchmate.loss_recorder.perf_counter_ns", lambda: next(clock))
    for index in range(200):
        benchmate.observe_loss(float(index))
    here.finish()
    assert losses(here.sink) == list(range(200))
