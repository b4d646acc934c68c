"""Memory of a step over time: of all its processes together, and on each device."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from milabench.analysis.sample_statistics import mean, stdev
from milabench.events.model import Data, StepEvent
from milabench.events.values import finite_number


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """MiB: the mean over time, the standard deviation (of a sample; 0 for a single reading), and the largest ever seen.

    Of several devices, mean and deviation are averaged over them. The maximum is not.
    """

    mean: float
    std: float
    max: float


class MemoryFold:
    """Reads a monitor's records. Few numbers are kept, however long the step."""

    def __init__(self) -> None:
        self._host = array("d")
        self._own: dict[str, array[float]] = {}
        self._whole: dict[str, array[float]] = {}

    def observe(self, event: StepEvent) -> None:
        """Take a sample into account."""
        if not isinstance(event, Data):
            return
        process, devices = event.data.get("process"), event.data.get("gpudata")
        if isinstance(process, Mapping) and (rss := finite_number(process.get("rss_MiB"))) is not None:
            self._host.append(rss)
        for key, sample in devices.items() if isinstance(devices, Mapping) else ():
            if isinstance(sample, Mapping):
                self._device(str(key), sample)

    def _device(self, key: str, sample: Mapping[str, object]) -> None:
        memory, processes = sample.get("memory"), sample.get("processes")
        used = finite_number(memory[0]) if isinstance(memory, list) and memory else None
        if used is not None:
            self._whole.setdefault(key, array("d")).append(used)
        own = _own_memory(processes) if isinstance(processes, list) else None
        if own is not None:
            self._own.setdefault(key, array("d")).append(own)

    @property
    def host(self) -> Usage | None:
        """Resident memory of the whole process tree. None when it was never read."""
        return _usage([self._host]) if self._host else None

    @property
    def is_of_tree(self) -> bool:
        """Whether devices reported the memory of the tree's processes. Else all memory in use there counts.

        A driver may hide all processes, as in a virtual machine: that none of ours was ever seen tells nothing.
        """
        return any(max(own_mib) > 0 for own_mib in self._own.values())

    def devices(self, count: int) -> Usage | None:
        """Memory on this number of devices, those that hold most. None without readings."""
        fullest = sorted((self._own if self.is_of_tree else self._whole).values(), key=max, reverse=True)[:count]
        return _usage(fullest) if fullest else None


def _own_memory(processes: Iterable[object]) -> float | None:
    """Return the memory that the step's processes hold on a device, in MiB. None where any process's is unknown."""
    own = [process for process in processes if isinstance(process, Mapping) and process.get("own") is True]
    sizes = [finite_number(process.get("memory_MiB")) for process in own]
    known = [size for size in sizes if size is not None]
    return math.fsum(known) if len(known) == len(sizes) else None


def _usage(series: Sequence[Sequence[float]]) -> Usage:
    return Usage(
        mean=mean([mean(samples) for samples in series]),
        std=mean([stdev(samples) if len(samples) > 1 else 0.0 for samples in series]),
        max=max(max(samples) for samples in series),
    )
