"""Make the data that `data=` names, by seed: a folder of classes, or images with boxes. The name is the recipe.

`data=DIR/classify-10x32-64`: 10 classes of 32 images of 64 pixels, and a quarter as many to validate with.
`data=DIR/detect-10x64-320/data.yaml`: 64 images of 320 pixels with boxes of 10 classes, and a quarter as many.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
from PIL import Image

import benchmate

SEED = 20260101
MOST_BOXES = 8
NAME = re.compile(r"(classify|detect)-(\d+)x(\d+)-(\d+)")


def main() -> None:
    data = Path(next((word.removeprefix("data=") for word in sys.argv if word.startswith("data=")), "data="))
    folder = data.parent if data.suffix else data
    recipe = NAME.fullmatch(folder.name)
    if recipe is None:
        sys.exit(f"error: {folder}: data are named TASK-CLASSESxIMAGES-PIXELS, such as detect-10x64-320")
    write = {"classify": write_classes, "detect": write_boxes}[recipe[1]]
    size = dict(zip(("classes", "images", "pixels"), map(int, recipe.groups()[1:]), strict=True))
    benchmate.prepare_folder(folder, {"seed": SEED, "task": recipe[1], **size}, lambda fresh: write(fresh, **size))


def write_classes(folder: Path, classes: int, images: int, pixels: int) -> None:
    rng = np.random.default_rng(SEED)
    colours = rng.integers(0, 256, (classes, 3))
    for split, count in (("train", images), ("val", images // 4)):
        for label, colour in enumerate(colours):
            kind = folder / split / f"class_{label:04}"
            kind.mkdir(parents=True)
            for number in range(count):
                save(noise(rng, pixels) // 2 + colour // 2, kind / f"{number:05}.jpg")


def write_boxes(folder: Path, classes: int, images: int, pixels: int) -> None:
    rng = np.random.default_rng(SEED)
    colours = rng.integers(0, 256, (classes, 3))
    for split, count in (("train", images), ("val", images // 4)):
        for kind in ("images", "labels"):
            (folder / kind / split).mkdir(parents=True)
        for number in range(count):
            image, lines = noise(rng, pixels), []
            for label in rng.integers(0, classes, rng.integers(1, MOST_BOXES + 1)):
                x, y = rng.integers(0, pixels // 2, 2)
                width, height = rng.integers(pixels // 8, pixels // 2, 2)
                image[y : y + height, x : x + width] = colours[label]
                box = np.array([x + width / 2, y + height / 2, width, height]) / pixels
                lines.append(f"{label} " + " ".join(f"{side:.6f}" for side in box) + "\n")
            save(image, folder / "images" / split / f"{number:05}.jpg")
            (folder / "labels" / split / f"{number:05}.txt").write_text("".join(lines))
    names = "".join(f"  {label}: class_{label:04}\n" for label in range(classes))
    (folder / "data.yaml").write_text(f"train: images/train\nval: images/val\nnames:\n{names}")


def noise(rng: np.random.Generator, pixels: int) -> np.ndarray:
    coarse = Image.fromarray(rng.integers(0, 256, (pixels // 8, pixels // 8, 3), dtype=np.uint8))
    return np.asarray(coarse.resize((pixels, pixels), Image.Resampling.BICUBIC)).astype(np.int64)


def save(image: np.ndarray, path: Path) -> None:
    Image.fromarray(image.astype(np.uint8)).save(path, quality=90)


if __name__ == "__main__":
    main()
