"""Loaders of ImageNet-like batches: images from files, by torch or DALI, or tensors without files."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

CLASSES = 1000
CROP = 224
SYNTHETIC_SIZE = 244
"""Not 224: measurements with milabench 1.3 had this size."""
SYNTHETIC_BATCHES = 1000
FAKE_BATCHES = 60
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def dataloader_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --batch-size, --loader, --num-workers and --data to a program's arguments."""
    parser.add_argument("--batch-size", type=int, default=16, help="items of a batch (default: 16)")
    parser.add_argument(
        "--loader",
        default="pytorch",
        help="pytorch: images from DATA/train, dali: the same by DALI, pytorch_fakedataset: images in memory, "
        "synthetic_fixed, synthetic_random: batches on the device, all the same or each another (default: pytorch)",
    )
    parser.add_argument("--num-workers", type=int, default=8, help="processes that load (default: 8)")
    parser.add_argument("--data", default=os.environ.get("MILABENCH_DIR_DATA"), help="folder of the images")


def imagenet_dataloader(args: argparse.Namespace, model: Any, rank: int = 0, world_size: int = 1) -> Any:
    """Return the loader that `args` ask for: an iterable of (images, targets) with a length.

    `args` as of `dataloader_arguments`. `model` is called once, to learn the shape of its output, for synthetic batches only.
    """
    if args.loader in ("synthetic_fixed", "synthetic_random"):
        return SyntheticBatches(model, args.batch_size, is_fixed=args.loader == "synthetic_fixed")
    if args.loader == "pytorch_fakedataset":
        return _torch_loader(FakeImages(FAKE_BATCHES * args.batch_size), args)
    folder = image_folder(args.data)
    if args.loader == "dali":
        return _dali(folder, args.batch_size, args.num_workers, rank, world_size)
    return _image_loader(folder, args, rank, world_size)


def image_folder(data: str | None) -> str:
    """Return the folder of the training images below DATA, or below the FakeImageNet in it."""
    root = data or os.environ.get("MILABENCH_DIR_DATA")
    if not root:
        raise SystemExit("no images: set MILABENCH_DIR_DATA, or pass --data DIR")
    candidates = [Path(root, "train"), Path(root, "FakeImageNet", "train")]
    found = next((folder for folder in candidates if folder.is_dir()), None)
    if found is None:
        raise SystemExit(f"no images: {' and '.join(map(str, candidates))} are no folders. prepare makes them")
    return str(found)


class SyntheticBatches:
    """Batches that are on the device of the model already, with targets as its output: only the model is timed."""

    def __init__(self, model: Any, batch_size: int, *, is_fixed: bool) -> None:
        import torch
        import torchcompat.core as accelerator

        parameter = next(iter(model.parameters()), None) if hasattr(model, "parameters") else None
        where = parameter.device if parameter is not None else accelerator.fetch_device(0)
        images = torch.randn((batch_size, 3, SYNTHETIC_SIZE, SYNTHETIC_SIZE), device=where)
        with torch.no_grad():
            targets = torch.rand_like(model(images))
        # A program may load before it moves its model: batches are on the device all the same.
        device = where if where.type != "cpu" else accelerator.fetch_device(0)
        self._batch = [images.to(device), targets.to(device)]
        self._is_fixed = is_fixed

    def __len__(self) -> int:
        return SYNTHETIC_BATCHES

    def __iter__(self) -> Iterator[list[torch.Tensor]]:
        import torch

        for _ in range(SYNTHETIC_BATCHES):
            yield self._batch if self._is_fixed else [torch.rand_like(tensor) for tensor in self._batch]


class FakeImages:
    """A data set of noise in memory: an image for each class, again and again."""

    def __init__(self, count: int) -> None:
        import torch

        self._count = count
        self._images = torch.randn((min(count, CLASSES), 3, CROP, CROP))

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if not 0 <= index < self._count:
            raise IndexError(index)
        return self._images[index % len(self._images)], index % CLASSES


def _image_loader(folder: str, args: argparse.Namespace, rank: int, world_size: int) -> Any:
    from torch.utils.data.distributed import DistributedSampler
    from torchvision import datasets, transforms

    transform = transforms.Compose(
        [
            transforms.RandomResizedCrop(CROP),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )
    images = datasets.ImageFolder(folder, transform)
    sampler = DistributedSampler(images, num_replicas=world_size, rank=rank) if world_size > 1 else None
    return _torch_loader(images, args, sampler)


def _torch_loader(images: Any, args: argparse.Namespace, sampler: Any = None) -> Any:
    import torch
    from torch.utils.data import DataLoader

    return DataLoader(
        images,
        batch_size=args.batch_size,
        num_workers=args.num_workers,
        # Without an accelerator there is nothing to pin for, and torch would warn.
        pin_memory=torch.accelerator.is_available() if hasattr(torch, "accelerator") else torch.cuda.is_available(),
        sampler=sampler,
        shuffle=sampler is None,
    )


def _dali(folder: str, batch_size: int, num_workers: int, rank: int, world_size: int) -> Any:
    try:
        from nvidia.dali import fn, pipeline_def, types
        from nvidia.dali.plugin.pytorch import DALIGenericIterator
    except ImportError as error:
        raise SystemExit(f"--loader dali: NVIDIA DALI is not installed in this environment: {error}") from None

    @pipeline_def(
        batch_size=batch_size, num_threads=max(1, num_workers), device_id=int(os.environ.get("LOCAL_RANK", "0"))
    )  # type: ignore[untyped-decorator]
    def decoded() -> Any:
        files, labels = fn.readers.file(
            file_root=folder, random_shuffle=True, name="images", shard_id=rank, num_shards=world_size
        )
        images = fn.decoders.image_random_crop(files, device="mixed", output_type=types.RGB)
        images = fn.resize(images, resize_x=256, resize_y=256)
        mean, std = [255 * value for value in MEAN], [255 * value for value in STD]
        images = fn.crop_mirror_normalize(
            images, crop_h=CROP, crop_w=CROP, mean=mean, std=std, mirror=fn.random.coin_flip()
        )
        return images, labels

    return _DaliBatches(DALIGenericIterator([decoded()], ["images", "labels"], reader_name="images", auto_reset=True))


class _DaliBatches:
    """The batches of DALI, as (images, targets)."""

    class sampler:  # noqa: N801  (programs call loader.sampler.set_epoch, as of a DistributedSampler)
        @staticmethod
        def set_epoch(epoch: int) -> None:
            """Do nothing: DALI shuffles at each epoch."""

    def __init__(self, batches: Any) -> None:
        self._batches = batches

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for (batch,) in self._batches:
            yield batch["images"], batch["labels"].squeeze(1).long()
