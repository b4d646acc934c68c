"""What observing a training step costs: CPU of the same steps of about 1.3 ms with and without it, and where it goes.

    python tests/perf/training_step.py

Needs torch, in this Python or in the one that PYTHON_WITH_TORCH names. In every round each way trains for a few steps, in an
order that is shuffled anew; a round's overhead is its way's step over the step alone in the same round. The step alone is
measured twice: the second says what is noise.
"""

from __future__ import annotations

import itertools
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from discarding_sink import DiscardingSink
from rows import ROOT, Row, median_interval, python_with_torch, show

import benchmate
import benchmate.loss_recorder
from benchmate.configuration import parse_config
from benchmate.session import Session, use

ROUNDS = 400
STEPS_IN_TURN = 10
BATCH = 96
ALONE, AGAIN, LOOP, LOSS = "alone", "alone, again", "loop observed", "loop and loss observed"
GOAL = 0.005


@dataclass
class Way:
    """One way of going through the same training steps."""

    batches: Iterator[Any]
    observe_loss: Callable[[Any], None] | None = None
    clock_ns: int = 0
    """CPU time of its steps so far: what the recorder of losses has for a clock, which then sees these steps alone."""


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

    def train(self, way: Way) -> tuple[float, float]:
        """(all, the instruments' calls with the clock's) CPU ns a step of one turn."""
        now = time.thread_time_ns
        inside = 0
        began = now()

        def own_time() -> int:
            return way.clock_ns + now() - began

        vars(benchmate.loss_recorder)["perf_counter_ns"] = own_time
        for _ in range(STEPS_IN_TURN):
            t0 = now()
            x, y = next(way.batches)
            t1 = now()
            loss = self.loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            t2 = now()
            if way.observe_loss is not None:
                way.observe_loss(loss)
            inside += t1 - t0 + now() - t2
        took = now() - began
        way.clock_ns += took
        return took / STEPS_IN_TURN, inside / STEPS_IN_TURN


def measured() -> dict[str, list[tuple[float, float]]]:
    """What each way took, round by round."""
    trainer = Trainer()
    rules = {"warmup_steps": 1, "warmup_s": 0, "window_steps": 10**9, "window_s": 10**6}
    use(Session(parse_config({"measure": rules}), DiscardingSink()))
    ways = {
        ALONE: Way(trainer.alone()),
        AGAIN: Way(trainer.alone()),
        LOOP: Way(iter(benchmate.observed(trainer.alone(), batch_size=BATCH, task="validation"))),
        LOSS: Way(iter(benchmate.observed(trainer.alone(), batch_size=BATCH)), benchmate.observe_loss),
    }
    order, draw = list(ways), random.Random(0)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for round_ in range(-20, ROUNDS):  # the first ones warm up
        draw.shuffle(order)
        for name in order:
            took = trainer.train(ways[name])
            if round_ >= 0:
                found[name].append(took)
    return found


UNMET = (
    "inside the instruments' calls are 3 us of the loop and 3 us of a loss, 0.6 % of such a step; losses kept as references until"
    " the window ends would save 1 us, need a guard against writes in place, and be lost in a kill"
)


def main() -> None:
    """Print the row."""
    python = python_with_torch()
    if python is None:
        show([])
        return
    if python != sys.executable:
        os.environ["PYTHONPATH"] = str(ROOT / "benchmate" / "src")
        os.execv(python, [python, *sys.argv])
    try:
        found = measured()
    finally:
        DiscardingSink.remove()
    alone = [step for step, _ in found[ALONE]]
    overhead = {
        name: tuple(step / base - 1 for (step, _), base in zip(found[name], alone, strict=True)) for name in found
    }
    medians = {name: statistics.median(step for step, _ in values) for name, values in found.items()}
    if "--json" not in sys.argv:
        clock = statistics.median(inside for _, inside in found[ALONE])
        for name, values in found.items():
            low, high = median_interval(overhead[name])
            inside = statistics.median(inside for _, inside in values) - clock
            print(
                f"{name:24} {medians[name] / 1e3:6.0f} us   {statistics.median(overhead[name]):+7.2%} [{low:+.2%}, {high:+.2%}]"
                f"   in the calls {inside / 1e3:+5.2f} us, {inside / medians[ALONE]:+.2%}"
            )
    what = "loop and loss observed, training step of about 1.3 ms, CPU"
    again = statistics.median(overhead[AGAIN])
    seen = f"{medians[LOSS] / 1e3:.0f} and {medians[ALONE] / 1e3:.0f} us; the same step again {again:+.2%}"
    show([Row(what, "the same step alone", overhead[LOSS], GOAL, seen, percent=True, unmet=UNMET)])


if __name__ == "__main__":
    main()
