"""FakeImageNet: folders of noise images in the layout of ImageNet, which several definitions share and extend."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmate.prepared_data import RECIPE, exclusive, require_ours

CLASSES = 1000
DEFAULT_SIZE = (3, 384, 384)
MOST_THREADS = 16
PROGRESS_S = 30.0
_PARTIAL = f".{os.uname().nodename}.partial"
"""Of this machine only: a lock may hold on each machine by itself."""


def device_count() -> int:
    """Return the number of accelerators that this process may use. 1 where there is none. Does not import torch."""
    from benchmate.devices.detect import open_vendor, visible

    vendor, _ = open_vendor("auto", os.environ)
    try:
        return max(1, len(visible(vendor.devices, os.environ, vendor.arch)))
    finally:
        vendor.close()


def fakeimagenet_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the arguments of `generate_fakeimagenet`. Words that it does not know are the benchmark's own."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--batch-count", type=int, default=60)
    parser.add_argument("--device-count", type=int)
    parser.add_argument("--device")
    parser.add_argument("--image-size", type=int, nargs="+", default=list(DEFAULT_SIZE))
    parser.add_argument("--val", type=float, nargs="+", default=0.1)
    parser.add_argument("--test", type=float, nargs="+", default=0.1)
    parser.add_argument("--output", default=os.environ.get("MILABENCH_DIR_DATA"))
    return parser.parse_known_args(sys.argv[1:] if argv is None else argv)[0]


def generate_fakeimagenet(args: argparse.Namespace | None = None) -> None:
    """Make OUTPUT/FakeImageNet, or its missing part: `batch_size * batch_count * device_count` images, 10 % more for each
    of val and test. Every image follows from its number alone, and appears complete.

    MILABENCH_TESTING_PREPARE="SIZE,COUNT" replaces batch_size and batch_count. Ends the program when something is wrong.
    """
    if args is None:
        args = fakeimagenet_args()
    batch_size, batch_count = _batches(args)
    if not args.output:
        raise SystemExit("generate_fakeimagenet: no output folder: set MILABENCH_DIR_DATA, or pass --output DIR")
    total = batch_size * batch_count * (args.device_count or device_count())
    counts = {"train": total, "val": int(total * _share(args.val)), "test": int(total * _share(args.test))}
    root = Path(args.output, "FakeImageNet")
    root.mkdir(parents=True, exist_ok=True)
    with exclusive(root):
        marker = root.with_name(f".{root.name}.{RECIPE}")
        if not (root / "done").is_file():
            require_ours(root, marker, "{}")
        marker.write_text("{}")
        for split, count in counts.items():
            _make_split(root / split, split, count, args.image_size)
        labels = sorted({int(entry.name) for entry in root.glob("*/*/") if entry.name.isdigit()})
        _write(root / "labels.txt", "".join(f"{label},{label}\n" for label in labels).encode())
        _write(root / "done", json.dumps(counts).encode())


def _batches(args: argparse.Namespace) -> tuple[int, int]:
    text = os.environ.get("MILABENCH_TESTING_PREPARE")
    if not text:
        return args.batch_size, args.batch_count
    try:
        size, count = map(int, text.split(","))
    except ValueError:
        raise SystemExit(f"MILABENCH_TESTING_PREPARE={text!r}: expected two numbers, SIZE,COUNT") from None
    return size, count


def _share(value: float | Sequence[float]) -> float:
    return value if isinstance(value, (int, float)) else value[0]


def _make_split(folder: Path, split: str, count: int, size: Sequence[int]) -> None:
    for leftover in folder.glob(f"*/.*{_PARTIAL}"):  # of a killed maker
        leftover.unlink(missing_ok=True)
    present = set(folder.glob("*/*.JPEG"))
    missing = [(number, path) for number, path in _images(folder, split, count) if path not in present]
    if not missing:
        print(f"{folder}: {count} images are already there")
        return
    for label in {path.parent for _, path in missing}:
        label.mkdir(parents=True, exist_ok=True)
    reported = time.monotonic()
    # Threads, not processes: most of the work is done by libraries that let others run meanwhile, and nothing is imported again.
    with ThreadPoolExecutor(min(MOST_THREADS, len(os.sched_getaffinity(0)))) as pool:
        for done, _ in enumerate(pool.map(lambda image: _make_image(image[0], image[1], size), missing), 1):
            if time.monotonic() - reported > PROGRESS_S:
                reported = time.monotonic()
                print(f"{folder}: {done} of {len(missing)} images", flush=True)
    print(f"{folder}: {len(missing)} images made, {count} in all")


def _images(folder: Path, split: str, count: int) -> Iterator[tuple[int, Path]]:
    """Yield the number of each image and its file, named as in ImageNet."""
    for number in range(count):
        label = str(number % CLASSES)
        name = f"{label}_{number}" if split == "train" else f"ILSVRC2012_{split}_{number:08d}"
        yield number, folder / label / f"{name}.JPEG"


def _make_image(number: int, path: Path, size: Sequence[int]) -> None:
    import numpy as np
    from PIL import Image

    channels, height, width = size
    pixels = np.random.default_rng(number).integers(0, 256, (height, width, channels), dtype=np.uint8)
    partial = path.with_name(f".{path.name}{_PARTIAL}")
    Image.fromarray(pixels if channels > 1 else pixels[:, :, 0]).save(partial, format="JPEG")
    partial.replace(path)


def _write(file: Path, content: bytes) -> None:
    partial = file.with_name(f".{file.name}{_PARTIAL}")
    partial.write_bytes(content)
    partial.replace(file)


if __name__ == "__main__":
    generate_fakeimagenet()
