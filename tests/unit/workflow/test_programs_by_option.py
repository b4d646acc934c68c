"""One definition for several programs of a package: an option of the suite chooses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

BENCHFILE = """\
from milabench import Benchmark
benchmark = Benchmark(script="{algorithm}.py", voirfile=None, prepare=None, options={"algorithm": "ppo"})
"""


@pytest.fixture
def planned(tmp_path: Path, milabench: Callable[..., Any]) -> Callable[[str], Any]:
    (tmp_path / "benchfile.py").write_text(BENCHFILE)
    for name in ("ppo", "dqn"):
        (tmp_path / f"{name}.py").write_text("")

    def plan(algorithm: str) -> Any:
        suite = tmp_path / "suite.yaml"
        suite.write_text(f"b:\n  definition: .\n  max_duration: 9\n  algorithm: {algorithm}\n")
        return milabench("plan", "run", "--json", "--use-current-env", "--config", str(suite))

    return plan


def test_the_option_of_the_suite_chooses_the_script(planned: Callable[[str], Any], tmp_path: Path) -> None:
    programs = {step["argv"][-1] for step in json.loads(planned("dqn").out)["steps"]}
    assert programs == {str(tmp_path / "dqn.py")}


def test_a_value_that_is_no_name_is_told_with_its_place(planned: Callable[[str], Any]) -> None:
    said = planned("../dqn")
    assert said.code == 2
    assert (
        "suite.yaml:4:14: b.algorithm: '../dqn' can be no part of script='{algorithm}.py'. It stands in braces"
        in said.err
    )
