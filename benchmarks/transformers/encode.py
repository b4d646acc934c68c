"""Embed texts with sentence-transformers' own encode(), request after request."""

from __future__ import annotations

import argparse
import copy
import itertools
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from reference import require
from sentence_transformers import SentenceTransformer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="folder with a model and its tokenizer")
    parser.add_argument("--data", required=True, help="folder with anchor.npy, the texts")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float16", "bfloat16"])
    parser.add_argument("--request", type=int, default=1024, help="texts in a request")
    parser.add_argument("--batch-size", type=int, default=256, help="texts that encode() computes at a time")
    args = parser.parse_args()

    texts = np.load(Path(args.data, "anchor.npy")).tolist()
    model = SentenceTransformer(args.model, model_kwargs={"dtype": args.dtype}).eval()
    print(f"{sum(x.numel() for x in model.parameters()):,} parameters on {model.device}")
    reference = copy.deepcopy(model).to("cpu", torch.float64).encode(texts[:4])
    require(torch.from_numpy(model.encode(texts[:4])), torch.from_numpy(reference), getattr(torch, args.dtype))
    for request in requests([texts[i : i + args.request] for i in range(0, len(texts), args.request)]):
        model.encode(request, batch_size=args.batch_size, show_progress_bar=False)


def requests(texts: list[list[str]]) -> Iterable[list[str]]:
    """The texts again and again: the runner ends the program."""
    return itertools.cycle(texts)


if __name__ == "__main__":
    main()
