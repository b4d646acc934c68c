"""Runs of one suite on several counts of nodes, whose throughput follows a law of scaling that the test knows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from milabench.events.rundir import Run
from tests.recorded_run import SYSTEM, Recorded, rates, record

COUNTS = (1, 2, 4, 8, 16)


def usl(count: int) -> float:
    """Samples/s on so many nodes: contention 2 %, coherence 0.08 %, a peak at 35."""
    return 100 * count / (1 + 0.02 * (count - 1) + 0.0008 * count * (count - 1))


def on_nodes(
    base: Path,
    nodes: int,
    level: float,
    *,
    name: str = "",
    bench: str = "bert",
    devices: int = 2,
    device: str = "H100",
    config: Mapping[str, Any] | None = None,
    **more: Any,
) -> Run:
    """A run of three launches on so many nodes, which reach `level` together."""
    share = level / nodes / devices
    steps = [
        Recorded(
            bench=bench,
            node=f"n{node}",
            tag=f"D{index}",
            devices=(index,),
            repeat=repeat,
            events=rates(*[share * (1 + 0.004 * ((repeat + nodes) % 3 - 1))] * 5, units=more.get("units", "samples/s")),
            config=config or {},
        )
        for repeat in range(3)
        for node in range(nodes)
        for index in range(devices)
    ]
    machine = {**SYSTEM["nodes"][0], "devices": [{**each, "name": device} for each in SYSTEM["nodes"][0]["devices"]]}
    manifest = {
        "system": {**SYSTEM, "nodes": [{**machine, "name": f"n{node}"} for node in range(nodes)]},
        "suite": {bench: {"argv": more.get("argv", {"--batch": 32})}},
    }
    return record(base, *steps, name=name or f"on{nodes}", manifest=manifest)
