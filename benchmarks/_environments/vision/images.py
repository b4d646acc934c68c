"""Folders of JPEG images made by seed, one folder a class, shared by the benchmarks of this environment.

The name of a folder is its recipe: `images/10x100-96` has 10 classes of 100 images of 96 pixels. Each image is the coarse
pattern of its class under fine noise, so that classes can be learned, and a file is as long as that of a photograph.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

SEED = 20260101
NAME = re.compile(r"(\d+)x(\d+)-(\d+)")


def make(folder: Path) -> None:
    """Make the folder that its name describes, unless it is there; it appears complete or not at all."""
    recipe = NAME.fullmatch(folder.name)
    if recipe is None:
        sys.exit(f"error: {folder}: a folder of images is named CLASSESxIMAGES-PIXELS, such as 10x100-96")
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            write(fresh, *map(int, recipe.groups()))
            fresh.chmod(0o755)
            fresh.rename(folder)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    print(f"{folder}: {recipe[1]} classes of {recipe[2]} images of {recipe[3]} pixels")


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
