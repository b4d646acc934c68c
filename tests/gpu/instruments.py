"""What the instruments cost on an accelerator, and how well they agree with others: prints ratios of one run.

Run with a Python that has torch for CUDA, nvidia-ml-py and benchmate (or PYTHONPATH=benchmate/src). Shown are what only a GPU
can show: the cost of the observer on real training steps (shuffled pairs), what the runner adds to the start of a program that
uses the device, the device's clock against the host's and against the kernels that torch's profiler saw, the board's energy
counter against its power over time, and the memory of the device.
"""

from __future__ import annotations

import itertools
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import torch
from discarding_sink import DiscardingSink
from torch import nn

import benchmate
from benchmate.configuration import parse_config
from benchmate.devices.api import Device
from benchmate.devices.detect import open_vendor, visible
from benchmate.devices.vendors.vendor import Sample
from benchmate.ring import RingEntry, take_entries
from benchmate.session import Session, current, use

ENERGY_S = 20.0
BLOCKS = 100
STARTS = 10
KINDS = ("alone", "alone, again", "loop observed", "loop and loss observed")


class Block(nn.Module):
    """One layer of a transformer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2)])
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.attend(self.norms[0](x)).split(width, dim=2)
        )
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norms[1](x))


class Training:
    """A language model and how it learns: `layers` of `width`, a batch of (rows, length) tokens, bfloat16 where it may."""

    def __init__(self, layers: int, width: int, rows: int, length: int, words: int = 8192) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(
            nn.Embedding(words, width), *(Block(width, width // 64) for _ in range(layers)), nn.Linear(width, words)
        ).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        self.batches = [torch.randint(0, words, (rows, length + 1), device="cuda") for _ in range(4)]

    def loader(self, steps: int) -> Iterator[torch.Tensor]:
        return (self.batches[step % len(self.batches)] for step in range(steps))

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            logits = self.model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss

    def train(self, loader: Iterable[torch.Tensor], observe_loss: bool = False) -> None:
        for tokens in loader:
            loss = self.step(tokens)
            if observe_loss:
                benchmate.observe_loss(loss)


def fresh_session() -> None:
    """A session past its warm-up that never ends a loop; its observer has seen that there is a device."""
    rules = {"warmup_steps": 1, "warmup_s": 0, "window_steps": 10**9, "window_s": 10**6}
    use(Session(parse_config({"measure": rules}), DiscardingSink()))
    for _ in benchmate.observed(range(3), batch_size=1):
        torch.zeros(1, device="cuda")
    benchmate._loss_recorders.clear()


def taken_out() -> list[RingEntry]:
    """What the observer of this session has written since it was last asked, complete on the device."""
    torch.cuda.synchronize()
    observer = current().observer("train", "items/s")
    observer._writer.settle()
    return list(take_entries(observer.ring.memory))


def wall_s(function: Callable[[], None]) -> float:
    """Seconds from an idle device to an idle device."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    function()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def overhead(name: str, training: Training, steps: int, blocks: int) -> None:
    """The same steps alone, again alone (for the noise), with the loop observed, and with the loss observed too."""

    def once(kind: str) -> float:
        loader: Iterable[torch.Tensor] = training.loader(steps)
        if kind.startswith("loop"):
            loader = benchmate.observed(loader, batch_size=1)
        return wall_s(lambda: training.train(loader, observe_loss=kind == "loop and loss observed")) / steps

    fresh_session()
    for kind in KINDS:
        once(kind)
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    order = list(KINDS)
    shuffle = random.Random(0).shuffle
    for _ in range(blocks):
        shuffle(order)
        for kind in order:
            times[kind].append(once(kind))
        taken_out()
    print(f"{name}: wall time of a step, {blocks} shuffled blocks of {steps} steps, difference paired by block")
    for kind in KINDS:
        differences = [b / a - 1 for a, b in zip(times["alone"], times[kind], strict=True)]
        middle = statistics.median(differences)
        half = 1.96 * 1.2533 * statistics.stdev(differences) / math.sqrt(blocks)
        print(f"  {kind:24} {statistics.median(times[kind]) * 1e3:8.3f} ms   {middle:+.3%} +- {half:.3%}")


def agreement(name: str, training: Training, steps: int) -> None:
    """The rate by device events against the one by the wall, and against the kernels' timeline of torch's profiler."""
    fresh_session()
    training.train(training.loader(10))
    taken_out()
    wall = wall_s(lambda: training.train(benchmate.observed(training.loader(steps), batch_size=1)))
    entries = [entry for entry in taken_out() if entry.device_ns >= 0]
    device = sum(entry.device_ns for entry in entries) / 1e9
    print(f"{name}: {len(entries)} of {steps} steps on the device's clock: {device:.4f} s of {wall:.4f} s of wall time")
    if torch.profiler.ProfilerActivity.CUDA not in torch.profiler.supported_activities():
        print("  not compared with kernels: this torch's profiler does not see them")
        return
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        training.train(benchmate.observed(training.loader(steps), batch_size=1))
        torch.cuda.synchronize()
    entries = [entry for entry in taken_out() if entry.device_ns >= 0]
    device = sum(entry.device_ns for entry in entries) / 1e9
    kernels = [
        (event.start_ns(), event.start_ns() + event.duration_ns())
        for event in profile.profiler.kineto_results.events()
        if event.device_type() == torch.autograd.DeviceType.CUDA
    ]
    if not kernels:
        print("  not compared with kernels: the profiler saw none; may this process use CUPTI?")
        return
    timeline = (max(stop for _, stop in kernels) - min(start for start, _ in kernels)) / 1e9
    print(f"  under the profiler: events {device:.4f} s, first to last of {len(kernels)} kernels {timeline:.4f} s,")
    print(f"  events / kernels: {device / timeline:.4f}")


