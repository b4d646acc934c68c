"""Load that lasts: matrix products for a time, whose results must be the same to the bit from the first to the last.

The first product is compared with double precision on the host. Every step then makes as many products as asked for from
the same matrices, and compares the bits of each with the first one's: a difference is silent corruption of data, and fails.
The digest of the first is recorded: devices of one model, with one release of torch, give the same.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import time
from collections.abc import Iterator

import torch
from command import wrong
from timing import the_device

import benchmate
from benchmate.session import current

SEED = 1
ROWS = 16
# A result of n sums is off by about the square root of n times these.
TOLERANCE = {torch.float32: 1e-2, torch.bfloat16: 5e-2, torch.float16: 1e-2, torch.float64: 1e-12}
TYPES = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1000, help="rows and columns of the matrices, a multiple of 1000")
    parser.add_argument("--precision", choices=["auto", *TYPES], default="auto", help="auto: bf16, on a CPU fp32")
    parser.add_argument("--products", type=int, default=1, help="in a step")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long it lasts")
    args = parser.parse_args()
    if args.size < 1 or args.size % 1000:
        parser.error(f"--size {args.size}: operations are recorded in 1e9, so it must be a multiple of 1000")
    device = the_device()
    name = {"auto": "fp32" if device.kind == "cpu" else "bf16"}.get(args.precision, args.precision)
    dtype = TYPES[name]
    generator = torch.Generator().manual_seed(SEED)
    a, b = (torch.randn(args.size, args.size, generator=generator).to(device.device, dtype) for _ in range(2))
    product = torch.matmul(a, b)
    check(product, a, b, dtype)
    first = bits(product.clone())
    digest = hashlib.sha256(first.cpu().numpy().tobytes()).hexdigest()
    benchmate.message(f"burn: digest of the {name} product of {args.size} x {args.size}: {digest[:16]}")
    compared = 0
    gigaflop = 2 * args.size**3 * args.products / 1e9
    differing = torch.zeros((), dtype=torch.int64, device=device.device)
    for _ in benchmate.observed(steps(args.seconds), units="Gflop/s", batch_size=lambda _: gigaflop):
        for _ in range(args.products):
            torch.matmul(a, b, out=product)
            differing += (bits(product) != first).any()
        compared += args.products
        # Reading it waits for the device: the time of a step is that of its products.
        if count := int(differing):
            wrong(
                f"burn: {count} of {compared} {name} products differ from the first, which was made of the same matrices"
            )
    benchmate.metric("compared_products", compared, "products", "none", main=False, precision=name)
    print(f"{compared} {name} products of {args.size} x {args.size} are all the same")
    current().finish()


def steps(seconds: float) -> Iterator[int]:
    """Numbers, until the time is over."""
    began, number = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        yield number
        number += 1


def bits(result: torch.Tensor) -> torch.Tensor:
    """The elements as integers: zeros of both signs differ, and what is no number is equal to itself."""
    return result.view(BITS[result.dtype.itemsize])


def check(product: torch.Tensor, a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype) -> None:
    rows = slice(0, ROWS)
    expected = a[rows].double().cpu() @ b.double().cpu()
    error = (product[rows].double().cpu() - expected).abs().max().item() / math.sqrt(a.shape[1])
    if not error <= TOLERANCE[dtype]:
        wrong(f"burn: the first product is wrong: error {error:.1e} of the scale")


if __name__ == "__main__":
    main()
