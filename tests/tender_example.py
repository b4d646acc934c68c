"""Writes the simulated runs of `config/procurement`, on which docs/procurement.md works: `python -m tests.tender_example`."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from milabench.cli import report
from tests.metered_runs import metered_run, wall_readings
from tests.pages import ROOT
from tests.recorded_run import Recorded, rates, record

FOLDER = ROOT / "config" / "procurement"
UNITS = {"train": "samples/s", "infer": "tokens/s"}
# What each benchmark reaches on a node, and when the run was made.
SPEEDS: Mapping[str, tuple[Mapping[str, float], str]] = {
    "reference": ({"train": 400, "infer": 5000}, "2026-01-10"),
    "vendor-a": ({"train": 1280, "infer": 15500}, "2026-03-02"),
    "vendor-b": ({"train": 1200, "infer": 16900}, "2026-03-05"),
    "installed": ({"train": 1275, "infer": 15450}, "2026-11-01"),
    "in-2028": ({"train": 1262, "infer": 14900}, "2028-10-30"),
}
NODES = {"installed": 2, "in-2028": 2}
COUNTS = (1, 2, 4, 8)
ARGV = {"train": {"--batch-size": 32}, "infer": {"--requests": 500}}


def machine(nodes: int) -> dict[str, Any]:
    """What was recorded of a simulated system."""
    device = {"index": 0, "uuid": "", "name": "simulated", "arch": "cpu", "memory_MiB": 0}
    each = {"cpu": {"model": "simulated", "count": 64}, "memory_MiB": 262144, "os": "simulated", "python": "3.11.7"}
    names = ["local"] if nodes == 1 else [f"n{number}" for number in range(nodes)]
    return {"arch": "cpu", "nodes": [{"name": name, **each, "devices": [device]} for name in names]}


def run_of(base: Path, name: str, levels: Mapping[str, float], day: str, nodes: int = 1) -> Path:
    """Five launches of each benchmark on each node, one per cent apart."""
    draw = random.Random(name)
    steps = [
        Recorded(
            bench=bench,
            tag="D0",
            repeat=repeat,
            node="local" if nodes == 1 else f"n{node}",
            events=rates(*[round(level * factor, 3)] * 3, units=UNITS[bench]),
        )
        for bench, level in levels.items()
        for repeat in range(5)
        for factor in [1 + draw.gauss(0, 0.01)]
        for node in range(nodes)
    ]
    about = {"system": machine(nodes), "created": f"{day}T12:00:00+00:00", "argv": ["simulated"]}
    manifest = {**about, "name": name, "suite": {bench: {"argv": ARGV[bench]} for bench in levels}}
    return record(base, *steps, name=name, manifest=manifest).path


def write_runs(folder: Path) -> None:
    """Write the runs, and what the meter read."""
    with tempfile.TemporaryDirectory() as scratch:
        for name, (levels, day) in SPEEDS.items():
            shutil.copytree(run_of(Path(scratch), name, levels, day, NODES.get(name, 1)), folder / "runs" / name)
        for count in COUNTS:
            level = {"train": 1280 / (1 + 0.01 * (count - 1))}
            path = run_of(Path(scratch), f"nodes-{count}", level, "2026-03-02", count)
            target = folder / "runs" / f"nodes-{count}.json"
            done = CliRunner().invoke(report.command, [str(path), "-o", str(target)], standalone_mode=False)
            assert done.exception is None, done.exception
        shutil.copytree(metered_run(Path(scratch)).path, folder / "runs" / "metered")
    # The meter is read every two seconds, by a clock that is 37 s ahead.
    lines = [f"{time + 37:.0f},{power:.1f}" for time, power in wall_readings(every_s=2)]
    (folder / "pdu.csv").write_text("\n".join(["time,outlet1_W", *lines]) + "\n")


if __name__ == "__main__":
    shutil.rmtree(FOLDER / "runs", ignore_errors=True)
    write_runs(FOLDER)
