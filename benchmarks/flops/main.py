"""Square matrix multiplication by precision: how many floating-point operations a second this device really does.

A product of (n, n) by (n, n) matrices counts 2*n^3 operations (a multiply-add as two). Inputs are normal random (int8:
uniform): zeros need less power, so a device clocks higher on them and the number flatters. Each precision is tried for a
while; then products in the headline precision go on, one step each, for whoever watches.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch

SEED = 1
FEWEST = 10  # products in a trial
CHECKED_ROWS = 16
SMALLEST = 64
SAMPLE = 256  # the size that tells how fast a CPU is

# name -> element type, float32 matmul precision asked of torch, largest error accepted as a share of the sum's scale
PRECISIONS = {
    "fp64": (torch.float64, "highest", 1e-12),
    "fp32": (torch.float32, "highest", 1e-4),
    "tf32": (torch.float32, "high", 1e-2),
    "fp16": (torch.float16, "highest", 1e-2),
    "bf16": (torch.bfloat16, "highest", 5e-2),
    "fp8": (torch.float8_e4m3fn, "highest", 5e-2),
    "int8": (torch.int8, "highest", 0.0),
}
EIGHT_BITS = ("fp8", "int8")
MULTIPLE_OF_EIGHT_BITS = 16  # rows and columns that kernels of 8 bits take


@dataclass(frozen=True)
class Trial:
    """What one precision reached: `tflops` is all its operations by all its seconds, in 1e12 a second."""

    precision: str
    size: int
    products: int
    seconds: float
    clock: str
    tflops: float

    @property
    def units(self) -> str:
        return "Top/s" if self.precision == "int8" else "Tflop/s"


class Product:
    """One product c = a @ b in one precision, ready to run again and again."""

    def __init__(self, precision: str, size: int, device: torch.device) -> None:
        self.precision, self.size, self.device = precision, size, device
        dtype, self.float32_precision, self.tolerance = PRECISIONS[precision]
        generator = torch.Generator(device="cpu").manual_seed(SEED)
        self.a, self.b = (random_matrix(size, dtype, generator).to(device) for _ in range(2))
        if precision in EIGHT_BITS:
            # Kernels of 8 bits take the second matrix by columns, and give a wider sum in a matrix of their own.
            self.b, self.one = self.b.t(), torch.ones((), device=device)
        else:
            self.c = torch.empty(size, size, device=device, dtype=dtype)

    @property
    def flop(self) -> int:
        return 2 * self.size**3

    def run(self) -> None:
        if self.precision == "fp8":
            self.c = torch._scaled_mm(self.a, self.b, self.one, self.one, out_dtype=torch.bfloat16)
        elif self.precision == "int8":
            self.c = torch._int_mm(self.a, self.b)
        else:
            torch.matmul(self.a, self.b, out=self.c)

    def check(self) -> None:
        """Compare some rows with double precision on the host; raise ArithmeticError when they differ."""
        self.run()
        rows = slice(0, CHECKED_ROWS)
        expected = self.a[rows].double().cpu() @ self.b.double().cpu()
        error = (self.c[rows].double().cpu() - expected).abs().max().item() / math.sqrt(self.size)
        if not error <= self.tolerance:
            raise ArithmeticError(
                f"{self.precision}: wrong product, error {error:.1e} of the scale (at most {self.tolerance:g})"
            )


def random_matrix(size: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """A square matrix that is the same on every machine: normal random, of integers uniform over all their values."""
    if dtype is torch.int8:
        return torch.randint(-128, 128, (size, size), dtype=dtype, generator=generator)
    return torch.randn(size, size, generator=generator).to(element_type(dtype))


def element_type(dtype: torch.dtype) -> torch.dtype:
    """The element type as this device has it: AMD's first devices with fp8 have an encoding of their own."""
    if dtype is not torch.float8_e4m3fn or not (torch.version.hip and torch.cuda.is_available()):
        return dtype
    is_first = torch.cuda.get_device_properties(0).gcnArchName.startswith("gfx94")
    return torch.float8_e4m3fnuz if is_first else dtype


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1000, help="rows and columns of the matrices")
    parser.add_argument("--accelerator-size", type=int, help="the same on an accelerator; --size by default")
    parser.add_argument(
        "--precisions", default="fp32,tf32,bf16,fp16,fp8,int8", help=f"of {','.join(PRECISIONS)}, joined by commas"
    )
    parser.add_argument("--headline", default="auto", help="precision of the watched steps; auto: bf16, on a CPU fp32")
    parser.add_argument("--seconds", type=float, default=1.0, help="time for the trial of each precision")
    parser.add_argument(
        "--longest",
        type=float,
        default=0.5,
        help="on a CPU, halve the matrices while a product would take more seconds",
    )
    parser.add_argument(
        "--steps", type=int, default=0, help="products of the headline precision; 0: until somebody ends it"
    )
    args = parser.parse_args()

    device = best_device()
    if args.accelerator_size is not None and device.type != "cpu":
        args.size = args.accelerator_size
    print(f"{device}: {torch.get_num_threads()} host threads, torch {torch.__version__}")
    for precision in args.precisions.split(","):
        if reason := unavailable(precision, device):
            print(f"{precision}: skipped, {reason}")
            continue
        trial = measure(precision, args.size, device, args.seconds, args.longest)
        print(
            f"{trial.precision}: {trial.tflops:.4g} {trial.units} "
            f"({trial.products} products of {trial.size} x {trial.size} in {trial.seconds:.2f} s, {trial.clock} clock)"
        )
    precision = {"auto": "fp32" if device.type == "cpu" else "bf16"}.get(args.headline, args.headline)
    if reason := unavailable(precision, device):
        sys.exit(f"error: --headline {precision}: {reason}")
    # Of the size asked for, however slow it is: the operations of a step are recorded to a thousandth of 1e12.
    headline = prepared(precision, args.size, device, math.inf)
    for _ in products(headline, args.steps):
        headline.run()
    synchronise(device)


