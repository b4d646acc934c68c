"""Write what the programs read, without a network: a model's configuration, and samples made by seed.

The weights are random and made in the program. Data with the same recipe are made once, whichever benchmark asks first.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import benchmate

SEED = 20260101
FIRST = 5  # ids below are special: 0 padding, 1 end, 2 start, 3 mask, 4 unknown
MASK = 3
SPECIAL = {
    "pad_token": "[PAD]",
    "sep_token": "[SEP]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
    "unk_token": "[UNK]",
}
SUCCESSORS = 8

Arrays = dict[str, np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    args, _ = parser.parse_known_args()
    samples, model = benchmate.option("samples"), benchmate.option("model")
    benchmate.prepare_folder(args.data, {"seed": SEED, **samples}, lambda folder: write_samples(folder, samples))
    recipe = {"seed": SEED, **model, "samples": samples}
    benchmate.prepare_folder(args.model, recipe, lambda folder: write_model(folder, model, samples))


def write_samples(folder: Path, wanted: Mapping[str, Any]) -> None:
    arrays = SAMPLES[wanted["kind"]](np.random.default_rng(SEED), wanted)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)


def write_model(folder: Path, model: Mapping[str, Any], samples: Mapping[str, Any]) -> None:
    from transformers import AutoConfig

    AutoConfig.for_model(**model).save_pretrained(folder)
    if samples["kind"] == "pairs":
        write_sentence_model(folder, samples["vocabulary"])


def write_sentence_model(folder: Path, vocabulary: int) -> None:
    """What sentence-transformers loads: weights and a tokenizer, of one token a word."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast

    words = {name: i for i, name in enumerate(SPECIAL.values())}
    words |= {word(i): i for i in range(FIRST, vocabulary)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token=SPECIAL["unk_token"]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 1), ("[CLS]", 2))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SPECIAL).save_pretrained(folder)
    torch.manual_seed(SEED)
    AutoModel.from_config(AutoConfig.from_pretrained(folder)).save_pretrained(folder)


def word(token: int) -> str:
    return f"w{token}"


def texts(rng: np.random.Generator, count: int, tokens: int, vocabulary: int) -> np.ndarray:
    """Rows of tokens: frequencies fall as 1/rank, and nine of ten follow one of eight successors, which can be learned."""
    kinds = vocabulary - FIRST
    frequencies = 1 / np.arange(1, kinds + 1)
    frequencies /= frequencies.sum()
    successors = rng.choice(kinds, size=(kinds, SUCCESSORS), p=frequencies)
    rows = rng.choice(kinds, size=(count, tokens), p=frequencies)
    followed = rng.random((count, tokens)) < 0.9
    chosen = rng.integers(SUCCESSORS, size=(count, tokens))
    for i in range(1, tokens):
        rows[:, i] = np.where(followed[:, i], successors[rows[:, i - 1], chosen[:, i]], rows[:, i])
    return (rows + FIRST).astype(np.int32)


def masked_text(rng: np.random.Generator, wanted: Mapping[str, int]) -> Arrays:
    """Text in which 15 % of the tokens are to be predicted; eight of ten of these are masked, one is another token."""
    labels = texts(rng, wanted["count"], wanted["tokens"], wanted["vocabulary"])
    share, change = rng.random(labels.shape), rng.random(labels.shape)
    predicted = share < 0.15
    others = rng.integers(FIRST, wanted["vocabulary"], size=labels.shape, dtype=np.int32)
    replaced = np.where(change < 0.8, MASK, np.where(change < 0.9, others, labels))
    return {"input_ids": np.where(predicted, replaced, labels), "labels": np.where(predicted, labels, -100)}


def text_to_text(rng: np.random.Generator, wanted: Mapping[str, int]) -> Arrays:
    """A text, and the tokens that follow it."""
    rows = texts(rng, wanted["count"], wanted["tokens"] + wanted["labels"], wanted["vocabulary"])
    return {"input_ids": rows[:, : wanted["tokens"]], "labels": rows[:, wanted["tokens"] :]}


def prompts(rng: np.random.Generator, wanted: Mapping[str, int]) -> Arrays:
    return {"input_ids": texts(rng, wanted["count"], wanted["tokens"], wanted["vocabulary"])}


def pictures(rng: np.random.Generator, classes: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Noise, brighter in one of sixteen bands of the picture, by its class."""
    made = rng.integers(0, 192, size=(len(classes), *shape), dtype=np.uint8)
    height = shape[-2] // 16
    for picture, kind in zip(made, classes % 16, strict=True):
        picture[..., kind * height : (kind + 1) * height, :] += 63
    return made


def image(rng: np.random.Generator, wanted: Mapping[str, int]) -> Arrays:
    classes = rng.integers(wanted["classes"], size=wanted["count"])
    return {"pixel_values": pictures(rng, classes, (3, wanted["pixels"], wanted["pixels"]))}


def video(rng: np.random.Generator, wanted: Mapping[str, int]) -> Arrays:
    classes = rng.integers(wanted["classes"], size=wanted["count"])
    shape = (wanted["frames"], 3, wanted["pixels"], wanted["pixels"])
    return {"pixel_values": pictures(rng, classes, shape), "labels": classes}


def image_and_text(rng: np.random.Generator, wanted: Mapping[str, int]) -> Arrays:
    """An image, which takes the places of `image_tokens` tokens, and a text after it."""
    text = texts(rng, wanted["count"], wanted["tokens"], wanted["vocabulary"])
    places = np.full((wanted["count"], wanted["image_tokens"]), MASK, np.int32)
    return {
        "input_ids": np.concatenate([places, text], axis=1),
        "labels": np.concatenate([np.full_like(places, -100), text], axis=1),
        **image(rng, {**wanted, "classes": 16}),
    }


def speech(rng: np.random.Generator, wanted: Mapping[str, int]) -> Arrays:
    """Features of a recording, as many as a mel spectrogram has, and the tokens of a text."""
    shape = (wanted["count"], wanted["mels"], wanted["frames"])
    return {
        "input_features": rng.standard_normal(shape, np.float32).clip(-1.5, 1.5).astype(np.float16),
        "labels": texts(rng, wanted["count"], wanted["tokens"], wanted["vocabulary"]),
    }


def pairs(rng: np.random.Generator, wanted: Mapping[str, int]) -> Arrays:
    """Two texts that have their words in common, in another order."""
    anchors = texts(rng, wanted["count"], wanted["tokens"], wanted["vocabulary"])
    positives = rng.permuted(anchors, axis=1)
    return {"anchor": sentences(anchors), "positive": sentences(positives)}


def sentences(rows: np.ndarray) -> np.ndarray:
    return np.array([" ".join(map(word, row)) for row in rows.tolist()])


SAMPLES: dict[str, Callable[[np.random.Generator, Mapping[str, Any]], Arrays]] = {
    "masked-text": masked_text,
    "text-to-text": text_to_text,
    "prompts": prompts,
    "image": image,
    "video": video,
    "image-and-text": image_and_text,
    "speech": speech,
    "pairs": pairs,
}

if __name__ == "__main__":
    main()
