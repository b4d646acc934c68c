"""Train, or apply, any image classifier of timm: its model, loss, optimizer and loader; the loop around them is ours."""

from __future__ import annotations

import argparse
import itertools

import torch
from timm import create_model
from timm.data import create_dataset, create_loader
from timm.optim import create_optimizer_v2
from timm.task import ClassificationTask
from timm.utils.distributed import init_distributed_device_so

HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--mode", choices=("train", "inference"), default="train")
    parser.add_argument("--precision", choices=("fp32", "tf32", *HALVES), default="fp32")
    parser.add_argument("--data", help="a folder with one folder of images for each class; else random images")
    for name, default in (("workers", 4), ("batch-size", 64), ("image-size", 224), ("classes", 1000), ("lr", 1e-3)):
        parser.add_argument(f"--{name}", type=type(default), default=default)
    args = parser.parse_args()
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = args.precision == "tf32"
    placed = init_distributed_device_so(getattr(torch.accelerator.current_accelerator(), "type", "cpu"))
    device = args.device = torch.device(placed["device"])
    model = create_model(args.model, num_classes=args.classes).to(device, memory_format=torch.channels_last)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=args.lr, weight_decay=0.05)
    task = ClassificationTask(model, device=device).train(args.mode == "train")
    if placed["distributed"]:
        task.prepare_distributed(device_ids=None if device.type == "cpu" else [device])
    scaler = torch.amp.GradScaler(device.type, enabled=task.training and args.precision == "fp16")
    for images, labels in batches(args, placed["distributed"], placed["global_rank"]):
        half = torch.autocast(device.type, HALVES.get(args.precision), enabled=args.precision in HALVES)
        with half, torch.set_grad_enabled(task.training):
            loss = task(images.contiguous(memory_format=torch.channels_last), labels)["loss"]
        if task.training:
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()


def batches(args, distributed, rank):
    """Endless: from the folder, through timm's decoding and augmentation, or the same four batches of its own, on the device."""
    if args.data:
        how = {"num_workers": args.workers, "distributed": distributed, "device": args.device}
        how |= {"input_size": args.image_size, "batch_size": args.batch_size, "is_training": args.mode == "train"}
        loader = create_loader(create_dataset("", args.data), **how)
        if not len(loader):
            raise SystemExit(f"error: {args.data} has no full batch of {args.batch_size} images for each of the ranks")
        return itertools.chain.from_iterable(itertools.repeat(loader))
    patterns = torch.randn(args.classes, 3, 4, 4, device=args.device)  # of the classes, which all ranks share
    torch.manual_seed(1 + rank)
    labels = torch.randint(args.classes, (4, args.batch_size), device=args.device)
    grown = (torch.nn.functional.interpolate(patterns[some], size=args.image_size) for some in labels)
    return itertools.cycle([(images + torch.randn_like(images), labels[n]) for n, images in enumerate(grown)])


if __name__ == "__main__":
    main()
