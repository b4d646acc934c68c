"""Load that lasts: matrix products for a time, whose elements are checked to the bit.

Most products are of random matrices, which need the most power, and must be the same from the first to the last. Every tenth
is of whole numbers whose exact product is known beforehand (known_answers.py), so that a unit which is wrong every time is
found as well. Before and after the load every number format of the device makes such products.

Comparing must not cost load: where it takes more than a few hundredths of a product's time, not every random product is compared
but one in so many, all of its elements. The number is recorded.

The digest of the first random product is recorded: devices of one model, with one release of torch, give the same.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence

import torch
from command import wrong
from known_answers import FORMATS, KnownProduct, count_wrong, describe_difference, differs, is_rounding, unavailable
from timing import device_name, the_device

import benchmate
from benchmate.session import current

SEED = 1
SETS = 2  # of operands of a format
CHECKS = 10  # products of each set before the load, and as many after it
AGAIN = 100  # products that say how often something is wrong
COMPARING = 0.015  # of the load: what comparing random products may take; known ones take up to 0.5 % more
TRIALS = 9  # of a product and of a comparison, to find what they take
PRECISIONS = ("fp64", "fp32", "tf32", "bf16", "fp16")
SIZE_OF_CHECKS, SIZE_ON_A_CPU = 4000, 400


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1000, help="rows and columns of the matrices, a multiple of 1000")
    parser.add_argument("--precision", choices=["auto", *PRECISIONS], default="auto", help="auto: bf16, on a CPU fp32")
    parser.add_argument("--products", type=int, default=1, help="in a step")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long it lasts")
    parser.add_argument("--known-every", type=int, default=10, help="every so many products one has a known answer")
    parser.add_argument(
        "--formats", default=",".join(FORMATS), help="number formats to check before and after the load"
    )
    args = parser.parse_args()
    if args.size < 1 or args.size % 1000:
        parser.error(f"--size {args.size}: operations are recorded in 1e9, so it must be a multiple of 1000")
    if args.known_every < 1:
        parser.error(f"--known-every {args.known_every}: must be at least 1")
    formats = [name for name in args.formats.split(",") if name]
    if unknown := sorted(set(formats) - set(FORMATS)):
        parser.error(f"--formats {','.join(unknown)}: there are {', '.join(FORMATS)}")
    device = the_device().device
    exact_sums()
    name = {"auto": "fp32" if device.type == "cpu" else "bf16"}.get(args.precision, args.precision)
    if reason := unavailable(name, device):
        parser.error(f"--precision {name}: {reason}")
    size = min(args.size, SIZE_ON_A_CPU if device.type == "cpu" else SIZE_OF_CHECKS)
    before, rounded = check_formats(formats, size, device, "before")
    torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
    products = Products(name, args.size, 0 if name in rounded else args.known_every, device)
    gigaflop = 2 * args.size**3 * args.products / 1e9
    for _ in benchmate.observed(steps(args.seconds), units="Gflop/s", batch_size=lambda _: gigaflop):
        for _ in range(args.products):
            products.make_one()
    after, _ = check_formats(formats, size, device, "after")
    benchmate.metric("compared_products", products.compared, "products", "none", main=False, precision=name)
    benchmate.metric("known_products", products.known + before + after, "products", "none", main=False)
    print(
        f"{products.compared} of {products.made} {name} products of {args.size} x {args.size} were compared and are right, "
        f"{products.known} of known answer"
    )
    current().finish()


def exact_sums() -> None:
    """Let kernels add as the format says: sums in fewer bits, which are quicker on some devices, round on the way."""
    matmul = torch.backends.cuda.matmul
    matmul.allow_bf16_reduced_precision_reduction = False
    matmul.allow_fp16_reduced_precision_reduction = False
    matmul.allow_fp16_accumulation = False


def check_formats(names: Sequence[str], size: int, device: torch.device, when: str) -> tuple[int, set[str]]:
    """Make products of known answer in each format that the device has: how many, and the formats that cannot be compared.

    Ends the program at a wrong one.
    """
    made, rounded = 0, set()
    for name in names:
        if reason := unavailable(name, device):
            benchmate.message(f"burn: {name} is not checked: {reason}")
            continue
        torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
        for number in range(SETS):
            product = KnownProduct(FORMATS[name], size, device, SEED + number)
            for _ in range(CHECKS):
                product.run()
                made += 1
                if product.is_wrong():
                    judge(product, device, when)
                    rounded.add(name)
                    break
    return made, rounded


def judge(product: KnownProduct, device: torch.device, when: str) -> None:
    """Say what is wrong with a result, and end the program; or that the format's sums are not exact on this device."""
    form = product.form
    if is_rounding(form, product.result, product.expected):
        benchmate.message(
            f"burn: {form.name} is not comparable on this device: its sums of {product.size} products are rounded on the way, "
            "although sums of reduced precision are switched off"
        )
        return
    found = describe_difference(form, product.result, product.expected)
    count = count_wrong(product.run, product.is_wrong, AGAIN)
    wrong(
        f"burn: {device_name(device)}: a {form.name} product of known answer {when} the load: {found}; "
        f"{count} of {AGAIN} more are wrong"
    )


