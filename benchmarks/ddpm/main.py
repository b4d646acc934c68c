"""Start the trainer of denoising-diffusion-pytorch, whose release has no command of its own."""

from __future__ import annotations

import argparse
import os

import torch
from denoising_diffusion_pytorch import GaussianDiffusion, Trainer, Unet

ENDLESS = 10**9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="a folder of images")
    parser.add_argument("--results", required=True)
    parser.add_argument("--dim", type=int, default=64, help="channels of the first level")
    parser.add_argument("--levels", type=int, nargs="+", default=[1, 2, 4, 8], help="channels of each, times dim")
    parser.add_argument("--image-size", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--precision", choices=("no", "bf16", "fp16"), default="no")
    args = parser.parse_args()
    torch.manual_seed(1)
    if not torch.accelerator.is_available():
        os.environ["ACCELERATE_USE_CPU"] = "true"  # or ranks would not know of each other
    trainer = Trainer(
        GaussianDiffusion(Unet(dim=args.dim, dim_mults=tuple(args.levels)), image_size=args.image_size),
        args.data,
        train_batch_size=args.batch_size,
        train_lr=args.lr,
        train_num_steps=ENDLESS,
        save_and_sample_every=ENDLESS,
        results_folder=args.results,
        calculate_fid=False,
        split_batches=False,
        amp=args.precision != "no",
        mixed_precision_type=args.precision if args.precision != "no" else "fp16",
    )
    torch.manual_seed(1 + trainer.accelerator.process_index)  # noise of its own for each rank
    trainer.train()


if __name__ == "__main__":
    main()
