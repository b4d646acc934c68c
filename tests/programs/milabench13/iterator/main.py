#!/usr/bin/env python
"""A loop over a timed iterator, watched by a monitor, in a program that is started without voir."""

import argparse

import torch
import torchcompat.core as accelerator
from torch.utils.data import DataLoader

from benchmate.metrics import StopProgram, TimedIterator
from benchmate.monitor import bench_monitor


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()

    device = accelerator.fetch_device(0)
    model = torch.nn.Linear(512, 512).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    loader = DataLoader(torch.randn(40 * args.batch_size, 512), batch_size=args.batch_size, shuffle=True)
    batches = TimedIterator(loader, accelerator.Event, device=device, earlystop=60, raise_stop_program=True)
    with bench_monitor(poll_interval=0.1):
        try:
            while True:
                for inputs in batches:
                    optimizer.zero_grad()
                    (model(inputs) - inputs).square().mean().backward()
                    optimizer.step()
        except StopProgram:
            print("early stopped")


if __name__ == "__main__":
    main()
