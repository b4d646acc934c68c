"""How many bytes a second memory moves: the four kernels of STREAM, and copies between host and devices.

STREAM's kernels are timed on the device (`--where device`) or the host's processors (`--where host`, and there again for
each NUMA node alone where there are several). A kernel counts the bytes that it names, 8 each: copy (c = a) and scale
(b = s c) two arrays, add (c = a + b) and triad (a = b + s c) three. `copies` are those from host to device and back, of
page-locked and of pageable memory; `peers`, from each device of this machine to each other.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from command import missing, whole, wrong
from known_answers import FORMATS, describe_difference, differs
from timing import device_name, report_rate, the_device, time_call

import benchmate
from benchmate.ops.device import TorchDevice
from benchmate.ops.sampling import SampledTime
from benchmate.session import current

SEED = 1
SCALAR = 3.0
ARRAYS = {"copy": 2, "scale": 2, "add": 3, "triad": 3}
ELEMENT = 8  # bytes of a number in double precision
LARGEST = 2**40  # of the whole numbers in arrays: fifteen times as much is still exact
GB = 1e9
NODES = Path("/sys/devices/system/node")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--where", choices=["device", "host", "copies", "peers"], default="device")
    parser.add_argument("--bytes", type=whole, default=64 * 2**20, help="of an array, or of what is copied")
    parser.add_argument("--seconds", type=float, default=1.0, help="longest time for each number")
    parser.add_argument("--numa-node", type=int, help="use only this node's processors, and print the numbers as JSON")
    args = parser.parse_args()

    if args.numa_node is not None:
        os.sched_setaffinity(0, numa_nodes()[args.numa_node])
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        rates = stream(the_device("cpu"), args.bytes, args.seconds)
        print(json.dumps({kernel: timed.estimate.median for kernel, timed in rates.items()}))
        return
    if args.where == "device":
        report_stream("device", the_device(), args)
    elif args.where == "host":
        report_stream("host", the_device("cpu"), args)
        report_numa_nodes(args)
    elif args.where == "copies":
        copies(the_device(), args.bytes, args.seconds)
    else:
        peers(args.bytes, args.seconds)
    current().finish()


def report_stream(place: str, device: TorchDevice, args: argparse.Namespace) -> None:
    for kernel, timed in stream(device, args.bytes, args.seconds).items():
        params = {"where": place, "array_bytes": args.bytes}
        report_rate("bandwidth", ARRAYS[kernel] * args.bytes / GB, "GB/s", timed, kernel, params)


def stream(device: TorchDevice, array_bytes: int, seconds: float) -> dict[str, SampledTime]:
    """The time of each kernel over arrays of double precision; every bit of the results is compared.

    The arrays hold whole numbers, whose sums and products are exact.
    """
    generator = torch.Generator().manual_seed(SEED)
    count = array_bytes // ELEMENT
    start = torch.randint(1, LARGEST, (count,), generator=generator).double()
    a, b, c = (start.to(device.device, copy=True) for _ in range(3))
    kernels: dict[str, tuple[Callable[[], object], torch.Tensor, float]] = {
        "copy": (lambda: c.copy_(a), c, 1.0),
        "scale": (lambda: torch.mul(c, SCALAR, out=b), b, SCALAR),
        "add": (lambda: torch.add(a, b, out=c), c, 1 + SCALAR),
        "triad": (lambda: torch.add(b, c, alpha=SCALAR, out=a), a, SCALAR + SCALAR * (1 + SCALAR)),
    }
    times = {}
    for kernel, (call, result, factor) in kernels.items():
        times[kernel] = time_call(call, device, seconds)
        require_right(result.cpu(), start * factor, f"memory: {device_name(device.device)}: {kernel}")
    return times


def require_right(result: torch.Tensor, right: torch.Tensor, where: str) -> None:
    """End the program where any bit of a result in double precision differs from the right one."""
    if differs(result, right):
        wrong(f"{where}: {describe_difference(FORMATS['fp64'], result.view(1, -1), right.view(1, -1))}")


def report_numa_nodes(args: argparse.Namespace) -> None:
    """STREAM on the processors of each NUMA node alone: memory is the node's own, because the node touches it first."""
    nodes = numa_nodes()
    if len(nodes) < 2:
        benchmate.message(f"memory: {len(nodes)} NUMA node: no numbers for each")
        return
    for node in nodes:
        command = [sys.executable, __file__, "--numa-node", str(node), "--bytes", str(args.bytes)]
        env = {name: value for name, value in os.environ.items() if name not in ("MILABENCH_SINK", "DATA_FD")}
        done = subprocess.run(
            [*command, "--seconds", str(args.seconds)], env=env, stdout=subprocess.PIPE, text=True, check=False
        )
        if done.returncode:
            wrong(f"memory: the program on NUMA node {node} ended with {done.returncode}")
        for kernel, seconds in json.loads(done.stdout.splitlines()[-1]).items():
            rate = ARRAYS[kernel] * args.bytes / seconds / GB
            params = {"where": f"numa{node}", "array_bytes": args.bytes}
            benchmate.metric("bandwidth", rate, "GB/s", "higher", case=kernel, params=params, main=False)
            print(f"bandwidth {kernel} on NUMA node {node}: {rate:.4g} GB/s", flush=True)


