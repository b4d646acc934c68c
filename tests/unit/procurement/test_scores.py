"""Scores of tenders against published, reproduced and computed numbers; `source` of METRICS says where formulas are from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from milabench.errors import ConfigError
from milabench.procurement.scores import (
    METRICS,
    BenchmarkFigures,
    MachineSize,
    offer_score,
    potency,
    potency_value,
)
from milabench.procurement.uncertainty import Mean, UncertainValue, constant
from tests.ats5 import ATS5, ATS5_NODES

SSNI = "github lanl/benchmarks 7e0fdf9, introduction.rst and SSNI-baseline.xlsx"


def close(value: Any, rel: float = 1e-12) -> Any:
    return pytest.approx(value, rel=rel)


def digits(value: float, count: int) -> float:
    return float(f"{value:.{count}g}")


def timed(name: str, seconds: float, reference: float | None = None, **rest: Any) -> BenchmarkFigures:
    return BenchmarkFigures(
        name=name,
        offered=constant(seconds, "s"),
        reference=None if reference is None else constant(reference, "s"),
        direction="lower",
        **rest,
    )


def ats5(speedups: Sequence[float], names: Sequence[str] = tuple(ATS5)) -> list[BenchmarkFigures]:
    return [
        BenchmarkFigures(
            name=name,
            offered=constant(speedup * ATS5[name][1]),
            reference=constant(ATS5[name][1]),
            weight=ATS5[name][0],
        )
        for name, speedup in zip(names, speedups, strict=True)
    ]


# SSNI


def test_the_weights_of_ats5_sum_to_one_hundred() -> None:
    """Source: SSNI-baseline.xlsx, published."""
    assert math.fsum(weight for weight, _ in ATS5.values()) == 100


@pytest.mark.parametrize(
    ("speedups", "nodes", "expected"),
    [
        pytest.param([4.092] * 10, 18000, 11.996091205211728, id="K-SSNI-1, reproduced from SSNI-baseline.xlsx"),
        pytest.param([17.99] * 10, 4096, 12.001146579804571, id="K-SSNI-2, reproduced from SSNI-baseline.xlsx"),
        pytest.param([3, 5, 4, 6, 2, 2.5, 4.5, 3.5, 4, 5], 18000, 12.008444500621826, id="K-SSNI-4, computed"),
    ],
)
def test_k_ssni(speedups: list[float], nodes: int, expected: float) -> None:
    score = offer_score("ssni", ats5(speedups), MachineSize(nodes=nodes, reference_nodes=ATS5_NODES))
    assert score.value.value == close(expected)
    assert not score.breaches


def test_k_ssni_3_weights_of_a_subset_are_renormalised() -> None:
    """Source: SSNI-baseline.xlsx, reproduced."""
    names = ["amg2023-1", "amg2023-2", "miniem", "mlmd-training", "mlmd-simulation", "sparta"]
    machine = MachineSize(nodes=4096, reference_nodes=ATS5_NODES)
    score = offer_score("ssni", ats5([20] * 6, names), machine)
    assert score.value.value == close(13.34201954397394)
    assert score.value.value / 20 == close(0.6671009771986971)
    assert math.fsum(term.weight for term in score.terms) == close(1.0)
    assert score.terms[2].weight == close(0.15 / 0.45)


def test_ssni_asks_for_more_than_the_reference_and_ssi_for_no_less() -> None:
    machine = MachineSize(nodes=100, reference_nodes=100)
    bench = timed("a", 10, 10, nodes=1, reference_nodes=1)
    assert offer_score("ssni", [bench], machine).breaches == ("a: speed-up S = 1, the tender requires S > 1",)
    assert not offer_score("ssi", [bench], machine).breaches


# SSI


def apex(third: float = 40, weights: Sequence[float] = (1, 2, 1)) -> list[BenchmarkFigures]:
    return [
        timed(name, t, t_ref, capability=c, nodes=n, reference_nodes=n_ref, weight=w)
        for name, c, n_ref, n, t_ref, t, w in zip(
            ("gtc-p", "milc", "meraculous"),
            (1, 4, 1),
            (1376, 2048, 400),
            (200, 512, 50),
            (699.78, 2411.04, 42.74),
            (350, 1500, third),
            weights,
            strict=True,
        )
    ]


EDISON = MachineSize(nodes=1024, reference_nodes=5586)


def test_k_ssi_1() -> None:
    """Source: the SSI page's formula, nersc.gov, computed."""
    score = offer_score("ssi", apex(), EDISON)
    assert [term.utilization for term in score.terms] == close(
        [1.2612101682778374, 0.7332617257429288, 1.4665234514858576]
    )
    assert [term.speedup.value for term in score.terms if term.speedup] == close([1.9993714285714286, 1.60736, 1.0685])
    assert score.value.value == close(3.0612740016171007)
    assert score.value.interval() == (score.value.value, score.value.value)
    assert offer_score("ssi", apex(weights=(1, 1, 1)), EDISON).value.value == close(2.6508931085607634)


