"""Trains a network under accelerate, in the style of its examples: a training function, and an evaluation after each epoch."""

import argparse

import torch
from accelerate import Accelerator
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, TensorDataset


def get_dataloaders(batch_size):
    torch.manual_seed(1)
    x = torch.randn(8192, 64)
    y = x @ torch.randn(64, 1)
    train = DataLoader(TensorDataset(x[:7000], y[:7000]), shuffle=True, batch_size=batch_size, drop_last=True)
    return train, DataLoader(TensorDataset(x[7000:], y[7000:]), batch_size=256)


def training_function(config, args):
    accelerator = Accelerator(cpu=args.cpu, mixed_precision=args.mixed_precision)
    train_dataloader, eval_dataloader = get_dataloaders(config["batch_size"])
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
    steps = config["num_epochs"] * len(train_dataloader)
    scheduler = OneCycleLR(optimizer, max_lr=config["lr"], total_steps=steps)
    model, optimizer, train_dataloader, eval_dataloader, scheduler = accelerator.prepare(
        model, optimizer, train_dataloader, eval_dataloader, scheduler
    )
    for epoch in range(config["num_epochs"]):
        model.train()
        for step, (x, y) in enumerate(train_dataloader):
            loss = nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        model.eval()
        errors = []
        for x, y in eval_dataloader:
            with torch.no_grad():
                errors.append(accelerator.gather_for_metrics((model(x) - y).abs()).mean().item())
        accelerator.print(f"epoch {epoch}: {sum(errors) / len(errors):.4f}")


def main():
    parser = argparse.ArgumentParser(description="Simple example of a training script.")
    parser.add_argument("--mixed_precision", type=str, default=None, choices=["no", "fp16", "bf16"])
    parser.add_argument("--cpu", action="store_true")
    args = parser.parse_args()
    training_function({"lr": 1e-3, "num_epochs": 200, "batch_size": 32}, args)


if __name__ == "__main__":
    main()
