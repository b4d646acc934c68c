"""What many nodes cost the orchestrator: connecting to them, watching them, taking what they say; against servers of asyncssh.

The servers, in a process of their own, speak as agents do and do no work, so that what is seen is our side alone.

    python tests/perf/nodes.py [--full]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import asyncssh

from milabench.events.run_writer import create_run
from milabench.execute.engine import ExecutionSettings, execute
from milabench.execute.remote_host import RemoteHost, remote_node
from milabench.execute.ssh import Address
from milabench.plan.model import Plan, Step

RECORD = b'{"event":"data","data":{"task":"train","rate":%d,"units":"items/s","elapsed":0.001,"n":1},"pipe":"data","t":1.0}\n'


# ------------------------------------------------------------------------------------------------------------ the servers


async def serve(count: int, key: str) -> None:
    """Listens on so many ports until standard input ends; prints the ports."""
    host_key = asyncssh.generate_private_key("ssh-ed25519")
    servers = [
        await asyncssh.listen(
            "127.0.0.1",
            0,
            server_host_keys=[host_key],
            authorized_client_keys=f"{key}.pub",
            process_factory=agent,
            encoding=None,
        )
        for _ in range(count)
    ]
    told = {"ports": [server.get_port() for server in servers], "key": host_key.export_public_key().decode()}
    print(json.dumps(told), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for server in servers:
        server.close()


async def agent(process: asyncssh.SSHServerProcess[bytes]) -> None:
    """Answers as an agent would whose steps do as their command says: `run SECONDS RECORDS_A_SECOND`."""
    assert process.command is not None
    sign = re.findall(r"milabench-boot-\w+", process.command)[0]
    process.stdout.write(f"{sign} ready\n".encode())
    frame(process, "hello", {"pid": 1})
    running = []
    while line := await process.stdin.readline():
        request = json.loads(line)
        if request["verb"] == "start":
            frame(process, "reply", {"id": request["id"], "ok": True, "pid": 1, "pgid": 1, "pid_start": 1})
            running.append(asyncio.create_task(step(process, request)))
        elif request["verb"] != "beat":
            frame(process, "reply", {"id": request["id"], "ok": True, "cpu_s": 0.0})
    process.exit(0)


async def step(process: asyncssh.SSHServerProcess[bytes], request: dict[str, Any]) -> None:
    """One step: its records in batches of a fifth of a second, then its end."""
    seconds, rate = float(request["argv"][1]), int(request["argv"][2])
    began, sent = time.monotonic(), 0
    while sent < seconds * rate or time.monotonic() - began < seconds:
        due = min(int(seconds * rate), int((time.monotonic() - began) * rate))
        if due > sent:
            frame(
                process, "obs", b"".join(RECORD % n for n in range(sent, due)), step=request["step"], count=due - sent
            )
            await process.stdout.drain()
            sent = due
        await asyncio.sleep(0.2)
    frame(process, "ended", {"outcome": "passed", "why": None, "detail": None, "reasons": []}, step=request["step"])


def frame(process: asyncssh.SSHServerProcess[bytes], kind: str, payload: Any, **more: Any) -> None:
    """Sends one frame."""
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    process.stdout.write(json.dumps({"k": kind, "n": len(data), **more}).encode() + b"\n" + data)


# -------------------------------------------------------------------------------------------------------------- our side


def resident_mib() -> float:
    """Memory that this process has at this moment."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


async def run_on_all(
    addresses: Sequence[Address], base: Path, seconds: float, rate: int
) -> tuple[float, float, float, int]:
    """Seconds until all had run a trivial step, memory then, our CPU share while steps ran, and records that were written."""
    before, began = resident_mib(), time.monotonic()
    machines = [RemoteHost(address) for address in addresses]
    nodes = {each.name: remote_node(each, "perf") for each in machines}
    await asyncio.gather(*(node.open() for node in nodes.values()))
    writer = create_run(base, "perf", datetime.now())
    await execute(plan(addresses, "trivial", 0, 0), nodes, writer, lambda _: None, ExecutionSettings())
    took = time.monotonic() - began
    gc.collect()
    memory = resident_mib() - before
    cpu, began = time.process_time(), time.monotonic()
    await execute(plan(addresses, "long", seconds, rate), nodes, writer, lambda _: None, ExecutionSettings())
    share = (time.process_time() - cpu) / (time.monotonic() - began)
    await asyncio.gather(*(node.close() for node in nodes.values()))
    await asyncio.gather(*(machine.close() for machine in machines))
    writer.close()
    found = sum(path.read_bytes().count(b'"rate"') for path in writer.path.glob("long*.data"))
    return took, memory, share, found


def plan(addresses: Sequence[Address], name: str, seconds: float, rate: int) -> Plan:
    """One step on each node, all at the same time."""
    argv = ("run", str(seconds), str(rate))
    made = (
        Step(id=f"{name}.{each.name}", bench=name, phase="run", argv=argv, node=each.name, group=name)
        for each in addresses
    )
    return Plan(phase="run", steps=tuple(made))


def measured(count: int, seconds: float, rate: int) -> tuple[float, float, float, int]:
    """`run_on_all` against that many new servers."""
    with tempfile.TemporaryDirectory() as folder:
        key = Path(folder, "id")
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        words = [sys.executable, __file__, "--serve", str(count), "--key", str(key)]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as servers:
            assert servers.stdout is not None
            told = json.loads(servers.stdout.readline())
            known = Path(folder, "known_hosts")
            known.write_text("".join(f"[127.0.0.1]:{port} {told['key'].strip()}\n" for port in told["ports"]))
            addresses = [
                Address(name=f"n{number}", host="127.0.0.1", port=port, key=str(key), known_hosts=str(known))
                for number, port in enumerate(told["ports"])
            ]
            return asyncio.run(run_on_all(addresses, Path(folder), seconds, rate))


def main() -> int:
    """Prints the figures; 1 when one is beyond what we promise."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true", help="ten seconds of records, not two")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--key", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        asyncio.run(serve(arguments.serve, arguments.key))
        return 0
    seconds = 10.0 if arguments.full else 2.0
    measured(2, 0.1, 0)  # what is imported once
    few, *_ = measured(50, 0.1, 0)
    many, memory, share, _ = measured(200, 10.0, 0)
    nodes, rate = 64, 1000
    _, _, busy, found = measured(nodes, seconds, rate)
    wanted = int(nodes * rate * seconds)
    checks = [
        (
            many / few <= 5,
            f"a trivial step on 200 nodes: {many:.2f} s, on 50: {few:.2f} s, ratio {many / few:.1f} (at most 5)",
        ),
        (memory / 200 < 3, f"memory: {memory / 200:.2f} MiB a node (under 3)"),
        (share < 0.05, f"while 200 steps run: {share:.1%} of a core (under 5%)"),
        (
            found == wanted,
            f"{nodes} nodes at {rate} records/s for {seconds:g} s: {found} of {wanted} kept, {busy:.0%} of a core",
        ),
    ]
    for is_kept, text in checks:
        print(f"{'ok  ' if is_kept else 'BAD '} {text}")
    return 0 if all(is_kept for is_kept, _ in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
