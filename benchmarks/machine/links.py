"""The bandwidth of each link: every pair of ranks exchanges data while the others wait; bad links are named.

What a bad link is says bad_links.py. With --at-once the pairs of a round, which share no rank, exchange data at the same time,
as a network is used.
"""

from __future__ import annotations

import argparse
import itertools
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median

import torch
import torch.distributed as dist
from bad_links import BadLink, Link, Place, bad_links, describe, kind_of, rounds
from command import whole, wrong
from known_answers import FORMATS, describe_difference, differs
from timing import Ranks, device_name, the_device

import benchmate
from benchmate.ops.device import TorchDevice
from benchmate.session import current

ELEMENT = 4
REPEATS = 5  # the best of them counts: what disturbs a link for a moment does not make it bad


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=whole, default=2**20, help="of a message")
    parser.add_argument("--seconds", type=float, default=0.1, help="about how long each pair exchanges messages")
    parser.add_argument("--limit", type=float, default=0.1, help="share of the median by which a link may be slower")
    parser.add_argument("--at-once", action="store_true", help="the pairs of a round at the same time")
    parser.add_argument("--fail", action="store_true", help="a bad link fails the step")
    args = parser.parse_args()
    device = the_device()
    ranks = Ranks(device)
    ranks.require(2, "a link")
    places: list[Place] = [Place("", 0)] * ranks.count
    dist.all_gather_object(places, Place(socket.gethostname(), int(os.environ.get("LOCAL_RANK", "0"))))
    links = sweep(device, ranks, places, args)
    bad = bad_links(links, args.limit)
    if ranks.is_first:
        report(links, bad, places)
    ranks.leave()
    current().finish()
    if bad and args.fail:
        wrong("; ".join(describe(found, places) for found in bad))


def sweep(device: TorchDevice, ranks: Ranks, places: Sequence[Place], args: argparse.Namespace) -> list[Link]:
    """The bandwidth of every pair, known to every rank."""
    mine: dict[tuple[int, int], float] = {}
    for pairs in rounds(ranks.count):
        for together in [pairs] if args.at_once else [[pair] for pair in pairs]:
            for pair in together:
                if ranks.rank in pair:
                    mine[pair] = exchange(pair, device, ranks.rank, args.bytes, args.seconds)
            ranks.wait()
    everyone: list[dict[tuple[int, int], float]] = [{}] * ranks.count
    dist.all_gather_object(everyone, mine)
    # Both ranks of a pair have timed it; the link is as slow as the slower says.
    return [
        Link(*pair, kind_of(places[pair[0]], places[pair[1]]), min(everyone[rank][pair] for rank in pair))
        for pair in sorted(set().union(*everyone))
    ]


def exchange(pair: tuple[int, int], device: TorchDevice, rank: int, size: int, seconds: float) -> float:
    """GB/s that this rank of the pair sent while as much came back."""
    other = pair[1 - pair.index(rank)]
    count = max(1, size // ELEMENT)
    sent = (torch.arange(count, device=device.device) % 4096 + rank).float()
    got = torch.zeros_like(sent)
    call = transfer(sent, got, other)
    call()
    device.synchronize()
    check(got, sent - rank + other, pair, rank)
    # Both ranks must make the same number of messages: the lower one says how many.
    repeats = torch.zeros((), device=device.device)
    if rank < other:
        repeats.fill_(max(1, min(1000, int(seconds / REPEATS / block_s(call, 1, device)))))
    else:
        block_s(call, 1, device)
    # Batched like the messages: with NCCL send() and recv() make another communicator for each pair.
    for request in dist.batch_isend_irecv([dist.P2POp(dist.isend if rank < other else dist.irecv, repeats, other)]):
        request.wait()
    calls = int(repeats.item())
    seconds = min(block_s(call, calls, device) / calls for _ in range(REPEATS))
    check(got, sent - rank + other, pair, rank)
    return count * ELEMENT / seconds / 1e9


def block_s(call: Callable[[], None], count: int, device: TorchDevice) -> float:
    """The seconds of calls in sequence, on the host's clock."""
    device.synchronize()
    begin = time.perf_counter()
    for _ in range(count):
        call()
    device.synchronize()
    return time.perf_counter() - begin


def check(got: torch.Tensor, right: torch.Tensor, pair: tuple[int, int], rank: int) -> None:
    """End the program where anything arrived otherwise than it was sent."""
    if differs(got, right):
        other = pair[1 - pair.index(rank)]
        found = describe_difference(FORMATS["fp32"], got.view(1, -1), right.view(1, -1))
        wrong(f"links: rank {rank} on {device_name(got.device)} got something else than rank {other} sent: {found}")


def transfer(sent: torch.Tensor, got: torch.Tensor, other: int) -> Callable[[], None]:
    """Send to the other rank and receive from it, at the same time."""

    def both_ways() -> None:
        for request in dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, sent, other), dist.P2POp(dist.irecv, got, other)]
        ):
            request.wait()

    return both_ways


def report(links: Sequence[Link], bad: Sequence[BadLink], places: Sequence[Place]) -> None:
    slow = {found.link for found in bad}
    for link in links:
        benchmate.metric(
            "link_bandwidth", link.bandwidth, "GB/s", "higher", case=str(link), main=True, is_bad=link in slow,
            params={"kind": link.kind, "from": str(places[link.first]), "to": str(places[link.second])},
        )  # fmt: skip
    for kind, alike in itertools.groupby(sorted(links, key=lambda link: link.kind), key=lambda link: link.kind):
        values = [link.bandwidth for link in alike]
        print(f"{kind}: {len(values)} links, {min(values):.3g} to {max(values):.3g} GB/s, median {median(values):.3g}")
    benchmate.metric("bad_links", len(bad), "links", "lower", main=False)
    for found in bad:
        text = describe(found, places)
        benchmate.message(text)
        print(text, file=sys.stderr)


if __name__ == "__main__":
    main()
