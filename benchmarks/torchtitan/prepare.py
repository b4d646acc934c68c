"""Make what torchtitan reads, without a network: a tokenizer and texts of invented words by seed; and check its settings.

The words are few, so that a model of any size learns something in a short window.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path

import benchmate

SEED = 20260101
WORDS = 500
DOCUMENTS = 2000
WORDS_PER_DOCUMENT = 1000


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--hf-assets-path", type=Path, required=True)
    parser.add_argument("--dataloader.dataset-path", dest="texts", type=Path, required=True)
    args, _ = parser.parse_known_args()
    recipe = {"seed": SEED, "words": WORDS, "documents": DOCUMENTS, "words_per_document": WORDS_PER_DOCUMENT}
    benchmate.prepare_file(args.texts / "train.json", recipe, write_texts)
    benchmate.prepare_folder(args.hf_assets_path, {"words": WORDS}, write_tokenizer)

    from torchtitan.config import ConfigManager

    ConfigManager().parse_args(sys.argv[1:])


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


def write_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {token: number for number, token in enumerate(["<unk>", "<s>", "</s>", *words()])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))  # noqa: S106
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(special))


if __name__ == "__main__":
    main()
