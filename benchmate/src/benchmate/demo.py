"""The demonstration: a small training loop in plain Python, and the voirfile for a script of the user."""

from __future__ import annotations

import random
from collections.abc import Iterator

import benchmate
from benchmate import probes
from benchmate.configuration import parse_config
from benchmate.phases import InstrumentHost
from benchmate.session import Session, use

BATCH = 32
FEATURES = 16


def instrument_main(ov: InstrumentHost) -> None:
    """Observe every loop over a torch DataLoader to its own end and, where the script calls the usual functions, losses."""
    probes.dataloader(ov, units="items/s", stop=False)
    for name in ("cross_entropy", "mse_loss"):
        probes.result(ov, f"torch.nn.functional.{name}", benchmate.observe_loss, required=False)


def run_demo(steps: int) -> None:
    """Fit a linear model to a random linear function. The table of rates is printed on stderr when the process ends."""
    # On a fast machine all the steps are done within the second that warm-up takes by default.
    use(Session(parse_config({"measure": {"warmup_s": 0}})))
    rng = random.Random(0)
    true_weights = [rng.gauss(0, 1) for _ in range(FEATURES)]
    weights = [0.0] * FEATURES

    def batches() -> Iterator[list[list[float]]]:
        for _ in range(steps):
            yield [[rng.gauss(0, 1) for _ in range(FEATURES)] for _ in range(BATCH)]

    for batch in benchmate.observed(batches(), units="samples/s", batch_size=len):
        total = 0.0
        for row in batch:
            error = sum(x * (w - t) for x, w, t in zip(row, weights, true_weights, strict=True))
            total += error * error
            for index, x in enumerate(row):
                weights[index] -= 0.01 * error * x / BATCH
        benchmate.observe_loss(total / BATCH)
