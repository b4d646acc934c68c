"""Make the images and the table of their captions (--train-data), one caption a class; nothing is downloaded."""

from __future__ import annotations

import argparse
import os
import random
from pathlib import Path

import images

import benchmate

SEED = 20260101
WORDS = ("red", "green", "blue", "bright", "dark", "small", "large", "old", "new", "round", "square", "soft", "hard")
THINGS = ("cloud", "field", "river", "stone", "leaf", "wall", "wave", "shadow", "fabric", "sand", "glass", "smoke")


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--train-data", type=Path, required=True)
    args, _ = parser.parse_known_args()
    folder = Path(os.environ["MILABENCH_DIR_DATA"]) / "images" / args.train_data.stem
    images.make(folder)
    recipe = {"seed": SEED, "images": str(folder)}
    benchmate.prepare_file(args.train_data, recipe, lambda file: write(file, folder))


def write(table: Path, folder: Path) -> None:
    rng = random.Random(SEED)
    with table.open("w") as out:
        print("filepath\ttitle", file=out)
        for label, kind in enumerate(sorted(folder.glob("class_*"))):
            caption = f"number {label}, a {rng.choice(WORDS)} {rng.choice(WORDS)} {rng.choice(THINGS)}"
            out.writelines(f"{path}\t{caption}\n" for path in sorted(kind.iterdir()))


if __name__ == "__main__":
    main()
