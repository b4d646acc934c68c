"""A monitor's readings of a step's devices and their host, gathered from its records, and the window in which they count."""

from __future__ import annotations

import itertools
import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from milabench.events.model import Data, Meta, StepEvent
from milabench.events.values import as_mapping, finite_number, mappings_in

NAN = math.nan
Span = tuple[float, float]
Point = tuple[float, float]

# The reasons for which a device is slower than it could be. That it meets its power limit is normal for an accelerator at work.
THROTTLED = frozenset({"hw_slowdown", "sw_thermal", "hw_thermal", "power_brake"})
# What is read of the processors, of the step's processes, of the host in their records, and of its waits for each resource.
_OF_PROCESSORS = ("load",)
_OF_PROCESSES = ("cpu_s", "run_delay_s", "rss_MiB")
_OF_HOST = ("processors", "busy_s", "ours_s", "steal_s", "swap_bytes")
PRESSURES = ("cpu", "memory", "io")


@dataclass(slots=True, kw_only=True)
class DeviceReadings:
    """A device of a step, sample by sample. nan where a sample lacks a reading.

    `time` unix seconds, `load` 0 to 1, `used` and `total` MiB, `power` W, `energy` J since some point in the past,
    `clock` the clock of the compute units in MHz, `memory_clock` the memory's, `temperature` in degrees Celsius,
    `throttle` the reasons of each sample, None where they were not reported. `foreign` are processes that are not the group's,
    with the largest memory in MiB that each was seen to hold. `own` whether a process of the group was seen on the device.
    `ecc` are the first and the last count of memory errors, `corrected` and `uncorrected`.
    `xid` are the driver's errors, each with the time of the sample that has it, up to a second later.
    """

    key: str
    uuid: str = ""
    time: array[float] = field(default_factory=lambda: array("d"))
    load: array[float] = field(default_factory=lambda: array("d"))
    used: array[float] = field(default_factory=lambda: array("d"))
    total: array[float] = field(default_factory=lambda: array("d"))
    power: array[float] = field(default_factory=lambda: array("d"))
    energy: array[float] = field(default_factory=lambda: array("d"))
    clock: array[float] = field(default_factory=lambda: array("d"))
    memory_clock: array[float] = field(default_factory=lambda: array("d"))
    temperature: array[float] = field(default_factory=lambda: array("d"))
    throttle: list[tuple[str, ...] | None] = field(default_factory=list)
    foreign: list[tuple[float, int, float]] = field(default_factory=list)
    own: bool | None = None
    ecc: dict[str, tuple[int, int]] = field(default_factory=dict)
    xid: list[tuple[float, int]] = field(default_factory=list)
    lost: str = ""
    lost_at: float = NAN

    def add(self, sample: Mapping[str, Any], time: float) -> None:
        """Take a sample."""
        self.uuid = str(sample.get("uuid", self.uuid))
        if "lost" in sample:
            self.lost, self.lost_at = str(sample["lost"]), time
            return
        memory = sample.get("memory")
        used, total = memory if isinstance(memory, list) and len(memory) == 2 else (None, None)
        self.time.append(time)
        self.load.append(_number(sample.get("load")))
        self.used.append(_number(used))
        self.total.append(_number(total))
        self.power.append(_number(sample.get("power_W", sample.get("power"))))
        self.energy.append(_number(sample.get("energy_J")))
        self.clock.append(_number(sample.get("sm_clock_MHz")))
        self.memory_clock.append(_number(sample.get("mem_clock_MHz")))
        self.temperature.append(_number(sample.get("temperature")))
        throttle = sample.get("throttle")
        self.throttle.append(tuple(map(str, throttle)) if isinstance(throttle, list) else None)
        self._see_processes(sample.get("processes"), time)
        if isinstance(sample.get("xid"), list):
            self.xid += [(time, number) for number in sample["xid"] if isinstance(number, int)]
        ecc = as_mapping(sample.get("ecc"))
        for kind in ("corrected", "uncorrected"):
            if isinstance(count := ecc.get(kind), int):
                self.ecc[kind] = (self.ecc[kind][0] if kind in self.ecc else count, count)

    def _see_processes(self, processes: object, time: float) -> None:
        for process in processes if isinstance(processes, list) else ():
            if not isinstance(process, Mapping) or not isinstance(process.get("own"), bool):
                continue
            self.own = bool(self.own) or process["own"]
            if not process["own"] and isinstance(process.get("pid"), int):
                self.foreign.append((time, process["pid"], _number(process.get("memory_MiB"))))

    def within(self, window: tuple[float, float] | None) -> range:
        """Return the indices of the samples inside a window of unix seconds. All of them without a window."""
        if window is None:
            return range(len(self.time))
        start, stop = window
        # Not bisected: a wall clock that was set back leaves the samples out of order.
        first = next((index for index, time in enumerate(self.time) if time >= start), len(self.time))
        last = next((index for index in range(len(self.time), 0, -1) if self.time[index - 1] <= stop), first)
        return range(first, max(first, last))

    def held_back(self, window: Span | None, reasons: Set[str], most_mhz: float | None) -> dict[float, float] | None:
        """Return by how much its clocks were below the highest at each time, 0 to 1, where a sample has one of some reasons.

        It is 0 at other times. `most_mhz` is the highest clock that the device can have. None where that is not known and every
        sample has a reason, and where a sample with a reason has no clock: nobody can say what it cost.
        """
        known = {
            index: reasons & set(why) for index in self.within(window) if (why := self.throttle[index]) is not None
        }
        slowed = [index for index, why in known.items() if why]
        is_all = bool(slowed) and len(slowed) == len(known)
        if (is_all and not most_mhz) or not all(self.clock[index] > 0 for index in slowed):
            return None
        found = dict.fromkeys((self.time[index] for index in known), 0.0)
        for clocks, most in ((self.clock, most_mhz), (self.memory_clock, None)):
            highest = max([*(clock for clock in clocks if clock > 0), most or 0.0])
            for index in slowed:
                if 0 < clocks[index] < highest:
                    found[self.time[index]] = max(found[self.time[index]], 1 - clocks[index] / highest)
        return found


