"""Asks a machine what it is, through the agent, and turns the answer into facts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.errors import Unreachable
from orchestrator.facts.model import ARCHS, Device, Node

AGENT = Path(__file__).resolve().parent.parent / "execute" / "agent.py"


def probe_local() -> Node:
    """The machine we are on. Raises Unreachable when the agent cannot answer."""
    command = [sys.executable, "-I", str(AGENT), "facts"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        raise Unreachable(f"local: the agent could not describe this machine: {last}")
    return parse(json.loads(done.stdout))


def parse(answer: Mapping[str, Any], *, name: str = "local") -> Node:
    """The agent's answer to `facts` as a Node; what it could not find out stays empty, with the reason in `details`."""
    devices = tuple(
        Device(
            index=int(device["index"]),
            uuid=str(device.get("uuid") or f"{device['arch']}-{device['index']}"),
            name=str(device.get("name") or device["arch"]),
            arch=device["arch"],
            memory_mib=int(device.get("memory_mib") or 0),
            details={k: v for k, v in device.items() if k not in ("index", "uuid", "name", "arch", "memory_mib")},
        )
        for device in answer.get("devices") or ()
        if device.get("arch") in ARCHS
    )
    cpu = answer.get("cpu") or {}
    known = {"hostname", "os", "kernel", "python", "cpu", "memory_mib", "devices"}
    return Node(
        name=name,
        hostname=str(answer.get("hostname") or ""),
        cpu_model=str(cpu.get("model") or ""),
        cpu_count=max(1, int(cpu.get("count") or 1)),
        memory_mib=int(answer.get("memory_mib") or 0),
        os=str(answer.get("os") or ""),
        kernel=str(answer.get("kernel") or ""),
        python=str(answer.get("python") or ""),
        devices=devices,
        details={"cpu": dict(cpu), **{key: value for key, value in answer.items() if key not in known}},
    )
