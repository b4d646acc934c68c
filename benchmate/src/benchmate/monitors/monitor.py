"""One schedule for everything that is read of a group: devices ten times a second, the host once, shared memory seldom."""

from __future__ import annotations

import select
import time
from collections.abc import Mapping, Sequence

from benchmate.devices.api import Device, Vendor
from benchmate.devices.detect import named
from benchmate.monitors.cpu import Cpu
from benchmate.monitors.device_sampler import DeviceSampler
from benchmate.monitors.disks import Disks
from benchmate.monitors.memory import NodeMemory, group_peak_bytes
from benchmate.monitors.network import Network
from benchmate.monitors.process_tree import ProcessTrees
from benchmate.monitors.watched_steps import StepSink, WatchedStep, steps_holding

HOST_S = 1.0
PSS_S = 10.0
SEND_S = 0.5  # readings that wait this long for company save the agent from waking for each


class Monitor:
    """Watches the steps of a group until the last of them is over.

    Readings of a device go to the step that holds it, those of the node to the first step that is still there.
    """

    def __init__(
        self, steps: Sequence[WatchedStep], vendor: Vendor, trouble: str = "", host_period_s: float = HOST_S
    ) -> None:
        self._host_period_s = host_period_s
        self._sinks = [sink for sink in map(StepSink, steps) if sink.is_open]
        live = [sink.step for sink in self._sinks]
        self._processes = ProcessTrees(step.pid for step in live)
        self._peaks: dict[int, int] = {}
        self._cpu, self._memory, self._disks, self._network = Cpu(), NodeMemory(), Disks(), Network()
        held = _held(live, vendor.devices)
        self._samplers = {
            sink: DeviceSampler(held[sink.step.name], self._processes.is_ours, sink.message) for sink in self._sinks
        }
        self._period_s = vendor.period_s if any(len(sampler) for sampler in self._samplers.values()) else host_period_s
        if self._sinks and trouble:
            self._sinks[0].message(f"monitor: {trouble}")
        if self._sinks and self._cpu.absent:
            self._sinks[0].message(f"monitor: {self._cpu.absent}")

    def tell_packages(self, packages: Mapping[str, str]) -> None:
        """What is installed where the steps run, to be compared with what was locked."""
        for sink in self._sinks:
            sink.record("meta", {"installed": dict(packages)})

    def run(self) -> None:
        """Read and tell, until no step is left."""
        poller = select.poll()
        for sink in self._sinks:
            poller.register(sink, select.POLLIN)
        by_descriptor = {sink.fileno(): sink for sink in self._sinks}
        start = time.monotonic()
        devices_due = host_due = start
        pss_due = start + HOST_S
        send_due = start + SEND_S
        while self._sinks:
            now = time.monotonic()
            if now >= host_due:
                self._read_host(now)
                host_due = _next(host_due, self._host_period_s, now)
            if now >= pss_due:
                self._processes.measure_pss()
                pss_due = _next(pss_due, PSS_S, now)
            if now >= devices_due:
                self._read_devices()
                devices_due = _next(devices_due, self._period_s, now)
            if now >= send_due:
                for sink in self._sinks:
                    sink.flush()
                send_due = _next(send_due, SEND_S, now)
            wait_s = min(devices_due, host_due, send_due) - time.monotonic()
            for descriptor, _ in poller.poll(max(0.0, wait_s) * 1000):
                sink = by_descriptor[descriptor]
                if sink.is_told_to_stop():
                    poller.unregister(descriptor)
                    self._end(sink)
            for sink in [sink for sink in self._sinks if not sink.is_open]:
                self._sinks.remove(sink)

    def _read_devices(self) -> None:
        for sink in self._sinks:
            data = self._samplers[sink].sample()
            if data:
                sink.record("data", {"task": "main", "gpudata": data, "time": round(time.time(), 6)})

    def _read_host(self, now_s: float) -> None:
        self._processes.update()
        when = round(time.time(), 6)
        for sink in self._sinks:
            sampler = self._samplers[sink]
            sampler.survey()
            sampler.tell_absent()
            process = self._processes.data(sink.step.pid, now_s)
            if process is not None:
                sink.record("data", {"task": "main", "process": process, "time": when})
            peak = group_peak_bytes(sink.step.pid)
            if peak is not None:
                self._peaks[sink.step.pid] = peak
        if not self._sinks:
            return
        first = self._sinks[0]
        memory = self._memory.data()
        cpu = {**({} if memory is None else {"memory": memory}), **self._cpu.data()}
        first.record("data", {"task": "main", "cpudata": cpu, "time": when})
        disks = self._disks.data()
        if disks is not None:
            first.record("data", {"task": "main", "iodata": disks, "time": when})
        first.record("data", {"task": "main", "netdata": self._network.data(), "time": when})

    def _end(self, sink: StepSink) -> None:
        """The step is over: what is known only now, then no more."""
        # Without a cgroup of its own: the largest sum of resident sets seen, in which shared pages count for each process.
        peak = self._peaks.get(sink.step.pid) or self._processes.trees[sink.step.pid].peak_rss
        if peak:
            metric = {"metric": "host_memory_peak", "value": peak, "units": "B", "direction": "lower", "part": "tree"}
            sink.record("data", metric)
        if sink.dropped:
            sink.message(f"monitor: {sink.dropped} readings were dropped, because nobody took them")
        sink.close()


def _held(steps: Sequence[WatchedStep], devices: Sequence[Device]) -> dict[str, list[tuple[str, Device]]]:
    """The devices of each step, each under the number by which the plan knows it."""
    held: dict[str, list[tuple[str, Device]]] = {step.name: [] for step in steps}
    for order, device in enumerate(devices):
        for step in steps_holding(steps, device.index, device.uuid, order):
            held[step.name].append((str(device.index), device))
    for step in steps:
        # Slices of a device are held by their UUIDs only.
        found = [(uuid, named(devices, uuid)) for uuid in step.uuids if uuid.startswith("MIG-")]
        slices = [(uuid, piece) for uuid, piece in found if piece is not None]
        held[step.name] = slices or held[step.name]
    return held


def _next(due: float, period_s: float, now: float) -> float:
    """The next time after now on the same beat: what was missed is not made up for."""
    return due + period_s * max(1, int((now - due) / period_s) + 1)
