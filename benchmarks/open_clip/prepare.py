"""Make the images and the table of their captions (--train-data), one caption a class; nothing is downloaded."""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from pathlib import Path

SHARED = Path(__file__).resolve().parent.parent / "_environments" / "vision"
SEED = 20260101
WORDS = ("red", "green", "blue", "bright", "dark", "small", "large", "old", "new", "round", "square", "soft", "hard")
THINGS = ("cloud", "field", "river", "stone", "leaf", "wall", "wave", "shadow", "fabric", "sand", "glass", "smoke")


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--train-data", type=Path, required=True)
    args, _ = parser.parse_known_args()
    sys.path.append(str(SHARED))
    import images

    table = args.train_data
    folder = Path(os.environ["MILABENCH_DIR_DATA"]) / "images" / table.stem
    images.make(folder)
    table.parent.mkdir(parents=True, exist_ok=True)
    rng = random.Random(SEED)
    with tempfile.NamedTemporaryFile("w", dir=table.parent, prefix=f".{table.name}.", delete=False) as out:
        print("filepath\ttitle", file=out)
        for label, kind in enumerate(sorted(folder.iterdir())):
            caption = f"number {label}, a {rng.choice(WORDS)} {rng.choice(WORDS)} {rng.choice(THINGS)}"
            out.writelines(f"{path}\t{caption}\n" for path in sorted(kind.iterdir()))
    Path(out.name).chmod(0o644)
    Path(out.name).replace(table)
    print(f"{table}: captions of {folder}")


if __name__ == "__main__":
    main()
