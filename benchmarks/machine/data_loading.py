"""How many images a second torch's DataLoader delivers: each is inflated, cropped, flipped and normalised by its workers.

An image is made by its number, as raw pixels that zlib has deflated: decoding costs what it costs in such a pipeline, and
needs no library of images. The first batch is compared with the same images made without workers.
"""

from __future__ import annotations

import argparse
import itertools
import zlib
from collections.abc import Iterator

import torch
from command import wrong
from timing import the_device
from torch.utils.data import DataLoader, Dataset

import benchmate
from benchmate.session import current

SEED = 1
KINDS = 64  # different images; a data set repeats them, so that making them takes no time of the loader's
MEAN, DEVIATION = 118.0, 60.0


class Images(Dataset[tuple[torch.Tensor, int]]):
    """`count` deflated images of (3, side, side), delivered as normalised crops of (3, crop, crop)."""

    def __init__(self, count: int, side: int, crop: int) -> None:
        self.count, self.side, self.crop = count, side, crop
        self.deflated = [deflated_image(number, side) for number in range(min(KINDS, count))]

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        pixels = bytearray(zlib.decompress(self.deflated[number % len(self.deflated)]))
        image = torch.frombuffer(pixels, dtype=torch.uint8).view(3, self.side, self.side)
        # By number, not by chance: what a loader gives can be computed again.
        room = self.side - self.crop + 1
        top, left = number * 7 % room, number * 13 % room
        image = image[:, top : top + self.crop, left : left + self.crop]
        if number % 2:
            image = image.flip(2)
        return (image.float() - MEAN) / DEVIATION, number


def deflated_image(number: int, side: int) -> bytes:
    """The pixels of an image: a gradient with noise, which deflates to about a half as photographs' filters do."""
    generator = torch.Generator().manual_seed(SEED + number)
    noise = torch.randint(0, 16, (3, side, side), generator=generator)
    ramp = torch.arange(side).view(1, 1, side) + torch.arange(side).view(1, side, 1) + 20 * number
    return zlib.compress(((ramp + noise) % 256).to(torch.uint8).numpy().tobytes(), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=4096, help="in an epoch")
    parser.add_argument("--side", type=int, default=256, help="of an image, in pixels")
    parser.add_argument("--crop", type=int, default=224, help="of what is delivered")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=0, help="0: until enough was measured")
    args = parser.parse_args()
    if not 0 < args.crop <= args.side:
        parser.error(f"--crop {args.crop}: it must be between 1 and --side {args.side}")
    if not 0 < args.batch_size <= args.images:
        parser.error(f"--batch-size {args.batch_size}: it must be between 1 and --images {args.images}")
    device = the_device()
    images = Images(args.images, args.side, args.crop)
    loader = DataLoader(
        images,
        batch_size=args.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=args.workers,
        pin_memory=device.kind != "cpu",
        persistent_workers=args.workers > 0,
        generator=torch.Generator().manual_seed(SEED),
    )
    is_checked = False
    for batch, numbers in benchmate.observed(
        endless(loader, args.epochs), units="images/s", batch_size=size_of, stop=True
    ):
        delivered = batch.to(device.device, non_blocking=True)
        if not is_checked:
            check(delivered.cpu(), numbers.tolist(), images)
            is_checked = True
    device.synchronize()
    current().finish()


def endless(loader: DataLoader[object], epochs: int) -> Iterator[object]:
    """The batches of `epochs` epochs, or for ever when that is 0."""
    for _ in range(epochs) if epochs else itertools.count():
        yield from loader


def size_of(batch: tuple[torch.Tensor, torch.Tensor]) -> int:
    return len(batch[1])


def check(batch: torch.Tensor, numbers: list[int], images: Images) -> None:
    for image, number in zip(batch, numbers, strict=True):
        if not torch.equal(image, images[number][0]):
            wrong(f"data_loading: image {number} came out of a worker otherwise than it is")


if __name__ == "__main__":
    main()
