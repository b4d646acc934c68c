"""What the lock files of benchmarks are made by and from; the feature `pinning` makes them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from milabench.plan.requirements import parse_requirements

# The PyTorch index of each variant, in uv's words; the build for CUDA is on the ordinary index. A constraints file may
# name another: `# torch-backend: rocm7.1`.
BACKENDS: Mapping[str, str] = {"cpu": "cpu", "rocm": "rocm7.2", "xpu": "xpu"}
MADE_BY = "milabench pin"


def inputs_digest(requirements: str, constraints: str = "") -> str:
    """Return the SHA-256 of the inputs of a benchmark's lock: two texts, whatever their comments, spaces and order."""
    locks = [parse_requirements(text) for text in (requirements, constraints)]
    lines = ["\n".join(sorted((*lock.options, *(pin.line for pin in lock.pins)))) for lock in locks]
    lines += [" ".join(left_out)] if (left_out := excluded_packages((requirements,))) else []
    return hashlib.sha256("\0".join(lines).encode()).hexdigest()


def excluded_packages(requirements: Iterable[str]) -> tuple[str, ...]:
    """Return the packages that requirement files, given as texts, leave out of their locks: `# exclude: NAME ...` at the top."""
    names = (name for text in requirements for name in parse_requirements(text).header.get("exclude", "").split())
    return tuple(sorted(set(names)))
