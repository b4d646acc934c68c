"""Sensitivity: Ishigami's function against its closed form, the points of the sequence, swings, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from milabench.errors import UsageError
from milabench.procurement.sensitivity import UncertainInput, one_at_a_time, sobol_points, variance_shares

A, B = 7.0, 0.1
ANGLE = UncertainInput(value=0.0, low=-math.pi, high=math.pi)
ANGLES = {"x1": ANGLE, "x2": ANGLE, "x3": ANGLE}


def ishigami(x: Mapping[str, float]) -> float:
    return math.sin(x["x1"]) + A * math.sin(x["x2"]) ** 2 + B * x["x3"] ** 4 * math.sin(x["x1"])


# K-SOBOL-1: closed form (Ishigami and Homma 1990). K-SOBOL-2: scipy 1.17.1, sobol_indices with 16384 points, default_rng(0).
CLOSED = {
    "x1": (0.31390519114781146, 0.5575888552099592),
    "x2": (0.4424111447900409,) * 2,
    "x3": (0.0, 0.2436836640621477),
}
BY_SCIPY = {"x1": (0.31399938, 0.55763027), "x2": (0.44244712, 0.44244222), "x3": (0.00007351, 0.24359509)}


def test_the_closed_form_is_that_of_the_function() -> None:
    v1, v2 = (1 + B * math.pi**4 / 5) ** 2 / 2, A**2 / 8
    v13 = B**2 * math.pi**8 * (1 / 18 - 1 / 50)
    whole = v1 + v2 + v13
    assert whole == pytest.approx(13.844587940719254, rel=1e-12)
    assert [v1 / whole, v2 / whole] == pytest.approx([CLOSED["x1"][0], CLOSED["x2"][0]], rel=1e-12)
    assert [(v1 + v13) / whole, v13 / whole] == pytest.approx([CLOSED["x1"][1], CLOSED["x3"][1]], rel=1e-12)


@pytest.mark.parametrize("expected", [CLOSED, BY_SCIPY], ids=["K-SOBOL-1", "K-SOBOL-2"])
def test_the_shares_of_ishigami_are_known_within_their_error(expected: Mapping[str, tuple[float, float]]) -> None:
    shares = variance_shares(ishigami, ANGLES, points=2048)
    assert shares.evaluations == 8 * 2048 * 5
    assert (shares.mean, shares.variance) == pytest.approx((3.5, 13.844587940719254), rel=1e-3)
    for share in shares.shares:
        first, total = expected[share.name]
        assert abs(share.first - first) <= 4 * share.first_error
        assert abs(share.total - total) <= 4 * share.total_error
        assert max(share.first_error, share.total_error) < 0.002
    assert [share.name for share in shares.shares] == ["x1", "x2", "x3"]


def test_the_intervals_of_shares_hold() -> None:
    """240 of them: an honest 95 % is outside of 204 to 240 in one of 10,000 cases; normal tails are not promised."""
    within = 0
    for seed in range(40):
        for share in variance_shares(ishigami, ANGLES, points=64, seed=seed).shares:
            for which, truth in zip(("first", "total"), CLOSED[share.name], strict=True):
                low, high = share.interval("first" if which == "first" else "total")
                within += low <= truth <= high
    assert 204 <= within <= 240


def test_the_same_seed_gives_the_same_shares() -> None:
    assert variance_shares(ishigami, ANGLES, points=64) == variance_shares(ishigami, ANGLES, points=64)
    assert variance_shares(ishigami, ANGLES, points=64) != variance_shares(ishigami, ANGLES, points=64, seed=1)


def test_of_a_sum_the_shares_are_those_of_the_variances() -> None:
    inputs = {
        "price": UncertainInput(value=10, low=8, high=12, shape="normal"),
        "power": UncertainInput(value=5, low=1, high=9, shape="uniform"),
        "known": UncertainInput(value=3, low=3, high=3),
    }
    shares = variance_shares(lambda x: 1e6 + x["price"] + x["power"] + x["known"], inputs)
    price, power = (2 / 1.959964) ** 2, 8**2 / 12
    by_name = {share.name: share for share in shares.shares}
    assert by_name["price"].first == pytest.approx(price / (price + power), abs=0.01)
    assert by_name["power"].total == pytest.approx(power / (price + power), abs=0.01)
    assert (by_name["known"].first, by_name["known"].total) == (0, 0)


def test_a_result_that_does_not_vary_has_no_shares() -> None:
    shares = variance_shares(lambda _: 2.0, ANGLES, points=16)
    assert (shares.mean, shares.variance) == (2.0, 0.0)
    assert [(share.first, share.total) for share in shares.shares] == [(0, 0)] * 3


@pytest.mark.parametrize("dimensions", [1, 2, 40])
def test_every_interval_of_every_dimension_has_one_point(dimensions: int) -> None:
    points = list(sobol_points(dimensions, 7, seed=5))
    assert all(len(point) == dimensions for point in points)
    for coordinates in zip(*points, strict=True):
        assert sorted(int(coordinate * 128) for coordinate in coordinates) == list(range(128))


def test_pairs_of_dimensions_fill_the_square() -> None:
    """A dimension that repeated another one would leave boxes empty: of 64 boxes of a plane of 4096 points each has some."""
    points = list(sobol_points(12, 12, seed=1))
    for left in range(12):
        for right in range(left):
            assert len({(int(point[left] * 8), int(point[right] * 8)) for point in points}) == 64


@pytest.mark.parametrize("shape", ["uniform", "normal", "lognormal", "triangular"])
def test_an_input_has_the_quantiles_of_its_shape(shape: str) -> None:
    given = UncertainInput(value=3, low=2, high=4.5, shape=shape)  # type: ignore[arg-type]
    low, middle, high = (given.quantile(p) for p in (0.025, 0.5, 0.975))
    expected = {
        "uniform": (2.0625, 3.25, 4.4375),
        "normal": (2, 3.25, 4.5),
        "lognormal": (2, 3, 4.5),
        "triangular": (2.25, 3.1307, 4.1938),
    }
    assert (low, middle, high) == pytest.approx(expected[shape], rel=1e-4)


def test_one_at_a_time_says_which_end_gives_what() -> None:
    inputs = {
        "price": UncertainInput(value=10, low=8, high=12),
        "rate": UncertainInput(value=5, low=4, high=5),
    }
    swings = one_at_a_time(lambda x: x["price"] / x["rate"], inputs)
    assert [(swing.name, swing.low, swing.high) for swing in swings] == [("price", 1.6, 2.4), ("rate", 2.5, 2.0)]
    assert [swing.width for swing in swings] == pytest.approx([0.8, 0.5])


def test_what_is_no_input_is_refused_in_one_line() -> None:
    with pytest.raises(UsageError, match="an input of 5 from 1 to 4: the value lies between the two"):
        UncertainInput(value=5, low=1, high=4)
    with pytest.raises(UsageError, match="a lognormal input from 0 to 4: it is above zero"):
        UncertainInput(value=2, low=0, high=4, shape="lognormal")
    with pytest.raises(UsageError, match="variance shares of 0 inputs: 1 to 100"):
        variance_shares(lambda _: 1.0, {})
    with pytest.raises(UsageError, match=r"the result is nan at x1=-3\.14159, x2=0, x3=0: narrow the inputs"):
        one_at_a_time(lambda x: math.nan if x["x1"] < 0 else 1.0, ANGLES)
