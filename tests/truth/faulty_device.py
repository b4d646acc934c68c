"""Runs a program of benchmarks/machine on a device that computes wrong: `python faulty_device.py FAULT PROGRAM ARGUMENTS...`.

The fault is made outside of the program, in what torch gives back:

- `stuck-exponent`: one bit of the exponent of every element of every product is 1;
- `flip=P`: with a probability of P a product has one wrong bit;
- `exchange=P`: with a probability of P what rank 1 gets in a collective or from another rank has one wrong bit;
- `sum=P`: the same in sums of arrays.
"""

from __future__ import annotations

import random
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
EXPONENT = {torch.float64: 52, torch.float32: 23, torch.bfloat16: 7, torch.float16: 10, torch.int32: 20}


def flip(result: torch.Tensor, chosen: random.Random) -> tuple[int, int]:
    """Flip a random bit of a random element; return the number of the element and of the bit."""
    numbers = result.view(INTEGERS[result.dtype.itemsize]).view(-1)
    width = result.dtype.itemsize * 8
    place, bit = chosen.randrange(len(numbers)), chosen.randrange(width)
    numbers[place] ^= bit_mask(bit, width)
    return place, bit


def bit_mask(bit: int, width: int) -> int:
    """Return a signed integer of so many bits of which one is set."""
    return 1 << bit if bit < width - 1 else -(1 << bit)


def stuck(result: torch.Tensor) -> None:
    """Set the lowest bit of the exponent of every element."""
    result.view(INTEGERS[result.dtype.itemsize]).bitwise_or_(1 << EXPONENT[result.dtype])


def spoiled(function: Callable[..., Any], spoil: Callable[[torch.Tensor], object], argument: int) -> Callable[..., Any]:
    """Return the function, whose result, or the tensor that it fills, is spoiled afterwards."""

    def faulty(*args: Any, **named: Any) -> Any:
        result = function(*args, **named)
        filled = named.get("out", args[argument] if argument >= 0 else result)
        if isinstance(filled, torch.Tensor) and filled.numel() > 1:
            spoil(filled)
        return result

    return faulty


def make_faulty(fault: str) -> None:
    """Let what torch gives back be wrong from here on."""
    kind, _, share = fault.partition("=")
    chosen = random.Random(1)

    def sometimes(result: torch.Tensor) -> None:
        if chosen.random() < float(share):
            flip(result, chosen)

    if kind in ("stuck-exponent", "flip"):
        spoil = stuck if kind == "stuck-exponent" else sometimes
        torch.matmul = spoiled(torch.matmul, spoil, -1)
        torch._int_mm = spoiled(torch._int_mm, spoil, -1)
    elif kind == "sum":
        torch.add = spoiled(torch.add, sometimes, -1)
    else:

        def at_rank_1(result: torch.Tensor) -> None:
            if dist.get_rank() == 1:
                sometimes(result)

        for name in ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single", "broadcast"):
            setattr(dist, name, spoiled(getattr(dist, name), at_rank_1, 0))
        for name in ("all_gather_single", "reduce_scatter_single"):
            if hasattr(dist, name):
                setattr(dist, name, spoiled(getattr(dist, name), at_rank_1, 0))


def main() -> None:
    fault, program, *arguments = sys.argv[1:]
    make_faulty(fault)
    sys.argv = [program, *arguments]
    sys.path.insert(0, str(Path(program).parent))
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
