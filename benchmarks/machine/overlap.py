"""How much of the communication hides behind computation: matrix products alone, an all-reduce alone, both at once.

The products are as many as take about as long as the all-reduce. Overlap is the time saved by the shorter of the two:
1 when it is hidden wholly, 0 when both take as long as one after the other; below 0 they hinder each other.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
import torch.distributed as dist
from command import whole, wrong
from timing import Ranks, the_device, time_call

import benchmate
from benchmate.session import current

SEED = 1
MOST = 10000  # products


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=whole, default=2**22, help="of the all-reduce")
    parser.add_argument("--size", type=int, default=256, help="rows and columns of the matrices")
    parser.add_argument("--seconds", type=float, default=1.0, help="longest time for each number")
    args = parser.parse_args()
    device = the_device()
    ranks = Ranks(device)
    ranks.require(2, "communication")
    dtype = torch.float32 if device.kind == "cpu" else torch.bfloat16
    generator = torch.Generator().manual_seed(SEED + ranks.rank)
    a, b = (torch.randn(args.size, args.size, generator=generator).to(device.device, dtype) for _ in range(2))
    product = torch.empty_like(a)
    message = torch.zeros(max(1, args.bytes // dtype.itemsize), device=device.device, dtype=dtype)

    def timed(call: Callable[[], object]) -> float:
        # End to end: what counts is when both are done, on whichever stream.
        return time_call(call, device, args.seconds, "end-to-end", ranks.slowest).estimate.median

    def communicate() -> None:
        dist.all_reduce(message, async_op=True).wait()

    check(message, ranks)
    communication_s = timed(communicate)
    one_s = timed(lambda: torch.matmul(a, b, out=product))
    count = max(1, min(MOST, round(communication_s / one_s)))

    def compute() -> None:
        for _ in range(count):
            torch.matmul(a, b, out=product)

    def both() -> None:
        request = dist.all_reduce(message, async_op=True)
        compute()
        request.wait()

    computation_s = timed(compute)
    both_s = timed(both)
    if not torch.equal(product, torch.matmul(a, b)):
        wrong(f"overlap: {ranks.place}: a matrix product made while data were exchanged differs from one made alone")
    check(message, ranks)
    if ranks.is_first:
        params = {"bytes": message.nbytes, "size": args.size, "products": count, "ranks": ranks.count}
        share = overlap(computation_s, communication_s, both_s)
        benchmate.metric("overlap", share, "share", "higher", params=params, main=False)
        print(f"overlap: {share:.3f} ({params})")
        for case, seconds in {"computation": computation_s, "communication": communication_s, "both": both_s}.items():
            benchmate.metric("time", seconds, "s", "lower", case=case, params=params, main=case == "both")
            print(f"{case}: {seconds * 1e3:.4g} ms")
    ranks.leave()
    current().finish()


def overlap(computation_s: float, communication_s: float, both_s: float) -> float:
    """The share of the shorter time that is saved when both are done at once."""
    return (computation_s + communication_s - both_s) / min(computation_s, communication_s)


def check(message: torch.Tensor, ranks: Ranks) -> None:
    """Sum something that every rank knows the sum of; what is timed sums zeros, which do not grow."""
    message.fill_(ranks.rank + 1)
    dist.all_reduce(message)
    if not torch.equal(message, torch.full_like(message, ranks.count * (ranks.count + 1) // 2)):
        wrong(f"overlap: {ranks.place}: an all-reduce over {ranks.count} ranks gave {message.unique().tolist()[:4]}")
    message.zero_()


if __name__ == "__main__":
    main()
