"""Laws of scaling against published and recomputed fits; what is projected, how far, and what it cannot be mixed with.

specsdm91 and raytracer are the data of the R package usl (github smoeding/usl 480c97b, data/): users of a SPARCcenter 2000 with
scripts per hour, processors of an SGI Origin 2000 with rays.
"""

from __future__ import annotations

import math
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from milabench.analysis.sample_statistics import geometric_mean, pooled_log_stdev
from milabench.errors import MilabenchError, UsageError
from milabench.procurement.least_squares import least_squares
from milabench.procurement.projection import (
    LAWS,
    CountPoint,
    Projected,
    ScalingFit,
    back_test,
    choose_law,
    fit_law,
    project,
    universal_scalability,
)
from milabench.procurement.uncertainty import product
from tests.examples import ONLY_ALL


def points_of(pairs: Sequence[tuple[float, float]]) -> list[CountPoint]:
    return [CountPoint(count=count, values=(value,)) for count, value in pairs]


SPECSDM91 = points_of([(1, 64.9), (18, 995.9), (36, 1652.4), (72, 1853.2), (108, 1828.9), (144, 1775.0), (216, 1702.2)])
RAYTRACER = points_of(
    [(1, 20), (4, 78), (8, 130), (12, 170), (16, 190), (20, 200), (24, 210), (28, 230), (32, 260), (48, 280), (64, 310)]
)


def fitted(law: str, points: Sequence[CountPoint], *, is_bounded: bool = True) -> ScalingFit:
    """Return the fit by ordinary least squares, which is what is published."""
    fit = fit_law(law, points, noise="absolute", is_bounded=is_bounded)
    assert fit is not None
    return fit


def rounded(value: float, digits: int) -> str:
    return f"{value:.{digits - 1}e}"


# K-USL-1: github smoeding/usl 480c97b, tests/specsdm91.Rout.save, recomputed.
def test_the_published_fit_of_specsdm91() -> None:
    fit = fitted("usl", SPECSDM91)
    assert fit.parameters == pytest.approx(
        {"a": 0.02772847527757536, "b": 1.0436548412e-4, "g": 89.995232573667}, rel=1e-6
    )
    assert fit.standard_errors == pytest.approx(
        {"a": 0.009121731721845, "b": 1.98752708e-5, "g": 14.213489296}, rel=1e-6
    )
    assert fit.misfit == pytest.approx(82.84582002738, rel=1e-6)
    assert fit.peak == pytest.approx((96.51956085545, 1883.8989971687), rel=1e-6)
    assert fit.limit == pytest.approx(3245.588936022, rel=1e-6)
    assert 1 / fit.parameters["a"] == pytest.approx(36.06400965035, rel=1e-6)
    # As printed by the package.
    assert [rounded(fit.parameters[name], 4) for name in ("a", "b", "g")] == ["2.773e-02", "1.044e-04", "9.000e+01"]
    assert [rounded(fit.standard_errors[name], 4) for name in ("a", "b", "g")] == [
        "9.122e-03",
        "1.988e-05",
        "1.421e+01",
    ]
    assert f"{fit.misfit:.2f}" == "82.85"


# K-USL-2: computed.
def test_the_intervals_of_specsdm91_beyond_what_was_measured() -> None:
    projected = project(fitted("usl", SPECSDM91), 256)
    assert projected.centre == pytest.approx(1547.9160170822, rel=1e-6)
    assert projected.confidence == pytest.approx((1298.7292518686, 1797.1027822958), rel=1e-6)
    assert projected.prediction == pytest.approx((1208.7968564133, 1887.0351777511), rel=1e-6)


# K-USL-3: b = 0 is published (smoeding/usl), the rest computed.
def test_coherence_below_zero_is_held_at_zero_and_has_no_interval() -> None:
    free = fitted("usl", RAYTRACER, is_bounded=False)
    assert free.parameters == pytest.approx(
        {"a": 0.0781478486723933, "b": -2.0112128690e-4, "g": 24.76617413196}, rel=1e-6
    )
    fit = fitted("usl", RAYTRACER)
    assert fit.parameters == pytest.approx({"a": 0.05777078025525, "b": 0.0, "g": 21.84884275135}, rel=1e-6)
    assert math.fsum(r * r for r in fit.solution.residuals) == pytest.approx(697.2377997489, rel=1e-6)
    projected = project(fit, 128)
    assert projected.centre == pytest.approx(335.455088963, rel=1e-6)
    assert (projected.confidence, projected.prediction, fit.standard_errors) == (None, None, {})
    assert projected.why_no_interval == "b would be below zero and is held at 0: no interval holds at a bound"
    amdahl = project(fitted("amdahl", RAYTRACER), 128)
    assert amdahl.prediction == pytest.approx((306.7594505586, 364.1507273678), rel=1e-6)


