"""Matrix products whose bits are known before they are computed, and what is said of one that is wrong.

The operands are whole numbers that are small enough for every sum to be exact in the format's accumulator, in whatever order
it is added. The result is rounded once, so its bits are the same on every device and with every library. Rows and columns
are scaled by powers of two, which changes the exponents and rounds nothing.

The exact sums are computed on the host in double precision (they are below 2^53) for a few hundred different rows and columns,
whose numbers are primes; the matrices repeat them, each time scaled otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

# Different rows and columns of operands: primes, so that a kernel's tiles all get different ones.
ROWS, COLUMNS = 509, 503
BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
# A format whose good results round otherwise differs in many elements, by little, and in no fixed bit.
ROUNDED_SHARE = 0.01
ROUNDED_STEPS = 4
MASKS_OF_ROUNDING = 3
WARP = 32


@dataclass(frozen=True)
class Format:
    """A number format of operands and results.

    Operands are whole numbers between -`largest` and `largest`, scaled by powers of two between 2^-`scale` and 2^`above`. The
    accumulator adds whole numbers below 2^`exact` without rounding. Results have `mantissa` bits of fraction; 0: whole numbers.
    """

    name: str
    operand: torch.dtype
    result: torch.dtype
    largest: int
    scale: int
    above: int
    exact: int
    mantissa: int

    def bit_name(self, bit: int) -> str:
        """Return what a bit of a result stands for."""
        if bit == self.result.itemsize * 8 - 1:
            return "sign"
        if not self.mantissa:
            return "value"
        return "exponent" if bit >= self.mantissa else "mantissa"


FORMATS = {
    one.name: one
    for one in (
        Format("fp64", torch.float64, torch.float64, 8, 16, 16, 53, 52),
        Format("fp32", torch.float32, torch.float32, 8, 16, 16, 24, 23),
        Format("tf32", torch.float32, torch.float32, 8, 16, 16, 24, 23),
        Format("bf16", torch.bfloat16, torch.bfloat16, 8, 16, 16, 24, 7),
        # Its largest number is 65,504, so nothing is scaled up.
        Format("fp16", torch.float16, torch.float16, 8, 2, 0, 24, 10),
        # NVIDIA's first units of 8 bits add 13 bits of fraction: sums of numbers up to 2 stay far below 2^13.
        Format("fp8", torch.float8_e4m3fn, torch.bfloat16, 2, 3, 0, 13, 7),
        Format("int8", torch.int8, torch.int32, 127, 0, 0, 31, 0),
    )
}


class KnownProduct:
    """One product of (size, size) by (size, size) matrices in one format, ready to be made and compared again and again."""

    def __init__(self, form: Format, size: int, device: torch.device, seed: int) -> None:
        self.form, self.size = form, size
        rows, columns, exact = whole_numbers(form, size, seed)
        generator = torch.Generator().manual_seed(seed)
        row_scales, column_scales = (powers_of_two(form, size, generator).to(device) for _ in range(2))
        row_of, column_of = (torch.arange(size, device=device) % len(part) for part in (rows, columns))
        self.a = scaled(rows.to(device), row_of, row_scales, form.operand)
        # Kernels of 8 bits take the second matrix by columns.
        self.b = scaled(columns.to(device), column_of, column_scales, form.operand).t()
        if form.operand.itemsize > 1:
            self.b = self.b.contiguous()
        self.expected = torch.empty(size, size, dtype=form.result, device=device)
        sums = exact.to(device)[:, column_of]
        for first in range(0, size, len(rows)):
            part = slice(first, min(size, first + len(rows)))
            chosen = sums[: part.stop - first] * row_scales[part, None] * column_scales[None, :]
            self.expected[part] = chosen.to(form.result)
        self.result = torch.empty_like(self.expected)
        self._one = torch.ones((), device=device)

    def run(self) -> torch.Tensor:
        """Make the product; it is in `result`, too."""
        if self.form.name == "fp8":
            self.result = torch._scaled_mm(self.a, self.b, self._one, self._one, out_dtype=self.form.result)
        elif self.form.name == "int8":
            self.result = torch._int_mm(self.a, self.b)
        else:
            torch.matmul(self.a, self.b, out=self.result)
        return self.result

    def is_wrong(self) -> bool:
        """Return whether any bit of the result differs."""
        return differs(self.result, self.expected)


def whole_numbers(form: Format, size: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return different rows of the first matrix and columns of the second, (ROWS, size) and (COLUMNS, size), and their products.

    None of the numbers is zero, for a sum of nothing but negative zeros has a sign that depends on how it is added.
    Raises ValueError where the sums could be too large for the format.
    """
    # Partial sums of numbers with random signs stay below eight times their standard deviation.
    bound = form.largest**2 * (size if form.exact > 13 else 8 * size**0.5)
    if bound >= 2**form.exact:
        raise ValueError(f"{form.name}: sums of {size} products of numbers up to {form.largest} are not exact")
    generator = torch.Generator().manual_seed(seed)
    parts = []
    for count in (ROWS, COLUMNS):
        shape = (min(count, size), size)
        signs = torch.randint(0, 2, shape, generator=generator) * 2 - 1
        parts.append(signs * torch.randint(1, form.largest + 1, shape, generator=generator))
    rows, columns = (part.double() for part in parts)
    return rows, columns, rows @ columns.t()


