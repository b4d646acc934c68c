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


def sizes(smallest: int, largest: int, factor: int, multiple: int) -> list[int]:
    """Sizes in bytes from `smallest` up to `largest`, which is the last, each a multiple that all ranks can share."""
    size, found = smallest, []
    while size < largest:
        found.append(size)
        size *= factor
    return [max(multiple, size - size % multiple) for size in (*found, largest)]


def wrong(detail: str) -> NoReturn:
    """End the program, and with it the step, because a result is wrong."""
    end("wrong", detail)


def missing(detail: str) -> NoReturn:
    """End the program because this machine cannot run it."""
    end("environment", detail)


def end(why: str, detail: str) -> NoReturn:
    """End the program for a reason of the protocol, with one line."""
    benchmate.fail(why, detail)
    sys.exit(f"error: {detail}")
