"""Make what the fine-tuning script reads, without a network: a randomly initialised llama, its BPE tokenizer and texts.

Everything follows from the options and fixed seeds, so two machines train the same model on the same tokens.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

SEED = 20260101
MODEL = {"hidden_size": 128, "layers": 4, "heads": 4, "vocabulary": 2048, "positions": 2048}
DOCUMENTS = 1000
ONSETS = (
    "b",
    "br",
    "c",
    "ch",
    "d",
    "dr",
    "f",
    "g",
    "gr",
    "h",
    "k",
    "l",
    "m",
    "n",
    "p",
    "pl",
    "r",
    "s",
    "st",
    "t",
    "tr",
    "v",
    "w",
)
NUCLEI = ("a", "e", "i", "o", "u", "ai", "ea", "ou")
CODAS = ("", "", "", "l", "m", "n", "nd", "r", "s", "st", "t")
TOKENS = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model_name_or_path", type=Path, required=True)
    parser.add_argument("--dataset_name", type=Path, required=True)
    args, _ = parser.parse_known_args()
    model, documents = options()
    corpus = {"documents": documents}
    build(args.dataset_name, corpus, lambda folder: write_dataset(folder, documents))
    build(
        args.model_name_or_path,
        {**model, **corpus},
        lambda folder: write_model(folder, model, args.dataset_name / "train.jsonl"),
    )
    warm_dataset_cache(args.dataset_name)


def options() -> tuple[dict[str, int], int]:
    """The size of the model and the number of documents: the defaults, and over them what the suite says."""
    path = os.environ.get("MILABENCH_BENCH_CONFIG")
    given: Mapping[str, Any] = json.loads(Path(path).read_text()).get("options", {}) if path else {}
    return {**MODEL, **given.get("model", {})}, given.get("documents", DOCUMENTS)


def build(folder: Path, recipe: Mapping[str, Any], make: Callable[[Path], None]) -> None:
    """Make `folder` by `make` unless it is there with the same recipe; it appears complete or not at all."""
    marker = folder / "recipe.json"
    text = json.dumps({"seed": SEED, **recipe}, sort_keys=True)
    if marker.is_file() and marker.read_text() == text:
        print(f"{folder}: already there")
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        make(fresh)
        (fresh / "recipe.json").write_text(text)
        fresh.chmod(0o755)
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    print(f"{folder}: made")


def write_dataset(folder: Path, documents: int) -> None:
    with (folder / "train.jsonl").open("w", encoding="utf-8") as out:
        for text in texts(documents):
            out.write(json.dumps({"text": text}) + "\n")


def texts(documents: int) -> Iterator[str]:
    """Documents of invented words: frequencies fall as 1/rank, and a word has few successors, which can be learned."""
    rng = random.Random(SEED)
    words = sorted({"".join(_syllable(rng) for _ in range(rng.randint(1, 3))) for _ in range(3000)})
    rng.shuffle(words)
    zipf = [1 / (rank + 1) for rank in range(len(words))]
    successors = {word: rng.choices(words, zipf, k=8) for word in words}
    for _ in range(documents):
        sentences = []
        for _ in range(rng.randint(4, 40)):
            word = rng.choices(words, zipf)[0]
            sentence = [word.capitalize()]
            for _ in range(rng.randint(4, 16)):
                word = rng.choice(successors[word]) if rng.random() < 0.9 else rng.choices(words, zipf)[0]
                sentence.append(word)
            sentences.append(" ".join(sentence) + ".")
        yield " ".join(sentences)


def _syllable(rng: random.Random) -> str:
    return rng.choice(ONSETS) + rng.choice(NUCLEI) + rng.choice(CODAS)


def write_model(folder: Path, model: Mapping[str, int], corpus: Path) -> None:
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE(unk_token=TOKENS["unk_token"]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=model["vocabulary"], special_tokens=list(TOKENS.values()), show_progress=False
    )
    with corpus.open(encoding="utf-8") as lines:
        tokenizer.train_from_iterator((json.loads(line)["text"] for line in lines), trainer)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **TOKENS).save_pretrained(folder)
    torch.manual_seed(SEED)
    config = LlamaConfig(
        vocab_size=model["vocabulary"],
        hidden_size=model["hidden_size"],
        intermediate_size=model["hidden_size"] * 8 // 3,
        num_hidden_layers=model["layers"],
        num_attention_heads=model["heads"],
        num_key_value_heads=model["heads"],
        max_position_embeddings=model["positions"],
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=3,
    )
    LlamaForCausalLM(config).save_pretrained(folder)


def warm_dataset_cache(folder: Path) -> None:
    """Convert the dataset now, so that the first run does not pay for it."""
    from datasets import load_dataset

    load_dataset(str(folder))


if __name__ == "__main__":
    main()
