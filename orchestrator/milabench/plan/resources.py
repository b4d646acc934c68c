"""The needs of a suite, as its benchmarks state them: disk and download of environments and data, memory of devices and nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from milabench.config.schema import BenchmarkConfig
from milabench.facts.model import Node

_MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceSum:
    """The disk and the download of several environments or data sets, in bytes. `unknown` are those that state neither."""

    disk: int = 0
    download: int = 0
    unknown: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the sum as `plan --json` prints it."""
        return {"disk": self.disk, "download": self.download, "unknown": list(self.unknown)}


def sum_of_environments(benches: Iterable[BenchmarkConfig]) -> ResourceSum:
    """Return the sum of the environments of benchmarks: of each the largest statement, because it covers all needs."""
    return _sum(
        benches,
        lambda bench: bench.install_group,
        lambda bench: (bench.resources.environment.disk_mib, bench.resources.environment.download_mib),
    )


def sum_of_data(benches: Iterable[BenchmarkConfig]) -> ResourceSum:
    """Return the sum of the prepared data of benchmarks. Data that several share by name count once, by the largest."""
    return _sum(
        benches,
        lambda bench: bench.resources.shared_data or bench.name,
        lambda bench: (bench.resources.data_mib, bench.resources.download_mib),
    )


def _sum(
    benches: Iterable[BenchmarkConfig],
    name_of: Callable[[BenchmarkConfig], str],
    stated: Callable[[BenchmarkConfig], tuple[int | None, int | None]],
) -> ResourceSum:
    largest: dict[str, tuple[int | None, int | None]] = {}
    for bench in benches:
        disk, download = largest.get(name_of(bench), (None, None))
        own_disk, own_download = stated(bench)
        largest[name_of(bench)] = (_larger(disk, own_disk), _larger(download, own_download))
    return ResourceSum(
        disk=_MIB * sum(disk or 0 for disk, _ in largest.values()),
        download=_MIB * sum(download or 0 for _, download in largest.values()),
        unknown=tuple(name for name, (disk, download) in largest.items() if disk is None and download is None),
    )


def _larger(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else max(a, b)


def memory_shortages(
    benches: Mapping[str, BenchmarkConfig], steps: Iterable[Mapping[str, Any]], nodes: Iterable[Node]
) -> Iterator[str]:
    """Yield, for each benchmark whose memory a device or a node of its steps lacks, a line that says so. Each once.

    `benches` are benchmarks by name. A step has its benchmark's name in its configuration. Unstated needs, and devices
    that do not say how much they have, are passed over.
    """
    by_name = {node.name: node for node in nodes}
    warned: set[tuple[str, str]] = set()
    for step in steps:
        bench, node = benches.get(str(step["config"].get("name"))), by_name.get(str(step["node"]))
        if bench is None or node is None:
            continue
        sizes = {device.index: device.memory_mib for device in node.devices if device.arch != "cpu"}
        least = min((sizes[index] for index in step["devices"] if sizes.get(index)), default=0)
        for what, needed, present in (
            (f"a device of {node.name}", bench.resources.memory_mib, least),
            (f"the node {node.name}", bench.resources.host_memory_mib, node.memory_mib),
        ):
            if needed and present and needed > present and (bench.name, what) not in warned:
                warned.add((bench.name, what))
                yield f"{bench.name}: needs {_gib(needed)} of memory, but {what} has {_gib(present)}"


def _gib(mib: int) -> str:
    return f"{mib / 1024:.3g} GiB" if mib < 1000 * 1024 else f"{mib / 1024:,.0f} GiB"
