"""Every command gives the same ratio of the same two runs, and exactly 1 of a run with itself."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.examples import thinned
from tests.unit.procurement.test_recheck_command import NOW, written

Milabench = Callable[..., Any]
BENCHES = ("x", "y")
CRITERIA = "title: t\nbenchmarks: {x: {minimum: 0.5 x reference}, y: {minimum: 0.5 x reference}}\n"
TENDER = "title: t\nmetric: ssi\nreference: {run: %s, nodes: 1}\nbenchmarks: {x: {}, y: {}}\n"


def ratios(milabench: Milabench, folder: Path, then: Path, now: Path) -> Mapping[str, Sequence[float]]:
    """Return the ratio of each benchmark, now over then, as each command gives it."""
    (folder / "criteria.yaml").write_text(CRITERIA)
    (folder / "tender.yaml").write_text(TENDER % then)

    def output(*argv: object) -> Any:
        return json.loads(milabench(*map(str, argv), "--json").out)

    def checked(found: Any, criterion: str) -> Sequence[float]:
        return [check["value"] for check in found["checks"] if check["criterion"] == criterion]

    compared = output("compare", then, now)["comparison"]
    scored = output("compare", now, "--tender", folder / "tender.yaml")
    reported = output("report", now, "--reference", then)
    return {
        "compare": [row["contrasts"][0]["ratio"] for row in compared["benchmarks"]],
        "accept": checked(
            output("accept", now, "--criteria", folder / "criteria.yaml", "--reference", then), "minimum"
        ),
        "recheck": checked(output("accept", "recheck", now, "--minimum", 0.5, "--against", then), "recheck"),
        "tender": [row["speedup"]["value"] for row in scored["tender"]["systems"][0]["benchmarks"]],
        "report": [row["ratio"] for row in reported["benchmarks"]],
    }


@pytest.mark.slow
def test_every_command_gives_the_same_ratio(milabench: Milabench, tmp_path: Path) -> None:
    for seed in thinned(range(500), 50):
        draw = random.Random(seed)
        then, now = (
            {bench: [draw.lognormvariate(0, 0.3) for _ in range(draw.randint(1, 5))] for bench in BENCHES} for _ in "tn"
        )
        folder = tmp_path / str(seed)
        runs = written(folder / "base", "then", then), written(folder / "base", "now", now, created=NOW)
        of_pair = ratios(milabench, folder, *runs)
        expected = [math.exp(log_mean(now[bench]) - log_mean(then[bench])) for bench in BENCHES]
        for command, values in of_pair.items():
            assert values == pytest.approx(expected, rel=1e-9), command
        again = written(folder / "base", "again", then, created=NOW)
        for command, values in ratios(milabench, folder, runs[0], again).items():
            assert values == [1, 1], command


def log_mean(values: Sequence[float]) -> float:
    return math.fsum(map(math.log, values)) / len(values)
