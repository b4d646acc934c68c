"""Folders of JPEG images made by seed, one folder a class, shared by the benchmarks of this environment.

The name of a folder is its recipe: `images/10x100-96` has 10 classes of 100 images of 96 pixels. Each image is the coarse
pattern of its class under fine noise, so that classes can be learned, and a file is as long as that of a photograph. With a
fourth number, `images/10x100-96-8`, each of these images is there 8 times, by links: for so many ranks that one pass over the
images themselves would not give each of them a batch.
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
NAME = re.compile(r"(\d+)x(\d+)-(\d+)(?:-(\d+))?")


def make(folder: Path) -> None:
    """Make the folder that its name describes, unless it is there."""
    name = NAME.fullmatch(folder.name)
    if name is None:
        sys.exit(f"error: {folder}: a folder of images is named CLASSESxIMAGES-PIXELS[-TIMES], such as 10x100-96")
    size = dict(zip(("classes", "each", "pixels"), map(int, name.groups()[:3]), strict=True))
    # This file belongs to it: what an earlier one made is not what this one makes.
    recipe = {"seed": SEED, **size, "made_by": hashlib.sha256(Path(__file__).read_bytes()).hexdigest()}
    once = folder.with_name(folder.name.removesuffix(f"-{name[4]}")) if name[4] else folder
    benchmate.prepare_folder(once, recipe, lambda fresh: write(fresh, **size))
    if name[4]:
        benchmate.prepare_folder(folder, {**recipe, "times": name[4]}, lambda fresh: link(fresh, once, int(name[4])))


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


def link(folder: Path, once: Path, times: int) -> None:
    for kind in sorted(once.glob("class_*")):
        (folder / kind.name).mkdir()
        for image in sorted(kind.iterdir()):
            for number in range(times):
                target = Path("..", "..", once.name, kind.name, image.name)
                (folder / kind.name / f"{image.stem}-{number}{image.suffix}").symlink_to(target)
