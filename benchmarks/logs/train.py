"""A small network learns which of three spirals a point lies on, in plain Python; what is measured is what it logs.

It knows nothing of us: any program whose log tells its numbers can stand here.
"""

from __future__ import annotations

import argparse
import logging
import math
import random
import time

ARMS = 3
HIDDEN = 16
LOG_EVERY = 50  # batches

Point = tuple[float, float, int]


def spirals(count: int, rng: random.Random) -> list[Point]:
    """Points (x, y, arm), each arm as often as the others."""
    made = []
    for number in range(count):
        arm, along = number % ARMS, rng.random()
        angle = 3.0 * along + 2 * math.pi * arm / ARMS + rng.gauss(0, 0.1)
        made.append((along * math.cos(angle), along * math.sin(angle), arm))
    return made


class Network:
    """Two inputs, a hidden layer with tanh, a softmax over the arms."""

    def __init__(self, rng: random.Random) -> None:
        self.first = [[rng.gauss(0, 1.5) for _ in range(3)] for _ in range(HIDDEN)]
        self.second = [[rng.gauss(0, 0.3) for _ in range(HIDDEN + 1)] for _ in range(ARMS)]

    def forward(self, point: Point) -> tuple[list[float], list[float]]:
        """Hidden activations, the last of them a constant, and the probability of each arm."""
        x, y, _ = point
        hidden = [math.tanh(w[0] * x + w[1] * y + w[2]) for w in self.first] + [1.0]
        raw = [sum(w * h for w, h in zip(row, hidden, strict=True)) for row in self.second]
        shifted = [math.exp(value - max(raw)) for value in raw]
        return hidden, [value / sum(shifted) for value in shifted]

    def train(self, point: Point, rate: float) -> bool:
        """One step of gradient descent on a point; whether it was right before."""
        hidden, chances = self.forward(point)
        errors = [chance - (arm == point[2]) for arm, chance in enumerate(chances)]
        back = [sum(error * row[i] for error, row in zip(errors, self.second, strict=True)) for i in range(HIDDEN)]
        for row, error in zip(self.second, errors, strict=True):
            for i, value in enumerate(hidden):
                row[i] -= rate * error * value
        for i, row in enumerate(self.first):
            slope = rate * back[i] * (1 - hidden[i] ** 2)
            row[0] -= slope * point[0]
            row[1] -= slope * point[1]
            row[2] -= slope
        return chances.index(max(chances)) == point[2]

    def accuracy(self, points: list[Point]) -> float:
        """The share of points that it puts on their arm."""
        right = 0
        for point in points:
            _, chances = self.forward(point)
            right += chances.index(max(chances)) == point[2]
        return right / len(points)


def main() -> None:
    """Train, and log as image classification scripts do."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--batches", type=int, default=150, help="in an epoch")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    rng = random.Random(options.seed)
    network, held_out = Network(rng), spirals(600, rng)
    for epoch in range(options.epochs):
        begin = since = time.perf_counter()
        right = 0
        for batch in range(options.batches):
            points = spirals(options.batch_size, rng)
            right += sum(network.train(point, options.lr) for point in points)
            if batch % LOG_EVERY == LOG_EVERY - 1:
                now = time.perf_counter()
                speed = LOG_EVERY * options.batch_size / (now - since)
                accuracy = right / ((batch + 1) * options.batch_size)
                since = now
                logging.info("Epoch[%d] Batch [%d]\tSpeed: %f samples/sec\taccuracy=%f", epoch, batch, speed, accuracy)
        logging.info("[Epoch %d] training: accuracy=%f", epoch, right / (options.batches * options.batch_size))
        logging.info("[Epoch %d] time cost: %f", epoch, time.perf_counter() - begin)
        logging.info("[Epoch %d] validation: accuracy=%f", epoch, network.accuracy(held_out))


if __name__ == "__main__":
    main()
