#!/usr/bin/env python
"""Ranks that exchange their gradients, each with its own part of the samples."""

import torch
import torchcompat.core as accelerator
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from benchmate.metrics import StopProgram
from benchmate.monitor import bench_monitor
from benchmate.observer import BenchObserver


def main():
    accelerator.init_process_group(backend=accelerator.ccl)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.Linear(512, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    samples = TensorDataset(torch.randn(640, 256), torch.randint(0, 10, (640,)))
    observer = BenchObserver(
        accelerator.Event,
        earlystop=60,
        batch_size_fn=lambda batch: len(batch[0]),
        raise_stop_program=True,
        stdout=True,
    )
    loader = observer.loader(DataLoader(samples, batch_size=32))
    with bench_monitor(poll_interval=0.1):
        for _ in range(100_000):
            for inputs, targets in loader:
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(inputs), targets)
                loss.backward()
                optimizer.step()
                observer.record_loss(loss.detach())


if __name__ == "__main__":
    try:
        main()
    except StopProgram:
        print("early stopped")
    accelerator.destroy_process_group()
