"""What the end of a point takes from its throughput, against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

from benchmate.serving.figures import tail_note
from benchmate.serving.load import LoadPoint, RequestResult


def answers(number: int, in_flight: int, every: float = 1.0) -> list[RequestResult]:
    """Answers of 11 tokens that take a second, so many at once."""
    gaps = (80_000,) * 10
    about = {"first": 0.2, "end": 1.0, "gaps_us": gaps, "output_tokens": 11}
    return [RequestResult(index=index, at=100 + every * (index // in_flight), **about) for index in range(number)]


def test_a_last_round_that_is_not_full_is_noted_with_what_it_costs() -> None:
    closed = LoadPoint(name="c", concurrency=6)
    # 5 rounds of 6 and 2 alone: 32 x 11 tokens in 6 s, 6 x 11 a second before.
    assert tail_note(closed, answers(32, 6)) == (
        "tail: 17% of the time is after the last request was sent: its tokens/s are 11.1% below the 66 before"
    )
    assert tail_note(closed, answers(36, 6)) == ""
    # A server of three slots is as busy at the end as before: the second half of each six waited for the first.
    waited = [
        replace(each, first=0.2 + index % 6 // 3, end=1.0 + index % 6 // 3)
        for index, each in enumerate(answers(36, 6, 2.0))
    ]
    assert tail_note(closed, waited) == ""


def test_the_answers_after_the_last_arrival_make_a_rate_too_small() -> None:
    opened = LoadPoint(name="r", rate=10.0)
    # 40 arrivals in 3.9 s, a second until the last answer: 440 tokens in 4.9 s, 110 a second arrive.
    (share, loss) = (1 / 4.9, 1 - 440 / 4.9 / 110)
    assert tail_note(opened, answers(40, 1, 0.1)).startswith(f"tail: {share:.0%} of the time is after")
    assert f"are {loss:.0%}"[:-1] in tail_note(opened, answers(40, 1, 0.1))
    assert tail_note(opened, answers(800, 1, 0.1)) == ""
    assert tail_note(opened, answers(8, 1, 0.1)).endswith("too short a point to tell the tokens/s at its rate")
    assert tail_note(LoadPoint(name="s", scenario="offline"), answers(40, 40)) == ""
