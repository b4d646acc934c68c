"""What observing a training step costs: CPU of the same steps of about 1.3 ms with and without it, and where it goes.

    python tests/perf/training_step.py

Needs torch, in this Python or in the one that PYTHON_WITH_TORCH names. In every round each way trains for a few steps, in an
order that is shuffled anew; a round's overhead is its way's step over the step alone in the same round. The step alone is
measured twice: the second says what is noise. Where things lie in memory moves a step by as much as observing it, so that
several processes measure, one after the other.

A turn is timed after a step that is not: in a program that does nothing else the instruments' code is never as cold as after
the turns of the others. It begins and ends between a batch and the step on it: a system call right before what the
instruments do would make that slower.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from discarding_sink import DiscardingSink
from rows import ROOT, Row, median_interval, python_with_torch, show

import benchmate
import benchmate.loss_recorder
from benchmate.configuration import parse_config
from benchmate.session import Session, use

PROCESSES = 6
ROUNDS = 400
WARM_UP_ROUNDS = 20
STEPS_IN_TURN = 5
CALLS = 600
BATCH = 96
ALONE, AGAIN, LOOP, LOSS = "alone", "alone, again", "loop observed", "loop and loss observed"
GOAL = 0.005
MEASURE = "measure"
"""The argument of a process that measures."""


@dataclass
class Way:
    """One way of going through the same training steps."""

    batches: Iterator[Any]
    observe_loss: Callable[[Any], None] | None = None
    clock_ns: int = 0
    """CPU time of its steps so far: what the recorder of losses has for a clock, which then sees these steps alone."""
    batch: Any = None
    """The batch that its last turn ended with."""


class Trainer:
    """Trains the same model in each way."""

    def __init__(self) -> None:
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.loss = torch.nn.functional.cross_entropy
        batches = [(torch.randn(BATCH, 256), torch.randint(0, 10, (BATCH,))) for _ in range(25)]
        self.alone = lambda: itertools.cycle(batches)

    def trained(self, batch: Any) -> Any:
        """Train on a batch; return the loss."""
        x, y = batch
        loss = self.loss(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def step(self, way: Way) -> None:
        """Train on the batch that is there, and fetch the next."""
        loss = self.trained(way.batch)
        if way.observe_loss is not None:
            way.observe_loss(loss)
        way.batch = next(way.batches)

    def turn(self, way: Way) -> float:
        """CPU ns a step of one turn."""
        now = time.thread_time_ns
        entered, before = now(), way.clock_ns

        def own_time() -> int:
            return before + now() - entered

        vars(benchmate.loss_recorder)["perf_counter_ns"] = own_time
        way.batch = way.batch or next(way.batches)
        self.step(way)
        began = now()
        for _ in range(STEPS_IN_TURN):
            self.step(way)
        ended = now()
        way.clock_ns = before + ended - entered
        return (ended - began) / STEPS_IN_TURN

    def calls(self, way: Way) -> float:
        """Wall ns in fetching a batch and observing its loss, in a program that goes on in this way: the median of a step."""
        now = time.perf_counter_ns
        vars(benchmate.loss_recorder)["perf_counter_ns"] = now
        observe_loss = way.observe_loss or (lambda loss: None)
        inside = []
        for _ in range(CALLS):
            t0 = now()
            way.batch = next(way.batches)
            t1 = now()
            loss = self.trained(way.batch)
            t2 = now()
            observe_loss(loss)
            inside.append(t1 - t0 + now() - t2)
        return statistics.median(inside)


def measured(names: Sequence[str]) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Of each way what it took in this process: CPU ns a step, round by round, and ns in the instruments' calls."""
    trainer = Trainer()
    rules = {"warmup_steps": 1, "warmup_s": 0, "window_steps": 10**9, "window_s": 10**6}
    use(Session(parse_config({"measure": rules}), DiscardingSink()))
    every = {
        ALONE: Way(trainer.alone()),
        AGAIN: Way(trainer.alone()),
        LOOP: Way(iter(benchmate.observed(trainer.alone(), batch_size=BATCH, task="validation"))),
        LOSS: Way(iter(benchmate.observed(trainer.alone(), batch_size=BATCH)), benchmate.observe_loss),
    }
    ways = {name: every[name] for name in names}
    order, draw = list(ways), random.Random(0)
    found: dict[str, list[float]] = {name: [] for name in ways}
    for round_ in range(-WARM_UP_ROUNDS, ROUNDS):
        draw.shuffle(order)
        for name in order:
            took = trainer.turn(ways[name])
            if round_ >= 0:
                found[name].append(took)
    return found, {name: trainer.calls(way) for name, way in ways.items()}


UNMET = (
    "in a program that goes on in one way the instruments' calls take about 1 us of the loop (a generator that reads the clock"
    " twice and stores one word: half of that) and 0.3 us of a loss; about every 50 ms one loss is read, 33 us with cold caches,"
    " 0.6 us a step: together 0.3 % of such a step. The rest is what they displace in caches, and what else the machine does"
)


def in_processes(python: str, names: Sequence[str]) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """What several processes measured, one after the other; of the calls one value from each."""
    found: dict[str, list[float]] = {name: [] for name in names}
    calls: dict[str, list[float]] = {name: [] for name in names}
    command = [python, "-W", "ignore", __file__, MEASURE, *names]
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "benchmate" / "src")}
    for _ in range(PROCESSES):
        done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, check=True)
        steps, inside = json.loads(done.stdout)
        for name in names:
            found[name] += steps[name]
            calls[name].append(inside[name])
    return found, calls


def main() -> None:
    """Print the row."""
    python = python_with_torch()
    if python is None:
        show([])
        return
    is_by_hand = "--json" not in sys.argv
    names = (ALONE, AGAIN, LOOP, LOSS) if is_by_hand else (ALONE, AGAIN, LOSS)
    found, calls = in_processes(python, names)
    overhead = {
        name: tuple(step / base - 1 for step, base in zip(steps, found[ALONE], strict=True))
        for name, steps in found.items()
    }
    medians = {name: statistics.median(steps) for name, steps in found.items()}
    if is_by_hand:
        for name in names:
            low, high = median_interval(overhead[name])
            inside = statistics.median(one - bare for one, bare in zip(calls[name], calls[ALONE], strict=True))
            print(
                f"{name:24} {medians[name] / 1e3:6.0f} us   {statistics.median(overhead[name]):+7.2%} [{low:+.2%}, {high:+.2%}]"
                f"   in the calls {inside / 1e3:+5.2f} us, {inside / medians[ALONE]:+.2%}"
            )
    what = "loop and loss observed, training step of about 1.3 ms, CPU"
    again = statistics.median(overhead[AGAIN])
    seen = f"{medians[LOSS] / 1e3:.0f} and {medians[ALONE] / 1e3:.0f} us; the same step again {again:+.2%}"
    show([Row(what, "the same step alone", overhead[LOSS], GOAL, seen, percent=True, unmet=UNMET)])


if __name__ == "__main__":
    if sys.argv[1:2] == [MEASURE]:
        try:
            print(json.dumps(measured(sys.argv[2:])))
        finally:
            DiscardingSink.remove()
    else:
        main()
