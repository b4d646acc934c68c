"""Folders of JPEG images made by seed, one folder a class, shared by the benchmarks of this environment.

The name of a folder is its recipe: `images/10x100-96` has 10 classes of 100 images of 96 pixels. Each image is the coarse
pattern of its class under fine noise, so that classes can be learned, and a file is as long as that of a photograph.
"""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path

import numpy as np
from PIL import Image

import benchmate

SEED = 20260101
NAME = re.compile(r"(\d+)x(\d+)-(\d+)")


def make(folder: Path) -> None:
    """Make the folder that its name describes, unless it is there."""
    name = NAME.fullmatch(folder.name)
    if name is None:
        sys.exit(f"error: {folder}: a folder of images is named CLASSESxIMAGES-PIXELS, such as 10x100-96")
    size = dict(zip(("classes", "each", "pixels"), map(int, name.groups()), strict=True))
    # This file belongs to it: what an earlier one made is not what this one makes.
    recipe = {"seed": SEED, **size, "made_by": hashlib.sha256(Path(__file__).read_bytes()).hexdigest()}
    benchmate.prepare_folder(folder, recipe, lambda fresh: write(fresh, **size))


def write(folder: Path, classes: int, each: int, pixels: int) -> None:
    rng = np.random.default_rng(SEED)
    for label in range(classes):
        (folder / f"class_{label:04}").mkdir()
        pattern = Image.fromarray(rng.integers(40, 216, (6, 6, 3), dtype=np.uint8))
        grown = np.asarray(pattern.resize((pixels, pixels), Image.Resampling.BICUBIC), dtype=np.int16)
        for number in range(each):
            noise = rng.integers(-32, 33, grown.shape, dtype=np.int16)
            image = Image.fromarray(np.clip(grown + noise, 0, 255).astype(np.uint8))
            image.save(folder / f"class_{label:04}" / f"{number:05}.jpg", quality=75)
