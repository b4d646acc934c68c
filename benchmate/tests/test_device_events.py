"""The observer on a device whose events behave like torch's: of one device, of a stream, of no use after a failure or a fork."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import types
from time import perf_counter_ns

import pytest
from test_observer import Stop, go_through, measuring

from benchmate import memory
from benchmate.clock import wait_for_devices
from benchmate.observed_loops import ObservedIterable


class Cuda:
    """The members of torch.cuda that are used, with the errors of the real ones. Only the work of `stuck` streams takes time."""

    def __init__(self, devices: int = 1) -> None:
        self.devices, self.current, self.stream = devices, 0, "default"
        self.memory = {0: 1 << 20}
        self.backend = "native"
        self.has_failed = self.is_capturing = False
        self.stuck: set[str] = set()
        self.marked: list[int] = []
        self.synchronized: list[int] = []
        self.mark_ns = 0
        cuda = self

        class Event:
            def __init__(self, enable_timing: bool = False) -> None:
                self.device: int | None = None
                assert enable_timing

            def record(self, stream: tuple[int, str] | None = None) -> None:
                cuda.check()
                device, self.stream = stream or cuda.current_stream()
                if self.device not in (None, device):
                    raise RuntimeError(f"Event device {self.device} does not match recording stream's device {device}.")
                self.device, self.is_captured = device, cuda.is_capturing
                cuda.marked.append(device)
                end_ns = perf_counter_ns() + cuda.mark_ns
                while perf_counter_ns() < end_ns:
                    pass

            def query(self) -> bool:
                cuda.check()
                if self.is_captured:
                    raise RuntimeError(
                        "CUDA error: operation not permitted on an event last recorded in a capturing stream"
                    )
                return self.stream not in cuda.stuck

            def synchronize(self) -> None:
                cuda.check()
                cuda.stuck.discard(self.stream)

            def elapsed_time(self, end: Event) -> float:
                if not (self.query() and end.query()):
                    raise RuntimeError("Both events must be completed before calculating elapsed time.")
                return 1.0

        self.Event = Event

    def check(self) -> None:
        if self.has_failed:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def is_initialized(self) -> bool:
        return True

    def current_device(self) -> int:
        return self.current

    def device_count(self) -> int:
        return self.devices

    def current_stream(self, device: int | None = None) -> tuple[int, str]:
        return self.current if device is None else device, self.stream

    def is_current_stream_capturing(self) -> bool:
        return self.is_capturing

    def synchronize(self, device: int | None = None) -> None:
        self.check()
        self.synchronized.append(self.current if device is None else device)

    def get_allocator_backend(self) -> str:
        return self.backend

    def memory_reserved(self, device: int) -> int:
        if self.backend == "pluggable":
            raise RuntimeError("CUDAPluggableAllocator does not yet support getDeviceStats.")
        assert self.backend == "native" or device == self.current, "makes a context on the device"
        return self.memory.get(device, 0)

    max_memory_reserved = max_memory_allocated = memory_allocated = reset_peak_memory_stats = memory_reserved


@pytest.fixture
def cuda(monkeypatch) -> Cuda:
    cuda = Cuda(2)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    return cuda


def test_the_device_that_is_timed_is_the_one_with_the_programs_memory(cuda):
    # torch.device("cuda:1") without torch.cuda.set_device(): the current device is idle.
    cuda.memory = {1: 1 << 20}
    here = measuring()
    with pytest.raises(Stop):
        go_through(ObservedIterable(range(9), here.observer("train", "items/s"), 1))
    assert set(cuda.marked) == {1}
    assert 1 in cuda.synchronized


def test_a_program_may_change_its_current_device_between_steps(cuda):
    cuda.memory[1] = 1 << 20
    here = measuring()
    with pytest.raises(Stop):
        for index in ObservedIterable(range(9), here.observer("train", "items/s"), 1):
            cuda.current = index % 2
    here.finish()
    assert [data["clock"] for data in here.sink.of("rate")][-3:] == ["event"] * 3


def test_to_wait_for_devices_is_to_wait_for_all_that_have_memory_of_the_process(cuda):
    cuda.devices, cuda.memory = 4, {1: 1, 2: 1}
    wait_for_devices()
    assert cuda.synchronized == [0, 1, 2]


@pytest.mark.parametrize(
    ("backend", "peaks"), [("pluggable", {}), ("cudaMallocAsync", {"allocated": 1, "reserved": 1})]
)
def test_an_allocator_of_the_programs_own_ends_no_loop(cuda, backend, peaks):
    cuda.backend, cuda.memory = backend, {0: 1}
    here = measuring()
    with pytest.raises(Stop):
        go_through(ObservedIterable(range(9), here.observer("train", "items/s"), 1))
    here.finish()
    assert memory.allocator_peaks() == peaks


def test_a_device_error_loses_the_programs_last_records_only(cuda):
    here = measuring(window=10**6)
    observer = here.observer("train", "items/s")
    for index in ObservedIterable(range(9), observer, 1):
        benchmate_loss = float(index)
        here.loss_recorder("train").take(index, benchmate_loss)
        if index == 7:
            cuda.stuck.add("default")
    cuda.has_failed = True
    closed = []
    here.sink.close = lambda: closed.append(True)
    here.finish()
    assert [data["window"]["why"] for data in here.sink.of("window")] == ["ended"]
    assert len(here.sink.of("loss")) == 9
    assert here.sink.of("overhead")
    assert closed == [True]


def test_no_event_is_recorded_into_a_graph(cuda):
    here = measuring()
    observer = here.observer("train", "items/s")
    here.record_parts("train")
    parts = observer._writer.parts
    assert parts is not None
    with pytest.raises(Stop):
        for _ in ObservedIterable(range(9), observer, 1):
            cuda.is_capturing = True
            parts.enter(1)
            parts.leave()
            cuda.is_capturing = False
    here.finish()
    assert len(here.sink.of("rate")) == 5


def test_a_step_that_begins_on_one_stream_and_ends_on_another_ends_no_loop(cuda):
    here = measuring()
    with pytest.raises(Stop):
        for index in ObservedIterable(range(9), here.observer("train", "items/s"), 1):
            cuda.stuck = {"side"} if index % 2 else set()
            cuda.stream = "side" if index % 2 == 0 else "default"
    here.finish()
    assert len(here.sink.of("rate")) == 5


def test_the_reported_cost_includes_the_events(cuda):
    here = measuring(window=10**6)
    observer = here.observer("train", "items/s")
    cuda.mark_ns = 200_000
    go_through(ObservedIterable(range(20), observer, 1))
    marks = len(cuda.marked)
    observer.close()
    cost_s = observer.cost_s()
    assert len(cuda.marked) - marks >= 200
    assert cost_s > 20 * 200e-6


FORK = """
    import os, sys, types

    class Event:
        def __init__(self, enable_timing): pass
        def record(self, stream=None): pass
        def query(self): return len(os.listdir("/proc/self/fd")) < 0
        def synchronize(self): pass
        def elapsed_time(self, end): return 1.0
        def __del__(self):
            if os.getpid() != parent: os.write(1, b"destroyed ")

    parent = os.getpid()
    cuda = types.SimpleNamespace(
        Event=Event, is_initialized=lambda: True, current_device=lambda: 0, device_count=lambda: 1,
        current_stream=lambda device: None, synchronize=lambda device: None, memory_reserved=lambda device: 1,
        max_memory_allocated=lambda device: 1, max_memory_reserved=lambda device: 1, reset_peak_memory_stats=lambda device: None,
    )
    sys.modules["torch"] = types.SimpleNamespace(cuda=cuda)
    import benchmate
    from benchmate.session import current
    current().record_parts("train")
    for index in benchmate.observed(range(100), batch_size=1):
        if index == 50:
            child = os.fork()
            if not child:
                sys.exit()
            os.waitpid(child, 0)
            os._exit(0)
"""


def test_a_forked_child_does_not_destroy_the_events_of_its_parent():
    # torch's destructor of an event calls CUDA, which fails in a forked child: an exception there aborts the process.
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(FORK)], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.returncode) == ("", 0)
