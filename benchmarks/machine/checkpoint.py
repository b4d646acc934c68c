"""How fast a checkpoint is written and restored: torch.distributed.checkpoint, every rank its part, to the disk.

The state is that of a llama in mixed precision under an optimizer with two moments: 2 bytes a parameter in bf16, 12 in
single precision (a copy and the moments). Every rank holds an equal share of the rows of every tensor. Files are synchronised
(fsync) before a write counts as done; before a restore their pages are dropped from this machine's cache. What was restored
is compared with what was written.
"""

from __future__ import annotations

import argparse
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from command import end, missing, wrong
from timing import Ranks, device_name, the_device

import benchmate
from benchmate.ops.device import TorchDevice, free_bytes
from benchmate.ops.statistics import estimate
from benchmate.session import current

SEED = 1
COPIES = {"parameters": torch.bfloat16, "copy": torch.float32, "mean": torch.float32, "variance": torch.float32}


@dataclass(frozen=True)
class Shape:
    """The sizes of a llama; `kv` is the width of its keys and values."""

    hidden: int
    layers: int
    feed_forward: int
    kv: int
    vocabulary: int

    def tensors(self) -> Iterator[tuple[str, int, int]]:
        """The name, rows and columns of every tensor; a norm is one column."""
        for name in ("embedding", "head"):
            yield name, self.vocabulary, self.hidden
        for layer in range(self.layers):
            for name, rows, columns in (
                ("q", self.hidden, self.hidden),
                ("k", self.kv, self.hidden),
                ("v", self.kv, self.hidden),
                ("o", self.hidden, self.hidden),
                ("gate", self.feed_forward, self.hidden),
                ("up", self.feed_forward, self.hidden),
                ("down", self.hidden, self.feed_forward),
                ("attention_norm", self.hidden, 1),
                ("mlp_norm", self.hidden, 1),
            ):
                yield f"layers.{layer}.{name}", rows, columns
        yield "norm", self.hidden, 1

    @property
    def parameters(self) -> int:
        return sum(rows * columns for _, rows, columns in self.tensors())


# The published sizes of Llama 3; `tiny` is a small one of the same form.
SHAPES = {
    "tiny": Shape(hidden=256, layers=4, feed_forward=768, kv=64, vocabulary=4096),
    "1b": Shape(hidden=2048, layers=16, feed_forward=8192, kv=512, vocabulary=128256),
    "8b": Shape(hidden=4096, layers=32, feed_forward=14336, kv=1024, vocabulary=128256),
    "70b": Shape(hidden=8192, layers=80, feed_forward=28672, kv=1024, vocabulary=128256),
    "405b": Shape(hidden=16384, layers=126, feed_forward=53248, kv=1024, vocabulary=128256),
}

State = dict[str, torch.Tensor]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=list(SHAPES), default="tiny")
    parser.add_argument("--folder", type=Path, default=Path("checkpoint"), help="a new one, shared by all ranks' nodes")
    parser.add_argument("--repeats", type=int, default=3, help="of write and restore; the first write makes the files")
    args = parser.parse_args()
    device = the_device()
    ranks = Ranks(device)
    shape = SHAPES[args.shape]
    total = shape.parameters * sum(dtype.itemsize for dtype in COPIES.values())
    require_room(args.folder, total, ranks, device)
    state = state_of(shape, device, ranks.rank, ranks.count)
    times: dict[str, list[float]] = {"write": [], "restore": []}
    if ranks.is_first:
        if args.folder.exists():
            missing(f"checkpoint: {args.folder} exists: --folder names a new one")
        args.folder.mkdir(parents=True)
    try:
        for _ in range(args.repeats):
            if ranks.is_first:
                shutil.rmtree(args.folder, ignore_errors=True)
                args.folder.mkdir(parents=True)
            ranks.wait()
            times["write"].append(timed(lambda: write(state, args.folder), ranks))
            if not (args.folder / ".metadata").is_file():
                missing(f"checkpoint: {args.folder} is not shared by all nodes: --folder on a file system that is")
            drop_pages(args.folder)
            restored = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
            ranks.wait()
            times["restore"].append(timed(lambda restored=restored: read(restored, args.folder), ranks))
            compare(restored, state)
    finally:
        ranks.wait()
        if ranks.is_first:
            shutil.rmtree(args.folder, ignore_errors=True)
    if ranks.is_first:
        report(
            times, total, {"shape": args.shape, "parameters": shape.parameters, "bytes": total, "ranks": ranks.count}
        )
    ranks.leave()
    current().finish()


def state_of(shape: Shape, device: TorchDevice, rank: int, count: int) -> State:
    """This rank's rows of every tensor, under names of its own; random, so that no file system stores them smaller."""
    generator = torch.Generator(device.device).manual_seed(SEED + rank)
    state = {}
    for name, rows, columns in shape.tensors():
        first, last = rows * rank // count, rows * (rank + 1) // count
        for kind, dtype in COPIES.items():
            size = (last - first, columns)
            state[f"{kind}.{name}.{rank}"] = torch.randn(size, generator=generator, device=device.device).to(dtype)
    return state


def require_room(folder: Path, total: int, ranks: Ranks, device: TorchDevice) -> None:
    """End the program where the disk or the memory cannot hold the checkpoint; memory holds what is restored beside it."""
    there = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    room = shutil.disk_usage(there).free
    if room < total:
        end(
            "no-space",
            f"checkpoint: {folder}: {total} bytes are to be written, and {room} are free; see --folder, --shape",
        )
    # On a CPU the ranks of this machine share its memory.
    sharing = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if device.kind == "cpu" else 1
    needed, free = 2 * total // ranks.count * sharing, free_bytes(str(device.device))
    if free is not None and free < needed:
        end(
            "out-of-memory",
            f"checkpoint: {needed} bytes of {device.kind} memory are needed, and {free} are free; see --shape",
        )


def write(state: State, folder: Path) -> None:
    writer = dcp.FileSystemWriter(folder, single_file_per_rank=True, sync_files=True)
    dcp.save(state, storage_writer=writer, no_dist=not dist.is_initialized())


def read(state: State, folder: Path) -> None:
    dcp.load(state, storage_reader=dcp.FileSystemReader(folder), no_dist=not dist.is_initialized())


def timed(call: Callable[[], None], ranks: Ranks) -> float:
    """Seconds of the slowest rank."""
    ranks.wait()
    since = time.perf_counter()
    call()
    return ranks.slowest(time.perf_counter() - since)


def drop_pages(folder: Path) -> None:
    """Drop the files' pages from this machine's cache; not from a storage server's, nor from a disk's."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def compare(restored: State, written: State) -> None:
    for name, tensor in written.items():
        if not torch.equal(restored[name], tensor):
            wrong(f"checkpoint: {device_name(tensor.device)}: {name} was restored otherwise than it was written")


def report(times: Mapping[str, list[float]], total: int, params: Mapping[str, object]) -> None:
    for case, seconds in times.items():
        middle = estimate(seconds).median
        rate = total / middle / 1e9
        more = {"case": case, "params": dict(params), "samples": len(seconds), "clock": "host"}
        benchmate.metric("bandwidth", rate, "GB/s", "higher", main=True, seconds=middle, **more)
        benchmate.metric("time", middle, "s", "lower", main=False, **more)
        print(f"{case}: {total} bytes in {middle:.3f} s: {rate:.4g} GB/s ({len(seconds)} times)", flush=True)


if __name__ == "__main__":
    main()