# K-USL-4: estimates published (smoeding/usl), the interval computed: the package's own has the wrong quantile.
def test_the_first_points_of_raytracer() -> None:
    fit = fitted("usl", RAYTRACER[:6])
    assert fit.parameters == pytest.approx({"a": 0.0244440413517, "b": 0.00162680928234, "g": 20.8560452965}, rel=1e-6)
    assert fit.standard_errors == pytest.approx({"a": 0.0083906557, "b": 2.6139849e-4, "g": 0.7885063241}, rel=1e-6)
    assert fit.parameter_interval("a") == pytest.approx((-0.0022587698, 0.0511468525), rel=1e-6)


# K-USL-5: smoeding/usl, data made with a = b = 0.02.
def test_exact_data_give_back_their_parameters() -> None:
    pairs = [(1, 1), (2, 1.8868), (4, 3.0769), (6, 3.5294), (8, 3.5398), (10, 3.3557)]
    fit = fitted("usl", points_of(pairs))
    assert fit.parameters == pytest.approx({"a": 0.0200057613296, "b": 0.0199996652781, "g": 1.0000051217}, rel=1e-6)


# K-USL-7: computed; the classic way to fit the law, a parabola through the origin: N / C - 1 over N - 1, C in units of one.
def test_the_parabola_of_raytracer() -> None:
    def parabola(parameters: tuple[float, ...], x: float) -> tuple[float, tuple[float, ...]]:
        square, linear = parameters
        return square * x * x + linear * x, (x * x, x)

    xs = [point.count - 1 for point in RAYTRACER]
    ys = [point.count / (point.values[0] / 20) - 1 for point in RAYTRACER]
    fit = least_squares(parabola, (0.0, 0.0), xs, ys, [1.0] * len(xs))
    assert fit is not None
    kappa, linear = fit.parameters
    assert (kappa, linear) == pytest.approx((4.7082178128e-6, 0.0500286519532), rel=1e-9)
    assert linear - kappa == pytest.approx(0.0500239437354, rel=1e-9)


# K-USL-6: smoeding/usl.
def test_the_peak_and_the_limit_of_given_parameters() -> None:
    truth = {"a": 0.001, "b": 0.00001, "g": 89.99523}
    fit = fitted("usl", points_of([(n, value_of(truth, n)) for n in (1, 4, 16, 64, 256)]))
    assert fit.peak is not None
    assert fit.limit is not None
    assert (f"{fit.peak[0]:.4f}", f"{1 / fit.parameters['a']:.0f}", f"{fit.limit:.2f}") == (
        "316.0696",
        "1000",
        "89995.23",
    )


def value_of(parameters: dict[str, float], count: float) -> float:
    point = universal_scalability(parameters, count)
    assert point is not None
    return point[0]


# K-AMD-1: computed.
@pytest.mark.parametrize(("serial", "speedup"), [(0.004, 201.09976433621364), (0.008, 111.49825783972125)])
def test_amdahl_on_1024(serial: float, speedup: float) -> None:
    assert value_of({"a": serial, "g": 1.0}, 1024) == pytest.approx(speedup, rel=1e-12)


def test_without_a_degree_of_freedom_there_is_no_interval() -> None:
    fit = fitted("amdahl", points_of([(1, 10), (4, 30)]))
    projected = project(fit, 8)
    assert (projected.confidence, projected.prediction) == (None, None)
    assert projected.why_no_interval == "2 measured counts for 2 parameters leave no degree of freedom"


def test_better_than_ideal_is_held_at_ideal() -> None:
    fit = fitted("amdahl", points_of([(1, 10), (2, 21), (4, 43), (8, 90)]))
    assert fit.at_bound == ("a",)
    assert choose_law(points_of([(1, 10), (2, 21), (4, 43), (8, 90)])).fit.law == "ideal"