@dataclass(slots=True)
class Readings:
    """A fold over a step's events: its devices by number, its host, and the window in which it measured.

    `described` is what the machine's description says of its accelerators, by number. `host` are counters and sizes by the
    names that records have for them, each with its unix seconds and its values.
    """

    devices: dict[str, DeviceReadings] = field(default_factory=dict)
    described: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    host: dict[str, tuple[array[float], array[float]]] = field(default_factory=dict)
    windows: dict[str, tuple[float, float]] = field(default_factory=dict)

    def observe(self, event: StepEvent) -> None:
        """Take a sample, a window or a description of the machine into account."""
        if isinstance(event, Meta):
            devices = mappings_in(event.data.get("accelerators"))
            self.described |= {str(device.get("index")): device for device in devices}
        if not isinstance(event, Data):
            return
        data = event.data
        samples, window, time = data.get("gpudata"), data.get("window"), _number(data.get("time"))
        if isinstance(samples, Mapping) and not math.isnan(time):
            for key, sample in samples.items():
                if isinstance(sample, Mapping):
                    self.devices.setdefault(str(key), DeviceReadings(key=str(key))).add(sample, time)
        if ("process" in data or "cpudata" in data) and not math.isnan(time):
            self._take_host(data, time)
        if isinstance(window, Mapping):
            start, stop = _number(window.get("start")), _number(window.get("stop"))
            if start < stop:
                task = str(data.get("task", ""))
                known = self.windows.get(task, (start, stop))
                self.windows[task] = (min(known[0], start), max(known[1], stop))

    def _take_host(self, data: Mapping[str, object], time: float) -> None:
        process = as_mapping(data.get("process"))
        host = as_mapping(process.get("host"))
        sources = {
            _OF_PROCESSORS: as_mapping(data.get("cpudata")),
            _OF_PROCESSES: process,
            _OF_HOST: host,
            PRESSURES: as_mapping(host.get("pressure_s")),
        }
        for names, source in sources.items():
            for name in names:
                if (value := finite_number(source.get(name))) is not None:
                    times, values = self.host.setdefault(name, (array("d"), array("d")))
                    times.append(time)
                    values.append(value)

    @property
    def window(self) -> tuple[float, float] | None:
        """Unix seconds between which the step measured its main task: train, else inference, else the first."""
        tasks = ("train", "inference", *self.windows)
        return next((self.windows[task] for task in tasks if task in self.windows), None)

    def slowed(self, reasons: Set[str]) -> float | None:
        """Return a bound on the share of the rate that clocks cost which were lowered for some reasons; None where unknown.

        A program is at most as much slower as its clocks; ranks wait for the slowest device, so that this one counts at a time.
        """
        worst: dict[float, float] = {}
        for key, device in self.devices.items():
            most = finite_number(self.described.get(key, {}).get("sm_clock_max_mhz"))
            losses = device.held_back(self.window, reasons, most)
            if losses is None:
                return None
            worst |= {time: max(loss, worst.get(time, 0.0)) for time, loss in losses.items()}
        return math.fsum(worst.values()) / len(worst) if worst else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """Joules of a device within a window: by the difference of its counter, and by the integral of its power."""

    counter_j: float | None
    integral_j: float | None

    @property
    def disagreement(self) -> float | None:
        """How far the integral is from the counter, relative to it. None without both."""
        if self.counter_j is None or self.integral_j is None or self.counter_j <= 0:
            return None
        return abs(self.integral_j / self.counter_j - 1)


