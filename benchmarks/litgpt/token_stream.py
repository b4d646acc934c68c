"""The data module that LitGPT is given: windows of the tokens that prepare.py wrote, one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy
import torch
from litgpt.data import DataModule
from litgpt.tokenizer import Tokenizer
from torch.utils.data import DataLoader, Dataset


class Windows(Dataset):
    """Each window ends with the token that is to be predicted last, with which the next one begins."""

    def __init__(self, path: Path, length: int) -> None:
        self.tokens = numpy.load(path, mmap_mode="r")
        self.length = length

    def __len__(self) -> int:
        return (len(self.tokens) - 1) // self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        begin = index * self.length
        return torch.from_numpy(self.tokens[begin : begin + self.length + 1].astype(numpy.int64))


@dataclass
class TokenStream(DataModule):
    path: Path
    num_workers: int = 2

    def __post_init__(self) -> None:
        super().__init__()

    def connect(
        self, tokenizer: Tokenizer | None = None, batch_size: int = 1, max_seq_length: int | None = None
    ) -> None:
        self.batch_size = batch_size
        self.length = max_seq_length

    def train_dataloader(self) -> DataLoader:
        return DataLoader(
            Windows(self.path, self.length),
            batch_size=self.batch_size,
            shuffle=True,
            drop_last=True,
            num_workers=self.num_workers,
            pin_memory=torch.cuda.is_available(),
        )

    def val_dataloader(self) -> DataLoader:
        return self.train_dataloader()
