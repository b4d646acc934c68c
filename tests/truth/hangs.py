"""Are hangs explained right: `python tests/truth/hangs.py --python PYTHON_WITH_TORCH [--each 25]`.

Each injection is one job of eight ranks over gloo on four agents, as four nodes have them, two ranks to a node. One rank hangs;
the job is ended for its silence, and the outcome has to name that rank. The table has, for each class of fault, how often it did,
and the most seconds from the first sign of the hang to the end of a step.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import signal
import socket
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "orchestrator")]

from milabench.events.run_writer import create_run  # noqa: E402
from milabench.execute.agent_client import AgentNode, local_node  # noqa: E402
from milabench.execute.api import Ended, Frame, Progress, StepNotice  # noqa: E402
from milabench.execute.engine import ExecutionSettings, execute  # noqa: E402
from milabench.plan.model import Plan, Step  # noqa: E402

PROGRAM = Path(__file__).with_name("hang_programs") / "ranks.py"
FAULTS = ("sleep", "stopped", "c-loop", "mismatch", "exit", "state-d", "killed-agent", "full-pipe")
NODES = ("node1", "node2", "node3", "node4")
WORLD = 8
SILENCE_S = 5.0
TRIES = 10
STARTED_S = 90.0
MOST_ADDED_S = 3.0


@dataclass(frozen=True, kw_only=True)
class Injection:
    """One job with a fault, what its outcomes said, and how long they took after the first sign of the hang."""

    fault: str
    rank: int
    details: tuple[str, ...]
    seconds: float

    @property
    def is_right(self) -> bool:
        """Whether the rank is named, and no other; of a killed agent both ranks of its node."""
        named = {number for detail in self.details for number in named_ranks(detail)}
        return named == ({self.rank, self.rank ^ 1} if self.fault == "killed-agent" else {self.rank})


def named_ranks(detail: str) -> Iterator[int]:
    """Yield the ranks that a finding names, but for those that only wait for them."""
    for part in detail.split("; ")[1:]:
        subject = re.match(r"(?:collectives do not match: )?ranks? ([\d, ]+(?:and \d+ more)?)", part)
        if subject and not re.match(r"ranks? [\d, ]+(?:\([^)]*\) )?waits? in \w+(?: \(step \d+\))?$", part):
            numbers = [int(number) for number in re.findall(r"\d+", subject[1])]
            # In a mismatch the second group is the rest, which did what was right.
            if len(numbers) <= 2:
                yield from numbers


async def inject(fault: str, rank: int, python: str, base: Path) -> Injection | None:
    """Let one job hang; return what was said of it, None of one that was ended while it started, on a busy machine."""
    port, at = free_port(), f"{time.monotonic_ns()}"
    environment = {
        "PYTHONPATH": str(ROOT / "benchmate" / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
    }
    steps = tuple(
        Step(
            id=f"job.{node}",
            bench="job",
            phase="run",
            argv=(python, str(PROGRAM), fault, str(rank), str(2 * number), str(WORLD), str(port)),
            env={**environment, "MILABENCH_SINK": "@sink"},
            node=node,
            devices=(0, 1),
            job="job",
            group="job",
            max_silence_s=None if fault == "killed-agent" else SILENCE_S,
            timeout_s=STARTED_S,
            needs_data=False,
        )
        for number, node in enumerate(NODES)
    )
    began: list[float] = []
    details: list[str] = []
    ends: list[float] = []
    ready: dict[str, int] = dict.fromkeys(NODES, 0)
    nodes: dict[str, AgentNode] = {}

    def progress(event: Progress) -> None:
        if isinstance(event, StepNotice) and event.stage == "hung":
            began.append(time.monotonic())
        elif isinstance(event, Frame) and event.kind == "line":
            ready[event.step.partition(".")[2]] += event.payload.count(b"training")
            if fault == "killed-agent" and not began and sum(ready.values()) == WORLD:
                began.append(time.monotonic())
                os.kill(agent_of(nodes[NODES[rank // 2]]), signal.SIGKILL)
        elif isinstance(event, Ended):
            ends.append(time.monotonic())
            if event.outcome.name == "failed":
                details.append(event.outcome.detail)

    writer = create_run(base, "hang", datetime.now(UTC))
    async with AsyncExitStack() as stack:
        for node in NODES:
            nodes[node] = await stack.enter_async_context(
                local_node(f"{at}@{node}", name=node, grace_s=1.0, locks=base / "locks")
            )
        await execute(Plan(phase="run", steps=steps), nodes, writer, progress, ExecutionSettings(grace_s=1.0))
    if sum(ready.values()) < WORLD:
        return None
    return Injection(fault=fault, rank=rank, details=tuple(details), seconds=max(ends) - min(began, default=max(ends)))


def agent_of(node: AgentNode) -> int:
    """Return the pid of a node's agent."""
    assert node._link is not None
    return int(node._link.hello.result()["pid"])


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def inject_all(
    injections: Sequence[tuple[str, int]], python: str, base: Path, parallel: int, say: Callable[[Injection], None]
) -> list[Injection]:
    """Make the injections, so many at the same time."""
    turns = asyncio.Semaphore(parallel)

    async def one(fault: str, rank: int) -> Injection:
        async with turns:
            for _ in range(TRIES):
                made = await inject(fault, rank, python, base)
                if made is not None:
                    say(made)
                    return made
            raise SystemExit(f"the machine is too busy: {TRIES} jobs were silent for {SILENCE_S:g} s before they began")

    return list(await asyncio.gather(*(one(fault, rank) for fault, rank in injections)))


def table(made: Sequence[Injection]) -> str:
    """Return the table by class."""
    by_fault: dict[str, list[Injection]] = defaultdict(list)
    for each in made:
        by_fault[each.fault].append(each)
    rows = [f"{'class':<14}{'right':>10}{'median s':>10}{'most s':>10}{'over 3 s':>10}"]
    for fault, those in [*by_fault.items(), ("all", list(made))]:
        right, seconds = sum(each.is_right for each in those), sorted(each.seconds for each in those)
        late = sum(each > MOST_ADDED_S for each in seconds)
        middle, most = seconds[len(seconds) // 2], seconds[-1]
        rows.append(f"{fault:<14}{f'{right}/{len(those)}':>10}{middle:>10.2f}{most:>10.2f}{late:>10}")
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--each", type=int, default=25)
    parser.add_argument("--parallel", type=int, default=2)
    parser.add_argument("--faults", nargs="*", default=FAULTS)
    parser.add_argument("--seed", type=int, default=1)
    words = parser.parse_args()
    draw = random.Random(words.seed)
    injections = [(fault, draw.randrange(WORLD)) for _ in range(words.each) for fault in words.faults]

    def say(made: Injection) -> None:
        word = "right" if made.is_right else "WRONG"
        print(f"{word} {made.fault} rank {made.rank} {made.seconds:.2f} s: {(*made.details, '-')[0]}", flush=True)
        for detail in made.details[1:] if not made.is_right else ():
            print(f"      {detail}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        made = asyncio.run(inject_all(injections, words.python, Path(folder), words.parallel, say))
    print(table(made))
    return 0 if all(each.is_right for each in made) else 1


if __name__ == "__main__":
    sys.exit(main())
