"""What the interval of a number covers, and what verdicts of `compare` are false: by simulation, through the analysis itself.

`python tests/perf/verdicts.py [--trials N] [--only NAME] [--seed N]` prints these tables:

- cells: of programs and disturbances whose undisturbed rate is known, how often the interval of the number holds it (aim: 95 %
  over the table, 90 % in every cell), and how wide it is next to Student's interval of the launches alone;
- sequential: the same where launches are added until the number is precise to 5 %, or ten;
- verdicts: in how many comparisons of ten equal benchmarks FASTER or SLOWER is said somewhere (aim: at most 5 %);
- power: which share of differences of 5 % is found;
- sessions: the coverage of the 95 % interval of the ratio of two systems, by single sessions and by several.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, median, stdev

sys.path.insert(0, str(Path(__file__).parents[2]))

from milabench.analysis.bench_summary import undisturbed, with_rate
from milabench.analysis.compare import compare_systems
from milabench.analysis.comparison_model import System
from milabench.analysis.intervals import LEAST_LAUNCHES, t_quantile
from milabench.analysis.replicates import MOST_LAUNCHES, MOST_SHORT_LAUNCHES
from milabench.analysis.score import Score
from milabench.analysis.series import CompactSeries
from milabench.analysis.summary_model import BenchSummary, ReplicateResult, Summary
from milabench.analysis.throughput import Throughput, launch_throughput
from milabench.analysis.uncertainty import CONFIDENCE, CONFIDENCE_OF_STOPPED
from milabench.analysis.windows import Window
from milabench.workflow.estimate import imprecise_benches
from tests.changed_values import replace

STEP_NS = 10_000_000
PRECISION = 0.05
Durations = list[float]


@dataclass(frozen=True, slots=True)
class Cell:
    """One row: launches of a program whose `hit` first ones are disturbed.

    `levels` is how launches differ (with the standard deviation `between` of their logarithms), `wander` the slow and `noise` the
    fast noise of steps, `correlation` that of a step with the one before it.
    """

    launches: int
    steps: int
    levels: str
    between: float
    wander: float
    correlation: float
    what: str = "none"
    hit: int = 0
    noise: float = 0.02

    def __str__(self) -> str:
        program = f"{self.launches:>2} {self.steps:>5} {f'{self.levels} {self.between:.1%}':>16}"
        return f"{program} {self.wander:>5.0%} {self.correlation:>4} {f'{self.what} in {self.hit}':>18}"


def level(rng: random.Random, cell: Cell) -> float:
    """Return the logarithm of the rate of a launch; the mean over launches is 0."""
    x, sd = rng.random(), cell.between
    match cell.levels:
        case "two":
            return rng.gauss(0, sd) - 0.03 * (x < 0.25) + 0.0075
        case "three":
            return rng.gauss(0, sd) - (0.0 if x < 0.6 else 0.02 if x < 0.9 else 0.04) + 0.01
        case "far two":
            return rng.gauss(0, sd) - 0.06 * (x < 0.5) + 0.03
        case "heavy":
            return sd * rng.gauss(0, 1) / math.sqrt(3 * rng.gammavariate(1.5, 1 / 1.5))  # t of 3 degrees of freedom
    return rng.gauss(0, sd)


def window(rng: random.Random, cell: Cell, log_rate: float) -> Durations:
    """Return the times of the steps of a launch, exp(-log_rate) in the long run."""
    noise, wander, phi = cell.noise, cell.wander, cell.correlation
    fast, slow = noise * rng.gauss(0, 1), wander * rng.gauss(0, 1)
    keep = math.exp(-rng.uniform(4, 12) / cell.steps)
    fresh, fresh_slow = math.sqrt(1 - phi * phi) * noise, math.sqrt(1 - keep * keep) * wander
    base, steps = -log_rate - (noise**2 + wander**2) / 2, []
    for _ in range(cell.steps):
        fast = phi * fast + fresh * rng.gauss(0, 1)
        slow = keep * slow + fresh_slow * rng.gauss(0, 1) if wander else 0.0
        steps.append(math.exp(base + fast + slow))
    return steps


def stalls(steps: Durations, rng: random.Random, many: int) -> Durations:
    """Lose 2 to 30 % of the window at so many places."""
    lost, where = rng.uniform(0.02, 0.3) * math.fsum(steps), [rng.randrange(len(steps)) for _ in range(many)]
    return [each + where.count(index) * lost / many for index, each in enumerate(steps)]


def slower_part(steps: Durations, rng: random.Random, *, is_last: bool) -> Durations:
    """Make 10 to 60 % of the window 5 to 50 % slower."""
    n, share, more = len(steps), rng.uniform(0.1, 0.6), rng.uniform(0.05, 0.5)
    begin = round(n * (1 - share)) if is_last else round(rng.uniform(0, 1 - share) * n)
    return [each * (1 + more * (begin <= index < begin + round(n * share))) for index, each in enumerate(steps)]


def shaped(steps: Durations, shape: Callable[[float], float]) -> Durations:
    """Multiply each step by a function of its place in the window, 0 to 1."""
    return [each * shape(index / len(steps)) for index, each in enumerate(steps)]


def load_of_others(steps: Durations, rng: random.Random) -> Durations:
    """Slow the program by 10 to 50 % while a load is there: it comes and goes, for 30 % of the time."""
    n, is_on, more = len(steps), rng.random() < 0.3, rng.uniform(0.1, 0.5)
    left, out = rng.expovariate(10 / n), []
    for each in steps:
        left -= 1
        if left < 0:
            is_on = not is_on
            left = rng.expovariate((15 if is_on else 6) / n)
        out.append(each * (1 + more * is_on))
    return out


@dataclass(frozen=True, slots=True)
class Trial:
    """What one trial's disturbances have in common: where they begin, and which launch of how many it is."""

    phase: float
    index: int
    launches: int


