"""Who is last into the collectives, out of what ranks recorded."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from milabench.analysis.measure import Measurement
from milabench.analysis.step_results import PlannedStep, StepResult
from milabench.events.model import Verdict
from milabench.hangs.stragglers import with_stragglers

STEP_S = 0.05
STEPS = 60
BEGIN_NS = 1_764_000_000 * 10**9

Late = Callable[[int, int], float]
"""Rank and step -> by how many s it is late."""


def rank(number: int, late: Late, *, steps: int = STEPS, group: str = "0", ahead_s: float = 0.0) -> dict[str, Any]:
    entered = [round((STEP_S * step + late(number, step)) * 1e6) for step in range(1, steps + 1)]
    return {
        "group": group,
        "rank": number,
        "t0_ns": BEGIN_NS + round(ahead_s * 1e9),
        "step_us": round(STEP_S * 1e6),
        "number": list(range(100, 100 + steps)),
        "step": list(range(1, steps + 1)),
        "entered_us": entered,
    }


def member(name: str, *records: dict[str, Any], node: str = "local") -> StepResult:
    return StepResult(
        step=PlannedStep(id=name, bench="bert", node=node, one_job=True),
        outcome="passed",
        measured=Measurement(step=name, collectives=[*records]),
    )


def verdict_of(members: Sequence[StepResult], clocks: Any = None) -> Verdict | None:
    first, *others = with_stragglers(members, clocks or {})
    assert not any(other.verdicts for other in others)
    return next(iter(first.verdicts), None)


def verdict(late: Late, ranks: int = 4, **more: Any) -> Verdict:
    found = verdict_of([member("bert.0", *(rank(number, late, **more) for number in range(ranks)))])
    assert found is not None
    return found


def test_the_rank_that_is_last_in_most_steps_is_named_with_its_share() -> None:
    found = verdict(lambda number, step: 0.02 * (number == 2 and step % 3 > 0))
    assert (found.verdict, found.check) == ("warn", "stragglers")
    assert found.message == (
        "rank 2 is slow: last into the collectives in 40 of 60 steps, 100% of the waiting. "
        "Each other rank waits 13.3 ms a step for it"
    )
    assert found.numbers == {"steps": 60, "shares": {"2": 1.0, "3": 0.0}}


def test_a_rank_that_is_last_in_less_than_half_of_the_steps_is_listed_and_not_named() -> None:
    found = verdict(lambda number, step: 0.02 * (number == 2 and step % 3 == 0))
    assert (found.verdict, found.message) == ("pass", "")
    assert found.numbers["shares"]["2"] == 1.0


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_equal_ranks_are_not_named(ranks: int) -> None:
    draw = random.Random(1)
    found = [verdict(lambda _number, _step: draw.expovariate(500), ranks).verdict for _ in range(100)]
    assert found == ["pass"] * 100


def test_what_is_less_than_a_hundredth_of_a_step_is_nothing() -> None:
    assert verdict(lambda number, _step: 0.0004 * (number == 1), 2).verdict == "pass"


def test_too_few_steps_say_nothing() -> None:
    assert verdict_of([member("bert.0", *(rank(number, lambda *_: 0.0, steps=19) for number in range(2)))]) is None


def test_of_a_step_the_collective_counts_into_which_ranks_come_furthest_apart() -> None:
    late: Late = lambda number, _step: 0.02 * (number == 1)  # noqa: E731
    together = [rank(number, lambda *_: 0.0, group="other") for number in range(2)]
    apart = [rank(number, late) for number in range(2)]
    found = verdict_of([member("bert.0", *together, *apart)])
    assert found is not None
    assert found.message.startswith("rank 1 is slow")
    assert found.numbers["steps"] == STEPS


def two_nodes(late: Late, ahead_s: float) -> list[StepResult]:
    first = member("bert.0.node1", *(rank(number, late) for number in (0, 1)), node="node1")
    second = member("bert.0.node2", *(rank(number, late, ahead_s=ahead_s) for number in (2, 3)), node="node2")
    return [first, second]


def test_ranks_of_several_nodes_are_compared_on_one_clock() -> None:
    members = two_nodes(lambda number, _step: 0.01 * (number == 1), ahead_s=0.5)
    found = verdict_of(members, {"bert.0.node1": ("bert", 0.0), "bert.0.node2": ("bert", 0.5)})
    assert found is not None
    assert found.message.startswith("rank 1 (node1) is slow")


def test_clocks_that_were_not_compared_say_nothing() -> None:
    assert verdict_of(two_nodes(lambda *_: 0.0, ahead_s=0.5)) is None


def test_on_devices_the_rank_that_waits_least_was_last() -> None:
    records = []
    for number in range(2):
        own = rank(number, lambda *_: 0.0)
        del own["entered_us"]
        records.append({**own, "lasted_us": [100 if number else 20_100] * STEPS})
    found = verdict_of([member("bert.0.node1", records[0], node="a"), member("bert.0.node2", records[1], node="b")])
    assert found is not None
    assert found.message.startswith("rank 1 (b) is slow: last into the collectives in 60 of 60 steps")


@pytest.mark.parametrize(
    "change",
    [{"number": "x"}, {"step": [1, -1]}, {"t0_ns": None}, {"entered_us": [[]]}, {"rank": None}, {"group": 3}],
)
def test_what_has_another_form_says_nothing(change: dict[str, Any]) -> None:
    records = [{**rank(number, lambda *_: 0.0), **change} for number in range(2)]
    assert verdict_of([member("bert.0", *records)]) is None


def test_repeats_are_jobs_of_their_own() -> None:
    jobs = [
        StepResult(
            step=PlannedStep(id=f"bert.0.R{repeat}", bench="bert", repeat=repeat, one_job=True),
            outcome="passed",
            measured=Measurement(
                step="",
                collectives=[rank(n, lambda number, _: 0.02 * (number == repeat)) for n in range(2)],  # noqa: B023
            ),
        )
        for repeat in range(2)
    ]
    messages = [
        verdict.message.partition(":")[0] for result in with_stragglers(jobs, {}) for verdict in result.verdicts
    ]
    assert messages == ["rank 0 is slow", "rank 1 is slow"]
