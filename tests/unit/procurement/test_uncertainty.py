"""Numbers with their uncertainty, against closed forms."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

from milabench.errors import ConfigError
from milabench.procurement.uncertainty import (
    Deviation,
    UncertainValue,
    combine,
    constant,
    product,
    propagate,
    same_units,
    weighted_mean,
)


def close(value: Any, rel: float = 1e-12) -> object:
    return pytest.approx(value, rel=rel)


def test_k_wgm_1_of_numbers_with_standard_errors() -> None:
    """Source: the delta method on logarithms, computed."""
    parts = [UncertainValue.of_error(m, se) for m, se in ((1.8, 0.05), (2.4, 0.12), (1.2, 0.03))]
    mean = weighted_mean("geometric", parts, [2, 1, 1])
    assert mean.value == close(1.7477703781463643)
    assert mean.log_estimate is not None
    assert mean.log_estimate.error == close(0.01970314022098765)
    assert mean.interval() == close((1.6815625673817964, 1.8165849751770309))


def test_k_wgm_2_of_launches_against_contract_constants() -> None:
    """Source: Welch and Satterthwaite on logarithms, computed."""
    launches = [
        [10.1, 10.3, 9.9, 10.2, 10.0],
        [20.5, 19.8, 20.2, 20.9, 20.1],
        [5.05, 4.95, 5.00, 5.10, 4.90],
    ]
    speedups = [
        product([(constant(reference), 1), (UncertainValue.of_launches(times), -1)])
        for reference, times in zip([15, 30, 9], launches, strict=True)
    ]
    mean = weighted_mean("geometric", speedups, [2, 1, 1])
    assert mean.value == close(1.556538596197432)
    assert mean.log_estimate is not None
    assert mean.log_estimate.error == close(0.004545345355000082)
    assert mean.log_estimate.freedom == close(9.088859477879192)
    assert mean.interval() == close((1.5406394004821486, 1.5726018695186197))


def test_constants_have_an_interval_without_width_and_single_launches_none() -> None:
    assert constant(3.0).interval() == (3.0, 3.0)
    single = UncertainValue.of_launches([3.0])
    assert single.interval() is None
    assert weighted_mean("geometric", [constant(2.0), single], [1, 1]).interval() is None
    # What has no weight does not take the interval away.
    assert weighted_mean("geometric", [constant(2.0), single], [1, 0]).interval() == (2.0, 2.0)


def test_a_declared_share_is_half_of_the_95_percent_interval() -> None:
    assert UncertainValue.within(200.0, 0.1).interval() == close((200 / 1.1, 220.0))


def test_a_shared_source_cancels_in_a_ratio_and_adds_up_in_a_product() -> None:
    reference = UncertainValue.of_error(10.0, 0.2, source="reference")
    ours = product([(UncertainValue.of_error(20.0, 0.2, source="a"), 1), (reference, -1)])
    theirs = product([(UncertainValue.of_error(30.0, 0.3, source="b"), 1), (reference, -1)])
    ratio = product([(ours, 1), (theirs, -1)])
    assert ratio.log_estimate is not None
    assert ratio.log_estimate.error == close(math.hypot(0.01, 0.01))
    square = product([(reference, 1), (reference, 1)])
    assert square.log_estimate is not None
    assert square.log_estimate.error == close(0.04)
    apart = UncertainValue.of_error(10.0, 0.2)
    assert combine(100.0, [(apart, 1), (apart, 1)]).interval() == close(
        combine(100.0, [(apart, math.sqrt(2))]).interval()
    )


@pytest.mark.parametrize(
    ("kind", "value", "shares"), [("arithmetic", 3.0, (1 / 6, 5 / 6)), ("harmonic", 5 / 3, (5 / 6, 1 / 6))]
)
def test_means_weigh_deviations_by_the_part_of_each(kind: str, value: float, shares: tuple[float, float]) -> None:
    rates = [UncertainValue.of_error(1.0, 0.01), UncertainValue.of_error(5.0, 0.1)]
    mean = weighted_mean(kind, rates, [1, 1])  # type: ignore[arg-type]
    assert mean.value == close(value)
    assert mean.deviations is not None
    assert [part.sd for part in mean.deviations] == close([0.01 * shares[0], 0.02 * shares[1]])


def test_a_function_is_differentiated_in_every_use_of_an_input() -> None:
    def area(names: Mapping[str, float]) -> float:
        return names["side"] * names["side"] + names["rest"]

    inputs = {"side": UncertainValue.of_error(3.0, 0.03), "rest": constant(1.0)}
    whole = propagate(area, inputs, "m2")
    assert (whole.value, whole.units) == (10.0, "m2")
    assert whole.log_estimate is not None
    assert whole.log_estimate.error == close(0.01 * 2 * 9 / 10, rel=1e-7)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_a_number_that_has_no_logarithm_is_refused(value: float) -> None:
    with pytest.raises(ConfigError, match="expected a number above zero"):
        UncertainValue(value=value)
    with pytest.raises(ConfigError, match="milc: expected repeats with numbers above zero"):
        UncertainValue.of_launches([1.0, value], source="milc")


@pytest.mark.parametrize("share", [-0.1, math.nan, math.inf])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(ConfigError, match="price: expected a share from zero up"):
        UncertainValue.within(1.0, share, source="price")


def test_units_that_differ_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"prices: units differ: 'CHF' and 'EUR'. Convert to the same units"):
        same_units([constant(1.0, "EUR"), constant(2.0, "CHF")], "prices")


@pytest.mark.parametrize("weights", [[0, 0], [1, -1], [math.nan, 1], [math.inf, 1]])
def test_weights_that_are_no_weights_are_refused(weights: list[float]) -> None:
    with pytest.raises(ConfigError, match="weights: expected weights from zero up"):
        weighted_mean("geometric", [constant(1.0), constant(2.0)], weights)


def test_degrees_of_freedom_of_a_declared_share_are_infinite() -> None:
    both = product([(UncertainValue.within(1.0, 0.05), 1), (UncertainValue.of_launches([1.0, 1.1, 1.2]), 1)])
    assert both.log_estimate is not None
    assert 2 < both.log_estimate.freedom < math.inf
    declared = UncertainValue(value=1.0, deviations=(Deviation(0.1), Deviation(0.1)))
    assert declared.log_estimate is not None
    assert declared.log_estimate.freedom == math.inf
