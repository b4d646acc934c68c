from __future__ import annotations

import math
from typing import Any

import pytest

from milabench.analysis.measure import measure
from milabench.checks.check import StepContext
from milabench.checks.program import ErrorCheck, LossCheck
from milabench.checks.rate import RateCheck
from milabench.events.model import Config, Data, Error, Event, Line, Message, Other, Verdict


def data(**values: Any) -> Event:
    return Data(step="s", data=values)


def losses(*values: Any) -> list[Event]:
    return [data(task="train", loss=value) for value in values]


def of(check: Any, *events: Event) -> Verdict:
    verdict: Verdict = check(StepContext(step="s")).verdict(measure("s", events))
    return verdict


def test_an_exception_fails_and_the_first_one_is_told() -> None:
    found = of(
        ErrorCheck,
        Error(step="s", type="ValueError", message="bad\nmore"),
        Error(step="s", type="KeyError", message="x"),
    )
    assert found == Verdict(step="s", check="error", verdict="fail", numbers={"count": 2}, message="ValueError: bad")


def test_a_failed_instrument_fails() -> None:
    event = Other(step="s", event="overseer_error", data={"type": "SelectorError", "message": "no such function"})
    assert of(ErrorCheck, event).verdict == "fail"


@pytest.mark.parametrize("code", ["0", "None", ""])
def test_a_good_exit_is_no_error(code: str) -> None:
    assert of(ErrorCheck, Error(step="s", type="SystemExit", message=code)).verdict == "pass"


def test_a_bad_exit_is_an_error() -> None:
    assert of(ErrorCheck, Error(step="s", type="SystemExit", message="2")).verdict == "fail"


@pytest.mark.parametrize("value", [None, math.nan, math.inf, "nan", True])
def test_a_loss_that_is_no_finite_number_fails(value: Any) -> None:
    found = of(LossCheck, *losses(2.0, value, 1.0))
    assert (found.verdict, found.numbers) == ("fail", {"count": 3, "nonfinite": 1})


def test_a_loss_that_never_moves_is_a_warning() -> None:
    assert of(LossCheck, *losses(*[2.5] * 5)).verdict == "warn"


def test_few_equal_losses_may_be_chance() -> None:
    assert of(LossCheck, *losses(*[2.5] * 4)).verdict == "pass"


def test_a_loss_that_moves_passes_in_either_direction() -> None:
    assert of(LossCheck, *losses(1.0, 2.0, 3.0, 2.0, 1.0)).verdict == "pass"


def test_a_program_without_a_loss_passes() -> None:
    assert of(LossCheck, data(task="train", rate=1.0)).verdict == "pass"


def test_nothing_measured_fails() -> None:
    found = of(RateCheck, Message(step="s", text="hello"))
    assert (found.verdict, found.message) == ("fail", "nothing was measured")


def test_what_is_measured_by_its_lines_needs_no_observations() -> None:
    config = Config(step="s", data={"metrics": {"speed": {"pattern": "v=(.*)"}}})
    assert of(RateCheck, config, Line(step="s", text="v=1\n", pipe="stdout")).verdict == "pass"


def test_one_metric_is_something_measured() -> None:
    assert of(RateCheck, data(metric="tflops", value=1.0)).verdict == "pass"


def test_unusable_observations_are_a_warning_that_marks_the_number_as_nonfinite() -> None:
    verdict = of(RateCheck, data(rate=1.0), data(rate=None))
    doubt = RateCheck(StepContext(step="s")).doubt_for(verdict)
    assert (verdict.verdict, doubt) == ("warn", "nonfinite")


def test_an_observation_without_a_usable_rate_is_a_warning() -> None:
    found = of(RateCheck, data(rate=1.0), data(rate=0.0), data(rate=None))
    assert (found.verdict, found.numbers) == ("warn", {"count": 1, "unusable": 2, "metrics": 0})
