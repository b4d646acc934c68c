"""Make the data of a program without a network: a folder of images (--dataroot), or ./MNIST, in that data set's format."""

from __future__ import annotations

import argparse
import os
import struct
from pathlib import Path

import images
import numpy as np

import benchmate

SEED = 20260101
FILES = {"train": 60_000, "t10k": 10_000}


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--dataroot", type=Path)
    args, _ = parser.parse_known_args()
    if args.dataroot is None:
        make_digits()
        return
    images.make(args.dataroot)


def make_digits() -> None:
    """Images of 28 x 28, each a noisy pattern of its class."""
    made = Path(os.environ["MILABENCH_DIR_DATA"]) / "mnist-patterns"
    benchmate.prepare_folder(made, {"seed": SEED, **FILES}, lambda folder: write(folder / "MNIST" / "raw"))
    target = os.path.relpath(made / "MNIST")
    benchmate.prepare_file(Path("MNIST"), {"link to": target}, lambda link: link.symlink_to(target))


def write(folder: Path) -> None:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(SEED)
    patterns = np.kron(rng.integers(0, 200, (10, 7, 7)), np.ones((4, 4), dtype=int))
    for name, count in FILES.items():
        labels = rng.integers(0, 10, count, dtype=np.uint8)
        images = np.empty((count, 28, 28), dtype=np.uint8)
        for begin in range(0, count, 1000):
            some = slice(begin, begin + 1000)
            noise = rng.integers(-100, 100, images[some].shape)
            images[some] = np.clip(patterns[labels[some]] + noise, 0, 255)
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            # The format's header: two zeros, the type (8: bytes), the number of dimensions, each of them; big-endian.
            header = struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
            (folder / f"{name}-{kind}-ubyte").write_bytes(header + array.tobytes())


if __name__ == "__main__":
    main()
