"""Which device is wrong follows from the bits of the first steps of all, or nobody can say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from milabench.analysis.summary import summarise
from milabench.analysis.summary_model import BenchSummary
from tests.recorded_run import Recorded, data, rates, record

STEPS = 10
GOOD = [float(number).hex() for number in range(STEPS)]


def from_step(number: int) -> list[str]:
    """The good series, other from this step on."""
    return [value if at < number else (float.fromhex(value) + 0.5).hex() for at, value in enumerate(GOOD, 1)]


def run_of(
    base: Path,
    firsts: Sequence[list[str]],
    agains: Sequence[list[str]] | None = None,
    *,
    device: str = "H200",
    config: dict[str, object] | None = None,
) -> BenchSummary:
    """A benchmark with a process on each of several devices."""
    steps = [
        Recorded(
            tag=f"D{number}",
            devices=(number,),
            events=(
                *rates(800, 800, 800),
                data(answers={"device": device, "first": first, "again": (agains or firsts)[number]}),
            ),
            **({"config": config} if config else {}),
        )
        for number, first in enumerate(firsts)
    ]
    (bench,) = summarise(record(base, *steps)).benchmarks
    return bench


def verdicts(bench: BenchSummary) -> list[tuple[str, str, str]]:
    return [
        (found["step"], found["verdict"], found["message"])
        for found in bench.validations
        if found["check"] == "answers"
    ]


def test_equal_answers_pass(tmp_path: Path) -> None:
    bench = run_of(tmp_path, [GOOD] * 3)
    assert (bench.outcome, "wrong" in bench.doubts) == ("passed", False)
    assert [word for _, word, _ in verdicts(bench)] == ["pass"] * 3


@pytest.mark.parametrize("step", [2, 7, STEPS])
def test_the_odd_one_of_three_is_named_with_its_step_and_the_number_is_invalid(tmp_path: Path, step: int) -> None:
    bench = run_of(tmp_path, [GOOD, from_step(step), GOOD])
    assert (bench.outcome, bench.validity, "wrong" in bench.doubts) == ("failed", "invalid", True)
    [failure] = bench.failures
    assert (failure.why, failure.step) == ("wrong", "digits.D1")
    assert f"digits.D1 (H200) differs from 2 other processes: its loss from step {step} on" == failure.detail


def test_a_process_that_does_not_repeat_itself_where_others_do_is_wrong(tmp_path: Path) -> None:
    bench = run_of(tmp_path, [GOOD] * 3, [GOOD, GOOD, from_step(4)])
    [failure] = bench.failures
    assert failure.detail == "digits.D2 (H200) did not repeat its loss from step 4 on, 2 others did"


def test_of_two_that_differ_one_is_wrong_and_nobody_knows_which(tmp_path: Path) -> None:
    bench = run_of(tmp_path, [GOOD, from_step(5)])
    assert {failure.detail for failure in bench.failures} == {
        "digits.D0 (H200) and digits.D1 (H200) differ from step 5 on: one of them is wrong, and a third would show which"
    }


@pytest.mark.parametrize(
    ("firsts", "agains", "sentence"),
    [
        ([GOOD, GOOD, GOOD], [from_step(3)] * 3, "3 of 3 processes on H200 do not repeat their loss from step 3 on"),
        ([GOOD], [from_step(3)], "1 of 1 processes on H200 do not repeat their loss from step 3 on"),
        ([GOOD, from_step(1)], None, "they began from different states, and cannot be compared"),
        ([GOOD, from_step(1), from_step(2)], None, "they began from different states, and cannot be compared"),
        ([GOOD, from_step(4), from_step(2)], None, "no majority of 3 processes agrees"),
    ],
)
def test_where_nobody_can_say_nothing_is_wrong(
    tmp_path: Path, firsts: list[list[str]], agains: list[list[str]] | None, sentence: str
) -> None:
    bench = run_of(tmp_path, firsts, agains)
    assert (bench.outcome, "wrong" in bench.doubts) == ("passed", False)
    assert {(word, sentence in message) for _, word, message in verdicts(bench)} == {("warn", True)}


def test_devices_of_different_models_are_not_compared(tmp_path: Path) -> None:
    steps = [
        Recorded(
            tag=f"D{number}",
            devices=(number,),
            events=(*rates(800, 800, 800), data(answers={"device": f"model {number}", "first": first, "again": first})),
        )
        for number, first in enumerate([GOOD, from_step(5), GOOD])
    ]
    (bench,) = summarise(record(tmp_path, *steps)).benchmarks
    assert (bench.outcome, bench.failures) == ("passed", ())


def test_answers_with_values_of_another_shape_take_part_in_the_vote(tmp_path: Path) -> None:
    odd = data(answers={"device": "H\n", "first": [*from_step(7), None], "again": from_step(7), "gradients": None})
    good = data(answers={"device": "H", "first": GOOD, "again": GOOD})
    steps = [
        Recorded(tag=f"D{n}", devices=(n,), events=(*rates(800, 800), each)) for n, each in enumerate((good, odd, good))
    ]
    (bench,) = summarise(record(tmp_path, *steps)).benchmarks
    [failure] = bench.failures
    assert "step 7" in failure.detail and failure.detail.isprintable()


def test_a_rank_whose_gradients_differ_after_the_all_reduce_is_named(tmp_path: Path) -> None:
    losses = [[(float.fromhex(value) + rank * 100).hex() for value in GOOD] for rank in range(3)]
    events = [
        data(
            answers={
                "device": "cpu",
                "first": losses[rank],
                "again": losses[rank],
                "gradients": {"first": own, "again": own},
            },
            rank=rank,
        )
        for rank, own in enumerate([GOOD, from_step(7), GOOD])
    ]
    (bench,) = summarise(record(tmp_path, Recorded(events=(*rates(800, 800, 800), *events)))).benchmarks
    [failure] = bench.failures
    assert failure.detail == "digits.D0 rank 1 (cpu) differs from 2 other ranks: its gradient norm from step 7 on"
