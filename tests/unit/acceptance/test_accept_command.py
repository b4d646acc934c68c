"""`accept` beside a reference: only the same work decides, unless it is asked to decide all the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.recorded_run import Recorded, rates, record

Milabench = Callable[..., Any]


def written(base: Path, name: str, *levels: float, batch: int, bench: str = "digits") -> str:
    """A run of one benchmark with a batch size."""
    steps = [Recorded(bench=bench, repeat=at, events=rates(*[level] * 3)) for at, level in enumerate(levels)]
    suite: Mapping[str, Any] = {bench: {"argv": {"--batch-size": batch}}}
    return str(record(base, *steps, name=name, manifest={"suite": suite}).path)


@pytest.mark.parametrize(("way", "more"), [((), ()), (("looks",), ("--cap", "3"))])
def test_other_arguments_than_the_reference_s_decide_nothing(
    milabench: Milabench, tmp_path: Path, way: tuple[str, ...], more: tuple[str, ...]
) -> None:
    old = written(tmp_path, "old", 100.0, 100.1, 99.9, batch=64)
    same, other = (written(tmp_path, f"new{size}", 150.0, 150.1, 149.9, batch=size) for size in (64, 512))
    criteria = tmp_path / "accept.yaml"
    criteria.write_text("benchmarks: {digits: {minimum: 1.2 x reference}}")
    asked = ("--criteria", str(criteria), "--reference", old, "--json", *more)
    assert milabench("accept", *way, same, *asked).code == 0
    refused = milabench("accept", *way, other, *asked)
    found = json.loads(refused.out)
    [check] = [check for check in found["checks"] if check["criterion"] == "minimum"]
    assert (refused.code, found["verdict"], check["verdict"]) == (8, "INCONCLUSIVE", "INCONCLUSIVE")
    assert "the same work as the reference" in check["missing"] and "--batch-size 64 / 512" in check["missing"]
    assert milabench("accept", *way, other, *asked, "--across").code == 0


def test_a_verdict_across_says_what_differs(milabench: Milabench, tmp_path: Path) -> None:
    old, new = (written(tmp_path, f"b{size}", 100.0, 100.1, 99.9, batch=size) for size in (64, 512))
    criteria = tmp_path / "accept.yaml"
    criteria.write_text("benchmarks: {digits: {minimum: 0.9 x reference}}")
    found = milabench("accept", new, "--criteria", str(criteria), "--reference", old, "--across")
    assert found.code == 0
    assert "digits: does other work than the reference: --batch-size 64 / 512" in found.out


def test_across_needs_a_reference(milabench: Milabench, tmp_path: Path) -> None:
    criteria = tmp_path / "accept.yaml"
    criteria.write_text("benchmarks: {digits: {minimum: 9 images/s}}")
    run = written(tmp_path, "run", 100.0, batch=64)
    refused = milabench("accept", run, "--criteria", str(criteria), "--across")
    assert (refused.code, "--across goes with --reference" in refused.err) == (2, True)
