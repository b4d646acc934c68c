"""Trains a small model on several ranks, whose gradients are averaged; FLIPPED=RANK:STEP has one wrong bit there, once."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

SEED = 5


def make_loader():
    generator = torch.Generator().manual_seed(SEED + dist.get_rank())
    return [(torch.randn(8, 4, generator=generator), torch.randn(8, generator=generator)) for _ in range(100_000)]


def train(loader):
    flipped = os.environ.get("FLIPPED", "")
    torch.manual_seed(SEED)
    model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    for batch in loader:
        step += 1
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(batch[0]).squeeze(1), batch[1])
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        if f"{dist.get_rank()}:{step}" == flipped:
            model[0].weight.grad.view(torch.int32)[0, 0] ^= 1 << 22
        optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train(make_loader())
    dist.destroy_process_group()
