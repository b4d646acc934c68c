"""How many samples a second are read from storage: one file each, in shuffled order, by the workers of a DataLoader.

`--cold` drops each file's pages from this machine's cache before it is read. The checksum of every sample is compared with that
of the data which its file was made from.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import zlib
from collections.abc import Iterator, Mapping

import torch
from command import missing, wrong
from sample_files import Recipe, read, recipe
from torch.utils.data import DataLoader, Dataset

import benchmate
from benchmate.session import current

SEED = 1


class Samples(Dataset[tuple[int, int, int]]):
    """The files of a recipe: (number, bytes read, checksum)."""

    def __init__(self, files: Recipe, is_cold: bool) -> None:
        self.files, self.is_cold = files, is_cold

    def __len__(self) -> int:
        return self.files.files

    def __getitem__(self, number: int) -> tuple[int, int, int]:
        data = read(self.files.path(number), self.files.format, self.is_cold)
        return number, len(data), zlib.crc32(data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--cold", action="store_true", help="drop the pages of each file from the cache before it is read"
    )
    parser.add_argument("--epochs", type=int, default=0, help="0: until enough was measured")
    args = parser.parse_args()
    try:
        files = recipe(benchmate.option("samples", {"files": 64, "bytes": 65536, "format": "raw"}))
    except ValueError as error:
        sys.exit(f"error: {error}")
    checksums = files.checksums()
    if any(number not in checksums or not files.path(number).is_file() for number in range(files.files)):
        missing(f"sample_reads: {files.folder} is not complete: milabench prepare")
    loader = DataLoader(
        Samples(files, args.cold),
        batch_size=min(args.batch_size, files.files),
        shuffle=True,
        drop_last=True,
        num_workers=args.workers,
        persistent_workers=args.workers > 0,
        generator=torch.Generator().manual_seed(SEED),
    )
    # Megabytes are what storage is sold by; a sample is of a fixed size, so samples follow from them.
    for batch in benchmate.observed(endless(loader, args.epochs), units="MB/s", batch_size=megabytes, stop=True):
        check(batch, files, checksums)
    current().finish()


def endless(loader: DataLoader[object], epochs: int) -> Iterator[object]:
    for _ in range(epochs) if epochs else itertools.count():
        yield from loader


def megabytes(batch: tuple[torch.Tensor, ...]) -> float:
    return int(batch[1].sum()) / 1e6


def check(batch: tuple[torch.Tensor, ...], files: Recipe, checksums: Mapping[int, int]) -> None:
    for number, size, checksum in zip(*(column.tolist() for column in batch), strict=True):
        if size != files.bytes or checksum != checksums[number]:
            wrong(
                f"sample_reads: {files.path(number)} does not hold what it was made from; remove it and prepare again"
            )


if __name__ == "__main__":
    main()
