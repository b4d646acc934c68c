"""The evidence of a hanging job -> a sentence: the waiting ranks, their call, and the rank that they wait for.

Ranks that have left, have ended, are stopped or in state D outrank the rest. Else those are named that are not where most are.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from milabench.records.hang_evidence import Frame, JobMember, ProcessState
from milabench.shown import some_of

MOST_NAMED = 4
BUSY_S = 0.5  # of CPU time between the two looks
COLLECTIVES = "torch/distributed/distributed_c10d.py"
_LIBRARY = re.compile(r"^(?:site-packages|dist-packages|python3\.\d+)/|^<|(?:^|/)benchmate/")
_GRAVE: Mapping[str, str] = {
    "Z": "has ended",
    "X": "has ended",
    "T": "is stopped",
    "t": "is stopped by a debugger",
    "D": "is in state D",
}
_WAITS: Mapping[str, str] = {
    "pipe_write": "writes to a full pipe",
    "anon_pipe_write": "writes to a full pipe",
    "unix_stream_sendmsg": "writes to a full socket",
    "sock_alloc_send_pskb": "writes to a full socket",
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process is: in a collective, or in a function of its program, and the line of the program."""

    collective: str
    function: str
    line: str

    @property
    def text(self) -> str:
        """How it is said of a process."""
        at = f" at {self.line}" if self.line else ""
        return f"waits in {self.collective}{at}" if self.collective else f"is in {self.function}{at}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """A rank, or the single process of a program without ranks: its place and its current call.

    `process` is None of a rank that has left.
    """

    number: int
    node: str = ""
    device: str = ""
    process: ProcessState | None
    steps: int | None = None

    @property
    def where(self) -> str:
        """Its node and device, as far as known."""
        return ", ".join(filter(None, (self.node, self.device)))

    @property
    def grave(self) -> str:
        """Why it cannot go on by itself. Empty where it may."""
        if self.process is None:
            return "has left the job"
        word = _GRAVE.get(self.process.state, "")
        return f"{word} ({self.process.wchan})" if self.process.state == "D" and self.process.wchan else word

    @property
    def place(self) -> Place | None:
        """Where it is. None where its stack is not known."""
        return None if self.process is None else place_of(self.process)

    @property
    def doing(self) -> str:
        """Its current call, for a person."""
        if self.grave or self.process is None:
            return self.grave
        place, process = self.place, self.process
        unknown = f"waits in the kernel ({process.wchan})" if process.wchan else "runs, its stack is not known"
        text = unknown if place is None else place.text
        more = _WAITS.get(process.wchan, "")
        if not more and place is not None and not place.collective and (process.cpu_s or 0) > BUSY_S:
            holds_gil = any(thread.holds_gil for threads in process.samples for thread in threads[:1])
            more = "computes with the GIL held" if holds_gil else "computes"
        return f"{text} and {more}" if more else text


def place_of(process: ProcessState) -> Place | None:
    """Return where the main thread of a process was at the last look."""
    frames = process.samples[-1][0].frames if process.samples and process.samples[-1] else []
    recorded = process.collective
    # NCCL's are waited for in another call: what the flight recorder says is under way.
    calls = [recorded.name.rpartition(":")[2]] if recorded is not None and recorded.state != "completed" else []
    calls += [name for name, file, _ in frames if file.endswith(COLLECTIVES) and "wrapper" not in name]
    if not frames:
        return Place(calls[-1], "", "") if calls else None
    own = next((frame for frame in frames if not _LIBRARY.search(frame[1])), None)
    own = own or next((frame for frame in frames if not frame[1].startswith("<")), frames[0])
    function, file, line = own
    return Place(calls[-1] if calls else "", function, f"{file.rpartition('/')[2]}:{line}")


def hang_sentence(members: Sequence[JobMember]) -> str:
    """Return the finding from the evidence of a job's steps, in a sentence. Empty without evidence."""
    unseen = [member for member in members if member.evidence is not None and not member.evidence.processes]
    more = [
        f"{member.step if member.node == 'local' else member.node} could not be looked at in time" for member in unseen
    ]
    return "; ".join(filter(None, (_finding(members), *more)))


def _finding(members: Sequence[JobMember]) -> str:
    ranks = ranks_of(members)
    if not ranks:
        return _of_programs(members)
    world = len(ranks)
    grave = [rank for rank in ranks if rank.grave]
    rest = [rank for rank in ranks if not rank.grave]
    waiting = [rank for rank in rest if rank.place is not None and rank.place.collective]
    if grave:
        return "; ".join(filter(None, (_waits(waiting, world), _named(grave))))
    others = [rank for rank in rest if rank not in waiting]
    if waiting and others:
        return f"{_waits(waiting, world)}; {_named(others)}"
    if len({rank.place.collective for rank in waiting if rank.place}) > 1:
        return f"collectives do not match: {_named(*_apart(waiting))}"
    odd, many = _apart(rest)
    if odd:
        return _named(odd, many)
    behind = _behind(rest)
    if behind:
        return f"{_waits(rest, world)}; {_one(behind)} has done {behind[0].steps} steps, the others more"
    return _waits(rest, world) if waiting else _named(rest)