def numa_nodes(folder: Path = NODES) -> dict[int, set[int]]:
    """The processors of each NUMA node that this process may use; nodes without any are left out."""
    mine = os.sched_getaffinity(0)
    nodes = {}
    for path in sorted(folder.glob("node[0-9]*"), key=lambda path: int(path.name[4:])):
        if usable := processors((path / "cpulist").read_text()) & mine:
            nodes[int(path.name[4:])] = usable
    return nodes


def processors(text: str) -> set[int]:
    """The numbers in a list such as `0-3,8`."""
    ranges = [part.split("-") for part in text.strip().split(",") if part]
    return {number for ends in ranges for number in range(int(ends[0]), int(ends[-1]) + 1)}


def copies(device: TorchDevice, size: int, seconds: float) -> None:
    """Copies from the host to the device and back."""
    if device.kind == "cpu":
        missing("memory: --where copies needs an accelerator")
    generator = torch.Generator().manual_seed(SEED)
    there = torch.randint(-128, 128, (size,), dtype=torch.int8, generator=generator).to(device.device)
    for is_pinned in (True, False):
        here = torch.empty(size, dtype=torch.int8, pin_memory=is_pinned)
        here.copy_(there)
        target = torch.empty_like(there)
        back = torch.empty(size, dtype=torch.int8, pin_memory=is_pinned)
        directions = {"host_to_device": (target, here), "device_to_host": (back, there)}
        for direction, (to, source) in directions.items():
            # A device copies page-locked memory by itself; the host takes part in the other, and its clock counts.
            call = functools.partial(to.copy_, source, non_blocking=is_pinned)
            timed = time_call(call, device, seconds, "end-to-end")
            if not torch.equal(to.cpu(), here):
                wrong(f"memory: {device_name(there.device)}: a copy {direction} changed {how_many(to.cpu(), here)}")
            kind = "pinned" if is_pinned else "pageable"
            report_rate("bandwidth", size / GB, "GB/s", timed, direction, {"host_memory": kind, "bytes": size})


def how_many(arrived: torch.Tensor, sent: torch.Tensor) -> str:
    """Say how many bytes of a copy are wrong, and the first of them."""
    places = (arrived != sent).nonzero()
    first = int(places[0])
    values = [int(copy[first]) & 255 for copy in (arrived, sent)]
    return (
        f"{len(places)} of {sent.numel()} bytes, the first is byte {first}: {values[0]:#04x} and not {values[1]:#04x}"
    )


def peers(size: int, seconds: float) -> None:
    """Copies from each device of this machine to each other; each is counted once, not read and written."""
    device = the_device()
    count = torch.accelerator.device_count() if device.kind != "cpu" else 0
    if count < 2:
        missing(f"memory: --where peers needs two accelerators in one process, and here are {count}")
    generator = torch.Generator().manual_seed(SEED)
    host = torch.randint(-128, 128, (size,), dtype=torch.int8, generator=generator)
    for source, to in itertools.permutations(range(count), 2):
        torch.accelerator.set_device_index(source)
        sent, got = (
            host.to(f"{device.kind}:{source}"),
            torch.zeros(size, dtype=torch.int8, device=f"{device.kind}:{to}"),
        )

        def copy(sent: torch.Tensor = sent, got: torch.Tensor = got, to: int = to) -> None:
            got.copy_(sent, non_blocking=True)
            torch.accelerator.synchronize(to)

        timed = time_call(copy, device, seconds, "end-to-end")
        if not torch.equal(got.cpu(), host):
            wrong(
                f"memory: a copy from {device_name(sent.device)} to {device_name(got.device)} changed "
                f"{how_many(got.cpu(), host)}"
            )
        report_rate("bandwidth", size / GB, "GB/s", timed, f"{source}>{to}", {"bytes": size})


if __name__ == "__main__":
    main()