def disturbed(steps: Durations, what: str, rng: random.Random, trial: Trial) -> Durations:
    """Return the steps with a disturbance, or with a habit of the program, which has no part in the mean rate."""
    turn = 2 * math.pi
    match what.split():
        case ["freeze"]:
            return stalls(steps, rng, 1)
        case ["stalls"]:
            return stalls(steps, rng, rng.randint(2, 6))
        case ["middle" | "throttle"]:
            return slower_part(steps, rng, is_last=what == "throttle")
        case ["load"]:
            return load_of_others(steps, rng)
        case ["begins"]:
            return shaped(steps, lambda x: 1 + 0.5 * (x < trial.phase))
        case ["drift"]:  # the truth is the rate as it began
            return shaped(steps, lambda x: 1 + 0.03 * x)
        case ["heat"]:  # settles 3 % slower than it begins; the truth is the settled rate
            return shaped(steps, lambda x: 1 - 0.03 * math.exp(-x / 0.2))
        case ["left-over"]:  # of a warm-up that decays
            return shaped(steps, lambda x: 1 + 0.5 * math.exp(-x / 0.04))
        case ["swing"]:  # the system's: the truth is the mean
            return shaped(steps, lambda x: 1 + 0.05 * math.sin(turn * x))
        case ["slow-half"]:  # the truth is the top
            return shaped(steps, lambda x: 1 + 0.025 * (1 - math.cos(turn * x)))
        case ["log-normal", cv]:  # steps of a long tail
            sd = math.sqrt(math.log1p(float(cv) ** 2))
            return [each * math.exp(rng.gauss(-sd * sd / 2, sd)) for each in steps]
        case ["collector"]:  # one step in forty takes five times as long, by chance
            return [each * (5 if rng.random() < 1 / 40 else 1) / 1.1 for each in steps]
        case ["checkpoint"]:  # every 25th step takes four times as long
            first = rng.randrange(25)
            return [each * (4 if (index + first) % 25 == 0 else 1) / 1.12 for index, each in enumerate(steps)]
        case ["sawtooth"]:  # clocks that fall by 8 % over 40 steps, again and again
            first = rng.randrange(40)
            return [each * (0.96 + 0.08 * ((index + first) % 40) / 40) for index, each in enumerate(steps)]
        case ["first-slow"]:
            return [each * 1.05 for each in steps]
        case ["faster"]:  # by 2 % from the first launch to the last; the truth is their mean
            return [each * math.exp(-0.02 * (trial.index / max(1, trial.launches - 1) - 0.5)) for each in steps]
    return steps


