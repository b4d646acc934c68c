"""The ranks of a job that pass, and that the others wait for: who is last into the collectives, and by how much.

Of each step the collective counts into which the ranks come furthest apart. A rank is a straggler when it is last in more than
half of the steps, each time by more than 1 % of a step, and more often than chance would have it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from msgspec import ValidationError, convert

from milabench.analysis.step_results import SharedClocks, StepResult
from milabench.events.model import Verdict
from milabench.records.collectives import RankCollectives

CHECK = "stragglers"
MATTERS = 0.01  # of a step, by which the last rank is behind the one before it
LEAST_STEPS = 20
MOST_SHARES = 8

Entries = Mapping[int, float]
"""When each rank entered a collective, in s."""


def with_stragglers(results: Sequence[StepResult], clocks: SharedClocks) -> tuple[StepResult, ...]:
    """Return the steps of a benchmark, the first of each job with a verdict on its ranks. `clocks` are their nodes' clocks."""
    jobs: dict[object, list[StepResult]] = defaultdict(list)
    for result in results:
        jobs[result.step.repeat if result.step.one_job else result.step.id].append(result)
    verdicts = {members[0].step.id: _verdict(members, clocks) for members in jobs.values()}
    return tuple(
        result
        if (verdict := verdicts.get(result.step.id)) is None
        else replace(result, verdicts=(*result.verdicts, verdict))
        for result in results
    )


def _verdict(members: Sequence[StepResult], clocks: SharedClocks) -> Verdict | None:
    """Return who is last, and each rank's share of the waiting; None where too little is known."""
    steps, step_s = _steps(members, clocks)
    if len(steps) < LEAST_STEPS:
        return None
    times_last: dict[int, int] = defaultdict(int)
    waited: dict[int, float] = defaultdict(float)
    for entered in steps:
        *_, (before_s, _), (last_s, last) = sorted((at_s, rank) for rank, at_s in entered.items())
        times_last[last] += last_s - before_s > MATTERS * step_s
        waited[last] += math.fsum(last_s - at_s for at_s in entered.values())
    in_all = math.fsum(waited.values())
    shares = (
        {rank: waited_s / in_all for rank, waited_s in sorted(waited.items(), key=lambda each: -each[1])}
        if in_all
        else {}
    )
    count = len(steps)
    slow = next((rank for rank, times in times_last.items() if times > count / 2 + math.sqrt(count)), None)
    text = ""
    if slow is not None:
        each_ms = 1000 * waited[slow] / count / (max(map(len, steps)) - 1)
        text = (
            f"{_name(slow, members)} is slow: last into the collectives in {times_last[slow]} of {count} steps, "
            f"{shares[slow]:.0%} of the waiting. Each other rank waits {each_ms:.3g} ms a step for it"
        )
    return Verdict(
        step=members[0].step.id,
        check=CHECK,
        verdict="pass" if slow is None else "warn",
        numbers={
            "steps": count,
            "shares": {str(rank): round(share, 4) for rank, share in [*shares.items()][:MOST_SHARES]},
        },
        message=text,
    )


def _steps(members: Sequence[StepResult], clocks: SharedClocks) -> tuple[list[Entries], float]:
    """Return when the ranks entered one collective of each step, and how long a step is, in s."""
    known: dict[tuple[str, int], dict[int, tuple[int, float]]] = defaultdict(dict)
    ranks: dict[str, set[int]] = defaultdict(set)
    step_s = 0.0
    are_together = len({member.step.node for member in members}) == 1
    for member in members:
        for recorded in _recorded(member):
            # Clocks of several nodes say nothing unless they were compared. Whose device waits less was last, by no clock.
            if recorded.entered_us and not (are_together or member.step.id in clocks):
                continue
            _, ahead_s = clocks.get(member.step.id, ("", 0.0))
            begin_s = 0.0 if recorded.lasted_us else recorded.t0_ns / 1e9 - ahead_s
            times = [-us for us in recorded.lasted_us] or recorded.entered_us
            for number, step, time_us in zip(recorded.number, recorded.step, times, strict=False):
                known[recorded.group, number][recorded.rank] = step, begin_s + time_us / 1e6
            ranks[recorded.group].add(recorded.rank)
            step_s = recorded.step_us / 1e6
    widest: dict[int, tuple[float, Entries]] = {}
    for (group, _), own in known.items():
        if len(own) == len(ranks[group]) > 1:
            step, _ = own[min(own)]
            entered = {rank: at_s for rank, (_, at_s) in own.items()}
            spread = max(entered.values()) - min(entered.values())
            if step not in widest or spread > widest[step][0]:
                widest[step] = spread, entered
    return [entered for _, entered in widest.values()], step_s


def _recorded(member: StepResult) -> Iterator[RankCollectives]:
    """Yield the records of the ranks of a step. Other forms are ignored."""
    for record in member.measured.collectives:
        try:
            yield convert(record, RankCollectives)
        except ValidationError:
            continue


def _name(rank: int, members: Sequence[StepResult]) -> str:
    """Return how a person finds a rank: with its node, where it is not the only one."""
    own = (member.step.node for member in members for record in _recorded(member) if record.rank == rank)
    node = next(own, "local")
    return f"rank {rank}" + (f" ({node})" if node != "local" else "")
