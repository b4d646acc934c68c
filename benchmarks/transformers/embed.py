"""Train sentence embeddings with sentence-transformers' own trainer, by pairs of texts against all others of the batch."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from transformers import HfArgumentParser


@dataclass
class Task:
    model: str = field(metadata={"help": "folder with a model and its tokenizer"})
    data: str = field(metadata={"help": "folder with anchor.npy and positive.npy"})


def main() -> None:
    task, settings = HfArgumentParser((Task, SentenceTransformerTrainingArguments)).parse_args_into_dataclasses(
        arguments()
    )
    pairs = {name: np.load(Path(task.data, f"{name}.npy")).tolist() for name in ("anchor", "positive")}
    model = SentenceTransformer(task.model)
    print(f"{sum(x.numel() for x in model.parameters()):,} parameters")
    SentenceTransformerTrainer(
        model=model, args=settings, train_dataset=Dataset.from_dict(pairs), loss=MultipleNegativesRankingLoss(model)
    ).train()


def arguments() -> list[str]:
    """Those of this program; without an accelerator the trainer wants to be told, or refuses bf16."""
    return sys.argv[1:] if torch.accelerator.is_available() else [*sys.argv[1:], "--use_cpu"]


if __name__ == "__main__":
    main()
