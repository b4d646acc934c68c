"""Requests to the child process that reads foreign benchfiles, and the folders that it is asked about."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.structure import ROOT

CHILD = ROOT / "orchestrator" / "milabench" / "compat13" / "child.py"
FOLDERS = ROOT / "tests" / "programs" / "milabench13"
DIRS = {name: f"/base/{name}" for name in ("venv", "data", "runs", "extra", "cache")}
JOB = {"method": "njobs", "n": 1}
PER_DEVICE = {"method": "per_gpu"}


def benchmark(
    plan: Mapping[str, Any] = PER_DEVICE,
    devices: int = 1,
    nodes: int = 1,
    dirs: Mapping[str, str] = DIRS,
    **config: Any,
) -> dict[str, Any]:
    """Return one benchmark of a request: `b`, on so many devices of each of so many nodes."""
    resolved = {"name": "b", "plan": plan, "num_machines": nodes, "argv": {"--lr": 0.1}, "system": {}, **config}
    machines = [
        {"name": f"n{k}", "ip": f"10.0.0.{k}", "hostname": f"h{k}", "user": "u", "port": 22, "main": k == 1}
        for k in range(1, nodes + 1)
    ]
    if plan["method"] == "per_gpu":
        placed = [("n1", 0, [device], f"D{device}") for device in range(devices)]
    else:
        placed = [(f"n{k}", k - 1, [*range(devices)], f"n{k}" if nodes > 1 else "0") for k in range(1, nodes + 1)]
    placements = [
        {"key": f"{node}/b.{tag}", "node": node, "rank": rank, "devices": own, "tag": ["b", tag]}
        for node, rank, own, tag in placed
    ]
    return {"config": resolved, "dirs": dict(dirs), "nodes": machines, "placements": placements}


def definition(folder: Path, *benchmarks: dict[str, Any], code: Path | None = None) -> dict[str, Any]:
    """Return one definition of a request."""
    return {"folder": str(folder), "code": str(code or folder), "benchmarks": list(benchmarks) or [benchmark()]}


def answers(
    *definitions: dict[str, Any], env: Mapping[str, str] | None = None, limit_s: float | None = None
) -> Sequence[dict[str, Any]]:
    """Return what the child process answers about each definition, in `limit_s` seconds instead of its own."""
    text = json.dumps({"definitions": definitions})
    limited = ["-c", WITH_A_LIMIT, CHILD.parent, str(limit_s)]
    command = [sys.executable, "-I", *([CHILD] if limit_s is None else limited)]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True, env=env)
    return json.loads(done.stdout)["definitions"]


WITH_A_LIMIT = (
    "import sys; sys.path.insert(0, sys.argv[1]); import child; child.LIMIT_S = float(sys.argv[2]); child.main([])"
)


def do(phase: str, request: dict[str, Any], file: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Do the install or the prepare of a definition, by way of a request in `file`."""
    file.write_text(json.dumps({"definitions": [request]}))
    return subprocess.run(
        [sys.executable, "-I", CHILD, "do", phase, file], capture_output=True, text=True, check=False, env=env
    )


def planned(name: str, *benchmarks: dict[str, Any]) -> dict[str, Any]:
    """Return the answer about the first benchmark of one of our folders."""
    (answer,) = answers(definition(FOLDERS / name, *benchmarks))
    first: dict[str, Any] = answer["benchmarks"][0]
    return first


def words(name: str, *benchmarks: dict[str, Any]) -> dict[str, str]:
    """Return the command line of each process of the first benchmark, `D` for its folder and `V` for its environment."""
    return {
        key: " ".join(process["words"]).replace(str(FOLDERS / name), "D").replace(DIRS["venv"], "V")
        for key, process in planned(name, *benchmarks)["processes"].items()
    }
