"""Samples that lie in a folder: one array for each input of a model, a row for each sample."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch


class Columns(torch.utils.data.Dataset):
    """Rows are read when they are asked for. Bytes are pixels and become -1 to 1, other integers int64, floats float32."""

    def __init__(self, folder: str) -> None:
        self.arrays = {file.stem: np.load(file, mmap_mode="r") for file in sorted(Path(folder).glob("*.npy"))}
        if not self.arrays:
            raise SystemExit(f"error: {folder} has no arrays (NAME.npy); milabench prepare makes them")

    def __len__(self) -> int:
        return min(map(len, self.arrays.values()))

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        return {name: _tensor(array[row]) for name, array in self.arrays.items()}

    def batch(self, first: int, size: int) -> dict[str, torch.Tensor]:
        """`size` rows from `first` on, beginning again where there are no more."""
        rows = [self[(first + i) % len(self)] for i in range(size)]
        return {name: torch.stack([row[name] for row in rows]) for name in self.arrays}


def _tensor(values: np.ndarray) -> torch.Tensor:
    if values.dtype == np.uint8:
        return torch.from_numpy(values.astype(np.float32)).mul_(2 / 255).sub_(1)
    return torch.from_numpy(np.array(values, np.int64 if values.dtype.kind == "i" else np.float32))
