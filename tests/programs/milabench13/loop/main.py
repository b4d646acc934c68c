#!/usr/bin/env python
"""A training loop that wraps its own loader, criterion and optimizer."""

import argparse

import torch
import torchcompat.core as accelerator
from torch.utils.data import DataLoader, TensorDataset

from benchmate.observer import BenchObserver


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--width", type=int, default=64)
    args = parser.parse_args()

    device = accelerator.fetch_device(0)
    model = torch.nn.Sequential(torch.nn.Linear(args.width, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 10)).to(
        device
    )
    observer = BenchObserver(accelerator.Event, earlystop=70, batch_size_fn=lambda batch: len(batch[0]))
    optimizer = observer.optimizer(torch.optim.SGD(model.parameters(), lr=0.01))
    criterion = observer.criterion(torch.nn.CrossEntropyLoss())
    samples = TensorDataset(
        torch.randn(20 * args.batch_size, args.width), torch.randint(0, 10, (20 * args.batch_size,))
    )
    loader = DataLoader(samples, batch_size=args.batch_size)
    for _ in range(100_000):
        for inputs, targets in observer.iterate(loader):
            optimizer.zero_grad()
            loss = criterion(model(inputs.to(device)), targets.to(device))
            loss.backward()
            accelerator.mark_step()
            optimizer.step()


if __name__ == "__main__":
    main()
