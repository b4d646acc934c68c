"""Merges two plans: each benchmark of suite A with its partner of suite B, in pairs, in random order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from milabench.plan.model import Plan, SkippedBench, Step
from milabench.plan.run import shuffle_key
from milabench.shown import grouped

SIDES = ("A", "B")


@dataclass(frozen=True, slots=True, kw_only=True)
class Interleaved:
    """The plan of both sides, its pairs in sequence, and for each benchmark on both sides whether these plan the same."""

    plan: Plan
    bundles: tuple[tuple[Step, ...], ...] = ()
    pairs: Mapping[str, bool] = field(default_factory=dict)


def side_name(bench: str, side: str) -> str:
    """Return the name of a benchmark on a side: `digits@A`."""
    return f"{bench}@{side}"


def interleaved(a: Plan, b: Plan, seed: int) -> Interleaved:
    """Return both plans merged: replicate by replicate and benchmark by benchmark, the two sides right after each other.

    Which side of a pair goes first is drawn by the seed. Benchmarks that only one side can run are skipped, with the reason.
    """
    ours, theirs = _launches(a), _launches(b)
    both = {bench for bench, _ in ours} & {bench for bench, _ in theirs}
    bundles: list[tuple[Step, ...]] = []
    for bench, repeat in ours:
        if bench in both:
            pair = [(side, launch[bench, repeat]) for side, launch in zip(SIDES, (ours, theirs), strict=True)]
            # Always A first would give A the cooler device and B the warmer page cache.
            if shuffle_key(seed, repeat, side_name(bench, "?"))[0] % 2:
                pair.reverse()
            bundles.append(tuple(_of_side(step, side) for side, launch in pair for step in launch))
    skipped = (*_left_out(a, b, "A", both), *_left_out(b, a, "B", both))
    return Interleaved(
        plan=replace(a, steps=tuple(step for bundle in bundles for step in bundle), skipped=skipped),
        bundles=tuple(bundles),
        pairs={bench: _hashes(ours, bench) == _hashes(theirs, bench) for bench in sorted(both)},
    )


def of_side(plan: Plan, side: str) -> Plan:
    """Return the steps of a side, with their benchmarks under their names in the suite."""
    suffix = side_name("", side)
    own = (step for step in plan.steps if step.bench.endswith(suffix))
    return replace(plan, steps=tuple(replace(step, bench=step.bench.removesuffix(suffix)) for step in own))


def _launches(plan: Plan) -> dict[tuple[str, int], list[Step]]:
    return grouped(((step.bench, step.repeat), step) for step in plan.steps)


def _hashes(launches: Mapping[tuple[str, int], list[Step]], bench: str) -> list[str]:
    return [step.hash for step in launches[bench, 0]]


def _left_out(plan: Plan, other: Plan, side: str, both: set[str]) -> list[SkippedBench]:
    """Return the benchmarks of a side that are in no pair."""
    elsewhere = {skip.bench: skip.why for skip in other.skipped}
    other_side = "B" if side == "A" else "A"
    skipped = [SkippedBench(bench=side_name(skip.bench, side), why=skip.why) for skip in plan.skipped]
    for bench in dict.fromkeys(step.bench for step in plan.steps if step.bench not in both):
        why = f"skips it: {elsewhere[bench]}" if bench in elsewhere else "has no benchmark of this name"
        skipped.append(SkippedBench(bench=side_name(bench, side), why=f"{other_side} {why}"))
    return skipped


def _of_side(step: Step, side: str) -> Step:
    """Return the step under the name of its side. The program's inputs stay the same."""

    def renamed(name: str) -> str:
        return side_name(step.bench, side) + name.removeprefix(step.bench)

    config: dict[str, Any] = dict(step.config)
    server = config.get("server")
    if isinstance(server, Mapping) and "step" in server:
        config["server"] = {**server, "step": renamed(server["step"])}
    return replace(
        step,
        id=renamed(step.id),
        bench=renamed(step.bench),
        group=renamed(step.group),
        job=renamed(step.job) if step.job else "",
        after=tuple(map(renamed, step.after)),
        config=config,
    )
