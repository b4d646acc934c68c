"""Make what TRL's scripts read, without a network: a randomly initialised llama, its BPE tokenizer and texts.

Everything follows from the options and fixed seeds, so two machines train the same model on the same tokens. Texts come in the
form that the trainer wants; models, tokenizers and texts of the same recipe are shared by all benchmarks that name their folder.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import benchmate

SEED = 20260101
MODEL = {"hidden_size": 128, "layers": 4, "heads": 4, "vocabulary": 2048, "positions": 2048}
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


class Recipe(NamedTuple):
    """How many texts, of how many sentences (the fewest and the most), and how many words of each are its prompt."""

    documents: int
    sentences: tuple[int, int]
    prompt_words: int


# The tokenizer is trained on these, whatever a benchmark trains on.
TOKENIZER_TEXTS = Recipe(1000, (4, 40), 12)


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model_name_or_path", type=Path, required=True)
    parser.add_argument("--dataset_name", type=Path, required=True)
    args, _ = parser.parse_known_args()
    form = FORMS[benchmate.option("trainer")]
    wanted = Recipe(
        benchmate.option("documents"), tuple(benchmate.option("sentences")), benchmate.option("prompt_words")
    )
    recipe = {"seed": SEED, "form": form.__name__, **wanted._asdict()}
    benchmate.prepare_folder(args.dataset_name, recipe, lambda folder: write_dataset(folder, form(wanted)))
    if pretrained := benchmate.option("pretrained"):
        fetch(args.model_name_or_path, **pretrained)
    else:
        model = {**MODEL, **benchmate.option("model")}
        benchmate.prepare_folder(
            args.model_name_or_path, {"seed": SEED, **model}, lambda folder: write_model(folder, model)
        )
    warm_dataset_cache(args.dataset_name)


def fetch(folder: Path, repository: str, revision: str) -> None:
    """Fetch weights and tokenizer of one commit; a download that was interrupted goes on where it was."""
    os.environ["HF_HUB_OFFLINE"] = "0"
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    try:
        snapshot_download(repository, revision=revision, local_dir=folder, ignore_patterns=["original/*"])
    except (HfHubHTTPError, OSError) as error:
        raise SystemExit(f"{repository} at {revision} cannot be fetched: {' '.join(str(error).split())}") from None
    print(f"{folder}: {repository} at {revision}")


def write_dataset(folder: Path, rows: Iterator[Mapping[str, Any]]) -> None:
    with (folder / "train.jsonl").open("w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row) + "\n")


def documents_of_text(recipe: Recipe) -> Iterator[dict[str, Any]]:
    """What a language model is trained on."""
    for text in texts(recipe):
        yield {"text": text}


def preferences(recipe: Recipe) -> Iterator[dict[str, Any]]:
    """A beginning with two ends: as the text goes on, and words drawn blindly."""
    for prompt, right, wrong in ends(recipe):
        yield {"prompt": prompt, "chosen": right, "rejected": wrong}


def ratings(recipe: Recipe) -> Iterator[dict[str, Any]]:
    """A beginning with one of these ends, and whether it is the right one."""
    for number, (prompt, right, wrong) in enumerate(ends(recipe)):
        yield {"prompt": prompt, "completion": wrong if number % 2 else right, "label": not number % 2}


def prompts(recipe: Recipe) -> Iterator[dict[str, Any]]:
    """A beginning alone."""
    for prompt, _, _ in ends(recipe):
        yield {"prompt": prompt}


FORMS = {
    "sft": documents_of_text,
    "dpo": preferences,
    "reward": preferences,
    "kto": ratings,
    "grpo": prompts,
    "rloo": prompts,
}


def ends(recipe: Recipe) -> Iterator[tuple[str, str, str]]:
    rng = random.Random(SEED + 1)
    words = vocabulary(random.Random(SEED))
    for text in texts(recipe):
        beginning, right = text.split()[: recipe.prompt_words], text.split()[recipe.prompt_words :]
        wrong = rng.choices(words, k=len(right))
        yield " ".join(beginning), " " + " ".join(right), " " + " ".join(wrong)


def texts(recipe: Recipe) -> Iterator[str]:
    """Documents of invented words: frequencies fall as 1/rank, and a word has few successors, which can be learned."""
    rng = random.Random(SEED)
    words = vocabulary(rng)
    zipf = list(itertools.accumulate(1 / (rank + 1) for rank in range(len(words))))
    successors = {word: rng.choices(words, cum_weights=zipf, k=8) for word in words}
    for _ in range(recipe.documents):
        made = []
        for _ in range(rng.randint(*recipe.sentences)):
            word = rng.choices(words, cum_weights=zipf)[0]
            sentence = [word.capitalize()]
            for _ in range(rng.randint(4, 16)):
                word = rng.choice(successors[word]) if rng.random() < 0.9 else rng.choices(words, cum_weights=zipf)[0]
                sentence.append(word)
            made.append(" ".join(sentence) + ".")
        yield " ".join(made)


def vocabulary(rng: random.Random) -> list[str]:
    words = sorted({"".join(_syllable(rng) for _ in range(rng.randint(1, 3))) for _ in range(3000)})
    rng.shuffle(words)
    return words


def _syllable(rng: random.Random) -> str:
    return rng.choice(ONSETS) + rng.choice(NUCLEI) + rng.choice(CODAS)


def write_model(folder: Path, model: Mapping[str, Any]) -> None:
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE(unk_token=TOKENS["unk_token"]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=model["vocabulary"], special_tokens=list(TOKENS.values()), show_progress=False
    )
    tokenizer.train_from_iterator(texts(TOKENIZER_TEXTS), trainer)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **TOKENS).save_pretrained(folder)
    torch.manual_seed(SEED)
    config = LlamaConfig(
        vocab_size=model["vocabulary"],
        hidden_size=model["hidden_size"],
        intermediate_size=model.get("intermediate_size", model["hidden_size"] * 8 // 3),
        num_hidden_layers=model["layers"],
        num_attention_heads=model["heads"],
        num_key_value_heads=model.get("key_value_heads", model["heads"]),
        max_position_embeddings=model["positions"],
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=3,
        dtype=model.get("dtype", "float32"),
    )
    torch.set_default_dtype(getattr(torch, model.get("dtype", "float32")))
    LlamaForCausalLM(config).save_pretrained(folder)


def warm_dataset_cache(folder: Path) -> None:
    """Convert the dataset now, so that the first run does not pay for it."""
    from datasets import load_dataset

    load_dataset(str(folder))


if __name__ == "__main__":
    main()