@pytest.mark.parametrize("law", LAWS)
def test_a_law_is_chosen_on_its_own_data(law: str) -> None:
    given = {"a": 0.03, "b": 0.0005, "g": 12.0}
    parameters = {name: given[name] for name in LAWS[law].parameters}
    noise = random.Random(3)
    points = []
    for count in (1, 2, 4, 8, 16, 32, 64):
        points.append(CountPoint(count=count, values=(value_of(parameters, count) * (1 + noise.gauss(0, 0.003)),)))
    chosen = choose_law(points)
    assert chosen.fit.law == law
    assert [candidate.law for candidate in chosen.candidates] == list(LAWS)
    assert chosen.fit.parameters == pytest.approx(parameters, rel=0.2)


@pytest.mark.parametrize("points", [SPECSDM91, RAYTRACER], ids=["specsdm91", "raytracer"])
@pytest.mark.parametrize("held_out", [1, 2, 3, 4])
def test_what_was_held_out_is_within_the_prediction_interval(points: list[CountPoint], held_out: int) -> None:
    results = back_test(points, held_out)
    assert [held.point for held in results] == points[-held_out:]
    assert [held.is_within for held in results] == [True] * held_out


def test_a_single_law_misses_what_was_held_out() -> None:
    """Why intervals are over all laws that are not ruled out: alone, the best one of the first seven counts is wrong beyond."""
    results = back_test(RAYTRACER, 4, ["usl"])
    assert [held.is_within for held in results] == [False] * 4
    chosen = choose_law(RAYTRACER[:-4])
    assert [fit.law for fit in chosen.possible] == ["usl", "amdahl"]


@pytest.mark.slow
@pytest.mark.parametrize("law", [*(pytest.param(law, marks=ONLY_ALL) for law in ("ideal", "amdahl")), "usl"])
def test_prediction_intervals_hold_twice_as_far(law: str) -> None:
    """Of 100 systems with 2 % noise; 95 % intervals of a true law hold in 86 to 100 cases (0.2 % on each side of a binomial)."""
    parameters = {name: {"a": 0.02, "b": 0.0003, "g": 10.0}[name] for name in LAWS[law].parameters}
    noise, within = random.Random(5), 0
    for _ in range(100):
        points = points_of(
            [(n, value_of(parameters, n) * (1 + noise.gauss(0, 0.02))) for n in (1, 2, 4, 8, 16, 32, 64)]
        )
        interval = project(choose_law(points), 128).prediction
        assert interval is not None
        within += interval[0] <= value_of(parameters, 128) * (1 + noise.gauss(0, 0.02)) <= interval[1]
    assert 86 <= within <= 100


@pytest.mark.slow
@pytest.mark.parametrize("off", [*(pytest.param(off, marks=ONLY_ALL) for off in (0.0, 0.01)), 0.04])
def test_intervals_from_launches_hold(off: float) -> None:
    """Launches of 3 % spread, 2 to 5 at a count, on a law that is off there: 95 % intervals hold in 93 to 99.5 % of 400."""
    parameters = {"a": 0.02, "g": 10.0}
    noise, within, tries = random.Random(8), 0, 400
    for _ in range(tries):
        points = []
        for count, launches in ((1, 5), (2, 3), (4, 2), (8, 4), (16, 3), (32, 2)):
            centre = value_of(parameters, count) * math.exp(noise.gauss(0, off))
            points.append(
                CountPoint(count=count, values=tuple(centre * math.exp(noise.gauss(0, 0.03)) for _ in range(launches)))
            )
        fit = fit_law("amdahl", points)
        assert fit is not None
        interval = fit.prediction(64)
        assert interval is not None
        new = value_of(parameters, 64) * math.exp(noise.gauss(0, off) + noise.gauss(0, 0.03))
        within += interval[0] <= new <= interval[1]
    assert 0.93 * tries <= within <= 0.995 * tries