def cells_of_the_prototype() -> list[Cell]:
    """Return the 116 cells on which the constants were tuned."""
    calm = [(n, 300, "normal", 0.01, w, 0.5) for n in (3, 5, 10) for w in (0, 0.02, 0.05)]
    calm += [(n, 300, levels, sd, 0, 0.5) for n in (3, 5, 10) for levels, sd in (("two", 0.003), ("heavy", 0.02))]
    calm += [(3, 300, "normal", sd, 0, phi) for sd, phi in ((0.003, 0.5), (0.05, 0.0), (0.15, 0.5))]
    calm += [(10, 300, "normal", 0.15, 0, 0.5), (3, 60, "normal", 0.003, 0, 0.9), (3, 60, "normal", 0.01, 0.05, 0.0)]
    calm += [(3, 3000, "normal", 0.003, 0.02, 0.9), (3, 3000, "normal", 0.01, 0, 0.0)]
    cells = [Cell(*each) for each in calm]
    both = ("freeze", "stalls", "middle", "throttle", "begins")
    for n in (3, 5, 10):
        for wander in (0, 0.02):
            for what in (*both, "drift", "swing", "slow-half", "contended"):
                hits = (1, n) if what in both else (n,)
                cells += [Cell(n, 300, "normal", 0.005, wander, 0.5, what, hit) for hit in hits]
    for wander, phi in ((0, 0.9), (0.05, 0.5)):
        cells += [Cell(3, 60, "normal", 0.003, wander, phi, what, 3) for what in ("middle", "throttle", "stalls")]
    cells += [
        Cell(3, 3000, "normal", 0.003, 0.02, 0.9, "begins", 3),
        Cell(3, 300, "normal", 0.15, 0.05, 0.9, "middle", 3),
    ]
    return [*cells, Cell(3, 300, "two", 0.003, 0, 0.5, "middle", 1)]


def other_cells() -> list[Cell]:
    """Return 51 cells that were written before anybody looked at them."""
    cells = []
    for n in (3, 5, 10):
        cells += [Cell(n, 300, levels, 0.003, 0, 0.5) for levels in ("three", "far two")]
        cells += [Cell(n, 300, "normal", 0.01, 0, 0.0, f"log-normal {cv}", n, noise=0) for cv in (0.3, 0.6)]
        cells += [
            Cell(n, 300, "normal", 0.005, w, 0.5, what, n) for what in ("collector", "heat", "load") for w in (0, 0.02)
        ]
        cells += [Cell(n, 300, "normal", 0.005, 0, 0.5, what, n) for what in ("faster", "checkpoint", "left-over")]
        cells += [Cell(n, 300, "normal", 0.005, 0, 0.5, what, 1) for what in ("load", "first-slow")]
        cells += [
            Cell(n, 300, "normal", 0.005, 0.02, 0.5, "sawtooth", n),
            Cell(n, 60, "normal", 0.01, 0.02, 0.5, "load", n),
        ]
    return cells


def measured(steps: Sequence[float]) -> Throughput:
    """Return what the analysis makes of a launch of these steps, one item each."""
    now, begins, lasted = 10**9, array("Q"), array("I")
    for each in steps:
        begins.append(now)
        lasted.append(round(each * STEP_NS))
        now += lasted[-1]
    series = CompactSeries(
        task="train", rank=0, units="items/s", offset=0.0, t0_ns=begins, lasted=lasted, whole_ns=sum(lasted)
    )
    for column, value in ((series.n, 1), (series.steps, 1), (series.warmup, 0), (series.epoch_end, 0)):
        column.extend([value] * len(begins))
    complete = Window(start_ns=10**9, stop_ns=now, why="complete")
    throughput = launch_throughput([series], complete, (), {"window_steps": 1, "window_s": 0})
    assert throughput is not None
    return throughput


def launch(rng: random.Random, cell: Cell, trial: Trial) -> Throughput:
    """Return what the analysis makes of one launch of a cell; the undisturbed rate is 100 items/s."""
    slowed = rng.uniform(0, 0.2) if cell.what == "contended" and trial.index < cell.hit else 0.0
    steps = window(rng, cell, level(rng, cell) + math.log1p(-slowed * rng.random()))
    if trial.index < cell.hit:
        steps = disturbed(steps, cell.what, rng, trial)
    throughput = measured(steps)
    # What is read of the processors is off by some, and is a bound for what the program lost.
    others = 1.4 * slowed * max(0.0, 1 + 0.2 * rng.gauss(0, 1))
    return replace(throughput, effects={**throughput.effects, "others": others})