def test_k_ssi_2_a_slower_application_is_a_breach_and_is_not_clipped() -> None:
    """Source: the rule S >= 1 of the SSI page, nersc.gov."""
    score = offer_score("ssi", apex(third=45), EDISON)
    assert score.breaches == ("meraculous: speed-up S = 0.9498, the tender requires S >= 1",)
    third = score.terms[2].speedup
    assert third is not None
    assert third.value == close(42.74 / 45)
    assert score.value.value == close(3.0612740016171007 * (40 / 45) ** 0.25)


def test_ssi_takes_figures_of_merit_as_it_takes_times() -> None:
    machine = MachineSize(nodes=10, reference_nodes=10)
    rate = BenchmarkFigures(
        name="hpcg", offered=constant(300, "GFLOP/s"), reference=constant(200, "GFLOP/s"), nodes=1, reference_nodes=1
    )
    assert offer_score("ssi", [rate], machine).value.value == close(1.5)


# SSP

HOPPER = {"minife": (1065, 92.4), "minighost": (3350, 96.0), "amg": (1365, 151), "umt": (18409, 1263)}


def hopper() -> list[BenchmarkFigures]:
    return [timed(name, t, work=constant(work, "TFLOP"), nodes=2048) for name, (work, t) in HOPPER.items()]


def test_k_ssp_1_rates_of_a_node_as_printed() -> None:
    """Source: NERSC-8 and Trinity RFP, SSP, Hopper rows, reproduced."""
    score = offer_score("ssp", hopper(), MachineSize(nodes=6384))
    rates = [term.term.value for term in score.terms]
    assert rates == close([0.005627917004870129, 0.017038981119791668, 0.00441393315397351, 0.00711699883709422])
    assert [digits(rate, 3) for rate in rates] == [0.00563, 0.0170, 0.00441, 0.00712]


@pytest.mark.parametrize(
    ("mean", "expected"),
    [("geometric", 47.295668294514826), ("arithmetic", 54.579736864704316), ("harmonic", 42.31748101147995)],
)
def test_k_ssp_2_composites_of_four_rows(mean: Mean, expected: float) -> None:
    """Source: the rows of K-SSP-1, computed."""
    score = offer_score("ssp", hopper(), MachineSize(nodes=6384), mean)
    assert score.value.value == close(expected)
    assert (score.value.units, score.mean) == ("TFLOP/s", mean)


def test_k_ssp_3_potency_of_phases_and_its_value() -> None:
    """Source: Kramer's potency and value, computed."""
    phases = [(constant(tf, "TF"), 12 * y) for tf, y in ((100, 0.5), (250, 2.5), (300, 2))]
    assert potency(phases) == constant(potency(phases).value, "TF years")
    assert potency(phases).value == close(1275)
    assert potency_value(potency(phases), constant(60, "M")).value == close(21.25)


def test_phases_that_share_a_measurement_do_not_average_its_error_out() -> None:
    ssp = UncertainValue.of_error(100.0, 5.0, "TF", source="nodes")
    twice = potency([(ssp, 12), (ssp, 12)])
    apart = UncertainValue.of_error(100.0, 5.0, "TF")
    other = potency([(apart, 12), (apart, 12)])
    assert twice.log_estimate is not None and other.log_estimate is not None
    assert twice.log_estimate.error == close(0.05)
    assert other.log_estimate.error == close(0.05 / math.sqrt(2))


# Throughput of a filled module


