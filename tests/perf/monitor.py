"""What watching costs: `python tests/perf/monitor.py [SECONDS]`.

Prints the CPU that a monitor takes, as a share of one core, beside a group of eight steps with a simulated GPU each
(devices ten times a second, processes once; the promise: at most 1 %), beside one step on a machine without any, and what
its start takes.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

READING = {
    "memory_MiB": [40000, 81920],
    "load": 0.97,
    "power_W": 640.0,
    "sm_clock_MHz": 1755,
    "mem_clock_MHz": 2619,
    "throttle": 4,
    "temperature": 61,
    "ecc": {"corrected": 0, "uncorrected": 0},
    "processes": [],
}


def take(listener: socket.socket, sizes: list[int]) -> None:
    """Read what comes to one sink."""
    connection, _ = listener.accept()
    with connection:
        while data := connection.recv(1 << 16):
            sizes.append(len(data))


def cpu_s(pid: int) -> float:
    """Processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def watched(folder: Path, count: int, seconds: float, *, simulated: bool) -> tuple[float, float, int]:
    """Start-up CPU, CPU per second after it, and bytes a second, of a monitor of so many steps."""
    loads = [subprocess.Popen(["sleep", str(seconds + 60)]) for _ in range(count)]
    sizes: list[int] = []
    steps = []
    for number, load in enumerate(loads):
        path = str(folder / f"{count}-{number}")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()
        threading.Thread(target=take, args=(listener, sizes), daemon=True).start()
        steps.append({"step": f"s.D{number}", "sink": f"unix:{path}", "pid": load.pid, "devices": [number]})
    devices = folder / "devices.json"
    devices.write_text(json.dumps({"count": count, "devices": [{"uuid": "SIM", "readings": [READING]}]}))
    words = ["--simulated", str(devices)] if simulated else ["--arch", "cpu"]
    monitor = subprocess.Popen([sys.executable, "-I", "-m", "benchmate.monitors", *words], stdin=subprocess.PIPE)
    assert monitor.stdin is not None
    monitor.stdin.write(json.dumps({"steps": steps}).encode())
    monitor.stdin.close()
    time.sleep(2)
    start_s, begin, bytes_before = cpu_s(monitor.pid), time.monotonic(), sum(sizes)
    time.sleep(seconds)
    used = (cpu_s(monitor.pid) - start_s) / (time.monotonic() - begin)
    rate = (sum(sizes) - bytes_before) / (time.monotonic() - begin)
    for process in (monitor, *loads):
        process.kill()
        process.wait()
    return start_s, used, round(rate)


def main(seconds: float) -> None:
    with tempfile.TemporaryDirectory(prefix="mb") as folder:
        start_s, used, rate = watched(Path(folder), 8, seconds, simulated=True)
        print(f"8 simulated GPUs, 8 steps: {used:.2%} of a core, {rate / 1000:.1f} kB/s; start-up {start_s:.2f} s CPU")
        start_s, used, rate = watched(Path(folder), 1, seconds, simulated=False)
        print(f"host only, 1 step: {used:.2%} of a core, {rate / 1000:.1f} kB/s; start-up {start_s:.2f} s CPU")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 20.0)