def best_device() -> torch.device:
    if torch.cuda.is_available():  # ROCm answers to this name too
        return torch.device("cuda")
    if torch.xpu.is_available():
        return torch.device("xpu")
    return torch.device("cpu")


def unavailable(precision: str, device: torch.device) -> str | None:
    """Why this device has no such precision, or None."""
    if precision not in PRECISIONS:
        sys.exit(f"error: unknown precision '{precision}'; there are {', '.join(PRECISIONS)}")
    if precision == "tf32" and not (device.type == "cuda" and torch.version.cuda):
        return "only NVIDIA's tensor cores have tf32"
    if precision in EIGHT_BITS:
        try:
            Product(precision, SMALLEST, device).run()
            synchronise(device)
        except (RuntimeError, NotImplementedError) as error:
            return f"this device or this torch has no {precision} product: {str(error).splitlines()[0]}"
    return None


def prepared(precision: str, size: int, device: torch.device, longest: float) -> Product:
    """A checked product, of `size`; on a CPU of a half, a quarter... when it would take over `longest` seconds.

    Some CPUs have no kernel for fp16 and are hundreds of times slower in it: their number is worth having, minutes of
    it are not.
    """
    # A process-wide setting: the last product prepared is the one that runs.
    torch.set_float32_matmul_precision(PRECISIONS[precision][1])
    if device.type == "cpu":
        sample = Product(precision, min(size, SAMPLE), device)
        # The best of a few, so that a machine that is busy for a moment does not change the size.
        slowness = min(warm_up(sample, 0) for _ in range(5)) / sample.flop
        while 2 * size**3 * slowness > longest and size > SAMPLE:
            size //= 2
    product = Product(precision, allowed_size(precision, size), device)
    product.check()
    return product


def allowed_size(precision: str, size: int) -> int:
    """The largest size up to this one that the kernels of a precision take."""
    return size - size % MULTIPLE_OF_EIGHT_BITS if precision in EIGHT_BITS else size


def measure(precision: str, size: int, device: torch.device, seconds: float, longest: float) -> Trial:
    product = prepared(precision, size, device, longest)
    count = max(FEWEST, math.ceil(seconds / warm_up(product, seconds / 2)))
    timed = on_host if device.type == "cpu" else on_device
    elapsed = timed(product, count)
    return Trial(
        precision=precision,
        size=product.size,
        products=count,
        seconds=elapsed,
        clock="host" if device.type == "cpu" else "device",
        tflops=count * product.flop / elapsed / 1e12,
    )


def warm_up(product: Product, seconds: float) -> float:
    """Run for at least `seconds`, so that clocks and caches settle; the seconds that a product takes."""
    product.run()
    synchronise(product.device)
    start = time.perf_counter()
    for done in itertools.count(1):
        product.run()
        synchronise(product.device)
        if (elapsed := time.perf_counter() - start) >= seconds:
            return elapsed / done
    raise AssertionError


def on_host(product: Product, count: int) -> float:
    """Seconds of `count` products by the host's clock."""
    start = time.perf_counter()
    for _ in range(count):
        product.run()
    return time.perf_counter() - start


def on_device(product: Product, count: int) -> float:
    """Seconds of `count` products by the device's clock: events between them, read after one synchronisation."""
    events = [torch.Event(product.device, enable_timing=True) for _ in range(count + 1)]
    events[0].record()
    for event in events[1:]:
        product.run()
        event.record()
    synchronise(product.device)
    return sum(before.elapsed_time(after) for before, after in itertools.pairwise(events)) / 1e3


def products(product: Product, steps: int) -> Iterator[int]:
    """Yield the operations of the product about to be made, `steps` times, or for ever when that is 0."""
    for _ in range(steps) if steps else itertools.count():
        yield product.flop


def synchronise(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize()


if __name__ == "__main__":
    main()
