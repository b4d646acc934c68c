#!/usr/bin/env python
"""A training that accelerate spreads over ranks."""

import argparse

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

from benchmate.monitor import bench_monitor
from benchmate.observer import BenchObserver


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cpus_per_gpu", type=int, default=4)
    parser.parse_args()
    accelerator = Accelerator()
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    samples = TensorDataset(torch.randn(1280, 256), torch.randint(0, 10, (1280,)))
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(samples, batch_size=32))
    observer = BenchObserver(earlystop=70, batch_size_fn=lambda batch: len(batch[0]), stdout=True)
    with bench_monitor(poll_interval=0.1):
        for _ in range(100_000):
            for inputs, targets in observer.iterate(loader):
                with accelerator.accumulate(model):
                    optimizer.zero_grad()
                    loss = torch.nn.functional.cross_entropy(model(inputs).float(), targets)
                    accelerator.backward(loss)
                    optimizer.step()
                    observer.record_loss(loss)


if __name__ == "__main__":
    main()
