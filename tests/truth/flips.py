"""Wrong bits that benchmarks/machine finds, by class, and right results that it calls wrong: `python tests/truth/flips.py`.

Needs an interpreter with torch and benchmate. Printed are, for each class and number format, how many results were made wrong
and how many of them were found; for good products, how many were called wrong. `--trials` wrong results each, `--good` good
products in all. Then the programs themselves run on a faulty device (faulty_device.py), `--programs` times each.

The exit code is 1 where less than 99.9 % of a class is found, where a good product is called wrong, or a program ends well.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

# Threads that wait for each other on a machine that does other work, too, must not spin meanwhile. torch reads it.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
import torch.distributed as dist

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "benchmarks" / "machine"
sys.path[:0] = [str(ROOT), str(PROGRAMS)]

import collectives  # noqa: E402
from known_answers import FORMATS, WARP, KnownProduct, describe_difference, differs, is_rounding, unavailable  # noqa: E402
from timing import Ranks, the_device  # noqa: E402

from tests.truth.faulty_device import INTEGERS, bit_mask, flip  # noqa: E402

CPU = torch.device("cpu")
SIZE = 64
# Of good products: kernels of 32 and 64 bits share them among threads from this size on; those of 16 bits never do (torch 2.13).
SHARED_SIZE = {"fp64": 128, "fp32": 128}
SETS = 8  # of operands, which good products take in turn
FOUND = 0.999
OFTEN = 1e-4  # of an intermittent fault: wrong products of all
FLOATS = ("fp64", "fp32", "bf16", "fp16")


@dataclass(frozen=True)
class Row:
    """A class of faults: how many there were, how many were found, and how many were named rightly where that is asked."""

    name: str
    made: int
    found: int
    named: int | None = None
    good: int = 0
    false: int = 0
    """Of good results, how many were called wrong."""

    @property
    def is_missed(self) -> bool:
        return self.found < FOUND * self.made or (self.named is not None and self.named < FOUND * self.made)

    def __str__(self) -> str:
        named = f", named rightly {self.named / max(1, self.made):7.2%}" if self.named is not None else ""
        false = f", called wrong {self.false} of {self.good} good ones" if self.good else ""
        return f"{self.name:44}{self.made:8} {self.found / max(1, self.made):8.2%}{named}{false}"


def single_bits(name: str, trials: int, chosen: random.Random) -> Row:
    """One bit of one element of a product, the same one each time: persistent."""
    product = KnownProduct(FORMATS[name], SIZE, CPU, seed=1)
    found = named = 0
    for _ in range(trials):
        place, bit = flip(product.run(), chosen)
        if product.is_wrong():
            found += 1
            said = describe_difference(product.form, product.result, product.expected)
            named += f"[{place // SIZE}, {place % SIZE}]" in said and f"bit {bit} (" in said
    return Row(f"{name}: one bit of one element", trials, found, named)


def stuck_bits(name: str) -> Row:
    """One bit that is 0 or 1 in every element, for each bit; those that change nothing are no faults."""
    product = KnownProduct(FORMATS[name], SIZE, CPU, seed=1)
    width = product.form.result.itemsize * 8
    made = found = called_rounding = 0
    for bit in range(width):
        for is_one in (True, False):
            right = product.run().clone()
            numbers, mask = product.result.view(INTEGERS[width // 8]), bit_mask(bit, width)
            numbers.copy_(numbers | mask if is_one else numbers & ~mask)
            if torch.equal(numbers, right.view(INTEGERS[width // 8])):
                continue
            made += 1
            found += product.is_wrong()
            called_rounding += is_rounding(product.form, product.result, product.expected)
    return Row(f"{name}: one bit stuck in every element", made, found, made - called_rounding)


def warps(name: str, trials: int, chosen: random.Random) -> Row:
    """One bit of 32 neighbours in a row, as the lanes of a warp lie."""
    product = KnownProduct(FORMATS[name], SIZE, CPU, seed=1)
    width = product.form.result.itemsize * 8
    found = named = 0
    for _ in range(trials):
        numbers = product.run().view(INTEGERS[width // 8])
        row, first, bit = chosen.randrange(SIZE), chosen.randrange(SIZE // WARP) * WARP, chosen.randrange(width)
        numbers[row, first : first + WARP] ^= bit_mask(bit, width)
        found += product.is_wrong()
        named += f"aligned group of {WARP} of row {row}" in describe_difference(
            product.form, product.result, product.expected
        )
    return Row(f"{name}: {WARP} aligned elements of a row", trials, found, named)


def intermittent(name: str, products: int, chosen: random.Random) -> Row:
    """Products of which one in ten thousand has a wrong bit; also how many good ones are called wrong."""
    sets = [KnownProduct(FORMATS[name], SHARED_SIZE.get(name, SIZE), CPU, seed=2 + number) for number in range(SETS)]
    made = found = false = 0
    for number in range(products):
        product = sets[number % SETS]
        product.run()
        is_faulty = chosen.random() < OFTEN
        if is_faulty:
            flip(product.result, chosen)
        said = product.is_wrong()
        made, found, false = made + is_faulty, found + (is_faulty and said), false + (said and not is_faulty)
    threads = torch.get_num_threads()
    what = f"{name}, threads: {threads}: one product in {1 / OFTEN:.0f}"
    return Row(what, made, found, good=products - made, false=false)


def exchanges(trials: int, chosen: random.Random) -> Iterator[Row]:
    """What an all-reduce gave, and bytes that a peer copied."""
    device = the_device("cpu")
    ranks = Ranks(device)
    reduce = collectives.exchanges("all_reduce", 4096, device, ranks)
    found = 0
    for _ in range(trials):
        reduce.reset()
        reduce.call()
        flip(reduce.result, chosen)
        found += differs(reduce.result, reduce.expected)
    yield Row("all_reduce: one bit of one element", trials, found)
    sent = torch.randint(-128, 128, (4096,), dtype=torch.int8)
    found = 0
    for _ in range(trials):
        arrived = sent.clone()
        flip(arrived, chosen)
        found += not torch.equal(arrived, sent)
    yield Row("a copy: one bit of one byte", trials, found)


def ended_wrong(fault: str, program: str, *arguments: str, ranks: int = 1, says: str) -> bool:
    """Return whether a program on a faulty device fails and names what is wrong."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
    words = [sys.executable, *launcher, str(ROOT / "tests" / "truth" / "faulty_device.py"), fault]
    done = subprocess.run(
        [*words, str(PROGRAMS / program), *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    is_found = done.returncode != 0 and says in done.stderr
    if not is_found:
        print(f"{fault} {program} ended with {done.returncode}: {done.stdout[-500:]}{done.stderr[-1500:]}", flush=True)
    return is_found


def programs(times: int) -> Iterator[Row]:
    """The programs themselves, on devices that compute wrong."""
    cases: dict[str, Callable[[], bool]] = {
        "burn: an exponent bit of every product": lambda: ended_wrong(
            "stuck-exponent", "burn.py", "--seconds", "1", says="(exponent)"
        ),
        "burn: one product in fifty": lambda: ended_wrong(
            "flip=0.02", "burn.py", "--seconds", "5", says="of 100 more are wrong"
        ),
        "memory: every sum": lambda: ended_wrong(
            "sum=1", "memory.py", "--where", "host", "--bytes", "1M", "--seconds", "0.1", says="elements are wrong"
        ),
        **{
            f"collectives: {name} at rank 1": lambda name=name: ended_wrong(
                *("exchange=0.3", "collectives.py", "--operations", name, "--largest", "1K", "--seconds", "0.1"),
                ranks=2,
                says="is wrong at 1 of 2 ranks: rank 1 on",
            )
            for name in ("all_reduce", "all_gather", "broadcast")
        },
    }
    for name, is_found in cases.items():
        yield Row(name, times, sum(is_found() for _ in range(times)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--good", type=int, default=1_000_000)
    parser.add_argument(
        "--threads", default="1,2", help="numbers of threads that share a good product, each of as many"
    )
    parser.add_argument("--programs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    chosen = random.Random(args.seed)
    rows: list[Row] = []
    names = [name for name in FORMATS if not unavailable(name, CPU)]

    def show(row: Row) -> None:
        rows.append(row)
        print(row, flush=True)

    print(f"{'class':44}{'made':>8} {'found':>8}")
    torch.set_num_threads(1)
    for name in names:
        show(single_bits(name, args.trials, chosen))
        show(stuck_bits(name))
        show(warps(name, args.trials, chosen))
    numbers = [int(number) for number in args.threads.split(",")]
    for threads in numbers:
        torch.set_num_threads(threads)
        for name in FLOATS:
            show(intermittent(name, args.good // len(numbers) // len(FLOATS), chosen))
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        for row in exchanges(args.trials, chosen):
            show(row)
        dist.destroy_process_group()
    for row in programs(args.programs):
        show(row)
    false = sum(row.false for row in rows)
    print(f"good products called wrong: {false} of {sum(row.good for row in rows)}")
    return int(bool(false) or any(row.is_missed for row in rows))


if __name__ == "__main__":
    sys.exit(main())