def bench(
    launches: Sequence[Throughput],
    confidence: float = CONFIDENCE,
    name: str = "cell",
    most_others: float | None = None,
) -> BenchSummary:
    """Return the benchmark of these launches, with its number and its uncertainty."""
    processes = tuple(
        ReplicateResult(steps=(f"{name}.R{index}",), slot="", repeat=index, throughput=each)
        for index, each in enumerate(launches)
    )
    counts = {"planned": len(launches), "passed": len(launches)}
    processes = undisturbed(processes, most_others)
    summary = BenchSummary(bench=name, outcome="passed", counts=counts, processes=processes, validity="valid")
    summary = with_rate(summary, 1, confidence)
    assert summary.uncertainty is not None
    return replace(summary, uncertainty=replace(summary.uncertainty, asked=PRECISION))


def bounds(summary: BenchSummary) -> tuple[float, float]:
    """Return the interval of a number, whose truth is 1."""
    known = summary.uncertainty
    assert known is not None and known.low is not None and known.high is not None
    return known.low / 100, known.high / 100


@dataclass(frozen=True, slots=True)
class Coverage:
    """How often the interval of a cell holds the truth, its median half-length, and that over Student's of the launches."""

    cell: Cell
    share: float
    expanded: float
    times_student: float

    def __str__(self) -> str:
        missed = "" if self.share >= 0.9 else "  < 90 %"
        return f"{self.cell} {self.share:>8.1%} {self.expanded:>7.1%} {self.times_student:>6.2f}{missed}"


def coverage_of(cell: Cell, trials: int, rng: random.Random) -> Coverage:
    """Simulate a cell."""
    hits, halves, students = 0, [], []
    for _ in range(trials):
        phase = rng.uniform(0.3, 0.45)
        launches = [launch(rng, cell, Trial(phase, index, cell.launches)) for index in range(cell.launches)]
        low, high = bounds(bench(launches))
        hits += low <= 1 <= high
        halves.append((high - low) / 2)
        logs = [math.log(each.value) for each in launches]
        students.append(t_quantile(0.975, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs)))
    return Coverage(cell, hits / trials, median(halves), median(halves) / median(students))


def summary_of(rows: Sequence[Coverage], name: str) -> str:
    """Return what a table of coverages comes to."""
    shares = [row.share for row in rows]
    calm = [row.times_student for row in rows if not row.cell.hit and row.cell.launches == 3]
    return (
        f"{name}: {len(rows)} cells, covered {fmean(shares):.1%} on average, {min(shares):.1%} at least, below 90 % in"
        f" {sum(share < 0.9 for share in shares)}; undisturbed with 3 launches {fmean(calm):.2f} times Student's width"
    )


def cell_rows(trials: int, rng: random.Random) -> Iterator[str]:
    """Yield the table of coverages, line by line."""
    yield "  n steps         launches wander AR(1)         disturbance   covers       U  U / Student's"
    tables = {"cells of the prototype": cells_of_the_prototype(), "other cells": other_cells()}
    totals = []
    for name, cells in tables.items():
        rows = []
        for cell in cells:
            rows.append(coverage_of(cell, trials, rng))
            yield str(rows[-1])
        totals.append(summary_of(rows, name))
    yield from totals


def measured_on(one: Callable[[int], Throughput], name: str = "cell", most: int = MOST_LAUNCHES) -> BenchSummary:
    """Return the benchmark of launches that are added as a run adds them: until it is precise, or so many."""
    launches = list[Throughput]()
    while True:
        launches.append(one(len(launches)))
        if len(launches) < LEAST_LAUNCHES:
            continue
        known = bench(launches, CONFIDENCE_OF_STOPPED, name, PRECISION)
        run = Summary(verdict="passed", benchmarks=(known,), score=Score())
        if len(launches) == most or not imprecise_benches(run, PRECISION):
            return known


def launch_number(rng: random.Random, cell: Cell, phase: float, index: int) -> Throughput:
    """Return one launch of a cell by its place among ten."""
    return launch(rng, cell, Trial(phase, index, MOST_LAUNCHES))


def command_number(rng: random.Random, cell: Cell, _: int) -> Throughput:
    """Return one run of a short command, which has no steps."""
    return Throughput(value=100 * math.exp(level(rng, cell)), units="items/s", basis="metric")


