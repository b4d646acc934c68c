"""What people write for a precision and for a duration; which value an option belongs to."""

from __future__ import annotations

from dataclasses import dataclass

import click
import pytest

from milabench.cli.options import collected_as, fraction_of, seconds_of

CONTEXT, OPTION = click.Context(click.Command("run")), click.Option(["--value"])


@pytest.mark.parametrize(("text", "fraction"), [("1%", 0.01), ("0.5 %", 0.005), ("0.02", 0.02), (" 20% ", 0.2)])
def test_a_precision_is_a_percentage_or_a_fraction(text: str, fraction: float) -> None:
    assert fraction_of(CONTEXT, OPTION, text) == pytest.approx(fraction)


@pytest.mark.parametrize("text", ["1", "100%", "0", "-1%", "%", "none", "nan", "inf", "", "0.001%"])
def test_another_text_is_not_a_precision(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"is not a precision. Give a percentage such as 1%"):
        fraction_of(CONTEXT, OPTION, text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("4h", 14400), ("1h30m", 5400), ("1.5 H", 5400), ("2d", 172800)]
)
def test_a_budget_has_a_unit(text: str, seconds: float) -> None:
    assert seconds_of(CONTEXT, OPTION, text) == seconds


@pytest.mark.parametrize("text", ["90", "soon", "", "0s", "4 hours", "-3h", "1h30", "1e9s"])
def test_another_text_is_not_a_duration(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"is not a duration. Give 90s, 30m, 4h, 90d or 1h30m"):
        seconds_of(CONTEXT, OPTION, text)


def test_an_absent_option_stays_absent() -> None:
    assert fraction_of(CONTEXT, OPTION, None) is None
    assert seconds_of(CONTEXT, OPTION, None) is None


def test_two_collectors_of_one_option_are_a_mistake_that_is_seen() -> None:
    @dataclass(frozen=True)
    class Inner:
        baseline: str = ""

    @dataclass(frozen=True)
    class Outer:
        baseline: str = ""

    collected = collected_as("inner", Inner)(lambda **values: None)
    with pytest.raises(AssertionError, match="Outer and an inner collector both have baseline"):
        collected_as("outer", Outer)(collected)