class Products:
    """The products of the load in one format: random ones, and every `known_every` (0: never) one whose answer is known."""

    def __init__(self, name: str, size: int, known_every: int, device: torch.device) -> None:
        self.form, self.device = FORMATS[name], device
        generator = torch.Generator().manual_seed(SEED)
        self.a, self.b = (torch.randn(size, size, generator=generator).to(device, self.form.operand) for _ in range(2))
        self.first = torch.matmul(self.a, self.b)
        self.result = torch.empty_like(self.first)
        digest = hashlib.sha256(self.first.view(torch.uint8).cpu().numpy().tobytes()).hexdigest()
        benchmate.message(f"burn: digest of the {name} product of {size} x {size}: {digest[:16]}")
        sets = [KnownProduct(self.form, size, device, SEED + number) for number in range(SETS if known_every else 0)]
        self._sets = itertools.cycle(sets)
        self.known_every = known_every
        self.made = self.known = self.compared = 0
        self.compare_every = self._compare_every()

    def _random(self) -> None:
        torch.matmul(self.a, self.b, out=self.result)

    def _is_unlike(self) -> bool:
        return differs(self.result, self.first)

    def _compare_every(self) -> int:
        """Return of how many random products one is compared, so that comparing takes no more than `COMPARING` of the load."""
        product_s = compare_s = math.inf
        for _ in range(TRIALS):
            began = time.perf_counter()
            self._random()
            self.result[0, 0].item()  # waits for the product
            middle = time.perf_counter()
            self._is_unlike()
            # The least of each: what else the machine does makes both longer.
            product_s, compare_s = min(product_s, middle - began), min(compare_s, time.perf_counter() - middle)
        return max(1, math.ceil(compare_s / COMPARING / product_s))

    def make_alone(self) -> KnownProduct | None:
        """Make the next product, and compare nothing; return it where its answer is known."""
        self.made += 1
        if self.known_every and self.made % self.known_every == 0:
            product = next(self._sets)
            product.run()
            self.known += 1
            return product
        self._random()
        return None

    def make_one(self) -> None:
        """Make the next product; compare every element when it is its turn. Ends the program where one is wrong."""
        product = self.make_alone()
        if product is not None:
            self._check(product.run, product.is_wrong, lambda: (product.result, product.expected), "of known answer")
        elif (self.made - 1) % self.compare_every == 0:  # none of which is one of known answer
            self._check(self._random, self._is_unlike, lambda: (self.result, self.first), "unlike the first one")

    def _check(
        self,
        make: Callable[[], object],
        is_wrong: Callable[[], bool],
        both: Callable[[], tuple[torch.Tensor, torch.Tensor]],
        kind: str,
    ) -> None:
        self.compared += 1
        # It waits for the device: the time of a step is that of its products.
        if not is_wrong():
            return
        found = describe_difference(self.form, *both())
        count = count_wrong(make, is_wrong, AGAIN)
        wrong(
            f"burn: {device_name(self.device)}: product {self.made}, {self.form.name}, {kind}: {found}; "
            f"{count} of {AGAIN} more are wrong"
        )


def steps(seconds: float) -> Iterator[int]:
    """Numbers, until the time is over."""
    began, number = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        yield number
        number += 1


if __name__ == "__main__":
    main()
