"""A torch whose CUDA devices are simulated: streams, events, memory and errors as CUDA has them, on a machine without any.

`install(count)` puts it in the place of torch in `sys.modules`, so that the instruments meet it where they meet torch.

- A launch queues a kernel and returns: the host runs ahead, until the queue of 1024 launches is full.
- An event belongs to the device on which it was first recorded; another device's stream refuses it.
- An error is sticky: from then on each call raises it.
- An event that was recorded in a capture can be neither asked nor waited for.
- A forked child can use nothing of it, and dies when it destroys an event of its parent (torch 2.13).
- A graph writes its results into the same tensors at each replay.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

LAUNCH_S = 6e-6
"""What a launch costs the host."""
QUEUE = 1024
"""Launches that a stream takes before the host has to wait."""
ABORTED = 134
"""Exit code of a process that abort() ended."""


class AcceleratorError(RuntimeError):
    """As torch.AcceleratorError."""


def wait_until(at_s: float) -> None:
    """Wait until `at_s` of time.perf_counter: asleep at first, the last 200 us awake."""
    while (left_s := at_s - time.perf_counter()) > 0:
        if left_s > 3e-4:
            time.sleep(left_s - 2e-4)


class Stream:
    """Work of one device in order: `ends` are the times at which what was queued will be done."""

    def __init__(self, cuda: Cuda, device: int) -> None:
        self.cuda, self.device = cuda, device
        self.tail_s = 0.0
        self.ends: deque[float] = deque()
        self.graph: Graph | None = None

    def launch(self, seconds: float) -> None:
        """Queue a kernel; wait where the queue is full."""
        self.cuda.check()
        wait_until(time.perf_counter() + LAUNCH_S)
        if self.graph is not None:
            self.graph.seconds += seconds
            return
        if len(self.ends) >= QUEUE:
            wait_until(self.ends.popleft())
        self.tail_s = max(self.tail_s, time.perf_counter()) + seconds
        self.ends.append(self.tail_s)

    def wait_stream(self, other: Stream) -> None:
        """Do nothing before what `other` has queued is done."""
        self.tail_s = max(self.tail_s, other.tail_s)

    def synchronize(self) -> None:
        """Wait until all is done."""
        self.cuda.check()
        wait_until(self.tail_s)


class Event:
    """As torch.cuda.Event; `cuda` is set by `install`."""

    cuda: Cuda

    def __init__(self, enable_timing: bool = False, blocking: bool = False) -> None:
        self.enable_timing = enable_timing
        self.device: int | None = None
        self.at_s: float | None = None
        self.is_captured = False
        self.pid = os.getpid()

    # Bound here: at the end of the interpreter the module's names are gone.
    def __del__(self, getpid: Callable[[], int] = os.getpid) -> None:
        if self.device is not None and self.pid != getpid():
            os.write(2, b"terminate called: CUDA error: initialization error\n")
            os._exit(ABORTED)

    def record(self, stream: Stream | None = None) -> None:
        self.cuda.check()
        stream = stream or self.cuda.current_stream()
        if self.device is None:
            self.device = stream.device
        if self.device != stream.device:
            raise RuntimeError(f"Event device {self.device} does not match recording stream's device {stream.device}")
        self.is_captured = stream.graph is not None
        self.at_s = max(stream.tail_s, time.perf_counter())

    def _time_s(self) -> float | None:
        self.cuda.check()
        if self.is_captured:
            raise AcceleratorError(
                "CUDA error: operation not permitted on an event last recorded in a capturing stream"
            )
        return self.at_s

    def query(self) -> bool:
        at_s = self._time_s()
        return at_s is None or time.perf_counter() >= at_s

    def synchronize(self) -> None:
        at_s = self._time_s()
        if at_s is not None:
            wait_until(at_s)

    def elapsed_time(self, end: Event) -> float:
        begin_s, end_s = self._time_s(), end._time_s()
        if begin_s is None or end_s is None or not (self.query() and end.query()):
            raise RuntimeError("Both events must be completed before calculating elapsed time")
        if not (self.enable_timing and end.enable_timing):
            raise RuntimeError("Both events must be created with argument 'enable_timing=True'")
        if self.device != end.device:
            raise RuntimeError("CUDA error: invalid resource handle")
        return (end_s - begin_s) * 1e3


class Tensor:
    """A number on a device: known when the work that gives it is done."""

    def __init__(self, cuda: Cuda, storage: list[float]) -> None:
        self.cuda, self.storage = cuda, storage
        self.device = SimpleNamespace(type="cuda", index=cuda.current_device())
        self.stream = cuda.current_stream()
        self.ndim = 0

    def data_ptr(self) -> int:
        return id(self.storage)

    def detach(self) -> Tensor:
        return Tensor(self.cuda, self.storage)

    def clone(self) -> Tensor:
        self.stream.launch(2e-6)
        return Tensor(self.cuda, list(self.storage))

    def item(self) -> float:
        self.stream.synchronize()
        return self.storage[0]

    def __float__(self) -> float:
        return self.item()


class Graph:
    """As torch.cuda.CUDAGraph: so many seconds of kernels, one launch; `loss` gets the same storage at each replay."""

    def __init__(self, cuda: Cuda) -> None:
        self.cuda, self.seconds = cuda, 0.0
        self.storage = [0.0]

    def replay(self) -> Tensor:
        self.cuda.current_stream().launch(self.seconds)
        self.storage[0] += 1.0
        return Tensor(self.cuda, self.storage)


class Cuda(ModuleType):
    """The module torch.cuda: what the instruments use of it."""

    def __init__(self, count: int) -> None:
        super().__init__("torch.cuda")
        self._count, self._device, self._pid = count, 0, os.getpid()
        self._streams = [Stream(self, device) for device in range(count)]
        self._error: str | None = None
        self._allocated, self._peaks = [0] * count, [0] * count
        self._is_initialized = False
        self.Event = type("Event", (Event,), {"cuda": self})

    def check(self) -> None:
        """Raise the error that happened, and in a forked child the one that every call has there."""
        if os.getpid() != self._pid:
            raise AcceleratorError("CUDA error: initialization error")
        if self._error is not None:
            raise AcceleratorError(self._error)
        self._is_initialized = True

    def fail(self, error: str) -> None:
        """Let a kernel fail: every call from here on raises `error`."""
        self._error = error

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return self._is_initialized and os.getpid() == self._pid

    def device_count(self) -> int:
        return self._count

    def current_device(self) -> int:
        return self._device

    def set_device(self, device: int) -> None:
        self._device = device

    @contextlib.contextmanager
    def device(self, device: int) -> Iterator[None]:
        before, self._device = self._device, device
        try:
            yield
        finally:
            self._device = before

    def new_stream(self) -> Stream:
        return Stream(self, self._device)

    def current_stream(self, device: int | None = None) -> Stream:
        return self._streams[self._device if device is None else device]

    @contextlib.contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before, self._streams[stream.device] = self._streams[stream.device], stream
        try:
            yield
        finally:
            self._streams[stream.device] = before

    def is_current_stream_capturing(self) -> bool:
        return self.current_stream().graph is not None

    @contextlib.contextmanager
    def capture(self) -> Iterator[Graph]:
        """Capture what is launched into a graph, instead of doing it."""
        stream, graph = self.current_stream(), Graph(self)
        stream.graph = graph
        try:
            yield graph
        finally:
            stream.graph = None

    def launch(self, seconds: float) -> None:
        """Queue a kernel of that long on the current stream."""
        self.current_stream().launch(seconds)

    def synchronize(self, device: int | None = None) -> None:
        self.current_stream(device).synchronize()

    def allocate(self, amount: int) -> None:
        """Take so many bytes of the current device's memory; a negative amount gives them back."""
        device = self._device
        self._allocated[device] += amount
        self._peaks[device] = max(self._peaks[device], self._allocated[device])

    def memory_allocated(self, device: int = 0) -> int:
        return self._allocated[device]

    memory_reserved = memory_allocated

    def get_allocator_backend(self) -> str:
        return "native"

    def max_memory_allocated(self, device: int = 0) -> int:
        return self._peaks[device]

    max_memory_reserved = max_memory_allocated

    def reset_peak_memory_stats(self, device: int = 0) -> None:
        self._peaks[device] = self._allocated[device]


def install(count: int = 1) -> Any:
    """Put the simulation in the place of torch; return its `torch.cuda`."""
    torch = ModuleType("torch")
    cuda = Cuda(count)
    vars(torch).update(__version__="simulated", cuda=cuda, AcceleratorError=AcceleratorError)
    sys.modules.update({"torch": torch, "torch.cuda": cuda})
    return cuda
