"""Write the text that the demonstration would otherwise download: invented words, each with few successors, by seed."""

from __future__ import annotations

import random
from pathlib import Path

import benchmate

SEED = 20260101
WORDS = 1000
LINES = 5000
WORDS_PER_LINE = 30
TEXT = Path("data/wikitext-2.txt")  # as the program names it, in the folder that it is started in


def main() -> None:
    recipe = {"seed": SEED, "words": WORDS, "lines": LINES, "words_per_line": WORDS_PER_LINE}
    benchmate.prepare_file(TEXT, recipe, write)


def write(file: Path) -> None:
    file.write_text("".join(f"{line}\n" for line in lines()), encoding="utf-8")


def lines():
    rng = random.Random(SEED)
    words = [f"w{number}" for number in range(WORDS)]
    frequencies = [1 / (rank + 1) for rank in range(WORDS)]
    successors = {word: rng.choices(words, frequencies, k=4) for word in words}
    word = words[0]
    for _ in range(LINES):
        line = []
        for _ in range(WORDS_PER_LINE):
            word = rng.choice(successors[word]) if rng.random() < 0.9 else rng.choice(words)
            line.append(word)
        yield " ".join(line)


if __name__ == "__main__":
    main()
