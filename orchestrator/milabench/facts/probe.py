"""Asks a machine for its facts, through the agent."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from milabench.devices.registry import ARCHS
from milabench.errors import Unreachable
from milabench.facts.model import Device, Node

AGENT = Path(__file__).resolve().parent.parent / "execute" / "agent" / "__main__.py"

ANSWER_S = 120.0
"""Limit for the facts of this machine. Eight boards without persistence mode take tens of seconds."""


def agent_command(*words: str) -> list[str]:
    """Return the command that runs the agent on this machine. It needs nothing but the standard library."""
    # -I and -S keep the user's environment and site-packages out: they can slow or break a start; -u, for it is read by
    # line.
    return [sys.executable, "-u", "-I", "-S", str(AGENT), *words]


class LocalProbe:
    """A query of the machine we are on. Other work can be done until it has answered."""

    def __init__(self) -> None:
        command = agent_command("facts")
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._output: tuple[str, str] | None = None

    def answer(self) -> Node:
        """Return the facts of this machine. Raises Unreachable when the agent cannot answer."""
        if self._output is None:
            try:
                self._output = self._process.communicate(timeout=ANSWER_S)
            except subprocess.TimeoutExpired:
                self._process.kill()  # not waited for: in a call of the driver it may not end
                why = f"it did not answer in {ANSWER_S:g} s. Does the accelerators' driver answer (nvidia-smi)?"
                raise Unreachable(f"local: the agent could not describe this machine: {why}") from None
        facts, errors = self._output
        if self._process.returncode != 0:
            last = (errors.strip().splitlines() or ["no answer"])[-1]
            raise Unreachable(f"local: the agent could not describe this machine: {last}")
        return parse_facts(json.loads(facts))


@cache
def this_machine() -> LocalProbe:
    """Return the machine we are on, asked when this is first called, and once in the life of a command."""
    return LocalProbe()


def parse_facts(answer: Mapping[str, Any], *, name: str = "local") -> Node:
    """Return the agent's answer to `facts` as a Node. Unknown facts stay empty, with the reason in `details`."""
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
        # An agent that is newer than we are may know vendors that we do not.
        if device.get("arch") in ARCHS
    )
    cpu = answer.get("cpu") or {}
    known = {"hostname", "os", "kernel", "python", "cpu", "memory_mib", "devices"}
    words: dict[str, Any] = {key: str(answer.get(key) or "") for key in ("hostname", "os", "kernel", "python")}
    return Node(
        name=name,
        cpu_model=str(cpu.get("model") or ""),
        cpu_count=max(1, int(cpu.get("count") or 1)),
        memory_mib=int(answer.get("memory_mib") or 0),
        **words,
        devices=devices,
        details={"cpu": dict(cpu), **{key: value for key, value in answer.items() if key not in known}},
    )