def stopped(cell: Cell, trials: int, rng: random.Random, *, most: int = MOST_LAUNCHES) -> tuple[float, float, float]:
    """Return (coverage, mean number of launches, share that is precise) where what is imprecise is measured on."""
    hits = count = precise = 0
    for _ in range(trials):
        one = partial(launch_number, rng, cell, rng.uniform(0.3, 0.45))
        if most == MOST_SHORT_LAUNCHES:
            one = partial(command_number, rng, cell)
        known = measured_on(one, most=most)
        low, high = bounds(known)
        hits, count = hits + (low <= 1 <= high), count + known.counts["planned"]
        precise += known.uncertainty is not None and known.uncertainty.is_enough
    return hits / trials, count / trials, precise / trials


def sequential_rows(trials: int, rng: random.Random) -> Iterator[str]:
    """Yield the table of the stopping rule, line by line."""
    yield f"launches added until precise to {PRECISION:.0%}, {MOST_LAUNCHES} at most (Student's t at {CONFIDENCE_OF_STOPPED:.1%})"
    yield "  n steps         launches wander AR(1)         disturbance   covers launches  precise"
    rows = list[float]()
    cells = [Cell(3, 60, "normal", sd, 0, 0.5) for sd in (0.01, 0.03, 0.05, 0.07, 0.1, 0.15)]
    cells += [
        Cell(3, 60, "heavy", 0.05, 0, 0.5),
        Cell(3, 60, "two", 0.003, 0, 0.5),
        Cell(3, 60, "normal", 0.05, 0.02, 0.5),
    ]
    cells += [Cell(3, 60, "normal", 0.02, 0, 0.5, what, 10) for what in ("stalls", "middle", "load", "contended")]
    cells += [Cell(3, 60, "normal", 0.02, 0, 0.5, what, 1) for what in ("stalls", "middle", "load", "contended")]
    cells += [Cell(3, 60, "three", 0.003, 0, 0.5), Cell(3, 60, "normal", 0.01, 0.02, 0.5, "drift", 10)]
    for cell in cells:
        share, count, precise = stopped(cell, trials, rng)
        rows.append(share)
        yield f"{cell} {share:>8.1%} {count:>5.1f} {precise:>8.0%}" + ("  < 90 %" if share < 0.9 else "")
    yield f"covered {fmean(rows):.1%} on average, {min(rows):.1%} at least"
    yield f"short commands, {MOST_SHORT_LAUNCHES} at most"
    rows = []
    for sd, shape in [
        *((sd, "normal") for sd in (0.01, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2)),
        (0.05, "heavy"),
        (0.1, "heavy"),
    ]:
        cell = Cell(3, 60, shape, sd, 0, 0.5)
        share, count, precise = stopped(cell, trials, rng, most=MOST_SHORT_LAUNCHES)
        rows.append(share)
        yield f"{cell} {share:>8.1%} {count:>5.1f} {precise:>8.0%}" + ("  < 90 %" if share < 0.9 else "")
    yield f"covered {fmean(rows):.1%} on average, {min(rows):.1%} at least"


def printed_run(rng: random.Random, cell: Cell, rates: Sequence[float], digits: int) -> Summary:
    """Return a run of benchmarks that print these rates, to so many digits; all digits for 0. For 0 launches it measures on."""

    def one(rate: float, _: int = 0) -> Throughput:
        value = rate * math.exp(level(rng, cell))
        return Throughput(value=round(value, digits - 1) if digits else value, units="items/s", basis="metric")

    benches = [
        bench([one(rate) for _ in range(cell.launches)], name=f"b{index}")
        if cell.launches
        else measured_on(partial(one, rate), f"b{index}")
        for index, rate in enumerate(rates)
    ]
    return Summary(verdict="passed", benchmarks=tuple(replace(each, instances=1) for each in benches), score=Score())


def verdicts_of(rng: random.Random, cell: Cell, ratio: float, digits: int, benches: int) -> list[str]:
    """Return what `compare` says of benchmarks of two systems, the second of which is so many times as fast."""
    rates = [10 ** rng.random() for _ in range(benches)]  # printed to two digits: 1.0 to 10
    systems = [
        System(name=name, summary=printed_run(rng, cell, [rate * times for rate in rates], digits))
        for name, times in (("a", 1.0), ("b", ratio))
    ]
    return [contrast.verdict for row in compare_systems(systems).rows for contrast in row.contrasts if contrast]


