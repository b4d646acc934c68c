"""The monitor: a single schedule for devices (ten times a second), the host (once) and proportional memory (seldom)."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmate.devices.api import Device, SensorBackend
from benchmate.devices.detect import named
from benchmate.monitors.device_sampler import DeviceSampler
from benchmate.monitors.host import CpuSampler, Disks, Network, group_peak_bytes, memory_mib
from benchmate.monitors.process_tree import ProcessTrees
from benchmate.monitors.processors import Processors, pressure
from benchmate.monitors.watched_steps import StepSink, WatchedStep, steps_holding

HOST_S = 1.0
PSS_S = 10.0
SEND_S = 0.5
"""Readings are sent together, so that the agent does not wake up for each."""


class Monitor:
    """Watches the steps of a group until the last of them is over.

    Readings of a device go to the step that holds it, readings of the node to the first step that still runs. Each step gets
    the readings that show whether others used its processors.
    """

    def __init__(
        self, steps: Sequence[WatchedStep], vendor: SensorBackend, trouble: str = "", host_period_s: float = HOST_S
    ) -> None:
        self._host_period_s = host_period_s
        self._sinks = [sink for sink in map(StepSink, steps) if sink.is_open]
        live = [sink.step for sink in self._sinks]
        self._processes = ProcessTrees(
            (step.pid for step in live),
            steps=[step.name for step in live],
            run_marker=os.environ.get("MILABENCH_RUN_MARKER"),
            has_detached=any(step.is_container for step in live),
        )
        self._processors = Processors(step.pid for step in live)
        self._processors.update(time.monotonic(), self._processes.cpu_s())
        self._peaks: dict[int, int] = {}
        self._cpu, self._disks, self._network = CpuSampler(), Disks(), Network()
        devices = _devices_by_step(live, vendor.devices)
        self._samplers = {
            sink: DeviceSampler(devices[sink.step.name], self._processes.is_ours, sink.message) for sink in self._sinks
        }
        self._period_s = vendor.period_s if any(len(sampler) for sampler in self._samplers.values()) else host_period_s
        if self._sinks and trouble:
            self._sinks[0].message(f"monitor: {trouble}")
        if self._sinks and self._cpu.absent:
            self._sinks[0].message(f"monitor: {self._cpu.absent}")

    def record_packages(self) -> None:
        """Record the packages installed for the steps, for comparison with the lock."""
        for sink in self._sinks:
            sink.record("meta", {"installed": installed_versions()})

    def run(self) -> None:
        """Sample and send until the last step is over."""
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
            # Proportional memory has no wake-up of its own: it is measured with what comes next.
            wait_s = min(devices_due, host_due, send_due) - time.monotonic()
            for descriptor, _ in poller.poll(max(0.0, wait_s) * 1000):
                sink = by_descriptor[descriptor]
                if sink.is_over():
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
        self._processes.measure_delays()
        self._processors.update(time.monotonic(), self._processes.cpu_s())
        time_s = round(time.time(), 6)
        lacked = pressure()
        for sink in self._sinks:
            sampler = self._samplers[sink]
            sampler.survey()
            sampler.report_absent()
            process = self._processes.data(sink.step.pid, now_s)
            if process is not None:
                if not sink.step.is_container:
                    process["host"] = {**self._processors.data(sink.step.pid), **lacked}
                sink.record("data", {"task": "main", "process": process, "time": time_s})
            peak = group_peak_bytes(sink.step.pid)
            if peak is not None:
                self._peaks[sink.step.pid] = peak
        if not self._sinks:
            return
        first = self._sinks[0]
        memory = memory_mib()
        cpu = {**({} if memory is None else {"memory": memory}), **self._cpu.data()}
        node = {"cpudata": cpu, "iodata": self._disks.data(), "netdata": self._network.data()}
        for kind, data in node.items():
            if data is not None:
                first.record("data", {"task": "main", kind: data, "time": time_s})

    def _end(self, sink: StepSink) -> None:
        """Send the facts known only at the end of a step, and close its connection."""
        # Without a cgroup of its own: the largest sum of resident sets, in which shared pages count for each process.
        peak = self._peaks.get(sink.step.pid) or self._processes.trees[sink.step.pid].peak_rss
        if peak:
            metric = {"metric": "host_memory_peak", "value": peak, "units": "B", "direction": "lower", "part": "tree"}
            sink.record("data", metric)
        if sink.dropped:
            sink.message(f"monitor: {sink.dropped} readings were dropped, because the agent did not read them")
        sink.close()


def _devices_by_step(steps: Sequence[WatchedStep], devices: Sequence[Device]) -> dict[str, list[tuple[str, Device]]]:
    """Return the devices of each step by name, each device with the number by which the plan knows it."""
    held: dict[str, list[tuple[str, Device]]] = {step.name: [] for step in steps}
    for order, device in enumerate(devices):
        for step in steps_holding(steps, device.index, device.uuid, order):
            held[step.name].append((str(device.index), device))
    for step in steps:
        # MIG slices have UUIDs, but no numbers.
        uuids = [uuid for uuid in step.uuids if uuid.startswith("MIG-")]
        slices = [(uuid, mig_slice) for uuid in uuids if (mig_slice := named(devices, uuid)) is not None]
        held[step.name] = slices or held[step.name]
    return held


def installed_versions() -> dict[str, str]:
    """Return versions by distribution, from the names of their metadata folders: importlib.metadata reads hundreds of files."""
    stems = (path.stem for folder in reversed(sys.path) for path in Path(folder).glob("*.dist-info"))
    return {name: version for name, _, version in (stem.rpartition("-") for stem in stems)}


def _next(due: float, period_s: float, now: float) -> float:
    """Return the next multiple of the period after now: missed samples are not made up for."""
    return due + period_s * max(1, int((now - due) / period_s) + 1)