def energy_of(device: DeviceReadings, window: tuple[float, float] | None) -> Energy:
    """Return the energy of a device within a window (methodology.md, 1.1): counter difference, and trapezoids under its power.

    A value at an end of the window is interpolated between the samples around it. Where the samples do not reach that
    far, by more than they are apart, there is none.
    """
    counter_j = growth(device.time, device.energy, window)
    return Energy(
        # A counter that restarted, after a reset of the driver, is useless.
        counter_j=counter_j if counter_j is not None and counter_j >= 0 else None,
        integral_j=_over(device.time, device.power, window, _area),
    )


def device_joules(readings: Readings, spans: Sequence[Span | None]) -> dict[str, float]:
    """Return the joules of each device within some spans (unix s), by its counter, else by its power. By its id.

    By the boards' sensors, not at the wall. Empty unless all devices have readings.
    """
    by_device: dict[str, float] = {}
    for device in readings.devices.values():
        for energy in (energy_of(device, span) for span in spans):
            joules = energy.integral_j if energy.counter_j is None else energy.counter_j
            if joules is None:
                return {}
            name = device.uuid or device.key
            by_device[name] = by_device.get(name, 0.0) + joules
    return by_device


def growth(time: Sequence[float], values: Sequence[float], window: Span | None) -> float | None:
    """Return by how much a counter grew within a window. None where its samples do not cover it."""
    return _over(time, values, window, lambda points: points[-1][1] - points[0][1])


def _over(
    time: Sequence[float], values: Sequence[float], window: Span | None, amount_of: Callable[[list[Point]], float]
) -> float | None:
    """Return the amount by the points (time, value) that samples have within the window, interpolated at both its ends.

    The covered part is scaled up to the whole window: less than two samples are missing.
    """
    points = [(t, value) for t, value in zip(time, values, strict=True) if not math.isnan(value)]
    ends = _ends([t for t, _ in points], window)
    if ends is None:
        return None
    start, stop = ends
    inner = [(t, value) for t, value in points if start < t < stop]
    amount = amount_of([(start, _at(points, start)), *inner, (stop, _at(points, stop))])
    return amount if window is None else amount * (window[1] - window[0]) / (stop - start)


def _area(points: Sequence[Point]) -> float:
    return math.fsum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in itertools.pairwise(points))


def _ends(time: Sequence[float], window: Span | None) -> Span | None:
    """Return the part of the window that samples cover. None when they leave out more than twice the time between them."""
    if len(time) < 2:
        return None
    if window is None:
        return time[0], time[-1]
    # The monitor starts and stops between two samples, not at the window's ends.
    slack = 2 * (time[-1] - time[0]) / (len(time) - 1)
    if time[0] > window[0] + slack or time[-1] < window[1] - slack:
        return None
    start, stop = max(time[0], window[0]), min(time[-1], window[1])
    return (start, stop) if start < stop else None


def _at(points: Sequence[Point], moment: float) -> float:
    """Return the value at a moment between the first and the last sample, on the line between its neighbours."""
    after = next(index for index, (t, _) in enumerate(points) if t >= moment)
    time, value = points[after]
    if after == 0 or time == moment:
        return value
    earlier, before = points[after - 1]
    return before + (moment - earlier) / (time - earlier) * (value - before)


def share_of(reasons: Iterable[tuple[str, ...] | None], wanted: frozenset[str]) -> tuple[float | None, int]:
    """Return the share of samples in which any wanted reason holds, and how many samples reported reasons."""
    is_wanted = [bool(wanted & set(sample)) for sample in reasons if sample is not None]
    return (sum(is_wanted) / len(is_wanted) if is_wanted else None), len(is_wanted)


def _number(value: object) -> float:
    number = finite_number(value)
    return NAN if number is None else number
