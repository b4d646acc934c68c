"""The rate of programs written for milabench 1.3 against a clock of its own in the same process.

Small folders in its style, and unmodified ones of the checkout that MILABENCH13 names:

    MILABENCH13=~/milabench pytest tests/truth/test_milabench13.py -m e2e -k resnet50

The clock is that of test_definitions.py. Environments are made in a base of the session, or taken from MILABENCH_TRUTH_BASE.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.milabench13_runs import SMALL, Suite, checkout_suite, needs_checkout, small_suite
from tests.truth.launches import Launch, stamps_of

pytestmark = [pytest.mark.e2e, pytest.mark.long]

HERE = Path(__file__).parent
CLOCKS: Mapping[str, Mapping[str, Any]] = yaml.safe_load((HERE / "milabench13.yaml").read_text())
CLOSE = 0.01


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    folder = tmp_path_factory.mktemp("small")
    yield small_suite(folder).ready()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    folder = tmp_path_factory.mktemp("theirs")
    own = {name: clock["suite"] for name, clock in CLOCKS["checkout"].items()}
    yield checkout_suite(folder, own, os.environ.get("MILABENCH_TRUTH_BASE"))
    shutil.rmtree(folder, ignore_errors=True)


def test_every_small_folder_has_a_clock() -> None:
    assert set(CLOCKS["small"]) == set(SMALL)


@pytest.mark.parametrize("name", CLOCKS["small"])
def test_the_rate_of_a_small_folder_is_that_of_an_independent_clock(name: str, small: Suite, tmp_path: Path) -> None:
    assert_as_by_the_clock(small, name, CLOCKS["small"][name], tmp_path)


@needs_checkout
@pytest.mark.parametrize("name", CLOCKS["checkout"])
def test_the_rate_of_an_unmodified_definition_is_that_of_an_independent_clock(
    name: str, theirs: Suite, tmp_path: Path
) -> None:
    theirs.ready((name,))
    assert_as_by_the_clock(theirs, name, CLOCKS["checkout"][name], tmp_path)


def assert_as_by_the_clock(suite: Suite, name: str, clock: Mapping[str, Any], stamps: Path) -> None:
    """Run a benchmark with the clock inside; compare the windows of both."""
    variables = {
        "PYTHONPATH": str(HERE / "clock_site"),
        "INDEPENDENT_CALL": clock["call"],
        "INDEPENDENT_ITEMS": str(clock["items"]),
        "INDEPENDENT_COMPILED": "1" if clock.get("compiled") else "",
        "INDEPENDENT_STAMPS": str(stamps),
    }
    overrides = [word for key, value in variables.items() for word in ("--override", f"{name}.env.{key}='{value}'")]
    run = f"clock-{name}-{os.getpid()}"
    bench = suite.run(run, "--repeat", "1", *overrides, names=(name,))[name]
    assert bench["outcome"] == "passed", bench["failures"]
    (rate,) = [metric for metric in bench["metrics"] if metric["metric"] == "rate"]
    launch = Launch(suite.records(run, name), rate)
    # A launcher of ranks is a program, too, and takes no steps.
    ranks = [stamps_of(path, stamps_late=clock.get("late", False)) for path in sorted(stamps.glob("stamps.*.txt"))]
    if "program-clock" in bench["reasons"]:
        windows = [launch.program_window()]
    else:
        windows = [launch.counted(rank) for rank in range(len(ranks))]
        assert len(ranks) == len(rate["totals"])
    achieved = [own.during(**window) for own, window in zip(ranks, windows, strict=True)]
    expected = sum(each.items for each in achieved) / max(each.seconds for each in achieved)
    print(
        f"{name}: {bench['perf']:.6g} {bench['units']}, by the clock {expected:.6g}, {bench['perf'] / expected - 1:+.3%}"
    )
    assert bench["perf"] == pytest.approx(expected, rel=CLOSE)
