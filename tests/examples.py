"""How much of a slow test runs: part of its examples in `make test`, all of them in `make e2e`, which sets ALL_EXAMPLES."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings

ALL = bool(os.environ.get("ALL_EXAMPLES"))
PART = 5  # one example in so many, where not all run
LEAST = 30
ONLY_ALL = (pytest.mark.e2e, pytest.mark.long)
"""The marks of a case whose claim another case shows in `make test`: the whole of `make e2e` runs it, CI does not."""
_Test = TypeVar("_Test", bound=Callable[..., Any])
_Value = TypeVar("_Value")


def examples(count: int) -> Callable[[_Test], _Test]:
    """Mark a property as slow; `count` examples are all of it."""

    def decorate(test: _Test) -> _Test:
        few = settings(derandomize=True, deadline=None, max_examples=count if ALL else max(LEAST, count // PART))
        return pytest.mark.slow(few(test))

    return decorate


def thinned(values: range, part: int = PART) -> range:
    """All values, or one in `part` of them; odd parts meet both even and odd values."""
    return values if ALL else values[::part]


def drawn(values: Sequence[_Value], count: int = 1) -> list[_Value]:
    """All values, or where not all examples run the `count` that this commit draws: another commit, other values."""
    if ALL:
        return list(values)
    place = commit() % len(values)
    return [*values[place:], *values[:place]][:count]


@functools.cache
def commit() -> int:
    """The commit that is checked out, as a number."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, check=False)
    return int(done.stdout or b"0", 16)
