"""Which links are bad, and which pairs of ranks exchange data in which round: arithmetic on numbers, without torch.

Links are compared with links of their own kind: on one node, between nodes on the same rail (the same local rank), between
nodes across rails. A link is bad when it is slower than the median of its kind by more than a limit, and by more than OUTLYING
deviations of logarithms, made of their median absolute deviation, so that bad links do not hide each other.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

OUTLYING = 3.5  # deviations; the usual limit for scores made of medians
OF_NORMAL = 1.4826  # of a normal distribution, the standard deviation by the median absolute deviation
FEWEST = 3  # links of a kind that can be compared


@dataclass(frozen=True)
class Place:
    """Where a rank runs."""

    host: str
    local_rank: int

    def __str__(self) -> str:
        return f"{self.host}:{self.local_rank}"


@dataclass(frozen=True)
class Link:
    """Two ranks and the GB/s that each of them sent to the other, both directions at once."""

    first: int
    second: int
    kind: str
    bandwidth: float

    def __str__(self) -> str:
        return f"{self.first}-{self.second}"


@dataclass(frozen=True)
class BadLink:
    """A link that is much slower than the median of its kind."""

    link: Link
    median: float
    deviations: float


def rounds(count: int) -> Iterator[list[tuple[int, int]]]:
    """All pairs of `count` ranks, in rounds in which no rank is twice: the schedule of a tournament."""
    ring = list(range(count + count % 2))  # where the number is odd, whoever meets the last one waits
    for _ in range(len(ring) - 1):
        pairs = [tuple(sorted((ring[i], ring[-1 - i]))) for i in range(len(ring) // 2)]
        yield [(a, b) for a, b in pairs if b < count]
        ring[1:] = [ring[-1], *ring[1:-1]]


def kind_of(first: Place, second: Place) -> str:
    """What a link between two places can be compared with."""
    if first.host == second.host:
        return "node"
    return "rail" if first.local_rank == second.local_rank else "across"


def bad_links(links: Sequence[Link], limit: float) -> list[BadLink]:
    """Those much slower than the median of their kind, the worst first. Where a kind has fewer than three, none is bad."""
    by_kind: Mapping[str, list[Link]] = defaultdict(list)
    for link in links:
        by_kind[link.kind].append(link)
    bad = []
    for alike in by_kind.values():
        if len(alike) < FEWEST:
            continue
        middle = median(link.bandwidth for link in alike)
        # Of logarithms: on a scale that ends at zero a link that is a thousand times slower may lie within the scatter.
        deviation = OF_NORMAL * median(abs(math.log(link.bandwidth / middle)) for link in alike)
        for link in alike:
            below = math.log(middle / link.bandwidth)
            if link.bandwidth < (1 - limit) * middle and below > OUTLYING * deviation:
                bad.append(BadLink(link, middle, below / deviation if deviation else math.inf))
    return sorted(bad, key=lambda found: found.link.bandwidth / found.median)


def describe(found: BadLink, places: Sequence[Place]) -> str:
    link = found.link
    return (
        f"bad link: ranks {link} ({places[link.first]} and {places[link.second]}): {link.bandwidth:.3g} GB/s, "
        f"where the median of its kind ({link.kind}) is {found.median:.3g} GB/s"
    )
