"""The number of a launch against the program's own clock: trainings of every kind under the real runner and agent.

The programs stamp their steps by themselves (tests/truth/programs/own_clock.py); what is expected here is made of those stamps
and of the window that the records declare, and of nothing that the analysis computed.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.commands import ROOT, milabench_in
from tests.common_folders import common_environments
from tests.truth.launches import Launch, Stamps, stamps_of

# One run of all programs.
pytestmark = pytest.mark.e2e

HERE = Path(__file__).parent
ENVIRONMENTS = ("trl", "lightning", "torch", "jax")
CLOSE = 0.01
LATE = {
    "accumulation",
    "trainer",
    "lightning",
    "bench_observer_steps",
}  # their steps end with a call, and the program goes on after it
PROGRAMS = (
    "torch_loop",
    "iterable_dataset",
    "validation",
    "declared",
    "trainer",
    "jax",
    "sklearn",
    "two_ranks",
    "bench_observer",
)
# .ci/run leaves these out: they differ from one of the others in how they are counted, not in what is.
LONG = (
    "loader_workers",
    "accumulation",
    "lightning",
    "accelerated",
    "bench_observer_ranks",
    "bench_observer_steps",
)
EACH = pytest.mark.parametrize("name", (*PROGRAMS, *(pytest.param(name, marks=pytest.mark.long) for name in LONG)))


@dataclass(frozen=True)
class Place:
    """The run, and what it left below its base."""

    base: Path
    folder: Path
    benches: Mapping[str, Mapping[str, Any]]

    def bench(self, name: str) -> Mapping[str, Any]:
        """What the report says of a program."""
        bench = self.benches[name]
        assert bench["outcome"] == "passed", bench["failures"]
        return bench

    def rate(self, name: str) -> Mapping[str, Any]:
        """What it says of the launch."""
        (rate,) = [metric for metric in self.bench(name)["metrics"] if metric["metric"] == "rate"]
        return rate

    def stamps(self, name: str) -> list[Stamps]:
        """Those of each rank."""
        return [stamps_of(path, name in LATE) for path in sorted((self.base / "data" / name).glob("stamps.*.txt"))]

    def launch(self, name: str) -> Launch:
        """Its records, and what the report says of its rate."""
        (path,) = [path for path in self.folder.glob("*.data") if path.name.split(".")[0] == name]
        return Launch(path, self.rate(name))


@pytest.fixture(scope="module")
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """All programs that are asked for, run once; their environments are those that the quickstart's tests install, too."""
    folder = tmp_path_factory.mktemp("truth")
    shutil.copy(HERE / "suite.yaml", folder)
    for name in ENVIRONMENTS:
        shutil.copytree(HERE / "programs", folder / name)
        for file in ("requirements.in", "requirements.cpu.txt"):
            shutil.copy(ROOT / "benchmarks" / "_environments" / name / file, folder / name)
    base = folder / "base"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MILABENCH_")}
    own = {"MILABENCH_BASE": str(base), "MILABENCH_LOCK_DIR": str(folder / "locks")}
    milabench = milabench_in({**kept, **own, "MILABENCH_DIRS_VENV": str(common_environments(tmp_path_factory))})
    asked = {item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")}
    unasked = ",".join(name for name in LONG if name not in asked)
    suite = ("--config", str(folder / "suite.yaml"), *(("--exclude", unasked) if unasked else ()))
    installed = milabench("install", *suite)
    assert installed.code == 0, installed.err
    milabench("run", *suite)
    (run,) = (base / "runs").iterdir()
    benches = {bench["bench"]: bench for bench in json.loads(milabench("report", "--json").out)["benchmarks"]}
    yield Place(base, run, benches)
    shutil.rmtree(folder, ignore_errors=True)


@EACH
def test_the_number_is_items_over_the_wall_clock_of_the_program_itself(place: Place, name: str) -> None:
    rate = place.rate(name)
    ranks = place.stamps(name)
    assert len(ranks) == len(rate["totals"])
    achieved = [own.during(**place.launch(name).counted(rank)) for rank, own in enumerate(ranks)]
    seconds = max(each.seconds - (each.paused if name == "declared" else 0) for each in achieved)
    assert rate["value"] == pytest.approx(sum(each.items for each in achieved) / seconds, rel=CLOSE)
    assert place.bench(name)["perf"] == rate["value"]


@EACH
def test_every_item_of_the_window_is_counted_once(place: Place, name: str) -> None:
    rate = place.rate(name)
    counted = in_windows = 0.0
    for rank, own in enumerate(place.stamps(name)):
        window, seen = place.launch(name).records(rank)
        (total,) = [total for total in rate["totals"] if total["rank"] == rank]
        number = place.launch(name).counted(rank)
        assert total["items"] == own.during(**number).items
        # No step is lost between the warm-up and what is counted. accelerate's loader asks for a batch before it is needed.
        if name not in LATE | {"accelerated"}:
            warm_up, _ = place.launch(name).warm_up_and_counted(rank)
            assert sum(one["n"] for one in warm_up) == own.during(since=0, until=number["since"]).items
        within_window = own.during(**window).items
        # Ranks that agree on their end make a step or two after the window, the first of which may have begun within it.
        ends = [(one["t0_ns"] + 0.99 * one["host_ns"], one["n"]) for one in seen if not one.get("warmup")]
        assert sum(n for end, n in ends if end < window["until"]) == within_window
        counted += total["items"]
        in_windows += within_window
    assert counted + rate.get("left_out", 0) == in_windows


@EACH
def test_a_short_window_is_the_only_doubt(place: Place, name: str) -> None:
    assert set(place.bench(name)["reasons"]) == {"short"}


def test_what_was_declared_is_left_out_and_named_with_its_share(place: Place) -> None:
    rate = place.rate("declared")
    achieved = place.stamps("declared")[0].during(**place.launch("declared").counted(0))
    assert rate["pauses"] == {"validation": pytest.approx(achieved.paused / achieved.seconds, rel=0.02)}
    assert rate["value"] > 1.2 * achieved.items / achieved.seconds


def test_what_was_not_declared_is_in_the_number(place: Place) -> None:
    rate = place.rate("validation")
    assert rate["pauses"] == {}
    assert rate["steps_rate"] > 1.2 * rate["value"]
