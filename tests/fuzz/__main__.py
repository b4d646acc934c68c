"""Feeds drawn input of every kind to the program, and prints the counts.

    python -m tests.fuzz [--inputs N] [--minutes M] [--seed S] [--kind K] [--save FOLDER]

Ends with 1 when an input had a defect: a traceback, a hang, too much memory, output that is not in its format. The inputs are
saved; what was a defect goes to tests/fuzz/corpus, which `make test` reads again.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz import valid
from tests.fuzz.harness import LIMIT_S, Defect, Input, Pool
from tests.fuzz.kinds import KINDS, SHARES, strategy
from tests.fuzz.worker import MEMORY_MIB

ROUND = 10  # inputs for each share of a kind in a round, so that all kinds have their turn however soon it ends


def draw(strategy: object, count: int, number: int, take: Callable[[Input], None]) -> None:
    """Draw so many inputs, and hand each on."""

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        derandomize=False,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)  # type: ignore[arg-type]
    def drawn(value: Input) -> None:
        take(value)

    drawn()


def fuzz(
    kinds: Iterable[str],
    *,
    inputs: int,
    seconds: float,
    number: int,
    workers: int = 2,
    say: Callable[[str], None] = print,
) -> Pool:
    """Draw inputs until there were so many, or the time is over; return what was found."""
    with tempfile.TemporaryDirectory(prefix="milabench-valid-") as folder:
        fixed = valid.make(Path(folder, "fixed"))
        strategies = {kind: strategy(kind, fixed) for kind in kinds}
        pool = Pool(fixed.folder, workers)
        deadline, round_, given_ = time.monotonic() + seconds, 0, 0
        seen = 0
        with pool.running():
            while given_ < inputs and time.monotonic() < deadline:
                for kind, drawn in strategies.items():
                    count = min(ROUND * SHARES.get(kind, 1), inputs - given_)
                    if count > 0 and time.monotonic() < deadline:
                        draw(drawn, count, number * 1_000_003 + round_ * 101 + list(KINDS).index(kind), pool.take)
                        given_ += count
                round_ += 1
                for defect in pool.defects[seen:]:
                    say(f"  {defect.signature}")
                seen = len(pool.defects)
        for defect in pool.defects[seen:]:
            say(f"  {defect.signature}")
    return pool


def by_signature(defects: Iterable[Defect]) -> dict[str, list[Defect]]:
    """Return the defects by what they have in common, each group with its smallest input first."""
    groups: dict[str, list[Defect]] = {}
    for defect in defects:
        groups.setdefault(defect.signature, []).append(defect)
    return {name: sorted(group, key=lambda one: one.input.size) for name, group in sorted(groups.items())}


def save(groups: dict[str, list[Defect]], folder: Path) -> None:
    """Write the smallest input of each group, and what it did."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, group in groups.items():
        slug = re.sub(r"[^A-Za-z0-9]+", "-", name)[:90].strip("-")
        (folder / f"{slug}.json").write_text(group[0].smallest().to_json())
        (folder / f"{slug}.txt").write_text(
            f"{' '.join(group[0].command)}\n{group[0].what}\n", errors="backslashreplace"
        )


def table(pool: Pool, seconds: float, number: int) -> str:
    """Return the counts by kind, and what was the most that one took; `accepted` by a command, the others were refused."""
    found = Counter(defect.input.kind for defect in pool.defects)
    rows = [(kind, count, pool.accepted[kind], found[kind]) for kind, count in sorted(pool.inputs.items())]
    rows += [("all", pool.inputs.total(), pool.accepted.total(), len(pool.defects))]
    return "\n".join(
        [
            f"{'kind':<12}{'inputs':>8}{'accepted':>10}{'defects':>9}",
            *(f"{kind:<12}{inputs:>8}{accepted:>10}{defects:>9}" for kind, inputs, accepted, defects in rows),
            f"{pool.commands.total()} commands, {pool.processes} of them in processes of their own too; seed {number}, "
            f"{seconds:.0f} s",
            f"slowest {pool.slowest[0]:.1f} s with a processor (of {LIMIT_S:g}): {pool.slowest[1][:150]}",
            f"largest {pool.largest[0]} MiB (of {MEMORY_MIB}): {pool.largest[1][:150]}",
        ]
    )


def main(words: list[str]) -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=4)  # half of the inputs wait more than they compute
    parser.add_argument("--kind", action="append", choices=sorted(KINDS))
    parser.add_argument("--save", type=Path, default=Path("fuzz-defects"))
    options = parser.parse_args(words)
    began = time.monotonic()
    pool = fuzz(
        options.kind or KINDS,
        inputs=options.inputs,
        seconds=60 * options.minutes,
        number=options.seed,
        workers=options.workers,
    )
    groups = by_signature(pool.defects)
    print(table(pool, time.monotonic() - began, options.seed))
    for name, group in groups.items():
        print(f"{len(group):>6}  {name}")
    if groups:
        save(groups, options.save)
        print(f"{len(groups)} defects; the smallest input of each is in {options.save}")
    return 1 if groups else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
