"""Start MONAI's supervised trainer on a U-Net that finds balls in volumes; the release has no such command."""

from __future__ import annotations

import argparse
import os

import numpy as np
import torch
from monai.data import DataLoader, Dataset, create_test_image_3d
from monai.engines import SupervisedTrainer
from monai.losses import DiceCELoss
from monai.networks.nets import UNet
from monai.transforms import Compose, RandFlipd, RandGaussianNoised, RandSpatialCropd, ToTensord
from monai.utils import set_determinism

BOTH = ("image", "label")
ENDLESS = 10**9


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--channels", type=int, nargs="+", default=[32, 64, 128, 256, 512], help="of each level")
    parser.add_argument("--volumes", type=int, default=32, help="kept in memory")
    for name, default in (("size", 160), ("crop", 128), ("batch-size", 2), ("workers", 4), ("lr", 1e-3)):
        parser.add_argument(f"--{name}", type=type(default), default=default)
    parser.add_argument("--precision", choices=("fp32", "bf16", "fp16"), default="fp32", help="halves on CUDA only")
    args = parser.parse_args()
    set_determinism(1)
    rank, local, ranks = (int(os.environ.get(name, "0")) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    device = torch.device("cuda", local) if (cuda := torch.cuda.is_available()) else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    network = UNet(3, 1, 2, args.channels, [2] * (len(args.channels) - 1), num_res_units=2).to(device)
    if ranks > 1:
        torch.distributed.init_process_group("nccl" if cuda else "gloo")
        network = torch.nn.parallel.DistributedDataParallel(network, [device] if cuda else None)
    trainer = SupervisedTrainer(
        device,
        ENDLESS,
        loader(args, np.random.RandomState(rank)),
        network,
        torch.optim.AdamW(network.parameters(), lr=args.lr),
        DiceCELoss(to_onehot_y=True, softmax=True),
        amp=args.precision != "fp32",
        decollate=False,
        amp_kwargs={"dtype": torch.float16 if args.precision == "fp16" else torch.bfloat16},
    )
    trainer.run()


def loader(args, random):
    balls = 12, args.size // 6, args.size // 16, 0.2, 1, 0, random  # how many, radii, noise, classes, channel first
    made = (create_test_image_3d(*[args.size] * 3, *balls) for _ in range(args.volumes))
    volumes = [dict(zip(BOTH, pair, strict=True)) for pair in made]
    crop = RandSpatialCropd(BOTH, [args.crop] * 3, random_size=False)
    changed = Compose([crop, RandFlipd(BOTH, 0.5, 0), RandGaussianNoised("image", 0.5), ToTensord(BOTH)])
    shown = {"shuffle": True, "drop_last": True, "pin_memory": torch.cuda.is_available()}
    return DataLoader(Dataset(volumes, changed), args.workers, batch_size=args.batch_size, **shown)


if __name__ == "__main__":
    main()