def test_a_count_with_more_launches_weighs_more() -> None:
    few = [
        CountPoint(count=1, values=(10, 10.2)),
        CountPoint(count=2, values=(20, 20.4)),
        CountPoint(count=4, values=(42, 42.8)),
    ]
    many = [*few[:2], CountPoint(count=4, values=(42, 42.8) * 20)]
    lighter, heavier = fit_law("ideal", few), fit_law("ideal", many)
    assert lighter is not None
    assert heavier is not None
    measured = geometric_mean((42, 42.8))
    assert abs(heavier.at(4) - measured) < abs(lighter.at(4) - measured)


def test_no_law_can_be_chosen_says_why_of_each() -> None:
    with pytest.raises(UsageError, match="usl: 2 measured counts do not settle its 3 parameters"):
        choose_law(points_of([(1, 1.0), (2, 2.0)]), ["usl"])


def test_a_projection_far_beyond_needs_a_declared_bound() -> None:
    fit = fitted("amdahl", RAYTRACER)
    assert project(fit, 512).count == 512
    with pytest.raises(
        UsageError, match=r"project to 513: beyond 8 times the largest measured count \(64\)\. Measure at more"
    ):
        project(fit, 513)
    assert project(fit, 513, declared_bound=1000).count == 513
    with pytest.raises(UsageError, match="project to 1001: beyond the declared bound of 1000"):
        project(fit, 1001, declared_bound=1000)


def projected_value() -> Projected:
    return project(fitted("amdahl", RAYTRACER), 128)


@pytest.mark.parametrize(
    "use",
    [
        lambda p: geometric_mean([300.0, p]),
        lambda p: geometric_mean([p, 300.0], [1.0, 2.0]),
        lambda p: CountPoint(count=1, values=(1.0, p)).value,
        lambda p: product([(p, 1.0)]),
        lambda p: p * 2,
        lambda p: 2 / p,
        lambda p: sum([1.0, p]),
        lambda p: max(1.0, p),
        lambda p: p.value,
        float,
    ],
    ids=["mean", "weighted mean", "point", "product", "times", "over", "sum", "max", "attribute", "float"],
)
def test_a_projected_value_is_refused_among_measured_ones(use: object) -> None:
    assert callable(use)
    with pytest.raises(MilabenchError, match="a value projected to 128 by amdahl is used as a measured value") as error:
        use(projected_value())
    assert error.value.exit_code == 2


MIXED = """
import math
from milabench.analysis.sample_statistics import geometric_mean, pooled_log_stdev
from milabench.procurement.projection import CountPoint, Projected

def mix(p: Projected) -> None:
    geometric_mean([1.0, p])  # refused
    CountPoint(count=1, values=(1.0, p))  # refused
    p * 2  # refused
    2.0 / p  # refused
    math.log(p)  # refused
    p.value  # refused
    CountPoint(count=1, values=(1.0, p.centre))
"""


@pytest.mark.e2e
def test_mypy_refuses_a_projected_value_among_measured_ones(tmp_path: Path) -> None:
    """By its centre it is a number again: whoever writes that has said so."""
    root = Path(__file__).resolve().parents[3]
    path = tmp_path / "mixed.py"
    path.write_text(MIXED)
    command = [sys.executable, "-m", "mypy", "--config-file", str(root / "pyproject.toml"), str(path)]
    checked = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    refused = [index for index, line in enumerate(MIXED.splitlines(), start=1) if line.endswith("# refused")]
    assert [int(line.split(":")[1]) for line in checked.stdout.splitlines() if ": error:" in line] == refused


def test_a_launch_adds_its_own_scatter_to_that_of_the_law() -> None:
    """Two counts of many launches: the law has one degree of freedom, the launches ten."""
    launches = (1.0, 1.04, 0.97, 1.02, 0.98, 1.01)
    points = [CountPoint(count=n, values=tuple(n * 10 * each for each in launches)) for n in (1, 2)]
    projected = project(fitted("ideal", points), 8)
    assert projected.confidence is not None and projected.prediction is not None
    of_law, of_launch = (high - projected.centre for _, high in (projected.confidence, projected.prediction))
    # t of 95 % with 10 degrees of freedom is 2.228; the fit leaves nothing over, so that the law is off by nothing.
    spread = pooled_log_stdev([launches]) or 0.0
    assert of_launch == pytest.approx(math.hypot(of_law, 2.2281388520 * spread * projected.centre), rel=1e-6)
