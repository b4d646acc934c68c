"""How fast the ranks of a job exchange data: each collective at each size, and what it moves across the bus.

Sizes and the bandwidth of the bus are counted as NCCL's tests count them: a size is that of the largest buffer of a rank
(of an all-gather the output), and the share of it that crosses the bus per rank makes operations and numbers of ranks
comparable. The time is the slowest rank's. At each size every bit of several results is compared with what it must be.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from command import sizes, whole
from known_answers import FORMATS, describe_difference, differs
from timing import Ranks, report_rate, the_device, time_call

import benchmate
from benchmate.ops.collectives import BUS
from benchmate.ops.device import TorchDevice
from benchmate.session import current

ELEMENT = 4  # bytes of a number in single precision
OPERATIONS = {
    "all_reduce": BUS["all_reduce"],
    "all_gather": BUS["all_gather_into_tensor"],
    "reduce_scatter": BUS["reduce_scatter_tensor"],
    "all_to_all": BUS["all_to_all_single"],
    "broadcast": BUS["broadcast"],
    "send_recv": lambda _: 1.0,  # each rank sends to the next one and receives from the one before
}
CHECKS = 10  # results that are compared before an operation is timed at a size, and as many after it
BY_SENDER = ("all_gather", "all_to_all")  # whose result has a part from each rank
SMALL = 4096  # sums of numbers of up to this many ranks are exact in single precision


@dataclass(frozen=True)
class Exchange:
    """One collective, ready to run; `result` is where it puts what `expected` says, which `call` needs `reset` to show."""

    call: Callable[[], object]
    reset: Callable[[], object]
    result: torch.Tensor
    expected: torch.Tensor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", default=",".join(OPERATIONS), help=f"of {','.join(OPERATIONS)}")
    parser.add_argument("--smallest", type=whole, default=1024, help="bytes; sizes grow by --factor up to --largest")
    parser.add_argument("--largest", type=whole, default=2**20)
    parser.add_argument("--factor", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=0.5, help="longest time for each number")
    args = parser.parse_args()
    names = args.operations.split(",")
    if unknown := [name for name in names if name not in OPERATIONS]:
        parser.error(f"--operations: unknown operation '{unknown[0]}'; there are {', '.join(OPERATIONS)}")
    if args.factor < 2 or args.smallest > args.largest:
        parser.error("--smallest must be at most --largest, and --factor at least 2")

    device = the_device()
    ranks = Ranks(device)
    ranks.require(2, "a collective")
    for name in names:
        ladder = sizes(args.smallest, args.largest, args.factor, ELEMENT * ranks.count)
        for size in ladder:
            exchange = exchanges(name, size // ELEMENT, device, ranks)
            check(name, size, exchange, device, ranks)
            timed = time_call(exchange.call, device, args.seconds, agree=ranks.slowest)
            check(name, size, exchange, device, ranks)
            if ranks.is_first:
                seconds = timed.estimate.median
                params = {"bytes": size, "ranks": ranks.count}
                crossing = size * OPERATIONS[name](ranks.count) / 1e9
                # The headline is what the links give when they are full.
                report_rate("bus_bandwidth", crossing, "GB/s", timed, name, params, main=size == ladder[-1])
                benchmate.metric("time", seconds, "s", "lower", case=name, params=params, main=False)
    ranks.leave()
    current().finish()


def exchanges(name: str, count: int, device: TorchDevice, ranks: Ranks) -> Exchange:
    """An operation on `count` numbers, of which the rank's own part says whose it was and where it stood."""
    n, rank = ranks.count, ranks.rank

    def numbers(owner: int) -> torch.Tensor:
        return (torch.arange(count, device=device.device) % SMALL + owner).float()

    # Newer releases of torch have new names for these two.
    gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
    scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
    part = count // n
    mine = numbers(rank)
    sums = numbers(0) * n + n * (n - 1) / 2
    if name == "all_reduce":
        # Summing sums would grow without bound: the one that is timed sums zeros once the check is over.
        work = mine.clone()
        return Exchange(functools.partial(dist.all_reduce, work), lambda: work.copy_(mine), work, sums)
    if name == "all_gather":
        given, got = mine[:part].clone(), torch.empty(part * n, device=device.device)
        whole_result = torch.cat([numbers(owner)[:part] for owner in range(n)])
        return Exchange(functools.partial(gather, got, given), got.zero_, got, whole_result)
    if name == "reduce_scatter":
        got = torch.empty(part, device=device.device)
        own = slice(rank * part, (rank + 1) * part)
        return Exchange(functools.partial(scatter, got, mine), got.zero_, got, sums[own])
    if name == "all_to_all":
        got = torch.empty(count, device=device.device)
        own = slice(rank * part, (rank + 1) * part)
        whole_result = torch.cat([numbers(owner)[own] for owner in range(n)])
        return Exchange(functools.partial(dist.all_to_all_single, got, mine), got.zero_, got, whole_result)
    if name == "broadcast":
        work = mine.clone()
        return Exchange(functools.partial(dist.broadcast, work, 0), lambda: work.copy_(mine), work, numbers(0))
    got = torch.empty(count, device=device.device)
    before, after = (rank - 1) % n, (rank + 1) % n

    def pass_on() -> None:
        for request in dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, mine, after), dist.P2POp(dist.irecv, got, before)]
        ):
            request.wait()

    return Exchange(pass_on, got.zero_, got, numbers(before))


def check(name: str, size: int, exchange: Exchange, device: TorchDevice, ranks: Ranks) -> None:
    """Compare results with what they must be, and leave zeros where a sum would grow; ends all ranks where one is wrong."""
    finding = ""
    for _ in range(CHECKS):
        exchange.reset()
        exchange.call()
        device.synchronize()
        if not finding and differs(exchange.result, exchange.expected):
            rows = ranks.count if name in BY_SENDER else 1
            finding = describe_difference(
                FORMATS["fp32"], exchange.result.view(rows, -1), exchange.expected.view(rows, -1)
            )
    if name == "all_reduce":
        exchange.result.zero_()
    hint = ", rows are the ranks that sent" if name in BY_SENDER else ""
    ranks.end_if_wrong(f"collectives: {name} of {size} bytes{hint}", finding)


if __name__ == "__main__":
    main()
