"""The packages that a shipped benchmark names are among the requirements that it shares."""

from __future__ import annotations

from pathlib import Path

import pytest

from milabench.bench.load import load_benchfile, requirements_folder
from milabench.plan.requirements import parse_requirements
from tests.commands import ROOT

SHIPPED = sorted(path.parent for path in (ROOT / "benchmarks").glob("[a-z]*/benchfile.py"))


def names(text: str) -> set[str]:
    return {pin.name for pin in parse_requirements(text).pins}


@pytest.mark.parametrize("folder", SHIPPED, ids=[folder.name for folder in SHIPPED])
def test_the_packages_of_a_benchmark_are_among_those_of_its_requirements(folder: Path) -> None:
    benchmark = load_benchfile(folder)
    files = requirements_folder(benchmark, folder).glob("requirements*.in")
    shared = set().union(*(names(file.read_text()) for file in files))
    assert names("\n".join(benchmark.packages)) <= shared
