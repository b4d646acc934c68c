"""Several runs a side: a session is a random effect, and the interval holds it; what single sessions cannot know."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, median, variance

import pytest

from milabench.analysis.compare import compare_systems
from milabench.analysis.comparison_model import Comparison, System
from milabench.analysis.summary_model import BenchSummary, Failure
from milabench.analysis.two_samples import Estimate, difference, log_mean_of, weighted_variances, welch
from milabench.ci import junit
from milabench.pages import render_comparison as page
from milabench.report import csv, json, markdown, text
from tests.unit.analysis.test_compare import bench, only, system

Sessions = Sequence[Sequence[float]]


def several(name: str, *runs: Sequence[BenchSummary]) -> System:
    """One system of several runs."""
    first, *later = (system(f"{name}{place}", *benches) for place, benches in enumerate(runs, start=1))
    return replace(first, name=name, later=tuple(later))


def of_levels(name: str, levels: Sequence[float], spread: float = 0.001) -> System:
    """A system with a session of three launches at each level."""
    return several(name, *([bench(level=level, shape=(1 - spread, 1.0, 1 + spread))] for level in levels))


def drawn(rng: random.Random, sessions: int, launches: int, *, session: float, launch: float = 0.01) -> Sessions:
    """Logarithms of rates with a random effect of the session."""
    return [
        [rng.gauss(centre, launch) for _ in range(launches)]
        for centre in (rng.gauss(0, session) for _ in range(sessions))
    ]


def coverage(sessions: int, launches: int, session: float, trials: int = 2000) -> float:
    rng = random.Random(13)
    estimates = [
        difference(*(log_mean_of(drawn(rng, sessions, launches, session=session)) for _ in "ab")) for _ in range(trials)
    ]
    return sum(low <= 0 <= high for low, high in (e.interval() for e in estimates)) / trials


def test_the_sample_of_several_sessions_is_their_means() -> None:
    sessions = [[0.0, 0.02], [0.1, 0.12], [0.2, 0.22]]
    found = log_mean_of(sessions)
    assert found.mean == pytest.approx(0.11)
    assert (found.variance, found.freedom) == (pytest.approx(variance([0.01, 0.11, 0.21]) / 3), 2)


def test_of_one_session_the_launches_are_the_sample_as_ever() -> None:
    a, b = [0.0, 0.01, 0.03], [0.02, 0.05, 0.04, 0.03]
    found = difference(log_mean_of([a]), log_mean_of([b]))
    expected = variance(a) / 3 + variance(b) / 4
    assert (found, found.error) == (welch(a, b), pytest.approx(math.sqrt(expected)))


def test_sessions_that_lie_together_by_chance_claim_no_more_than_their_launches_allow() -> None:
    sessions = [[-0.02, 0.0, 0.02], [-0.03, 0.0, 0.03], [-0.01, 0.0, 0.01]]
    found = log_mean_of(sessions)
    within = fmean(variance(launches) for launches in sessions)
    assert (found.variance, found.freedom) == (pytest.approx(within / 9), 8)
    assert found.variance > 0


@pytest.mark.slow
def test_the_interval_of_three_sessions_of_three_launches_covers_as_often_as_it_claims() -> None:
    assert 0.93 <= coverage(3, 3, 0.01) <= 0.975
    assert 0.93 <= coverage(5, 3, 0.01) <= 0.97


def test_without_a_session_effect_the_interval_is_a_little_wide() -> None:
    assert 0.96 <= coverage(3, 3, 0.0) <= 0.995


@pytest.mark.parametrize(("launches", "expected"), [(3, 0.81), (5, 0.63), (10, 0.47)])
def test_single_sessions_miss_their_drift(launches: int, expected: float) -> None:
    """One session a side of n launches, 1 % between sessions and 1 % between launches."""
    assert coverage(1, launches, 0.01) == pytest.approx(expected, abs=0.05)


def test_sessions_of_a_side_are_compared_by_their_means() -> None:
    a, b = of_levels("a", (100, 102, 98)), of_levels("b", (110, 112, 108))
    found = only(compare_systems([a, b]))
    of_means = welch(
        *(
            [math.log(level * (0.999 * 1.001) ** (1 / 3)) for level in levels]
            for levels in ((100, 102, 98), (110, 112, 108))
        )
    )
    assert found.ratio == pytest.approx(math.exp(of_means.d))
    assert found.ci95 == pytest.approx(of_means.ratio_interval())
    pooled = only(
        compare_systems(
            [system("a", bench(shape=(0.999, 1.0, 1.001))), system("b", bench(level=110, shape=(0.999, 1.0, 1.001)))]
        )
    )
    assert pooled.ci95 is not None and found.ci95 is not None
    assert found.ci95[1] / found.ci95[0] > pooled.ci95[1] / pooled.ci95[0]


def test_the_index_and_the_job_mix_have_the_sessions_in_their_intervals() -> None:
    a, b = of_levels("a", (100, 102, 98)), of_levels("b", (110, 112, 108))
    found = compare_systems([a, b])
    assert found.indices[0].ci95 == pytest.approx(only(found).ci95)
    single = compare_systems([of_levels("a", (100,)), of_levels("b", (110,))])
    (_, mix), (_, narrow) = found.job_mix, single.job_mix
    assert mix.time_ci95 is not None and narrow.time_ci95 is not None
    # Not more: launches of one session that agree by chance have the error of modes that they did not meet.
    assert mix.time_ci95[1] - mix.time_ci95[0] > 2.5 * (narrow.time_ci95[1] - narrow.time_ci95[0])


def of_benchmarks(name: str, levels: Sequence[Sequence[float]]) -> System:
    """A system with sessions, each of which has a level of every benchmark, and three launches of each."""
    shape = (0.9999, 1.0, 1.0001)
    return several(name, *([bench(f"b{k}", level, shape) for k, level in enumerate(each)] for each in levels))


def test_what_a_session_has_in_common_with_all_benchmarks_is_in_the_index() -> None:
    """Its interval is Welch's of the index of each session: errors of the benchmarks do not cancel."""
    a, b = [(100, 50, 20), (102, 51, 20.4), (98, 49, 19.6)], [(110, 55, 22), (112, 56, 22.4), (108, 54, 21.6)]
    found = compare_systems([of_benchmarks("a", a), of_benchmarks("b", b)])
    index_of = [[fmean(map(math.log, session)) for session in side] for side in (a, b)]
    assert found.indices[0].ci95 == pytest.approx(welch(*index_of).ratio_interval(), rel=1e-6)
    _, mix = found.job_mix
    assert mix.time_ci95 is not None
    of_side = welch([0.0, 0.0], [-level for level in index_of[1]])
    assert mix.time_ci95[1] / mix.time_h == pytest.approx(math.exp(of_side.interval()[1] - of_side.d), rel=1e-3)