def ranks_of(members: Sequence[JobMember]) -> list[Rank]:
    """Return all ranks of a job, including those that have left. Empty for a program without ranks."""
    found: dict[int, Rank] = {}
    bases: dict[str, int] = {}
    world = 0
    for member in members:
        steps = {rank: done for rank, done, _ in member.evidence.progress} if member.evidence else {}
        for process in member.evidence.processes if member.evidence else ():
            if process.rank is None or process.rank in found:
                continue
            local = process.local_rank or 0
            found[process.rank] = _rank(member, process.rank, local, process, steps.get(process.rank))
            bases[member.step] = process.rank - local
            world = max(world, process.world_size or 0, process.rank + 1)
    for number in set(range(world)) - found.keys():
        member = _home(number, members, bases, world)
        if member.evidence is None or member.evidence.processes:
            found[number] = _rank(member, number, number - bases[member.step] if member.step in bases else None)
    return [found[number] for number in sorted(found)]


def _home(number: int, members: Sequence[JobMember], bases: Mapping[str, int], world: int) -> JobMember:
    """Return the step that a rank belonged to: the step that lists the rank, else a step without any report."""
    each = max(1, world // len(members))
    at = next((member for member in members if 0 <= number - bases.get(member.step, world) < each), None)
    silent = [member for member in members if member.step not in bases]
    return at or min(silent, key=lambda member: not member.is_lost, default=members[-1])


def _rank(
    member: JobMember, number: int, local: int | None, process: ProcessState | None = None, steps: int | None = None
) -> Rank:
    node = "" if member.node == "local" else member.node + (" is lost" if member.is_lost else "")
    device = f"device {member.devices[local]}" if local is not None and local < len(member.devices) else ""
    return Rank(number=number, node=node, device=device, process=process, steps=steps)


def _apart(ranks: Sequence[Rank]) -> tuple[list[Rank], list[Rank]]:
    """Return those that are not where most are, and those that are. Of two places with as many, the first rank's are the most."""
    places = [rank.place for rank in ranks]
    # A flight recorder knows no line.
    has_lines = all(place is None or place.line for place in places)
    keys = places if has_lines else [place and (place.collective or place.function) for place in places]
    (most, _), *_ = Counter(keys).most_common(1)
    at = list(zip(ranks, keys, strict=True))
    return [rank for rank, key in at if key != most], [rank for rank, key in at if key == most]


def _behind(ranks: Sequence[Rank]) -> list[Rank]:
    """Return the rank that has done fewer steps than all others."""
    counted = sorted((rank for rank in ranks if rank.steps is not None), key=lambda rank: rank.steps or 0)
    if len(counted) < 2 or counted[0].steps == counted[1].steps:
        return []
    return counted[:1]


def _waits(ranks: Sequence[Rank], world: int) -> str:
    """Return how many ranks wait in which call, and at which step."""
    if not ranks:
        return ""
    names = {rank.place.collective for rank in ranks if rank.place} - {""}
    steps = {rank.steps for rank in ranks}
    step = next(iter(steps)) if len(steps) == 1 else None
    count = f"all {world} ranks wait" if len(ranks) == world else f"{len(ranks)} of {world} ranks wait"
    count = count if len(ranks) > 1 else f"{_one(ranks)} waits"
    return f"{count} in {' and '.join(sorted(names))}" + (f" (step {step + 1})" if step is not None else "")


def _one(ranks: Sequence[Rank]) -> str:
    rank = ranks[0]
    return f"rank {rank.number}" + (f" ({rank.where})" if rank.where else "")


def _named(*groups: Iterable[Rank]) -> str:
    """Return each rank with its current call, equal calls together. Of many ranks the first ones."""
    parts = []
    for group in groups:
        by_doing: dict[str, list[Rank]] = defaultdict(list)
        for rank in group:
            by_doing[rank.doing].append(rank)
        parts += [_together(ranks, doing) for doing, ranks in by_doing.items()]
    return some_of(parts, MOST_NAMED, "; ")


def _together(ranks: Sequence[Rank], doing: str) -> str:
    if len(ranks) == 1:
        return f"{_one(ranks)} {doing}"
    plural = {"is": "are", "has": "have", "waits": "wait"}
    word, _, rest = doing.partition(" ")
    names = some_of([str(rank.number) for rank in ranks], 8)
    nodes = {rank.node for rank in ranks}
    where = f" ({nodes.pop()})" if len(nodes) == 1 and nodes != {""} else ""
    return f"ranks {names}{where} {plural.get(word, word)} {rest}"


def _of_programs(members: Sequence[JobMember]) -> str:
    """Return the calls of a program's processes without ranks: of blocked processes, else of the first Python process."""
    parts = []
    for member in members:
        if member.evidence is None:
            continue
        processes = member.evidence.processes
        known = {process.pid for process in processes}
        grave = [process for process in processes if process.state and process.state in "TtD"]
        python = [process for process in processes if process.samples]
        top = [process for process in python if process.parent not in {each.pid for each in python}]
        for process in grave or top[:1] or [each for each in processes if each.parent not in known][:1]:
            parts.append(f"{process.name} (pid {process.pid}) {Rank(number=0, process=process).doing}")
    return "; ".join(parts[:MOST_NAMED])


def distinct_stacks(members: Sequence[JobMember]) -> list[tuple[list[Rank], list[Frame]]]:
    """Return the ranks, or processes, that share a stack, and the stack, its outermost frame first."""
    groups: dict[tuple[Frame, ...], list[Rank]] = defaultdict(list)
    for rank in ranks_of(members) or _programs(members):
        samples = rank.process.samples if rank.process else []
        groups[tuple(reversed(samples[-1][0].frames)) if samples and samples[-1] else ()].append(rank)
    return [(ranks, list(frames)) for frames, ranks in sorted(groups.items(), key=lambda item: -len(item[1]))]


def _programs(members: Sequence[JobMember]) -> list[Rank]:
    return [
        Rank(number=process.pid, node=member.node, process=process)
        for member in members
        if member.evidence
        for process in member.evidence.processes
        if process.samples
    ]
