"""The simulated CUDA: it refuses what CUDA refuses, and its host runs ahead of its device."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.gpu.simulated_torch import QUEUE, AcceleratorError, Cuda, Tensor


@pytest.fixture
def cuda() -> Any:
    return Cuda(2)


def test_launches_are_queued_and_events_tell_when_the_device_passes_them(cuda: Any) -> None:
    begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    cuda.launch(0.05)
    end.record()
    assert not end.query()
    with pytest.raises(RuntimeError, match="must be completed"):
        begin.elapsed_time(end)
    end.synchronize()
    assert begin.elapsed_time(end) >= 50


def test_a_host_is_as_far_ahead_as_the_queue_is_long(cuda: Any) -> None:
    start = time.perf_counter()
    for _ in range(QUEUE):
        cuda.launch(1.0)
    queued = cuda.current_stream().tail_s - start
    assert queued > QUEUE - 1  # seconds of the device, in milliseconds of the host


def test_an_event_belongs_to_one_device(cuda: Any) -> None:
    event = cuda.Event(enable_timing=True)
    event.record()
    with cuda.device(1), pytest.raises(RuntimeError, match="does not match recording stream's device 1"):
        event.record()


def test_an_error_is_sticky(cuda: Any) -> None:
    event = cuda.Event(enable_timing=True)
    event.record()
    cuda.fail("CUDA error: an illegal memory access was encountered")
    for call in (event.query, event.record, event.synchronize, cuda.synchronize, lambda: cuda.launch(1)):
        with pytest.raises(AcceleratorError, match="illegal memory access"):
            call()


def test_an_event_of_a_capture_can_not_be_read_and_a_graph_reuses_its_memory(cuda: Any) -> None:
    event = cuda.Event(enable_timing=True)
    with cuda.capture() as graph:
        assert cuda.is_current_stream_capturing()
        cuda.launch(1e-3)
        event.record()
    with pytest.raises(AcceleratorError, match="capturing stream"):
        event.query()
    first, second = graph.replay(), graph.replay()
    assert (first.item(), second.item()) == (2.0, 2.0)
    assert Tensor(cuda, first.storage).data_ptr() == second.data_ptr()


def test_streams_are_independent_until_one_waits_for_the_other(cuda: Any) -> None:
    side, main = cuda.new_stream(), cuda.current_stream()
    with cuda.stream(side):
        cuda.launch(0.2)
    assert main.tail_s < side.tail_s
    main.wait_stream(side)
    assert main.tail_s == side.tail_s