def test_what_sessions_have_of_each_benchmark_by_itself_cancels_in_the_index() -> None:
    a = [(100, 50), (102, 49), (98, 51)]
    found = compare_systems([of_benchmarks("a", a), of_benchmarks("b", [(100, 50)] * 3)])
    of_first = found.rows[0].contrasts[0]
    assert of_first is not None and of_first.ci95 is not None and found.indices[0].ci95 is not None
    assert math.log(found.indices[0].ci95[1]) < 0.1 * math.log(of_first.ci95[1])


def test_where_a_session_lacks_a_benchmark_errors_of_the_index_add_up_as_they_are() -> None:
    a, b = of_benchmarks("a", [(100, 50), (102, 51), (98, 49)]), of_benchmarks("b", [(110, 55)])
    fewer = several("a", *(session.summary.benchmarks for session in a.sessions[:2]), [bench("b0", 98.0)])
    found = compare_systems([fewer, b])
    errors = [
        row.contrasts[0].evidence.estimate.error for row in found.rows if row.contrasts[0] and row.contrasts[0].evidence
    ]
    assert found.indices[0].ci95 is not None
    low, high = found.indices[0].ci95
    assert math.log(high / low) > 2 * 1.96 * fmean(errors)


@pytest.mark.parametrize(("of_all", "of_each"), [(0.01, 0.0), (0.0, 0.01), (0.003, 0.0)])
def test_the_index_of_several_sessions_covers_as_often_as_it_claims(of_all: float, of_each: float) -> None:
    """Ten benchmarks, three sessions of three launches a side, 1 % between launches."""
    rng = random.Random(29)

    def variances() -> tuple[float, list[tuple[float, float]]]:
        common = [rng.gauss(0, of_all) for _ in range(3)]
        levels = [
            log_mean_of(
                [[rng.gauss(centre, 0.01) for _ in range(3)] for centre in (c + rng.gauss(0, of_each) for c in common)]
            )
            for _ in range(10)
        ]
        return fmean(level.mean for level in levels), weighted_variances(levels, [0.1] * 10)

    hits, trials = 0, 400
    for _ in range(trials):
        (a, of_a), (b, of_b) = variances(), variances()
        low, high = Estimate.of_variances(b - a, [*of_a, *of_b]).interval()
        hits += low <= 0 <= high
    assert 0.93 <= hits / trials <= 0.985


