"""Data-parallel training of a multilayer perceptron on made-up samples, by as many processes as the launcher starts."""

from __future__ import annotations

import argparse

import torch
import torch.distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=1000)
    args = parser.parse_args()
    torch.distributed.init_process_group(args.backend)
    torch.manual_seed(torch.distributed.get_rank())
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, args.width), nn.ReLU(), nn.Linear(args.width, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for samples, targets in make_loader(args.steps, args.batch_size):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(samples), targets).backward()
        optimizer.step()
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def make_loader(steps: int, batch_size: int) -> DataLoader:
    samples = torch.randn(steps * batch_size, 64)
    return DataLoader(TensorDataset(samples, samples.sum(1, keepdim=True)), batch_size=batch_size)


if __name__ == "__main__":
    main()