def powers_of_two(form: Format, size: int, generator: torch.Generator) -> torch.Tensor:
    """Return a scale for each row, in double precision."""
    exponents = torch.randint(-form.scale, form.above + 1, (size,), generator=generator)
    return torch.pow(2.0, exponents.double())


def scaled(numbers: torch.Tensor, chosen: torch.Tensor, scales: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the chosen rows, each by its scale, in the type of operands; made in double precision, a part at a time."""
    made = torch.empty(len(chosen), numbers.shape[1], dtype=dtype, device=numbers.device)
    for first in range(0, len(chosen), ROWS):
        part = slice(first, first + ROWS)
        made[part] = (numbers[chosen[part]] * scales[part, None]).to(dtype)
    return made


def whole(result: torch.Tensor) -> torch.Tensor:
    """The elements as integers: zeros of both signs differ, and what is no number is equal to itself."""
    return result.view(BITS[result.dtype.itemsize])


def differs(result: torch.Tensor, right: torch.Tensor) -> bool:
    """Return whether any bit differs; eight bytes are compared at once. Waits for the device."""
    if result.shape[-1] * result.dtype.itemsize % 8:
        return not torch.equal(whole(result), whole(right))
    return not torch.equal(result.view(torch.int64), right.view(torch.int64))


def unavailable(name: str, device: torch.device) -> str:
    """Return why this device or this release of torch has no products in a format; nothing where it has."""
    if name == "tf32" and device.type != "cuda":
        return "only CUDA devices have it"
    form = FORMATS[name]
    try:
        # The smallest that kernels of 8 bits take.
        KnownProduct(form, 64, device, seed=0).run()
    except RuntimeError as error:  # also of what torch has not implemented
        return str(error).splitlines()[0]
    return ""


def is_rounding(form: Format, result: torch.Tensor, right: torch.Tensor) -> bool:
    """Return whether the wrong bits are those of sums that are rounded on the way, and not those of a faulty unit.

    Such sums differ in many elements, by a few units of the last place, up and down, and a carry changes several bits: a
    stuck or flipped bit is the same one in all elements. Only for formats whose accumulator may be narrower than it says.
    """
    if form.name not in ("fp8", "tf32", "bf16", "fp16"):
        return False
    masks = whole(result) ^ whole(right)
    wrong = masks != 0
    if wrong.float().mean().item() < ROUNDED_SHARE:
        return False
    steps = (whole(result).long() - whole(right).long())[wrong]
    is_small = bool((steps.abs() <= ROUNDED_STEPS).all())
    return (
        is_small and bool((steps > 0).any() and (steps < 0).any()) and len(masks[wrong].unique()) >= MASKS_OF_ROUNDING
    )


def describe_difference(form: Format, result: torch.Tensor, right: torch.Tensor) -> str:
    """Say which elements of a (rows, columns) result are wrong, in which bits, and in what pattern."""
    masks = whole(result) ^ whole(right)
    places = masks.nonzero().cpu()
    row, column = (int(number) for number in places[0])
    width = form.result.itemsize * 8
    mask = int(masks[row, column]) & (2**width - 1)
    bits = [bit for bit in range(width) if mask >> bit & 1]
    named = " and ".join(f"{bit} ({form.bit_name(bit)})" for bit in bits[:3]) + (
        f" and {len(bits) - 3} more" if len(bits) > 3 else ""
    )
    both = (f"{int(whole(matrix)[row, column]) & (2**width - 1):#0{width // 4 + 2}x}" for matrix in (result, right))
    return (
        f"{len(places)} of {result.numel()} elements are wrong ({pattern(places, result.shape)}); element [{row}, {column}] is "
        f"{next(both)} and not {next(both)}: bit{'s' * (len(bits) > 1)} {named}"
    )


def pattern(places: torch.Tensor, shape: torch.Size) -> str:
    """Say how wrong elements, given by (row, column), lie to each other."""
    rows, columns = (places[:, axis].unique() for axis in (0, 1))
    count = len(places)
    if count == 1:
        return "a single one"
    if count == shape.numel():
        return "all"
    if shape[0] == 1:
        return f"{in_a_warp(columns)}from {int(columns[0])} to {int(columns[-1])}"
    if len(rows) == 1:
        return f"{in_a_warp(columns)}of row {int(rows[0])}"
    if len(columns) == 1:
        return f"{in_a_warp(rows)}of column {int(columns[0])}"
    if count == len(rows) * len(columns):
        return f"a block of rows {int(rows[0])} to {int(rows[-1])} and columns {int(columns[0])} to {int(columns[-1])}"
    return f"scattered over {len(rows)} rows and {len(columns)} columns"


def in_a_warp(numbers: torch.Tensor) -> str:
    """Say whether places in a row or column lie in one aligned group of 32, as the lanes of a warp do."""
    group = int(numbers[0]) // WARP
    return f"in one aligned group of {WARP} " if int(numbers[-1]) // WARP == group else ""


def count_wrong(make: Callable[[], object], is_wrong: Callable[[], bool], times: int) -> int:
    """Return in how many of so many products anything is wrong."""
    count = 0
    for _ in range(times):
        make()
        count += is_wrong()
    return count