def test_k_euro_2_a_suite_of_five() -> None:
    """Source: formula of arrhenius-benchmarks, README, computed."""
    seconds = [8589934592 * 200 / (1e9 * 12.5), 1000 * 172.8016 / 150, 1000 * 172.8016 / 90, 900, 1200]
    assert seconds[:3] == close([137.43895347199998, 1152.0106666666668, 1920.0177777777778])
    jobs = [
        timed(f"job{index}", t, weight=w, nodes=n)
        for index, (t, w, n) in enumerate(zip(seconds, (1, 8, 2, 4, 1), (16, 1, 4, 8, 32), strict=True))
    ]
    score = offer_score("throughput", jobs, MachineSize(nodes=300))
    assert score.value.value == close(11.492387524145322)


def test_k_euro_3_two_kinds_of_jobs() -> None:
    """Source: formula of arrhenius-benchmarks, README, computed."""
    jobs = [timed("a", 600, weight=1, nodes=4), timed("b", 300, weight=2, nodes=2)]
    assert offer_score("throughput", jobs, MachineSize(nodes=100)).value.value == close(100.0)


# Ratios


def test_k_spec_1_ratios_and_their_mean() -> None:
    """Source: University of North Dakota, course page, reproduced."""
    score = offer_score("index", [timed("a", 400, 8660), timed("b", 1000, 8500)])
    assert [term.term.value for term in score.terms] == close([21.65, 8.5])
    assert score.value.value == close(13.565581447177264)
    assert digits(score.value.value, 4) == 13.57


SYSTEMS = {"A": (50, 200, 250, 400, 5000), "B": (100, 400, 500, 800, 4100), "C": (500, 600, 500, 800, 3500)}


@pytest.mark.parametrize(
    ("reference", "expected", "printed"),
    [
        ("B", {"A": 1.6733499189394139, "B": 1, "C": 0.6898122615895008}, {"A": 1.6733, "B": 1, "C": 0.6898}),
        ("C", {"A": 2.4258048343234657, "B": 1.4496697952218893, "C": 1}, {"A": 2.4258, "B": 1.4497, "C": 1}),
    ],
)
def test_k_spec_2_the_reference_cancels(reference: str, expected: dict[str, float], printed: dict[str, float]) -> None:
    """Source: Null and Lobur, tables 10.4 and 10.5, reproduced (1.67335 is printed as 1.6733)."""
    for name, times in SYSTEMS.items():
        assert math.fsum(times) / 5 == 1180
        rows = [
            timed(str(index), t, t_ref) for index, (t, t_ref) in enumerate(zip(times, SYSTEMS[reference], strict=True))
        ]
        value = offer_score("index", rows).value.value
        assert value == close(expected[name])
        assert abs(value - printed[name]) < 1e-4


def test_k_spec_3_a_ratio_of_two_means() -> None:
    """Source: Patterson and Hennessy, figure 1.17, reproduced."""
    rate = BenchmarkFigures(name="mean", offered=constant(27.12), reference=constant(20.86))
    assert digits(offer_score("index", [rate]).value.value, 3) == 1.30


# What a score is refused for


@pytest.mark.parametrize(
    ("metric", "bench", "machine", "message"),
    [
        ("ssi", timed("a", 1, 1, nodes=1), MachineSize(nodes=1), r"a\.reference_nodes: is missing, ssi needs it"),
        ("throughput", timed("a", 1, nodes=4), MachineSize(nodes=3), r"a\.nodes: 4, more than the 3 of the machine"),
        ("index", timed("a", 1, 1, weight=0), None, r"weights: expected weights from zero up, not all zero"),
        (
            "throughput",
            BenchmarkFigures(name="a", offered=constant(1, "img/s"), nodes=1),
            MachineSize(nodes=1),
            r"a: throughput needs the time of a run in s, got img/s, higher is better",
        ),
        (
            "index",
            BenchmarkFigures(name="a", offered=constant(1, "img/s"), reference=constant(1, "tokens/s")),
            None,
            r"a: units differ: 'img/s' and 'tokens/s'",
        ),
    ],
)
def test_what_a_score_cannot_be_computed_of_is_named(
    metric: str, bench: BenchmarkFigures, machine: MachineSize | None, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        offer_score(metric, [bench], machine)


def test_phases_in_other_units_are_refused() -> None:
    with pytest.raises(ConfigError, match="units differ"):
        potency([(constant(1, unit), 1) for unit in ("TF", "PF")])


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_says_what_it_is(metric: str) -> None:
    definition = METRICS[metric]
    assert all((definition.title, definition.formula, definition.source, definition.needs, definition.means))
    # What could not be read is not offered under its name.
    assert "workflow" not in metric
