"""What a server reads, made without a network: a model's configuration, and a tokenizer with as many words as the model.

The weights are random and made in the server. The tokenizer is a byte-level BPE in whose vocabulary every word of syllables is
one token, so that prompts have the tokens that they were made of, and the answers of a random model too; it needs no training.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import benchmate

SPECIAL = ("<pad>", "<s>", "</s>")
SPACE = "Ġ"  # how a byte-level vocabulary writes a blank
SYLLABLES = ["".join(pair) for pair in itertools.product("bdfghjklmnprstv", "aeiou")]
CHAT = "{{ bos_token }}{% for message in messages %}{{ message['content'] }}{{ eos_token }}{% endfor %}"


def prepare(folder: Path, model: Mapping[str, Any]) -> None:
    """Make the folder of a model with this config.json; of none the folder has to be there."""
    if model:
        benchmate.prepare_folder(folder, dict(model), lambda made: write_model(made, model))
    elif not (folder / "config.json").is_file():
        sys.exit(f"error: {folder}: no model is there (config.json); name another --model, or give the option model")


def write_model(folder: Path, model: Mapping[str, Any]) -> None:
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    config = {**model, "transformers_version": transformers.__version__}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    merges = list(itertools.islice(pairs(), model["vocab_size"] - len(SPECIAL) - 256))
    words = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in merges)]
    tokenizer = Tokenizer(models.BPE({word: token for token, word in enumerate(words)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **dict(zip(("pad_token", "bos_token", "eos_token"), SPECIAL, strict=True)),
        "model_max_length": model["max_position_embeddings"],
        "chat_template": CHAT,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")


def pairs() -> Iterator[tuple[str, str]]:
    """Yield what the tokenizer merges, in order: letters to syllables, these to words that begin with a blank."""
    yield from ((syllable[0], syllable[1]) for syllable in SYLLABLES)
    beginnings = [SPACE]
    while True:
        yield from itertools.product(beginnings, SYLLABLES)
        beginnings = ["".join(pair) for pair in itertools.product(beginnings, SYLLABLES)]