def test_what_would_decide_is_sessions_where_these_are_the_sample() -> None:
    found = only(compare_systems([of_levels("a", (100, 102, 98)), of_levels("b", (102, 105, 99))]))
    assert (found.verdict, found.needed_unit) == ("INCONCLUSIVE", "sessions")
    assert found.needed is not None and found.needed > 3


def test_a_benchmark_that_failed_in_one_session_does_not_count() -> None:
    failed = bench(outcome="failed", shape=(), failures=(Failure(step="digits.D0", why="exit", detail="", log=None),))
    a = several("a", [bench()], [failed])
    found = compare_systems([a, of_levels("b", (100, 101))])
    assert found.excluded == (("digits", "a failed: exit"),)
    assert [failure.step for failure in found.systems[0].failures] == ["a2 digits.D0"]


def test_other_work_or_units_in_a_session_do_not_count() -> None:
    a = several("a", [bench()], [bench(units="tokens/s")])
    assert "other units in other sessions" in compare_systems([a, system("b", bench())]).excluded[0][1]
    argv = [{"suite": {"digits": {"argv": {"--batch-size": size}}}} for size in (64, 128)]
    first, second = (system(f"a{size}", bench(), manifest=size) for size in argv)
    found = compare_systems([replace(first, name="a", later=(second,)), system("b", bench(), manifest=argv[0])])
    ((name, why),) = found.excluded
    assert (name, why.split(";")[0]) == ("digits", "a does other work in other sessions: --batch-size 64 / 128")


def test_a_comparison_of_single_sessions_says_what_is_not_in_it_and_one_of_several_does_not() -> None:
    single = compare_systems([system("a", bench()), system("b", bench())])
    (told,) = (warning for warning in single.warnings if "session" in warning)
    assert (
        "The intervals do not include the drift between sessions" in told and "run --ab" in told and "A1,A2,A3" in told
    )
    both = compare_systems([of_levels("a", (100, 101)), of_levels("b", (100, 102))])
    assert not any("session" in warning for warning in both.warnings)


def test_every_format_shows_the_sessions() -> None:
    found = compare_systems([of_levels("a", (100, 102, 98)), of_levels("b", (110, 112))])
    assert "| sessions |" in markdown.render_comparison(found) and "| 9/6 | 3/2 |" in markdown.render_comparison(found)
    assert " 9/6 |      3/2 | " in text.render_comparison(found)
    assert ",3,2," in csv.render_comparison(found)
    assert '"sessions": [\n          "a1",\n          "a2",\n          "a3"\n        ]' in json.render_comparison(found)
    shown = page(found)
    assert "a1, a2, a3" in shown and "sessions of 3, 3, 3 repeats" in shown
    assert "over 3 and 2 sessions" in junit.render_comparison(found)


def detected(true: float, launches: int, trials: int, rng: random.Random) -> tuple[float, float]:
    """Return (the share of comparisons that find a difference, the median of what they say they would find in half of cases)."""
    found, said = 0, []
    for _ in range(trials):
        sides = [
            bench(level=100 * level, shape=[math.exp(rng.gauss(0, 0.01)) for _ in range(launches)])
            for level in (1, 1 + true)
        ]
        comparison: Comparison = compare_systems([system(name, side) for name, side in zip("ab", sides, strict=True)])
        found += only(comparison).verdict in ("FASTER", "SLOWER")
        assert comparison.indices[0].detectable == pytest.approx(only(comparison).detectable)
        said.append(only(comparison).detectable or math.nan)
    return found / trials, median(said)


@pytest.mark.slow
@pytest.mark.parametrize("launches", [4, 10])
def test_half_of_the_differences_that_the_power_line_names_are_found(launches: int) -> None:
    rng = random.Random(launches)
    _, said = detected(0.0, launches, 150, rng)
    share, _ = detected(said, launches, 400, rng)
    assert 0.42 <= share <= 0.58


def test_what_would_be_found_is_the_margin_and_half_of_the_interval_beyond_it() -> None:
    estimate = Estimate(d=0.3, error=0.01, freedom=8.0)
    assert math.log1p(estimate.detectable(0.01)) == pytest.approx(math.log(1.01) + 2.306004 * 0.01, abs=1e-7)
