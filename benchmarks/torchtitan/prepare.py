"""Make what torchtitan reads, without a network: a tokenizer and texts of invented words by seed; and check its settings.

The words are few, so that a model of any size learns something in a short window.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path

SEED = 20260101
WORDS = 500
DOCUMENTS = 2000
WORDS_PER_DOCUMENT = 1000


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--hf-assets-path", type=Path, required=True)
    parser.add_argument("--dataloader.dataset-path", dest="texts", type=Path, required=True)
    args, _ = parser.parse_known_args()
    build(args.texts / "train.json", write_texts)
    build(args.hf_assets_path / "tokenizer.json", write_tokenizer)
    build(args.hf_assets_path / "tokenizer_config.json", write_tokenizer_config)

    from torchtitan.config import ConfigManager

    ConfigManager().parse_args(sys.argv[1:])


def build(path: Path, make: Callable[[Path], None]) -> None:
    """Make `path` unless it is there: complete or not at all."""
    if path.is_file():
        print(f"{path}: already there")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        make(partial)
        partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)
    print(f"{path}: made")


def words() -> list[str]:
    return [f"w{number}" for number in range(WORDS)]


def write_texts(path: Path) -> None:
    rng = random.Random(SEED)
    frequencies = [1 / (rank + 1) for rank in range(WORDS)]
    successors = {word: rng.choices(words(), frequencies, k=4) for word in words()}
    word = words()[0]
    with path.open("w", encoding="utf-8") as out:
        for _ in range(DOCUMENTS):
            document = []
            for _ in range(WORDS_PER_DOCUMENT):
                word = rng.choice(successors[word]) if rng.random() < 0.9 else rng.choice(words())
                document.append(word)
            out.write(json.dumps({"text": " ".join(document)}) + "\n")


def write_tokenizer(path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {token: number for number, token in enumerate(["<unk>", "<s>", "</s>", *words()])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))  # noqa: S106
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.save(str(path))


def write_tokenizer_config(path: Path) -> None:
    path.write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}))


if __name__ == "__main__":
    main()
