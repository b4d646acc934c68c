"""Run a classifier of transformers, batch after batch, each copied to the device and its classes back."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterable

import torch
import transformers
from columns import Columns
from reference import best_device, verify
from transformers import AutoConfig


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="folder with a config.json")
    parser.add_argument("--data", required=True, help="folder with an array for each input of the model")
    parser.add_argument("--auto", default="AutoModelForImageClassification", help="the task, as transformers names it")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float16", "bfloat16"])
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()

    transformers.set_seed(1)
    device, dtype = best_device(), getattr(torch, args.dtype)
    with device:
        model = getattr(transformers, args.auto).from_config(AutoConfig.from_pretrained(args.model), dtype=dtype).eval()
    print(f"{type(model).__name__}: {model.num_parameters():,} parameters on {device}")
    samples = Columns(args.data)
    verify(model, samples.batch(0, 4))
    inputs = [samples.batch(first, args.batch_size) for first in range(0, len(samples), args.batch_size)]
    if device.type == "cuda":
        inputs = [{name: x.pin_memory() for name, x in batch.items()} for batch in inputs]
    with torch.inference_mode():
        for batch in batches(inputs):
            arrived = {name: x.to(device, dtype, non_blocking=True) for name, x in batch.items()}
            model(**arrived).logits.argmax(-1).cpu()


def batches(inputs: list[dict[str, torch.Tensor]]) -> Iterable[dict[str, torch.Tensor]]:
    """The inputs again and again: the runner ends the program."""
    return itertools.cycle(inputs)


if __name__ == "__main__":
    main()
