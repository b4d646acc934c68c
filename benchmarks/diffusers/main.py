"""Train a denoising network of diffusers on latents: its models and noise schedule, and Accelerate; the loop is ours."""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path

import diffusers
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed

TEXT_TOKENS = 77


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="a configuration as diffusers writes it")
    parser.add_argument("--precision", choices=("no", "bf16", "fp16"), default="no")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=1e-4)
    args = parser.parse_args()
    # Without an accelerator, ranks know of each other only where the CPU is asked for.
    accelerator = Accelerator(cpu=not torch.accelerator.is_available(), mixed_precision=args.precision)
    set_seed(1, device_specific=True)  # samples of its own for each rank; weights are those of the first
    config = json.loads(args.model.read_text())
    model = getattr(diffusers, config["_class_name"]).from_config(config).train()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=args.lr))
    schedule = diffusers.DDPMScheduler()
    for batch in batches(config, args.batch_size, accelerator.device):
        accelerator.backward(forward(model, schedule, *batch))
        optimizer.step()
        optimizer.zero_grad()


def forward(model, schedule, latents, condition):
    """The loss of one batch: how far the network is from the noise that was added."""
    noise = torch.randn_like(latents)
    steps = torch.randint(schedule.config.num_train_timesteps, latents.shape[:1], device=latents.device)
    found = model(schedule.add_noise(latents, noise, steps), timestep=steps, **condition).sample
    return torch.nn.functional.mse_loss(found[:, : latents.shape[1]].float(), noise)


def batches(config, size, device):
    """Four batches again and again, on the device: latents, and the text or the class that each belongs to."""
    made = []
    for _ in range(4):
        side = config["sample_size"]
        latents = torch.randn(size, config["in_channels"], 1, 1, device=device).expand(-1, -1, side, side)
        if width := config.get("cross_attention_dim"):
            condition = {"encoder_hidden_states": torch.randn(size, TEXT_TOKENS, width, device=device)}
        else:
            condition = {"class_labels": torch.randint(config["num_embeds_ada_norm"], (size,), device=device)}
        made.append((latents, condition))
    return itertools.cycle(made)


if __name__ == "__main__":
    main()
