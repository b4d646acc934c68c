"""Train a model of transformers from random weights with its own Trainer, on samples that lie ready in arrays."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

import torch
import transformers
from columns import Columns
from transformers import AutoConfig, HfArgumentParser, Trainer, TrainingArguments


@dataclass
class Task:
    model: str = field(metadata={"help": "folder with a config.json"})
    data: str = field(metadata={"help": "folder with an array for each input of the model"})
    auto: str = field(metadata={"help": "how transformers names the task: AutoModelForMaskedLM, for example"})


def main() -> None:
    task, settings = HfArgumentParser((Task, TrainingArguments)).parse_args_into_dataclasses(arguments())
    transformers.set_seed(settings.seed)
    model = getattr(transformers, task.auto).from_config(AutoConfig.from_pretrained(task.model))
    print(f"{type(model).__name__}: {model.num_parameters():,} parameters")
    Trainer(model=model, args=settings, train_dataset=Columns(task.data)).train()


def arguments() -> list[str]:
    """Those of this program; without an accelerator the trainer wants to be told, or refuses bf16."""
    return sys.argv[1:] if torch.accelerator.is_available() else [*sys.argv[1:], "--use_cpu"]


if __name__ == "__main__":
    main()
