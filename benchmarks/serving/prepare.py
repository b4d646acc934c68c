"""Make the model's configuration and tokenizer, and the conversations that a sweep replays; nothing is downloaded."""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

import models

import benchmate

SEED = 20260101


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model", type=Path)
    args, _ = parser.parse_known_args()
    sweep = benchmate.config()["serve"]
    # A server that is not vLLM may have another name for its model, or none; its clients need a tokenizer.
    models.prepare(args.model or Path(sweep["tokenizer"]), benchmate.option("model"))
    if wanted := benchmate.option("conversations"):
        trace = Path(sweep["trace"])
        recipe = {"seed": SEED, **wanted}
        benchmate.prepare_file(trace, recipe, lambda file: write(file, models.SYLLABLES, **wanted))


def write(file: Path, syllables: list[str], *, sessions: int, turns: int, words: int, output_tokens: int) -> None:
    """Write sessions of so many turns: a question of so many words, one token each, and its answer of `output_tokens`."""
    rng = random.Random(SEED)
    with file.open("w", encoding="utf-8") as out:
        for number in range(sessions):
            questions = ["".join(f" {rng.choice(syllables)}" for _ in range(words)) for _ in range(turns)]
            said = [{"input": text, "output_tokens": output_tokens, "delay_ms": 0} for text in questions]
            out.write(json.dumps({"session": str(number), "turns": said}) + "\n")


if __name__ == "__main__":
    main()
