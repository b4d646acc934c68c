"""What a plan will take, by the journals of earlier runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from milabench.analysis.duration_estimate import PlannedBenchmark, estimate_durations, spans
from milabench.events.rundir import Run


def planned(
    bench: str = "a", tag: str = "D0", *, repeat: int = 0, argv: str = "go", profile: str = "quick"
) -> dict[str, Any]:
    return {
        "id": f"{bench}.{tag}.R{repeat}",
        "bench": bench,
        "repeat": repeat,
        "group": f"{bench}.R{repeat}",
        "tag": tag,
        "node": "local",
        "devices": [int(tag[1:])],
        "argv": [argv],
        "config": {"name": bench.partition("@")[0], "measure": {"profile": profile}},
    }


def run(name: str, *timed: tuple[dict[str, Any], float, float, str]) -> Run:
    """A run whose steps began and ended at these seconds, with this outcome."""
    journal: list[dict[str, Any]] = []
    for step, began, ended, outcome in timed:
        attempt = 1 + sum(each["step"] == step["id"] and each["state"] == "started" for each in journal)
        journal += [
            {"t": began, "step": step["id"], "attempt": attempt, "state": "started"},
            {"t": ended, "step": step["id"], "attempt": attempt, "state": "ended", "outcome": outcome},
        ]
    steps = list({step["id"]: step for step, *_ in timed}.values())
    return Run(path=Path(name), manifest={"plan": {"steps": steps}}, journal=tuple(journal))


Known = tuple[str | None, float, int, bool]


def known(step: dict[str, Any], *runs: Run) -> Known | None:
    """The run, the seconds, of how many, whether of the same steps."""
    (bench,) = estimate_durations([PlannedBenchmark(bench=step["bench"], replicates=1, steps=[step])], runs).benches
    return None if bench.seconds is None else (bench.run, bench.seconds, bench.n, bench.is_same)


def test_a_group_takes_from_its_first_start_to_its_last_end_and_each_attempt_counts() -> None:
    first, second = planned(tag="D0"), planned(tag="D1")
    found = spans(
        run(
            "r",
            (first, 10, 14, "passed"),
            (second, 11, 17, "failed"),
            (first, 20, 23, "passed"),
            (second, 21, 24, "passed"),
        )
    )
    assert [(span.seconds, span.is_passed) for span in found] == [(7, False), (4, True)]


def test_the_median_over_the_replicates_of_the_newest_run_that_has_the_same_steps() -> None:
    lengths = [(planned(repeat=n), 100.0 * n, 100.0 * n + seconds, "passed") for n, seconds in enumerate((4, 9, 5))]
    newest, older = run("new", *lengths), run("old", (planned(), 0, 77, "passed"))
    assert known(planned(repeat=7), newest, older) == ("new", 5, 3, True)


def test_the_same_steps_in_an_older_run_tell_more_than_others_in_a_newer_one() -> None:
    newest, older = run("new", (planned(argv="other"), 0, 3, "passed")), run("old", (planned(), 0, 8, "passed"))
    assert known(planned(), newest, older) == ("old", 8, 1, True)
    assert known(planned(), newest) == ("new", 3, 1, False)


@pytest.mark.parametrize("step", [planned(profile="default"), planned("b")])
def test_another_profile_or_benchmark_tells_nothing(step: dict[str, Any]) -> None:
    assert known(step, run("r", (planned(), 0, 8, "passed"))) is None


def test_what_failed_or_never_ended_tells_nothing() -> None:
    cut = run("cut", (planned(), 0, 8, "passed"))
    begun = Run(path=cut.path, manifest=cut.manifest, journal=cut.journal[:1])
    assert known(planned(), begun, run("r", (planned(), 0, 8, "failed"))) is None


def test_a_side_of_an_ab_run_is_the_benchmark_itself() -> None:
    found = known(planned("a@B"), run("r", (planned("a"), 0, 8, "passed")))
    assert found == ("r", 8, 1, True)


def test_no_more_runs_are_read_than_needed() -> None:
    def runs() -> Any:
        yield run("new", (planned(), 0, 8, "passed"))
        raise AssertionError("read on")

    found = estimate_durations([PlannedBenchmark(bench="a", replicates=3, steps=[planned()])], runs())
    assert (found.seconds, found.runs, found.unknown) == (24, ("new",), ())


def test_device_hours_count_each_device_of_a_replicate() -> None:
    steps = [planned(tag="D0"), planned(tag="D1")]
    earlier = run("r", (steps[0], 0, 1800, "passed"), (steps[1], 0, 1800, "passed"))
    wanted = [
        PlannedBenchmark(bench="a", replicates=2, steps=steps),
        PlannedBenchmark(bench="b", replicates=1, steps=[planned("b")]),
    ]
    found = estimate_durations(wanted, [earlier])
    assert (found.seconds, found.device_hours, found.unknown) == (3600, 2.0, ("b",))
    assert found.to_json()["benchmarks"][1] == {
        "bench": "b",
        "replicates": 1,
        "devices": 1,
        "seconds_each": None,
        "run": None,
        "n": 0,
        "same_steps": False,
    }


@pytest.mark.parametrize("manifest", [{}, {"plan": None}, {"plan": {"steps": [None, {"id": 3}]}}])
def test_a_manifest_of_any_shape_tells_nothing(manifest: dict[str, Any]) -> None:
    assert known(planned(), Run(path=Path("r"), manifest=manifest)) is None