def verdict_rows(trials: int, rng: random.Random) -> Iterator[str]:
    """Yield the tables of false verdicts and of power, line by line."""
    yield "comparisons of ten equal benchmarks with a FASTER or SLOWER somewhere (aim: at most 5 %)"
    for n in (3, 5, 10, 0):
        for levels, sd, digits in (
            ("normal", 0.003, 0),
            ("normal", 0.05, 0),
            ("normal", 0.07, 0),
            ("heavy", 0.02, 0),
            ("two", 0.003, 0),
            ("normal", 0.003, 2),
            ("two", 0.003, 2),
        ):
            cell = Cell(n, 0, levels, sd, 0, 0)
            wrong = sum(
                any(word in ("FASTER", "SLOWER") for word in verdicts_of(rng, cell, 1.0, digits, 10))
                for _ in range(trials)
            )
            name = f"{n:>2} launches" if n else "measured on"
            yield f"{name}, {levels} {sd:.1%}{', two digits' if digits else ''}: {wrong / trials:.1%}"
    yield "differences of 5 % that are found, among ten benchmarks"
    for n in (3, 5, 10, 0):
        for sd in (0.005, 0.02):
            words = [w for _ in range(trials) for w in verdicts_of(rng, Cell(n, 0, "normal", sd, 0, 0), 1.05, 0, 10)]
            yield f"{f'{n:>2} launches' if n else 'measured on'}, {sd:.1%}: {words.count('FASTER') / len(words):.1%}"


def session(rng: random.Random, launches: int, drift: float, noise: float) -> Summary:
    """Return a run of one benchmark, whose session moves all its launches by one random amount."""
    centre = rng.gauss(0, drift)
    values = [math.exp(rng.gauss(centre, noise)) for _ in range(launches)]
    bench = BenchSummary(
        bench="digits",
        outcome="passed",
        counts={"planned": launches, "passed": launches},
        processes=tuple(
            ReplicateResult(steps=(f"R{at}",), slot="", repeat=at, throughput=Throughput(value=value, units="items/s"))
            for at, value in enumerate(values)
        ),
        perf=values[0],
        instances=1,
        validity="valid",
    )
    return Summary(verdict="passed", benchmarks=(bench,), score=Score())


def coverage(sessions: int, launches: int, drift: float, trials: int, rng: random.Random) -> tuple[float, float]:
    """Return (how often `compare` of equal systems has 1 in its interval, the median half-width of that)."""
    hits, halves = 0, []
    for _ in range(trials):
        systems = []
        for name in "ab":
            first, *later = (System(name=name, summary=session(rng, launches, drift, 0.01)) for _ in range(sessions))
            systems.append(replace(first, later=tuple(later)))
        (contrast,) = compare_systems(systems).rows[0].contrasts
        assert contrast is not None and contrast.ci95 is not None
        low, high = contrast.ci95
        hits += low <= 1 <= high
        halves.append(math.log(high / low) / 2)
    return hits / trials, median(halves)


def coverages(trials: int, rng: random.Random) -> Iterator[str]:
    """Yield the table of coverages, line by line."""
    yield "95 % interval of the ratio of two equal systems: coverage (target of several sessions: 93 to 97 %), median half-width"
    yield f"{'sessions':>8} {'launches':>8}  {'1 % of a session':>20} {'no drift':>20}  1 % of a launch"
    for sessions, launches in ((1, 3), (1, 5), (1, 10), (2, 3), (3, 1), (3, 3), (3, 10), (5, 3)):
        cells = []
        for drift in (0.01, 0.0):
            share, half = coverage(sessions, launches, drift, trials, rng)
            cells.append(f"{share:>11.1%} ±{half:>7.2%}")
        yield f"{sessions:>8} {launches:>8}  {' '.join(cells)}"


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tables = {
        "cells": (cell_rows, 1),
        "sequential": (sequential_rows, 5),
        "verdicts": (verdict_rows, 2),
        "sessions": (coverages, 10),
    }
    parser.add_argument("--trials", type=int, default=200, help="simulated benchmarks of a cell (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers (default: %(default)s)")
    parser.add_argument("--only", choices=tables, help="print this table alone")
    options = parser.parse_args()
    for name, (rows, times) in tables.items():
        if options.only in (None, name):
            for row in rows(times * options.trials, random.Random(options.seed)):
                print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
