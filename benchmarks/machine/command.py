"""What the command lines share: sizes as arguments, and how a program ends when it cannot go on. Needs no torch."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

import benchmate


def whole(text: str) -> int:
    """A number of bytes or the like, above zero, with K, M or G for powers of 1024."""
    factors = {"K": 2**10, "M": 2**20, "G": 2**30}
    digits, factor = (text[:-1], factors[text[-1]]) if text[-1:] in factors else (text, 1)
    if not digits.isdecimal() or not int(digits):
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number above zero such as 4096, 64K, 1M or 2G")
    return int(digits) * factor


def ladder(smallest: int, largest: int, factor: int) -> list[int]:
    """Sizes from the smallest to the largest, both included; each but the last is `factor` times the one before."""
    sizes = [smallest]
    while sizes[-1] * factor < largest:
        sizes.append(sizes[-1] * factor)
    return sizes if smallest == largest else [*sizes, largest]


def wrong(detail: str) -> NoReturn:
    """End the program, and with it the step, because a result is wrong."""
    end("invalid", detail)


def missing(detail: str) -> NoReturn:
    """End the program because this machine cannot run it."""
    end("environment", detail)


def end(why: str, detail: str) -> NoReturn:
    """End the program for a reason of the protocol, with one line."""
    benchmate.fail(why, detail)
    sys.exit(f"error: {detail}")
