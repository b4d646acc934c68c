"""Figures of merit: values of expressions with the uncertainty of what is in them."""

from __future__ import annotations

import math

import pytest

from milabench.errors import ConfigError
from milabench.procurement.measured import figure_of_merit
from milabench.procurement.uncertainty import UncertainValue, constant

RATE = UncertainValue.of_launches([100.0, 102.0, 98.0, 101.0], "sequences/s", "rate")
LOSS = UncertainValue.of_error(2.0, 0.1)
METRICS = {"rate": RATE, "loss": LOSS, "step time": constant(0.5)}


def error_of(number: UncertainValue) -> float:
    assert number.log_estimate is not None
    return number.log_estimate.error


def test_a_metric_alone_is_itself() -> None:
    figure = figure_of_merit("rate", METRICS, {})
    assert (figure.value, figure.units) == (RATE.value, "sequences/s")
    assert figure.interval() == pytest.approx(RATE.interval(), rel=1e-9)


def test_an_argument_scales_without_uncertainty() -> None:
    figure = figure_of_merit("rate * length / 1000", METRICS, {"length": 2048}, units="ktokens/s")
    assert figure.value == pytest.approx(RATE.value * 2.048)
    assert figure.units == "ktokens/s"
    assert error_of(figure) == pytest.approx(error_of(RATE), rel=1e-9)


def test_deviations_are_weighted_by_the_derivative() -> None:
    """rate / (1 + loss**2): d ln / d ln loss = -2 loss^2 / (1 + loss^2) = -1.6."""
    figure = figure_of_merit("rate / (1 + loss**2)", METRICS, {})
    assert figure.value == pytest.approx(RATE.value / 5)
    assert error_of(figure) == pytest.approx(math.hypot(error_of(RATE), 1.6 * 0.05), rel=1e-6)


def test_a_metric_used_twice_is_one_source() -> None:
    assert error_of(figure_of_merit("loss * loss", METRICS, {})) == pytest.approx(0.1, rel=1e-9)
    assert error_of(figure_of_merit("rate * loss / loss", METRICS, {})) == pytest.approx(error_of(RATE), rel=1e-9)


def test_the_figure_keeps_the_sources_of_its_metrics() -> None:
    figure = figure_of_merit("rate * loss", METRICS, {})
    assert figure.deviations is not None
    assert sorted(part.source for part in figure.deviations) == ["", "rate"]


def test_names_that_the_language_has_not_are_looked_up() -> None:
    assert figure_of_merit('1 / metrics["step time"]', METRICS, {}).value == 2.0
    assert figure_of_merit('metrics["loss"] * arguments["loss"]', METRICS, {"loss": 3}).value == pytest.approx(6.0)


def test_an_uncertainty_that_is_not_known_leaves_no_interval_where_it_counts() -> None:
    metrics = {**METRICS, "once": UncertainValue.of_launches([3.0])}
    assert figure_of_merit("rate * once", metrics, {}).interval() is None
    assert figure_of_merit("rate", metrics, {}).interval() is not None


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (
            "rat",
            r"tender\.yaml:3:9: milc\.figure: in the expression 'rat': there is no name 'rat'. Did you mean 'rate'\?",
        ),
        ("rate - 200", r"a figure of merit is a number above zero, got -9"),
        ("rate * 1e308", "a figure of merit is a number above zero, got inf"),
        ("rate > 1", "a figure of merit is a number above zero, got True"),
        ("'fast'", "a figure of merit is a number above zero, got 'fast'"),
        ("rate.real", "Attribute is not part of the language"),
        ("rate / 0", "division by zero"),
        ("loss", r"'loss' is both a metric and an argument. Write metrics\[\"loss\"\] or arguments\[\"loss\"\]"),
        ("", "not an expression"),
    ],
)
def test_what_is_no_figure_is_refused_at_its_place(expression: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        figure_of_merit(expression, METRICS, {"loss": 1}, where="tender.yaml:3:9", path="milc.figure")