def energy(training: Training, device: Device) -> None:
    """The energy counter against the trapezoid over power at 10 Hz, while the device works."""
    samples: list[tuple[float, Sample]] = []
    over = threading.Event()

    def sample() -> None:
        while not over.wait(0.1):
            samples.append((time.perf_counter(), device.sample()))

    thread = threading.Thread(target=sample)
    start = time.perf_counter()
    thread.start()
    while time.perf_counter() - start < ENERGY_S:
        training.train(training.loader(20))
        torch.cuda.synchronize()
    over.set()
    thread.join()
    middle = [(at, one) for at, one in samples if one.power_w is not None and one.energy_j is not None]
    middle = [pair for pair in middle if pair[0] - start > 3]  # the first seconds are the rise
    if len(middle) < 2:
        print(
            f"energy: not compared: of {len(samples)} samples {len(middle)} have power and energy; {dict(device.absent)}"
        )
        return
    counted = (middle[-1][1].energy_j or 0) - (middle[0][1].energy_j or 0)
    integrated = sum(
        (b - a) * ((x.power_w or 0) + (y.power_w or 0)) / 2 for (a, x), (b, y) in itertools.pairwise(middle)
    )
    seconds = middle[-1][0] - middle[0][0]
    clocks = sorted({one.sm_clock_mhz for _, one in middle if one.sm_clock_mhz is not None}) or ["unknown"]
    reasons = sorted({reason for _, one in middle for reason in one.throttle or ()})
    print(f"energy over {seconds:.1f} s: counter {counted:.0f} J, power over time {integrated:.0f} J")
    print(
        f"  counter / power: {counted / integrated:.4f}; load {statistics.mean(one.load or 0 for _, one in middle):.2f}"
    )
    print(f"  SM clocks {clocks[0]} to {clocks[-1]} MHz, reasons {reasons}")


def memory(device: Device) -> None:
    """The device's memory as NVML and as the framework have it, and an allocation that both must see."""
    total = torch.cuda.get_device_properties(0).total_memory / 2**20
    before = device.sample()
    held = torch.empty(2**33, dtype=torch.uint8, device="cuda").fill_(1)
    torch.cuda.synchronize()
    after = device.sample()
    grown = (after.memory_used_mib or 0) - (before.memory_used_mib or 0)
    print(f"memory: {after.memory_total_mib:.0f} MiB by the driver, {total:.0f} MiB by the framework")
    print(f"  8192 MiB allocated: the driver sees {grown:.0f} MiB more; absent readings {dict(device.absent)}")
    del held
    torch.cuda.empty_cache()


# Says the most memory that it had on the host (of wait4's figure its parent's is a part), and what is in use on the device.
PROGRAM = """
import torch
torch.zeros(1, device="cuda")
torch.cuda.synchronize()
free, total = torch.cuda.mem_get_info()
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(peak.split()[1]) / 2**10, (total - free) / 2**20)
"""


def started(command: list[str]) -> tuple[float, float, float]:
    """(CPU seconds, MiB of the host at most, MiB of the device) of a program from its start to its end."""
    with tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert child.stdout is not None
        said = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            errors.seek(0)
            sys.exit(f"gpu.py: {' '.join(command)} ended with {child.returncode}:\n{errors.read()}")
    host, device = said.split()[-2:]
    return usage.ru_utime + usage.ru_stime, float(host), float(device)


def start_up() -> None:
    """A program that touches the device, under Python and under the runner, in turn."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "touch.py")
        script.write_text(PROGRAM)
        commands = {
            "python": [sys.executable, str(script)],
            "runner": [sys.executable, "-m", "benchmate.run", str(script)],
        }
        found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in commands}
        for round_ in range(-1, STARTS):
            for name, command in commands.items():
                one = started(command)
                if round_ >= 0:
                    found[name].append(one)
    print(f"start of a program that touches the device, medians of {STARTS} in turn")
    for name, each in found.items():
        cpu, host, device = (statistics.median(column) for column in zip(*each, strict=True))
        print(f"  {name:8} {cpu:.3f} s of CPU, host {host:.0f} MiB at most, device {device:.0f} MiB in use")
    more = statistics.median(b[0] - a[0] for a, b in zip(found["python"], found["runner"], strict=True))
    print(f"  paired: {more * 1e3:+.0f} ms of CPU")


def main() -> None:
    if not torch.cuda.is_available():
        sys.exit("gpu.py: torch sees no CUDA device here")
    vendor, trouble = open_vendor("auto", {})
    devices = visible(vendor.devices, os.environ, vendor.arch)
    if not devices:
        sys.exit(f"gpu.py: no device to read: {trouble or 'none is visible'}")
    device = devices[0]
    print(f"{device.name}, torch {torch.__version__}", flush=True)
    start_up()  # while this process has nothing on the device: what is in use there is theirs
    memory(device)
    large = Training(layers=12, width=1024, rows=16, length=512)
    small = Training(layers=0, width=128, rows=4, length=64, words=512)  # an embedding and a projection: about 1 ms
    for name, training, steps in (("device-bound", large, 10), ("launch-bound", small, 100)):
        overhead(name, training, steps, BLOCKS)
        agreement(name, training, 100)
    energy(large, device)


if __name__ == "__main__":
    try:
        main()
    finally:
        DiscardingSink.remove()
