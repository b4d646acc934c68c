"""Two small training loops as a demonstration: with torch where it is installed, and in plain Python everywhere."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Iterator

import benchmate
from benchmate.configuration import parse_config
from benchmate.session import Session, use

BATCH = 32
FEATURES = 16


def run_demo(steps: int) -> None:
    """Train for `steps` steps. The table of rates is printed on stderr when the process ends."""
    # On a fast machine all the steps are done within the second that warm-up takes by default.
    use(Session(parse_config({"measure": {"warmup_s": 0}})))
    if importlib.util.find_spec("torch") is None:
        print("torch is not installed here: a linear model in plain Python")
        train_plain(steps)
    else:
        print("a small network in torch, on the CPU")
        train_torch(steps)


def train_torch(steps: int) -> None:
    """Fit a two-layer network to a random linear function."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    inputs = torch.randn(BATCH * steps, FEATURES)
    targets = inputs @ torch.randn(FEATURES, 1)
    model = torch.nn.Sequential(torch.nn.Linear(FEATURES, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=BATCH, shuffle=True)
    for batch, target in benchmate.observed(loader, units="samples/s"):
        loss = torch.nn.functional.mse_loss(model(batch), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        benchmate.observe_loss(loss)
    with torch.no_grad():
        for batch, _ in benchmate.observed(loader, units="samples/s", task="inference"):
            model(batch)


def train_plain(steps: int) -> None:
    """Fit a linear model to a random linear function, by hand."""
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
