"""A tender rehearsed: offers whose truth is known are measured, scored and accepted by the real code; how often that is right.

Only what is measured is drawn (noise.py); scores, verdicts, acceptance and outliers are those of `compare --tender`,
`accept` and `outliers`. Nothing is read or written.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from milabench.acceptance.criteria import BenchCriteria, Bound, Criteria
from milabench.acceptance.evaluate import evaluate_criteria
from milabench.analysis.comparison_model import System
from milabench.analysis.sample_statistics import mean
from milabench.analysis.summary_model import Summary
from milabench.analysis.throughput import Direction
from milabench.analysis.two_samples import Verdict
from milabench.config.problems import Problems, did_you_mean
from milabench.errors import Problem
from milabench.fleet.baseline import LEAST_PLACES, baseline, outliers
from milabench.procurement.measured import SourcedFigure
from milabench.procurement.offer import Offer, OfferBenchmark
from milabench.procurement.reference_nodes import run_nodes
from milabench.procurement.scores import METRICS
from milabench.procurement.tender import ReferenceFigure, ReferenceRun, Tender, TenderBenchmark
from milabench.procurement.tender_scores import Bid, TenderScores, reference_figures, score_tender
from milabench.procurement.uncertainty import UncertainValue, constant
from tests.changed_values import replace
from tests.rehearsal.model import (
    ANY_WRONG,
    AWARD,
    BAD,
    BLAMED,
    COVERAGE,
    FAILED,
    FLEET,
    FOUND,
    GOOD,
    LEAST,
    NONE,
    OF_BENCHMARKS,
    OF_RATIOS,
    OF_SCORES,
    PASSED,
    RIGHT,
    SHOWN,
    SHOWN_WRONG,
    UNDECIDED,
    VERDICTS,
    WON,
    WRONG,
    Observed,
    Rehearsal,
    RehearsalPlan,
    RehearsedOffer,
)
from tests.rehearsal.noise import Logs, RunNoise
from tests.rehearsal.simulated_runs import node_name, simulated_bench, simulated_run, times_as_fast

LEVEL: Final = 0.95
_SIMULATED: Final = ("rate", "system")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Level:
    """What the reference reaches in a benchmark: `figure` is what is scored, `rate` what a launch records."""

    figure: UncertainValue
    direction: Direction
    rate: float
    rate_units: str
    rate_direction: Direction
    launches: int | None
    weight: float


@dataclass(slots=True)
class _Counts:
    """Hits and trials by group and name, in the order of the first trial."""

    found: dict[tuple[str, str], list[int]] = field(default_factory=dict)

    def add(self, group: str, name: str, *, hit: bool) -> None:
        entry = self.found.setdefault((group, name), [0, 0])
        entry[0] += hit
        entry[1] += 1

    def add_each(self, group: str, names: Sequence[str], happened: str) -> None:
        """Count one trial of which exactly one thing happened."""
        for name in names:
            self.add(group, name, hit=name == happened)


_STATED: Final[Mapping[tuple[str, str], str]] = {
    (VERDICTS, ANY_WRONG): "at most 5 %",
    (VERDICTS, LEAST + WRONG): "at most 5 %",
    (COVERAGE, OF_BENCHMARKS): "95 %",
    (COVERAGE, OF_SCORES): "95 %",
    (COVERAGE, OF_RATIOS): "95 %",
}


def default_criteria(tender: Tender) -> Criteria:
    """Return what is accepted by where no criteria are given: 97 % of what was offered, and 1.5 % between nodes."""
    bound = Bound(value=0.97, is_relative=True)
    benches = tuple(BenchCriteria(name=name, minimum=bound, device_spread=0.015) for name in tender.benchmarks)
    return Criteria(title="0.97 x what was offered, 1.5 % between nodes", file="", benchmarks=benches)


def rehearse(
    tender: Tender,
    noise: Mapping[str, RunNoise],
    plan: RehearsalPlan,
    draw: Random,
    reference: System | None = None,
    criteria: Criteria | None = None,
) -> Rehearsal:
    """Return how often scores, verdicts and acceptance come out right over simulated tenders.

    `draw` is seeded as the plan says; `reference` is the run that the tender names, `noise` that of each benchmark. Raises
    ConfigError for what cannot be scored, and for criteria on benchmarks that are not in the tender.
    """
    metric = plan.metric or tender.metric
    levels = _levels(tender, reference)
    nodes = _bench_nodes(tender, reference, plan)
    simulated = _simulated(tender, reference, levels, plan, nodes)
    criteria, notes = _rehearsed_criteria(criteria or default_criteria(tender), tender)
    room = _Room(plan=plan, tender=simulated, metric=metric, levels=levels, nodes=nodes, noise=noise, criteria=criteria)
    truth, counts = room.true_scores(), _Counts()
    wins: Counter[str] = Counter()
    for _ in range(plan.tenders):
        room.one_tender(draw, truth, counts, wins)
    groups: dict[str, tuple[Observed, ...]] = {}
    for (group, name), (hits, trials) in counts.found.items():
        stated = _STATED.get((group, name), "")
        groups[group] = (*groups.get(group, ()), Observed(name=name, hits=hits, trials=trials, stated=stated))
    return Rehearsal(
        plan=plan,
        offers=tuple(
            RehearsedOffer(
                name=entry.bid.name,
                ratio=ratio,
                score=None if entry.score is None else entry.score.value.value,
                breaks_rule=entry.score is None or bool(entry.score.breaches),
                won=Observed(name=entry.bid.name, hits=wins[entry.bid.name], trials=plan.tenders),
            )
            for entry, ratio in zip(truth.bids, plan.ratios, strict=True)
        ),
        groups=groups,
        notes=tuple(notes),
    )


def _levels(tender: Tender, reference: System | None) -> dict[str, _Level]:
    """Return what the reference reaches; without any, 100 s or what is scored by the metric that needs no reference."""
    problems = Problems()
    figures = reference_figures(tender, "index", reference, problems)
    problems.raise_any()
    measured = {} if reference is None else {bench.bench: bench for _, bench in reference.benches}
    levels = {}
    for name, wanted in tender.benchmarks.items():
        found = figures.get(name, SourcedFigure(value=constant(100, "s"), direction="lower"))
        rate, units, direction = found.value.value, found.value.units, found.direction
        bench = measured.get(name)
        if bench is not None and bench.perf is not None:
            rate, units, direction = bench.perf, bench.units, bench.direction
        levels[name] = _Level(
            figure=found.value,
            direction=found.direction,
            rate=rate,
            rate_units=units,
            rate_direction=direction,
            launches=found.launches,
            weight=wanted.weight,
        )
    return levels


def _bench_nodes(tender: Tender, reference: System | None, plan: RehearsalPlan) -> dict[str, int]:
    """Return the nodes that an offer uses for each benchmark: as many as the reference did, where it has so many."""
    used = {} if reference is None else {bench.bench: bench.nodes for _, bench in reference.benches}
    return {
        name: max(1, min(plan.nodes, round(wanted.reference.nodes or used.get(name) or plan.nodes)))
        for name, wanted in tender.benchmarks.items()
    }


def _simulated(
    tender: Tender,
    reference: System | None,
    levels: Mapping[str, _Level],
    plan: RehearsalPlan,
    offered_nodes: Mapping[str, int],
) -> Tender:
    """Return the tender with the reference's figures in it, and what an offer records being what is scored.

    A metric that counts no nodes compares figures of as many: the reference's are then of those that an offer uses.
    """
    metric = plan.metric or tender.metric
    counts_nodes = "nodes" in METRICS[metric].needs
    used = {} if reference is None else {bench.bench: float(max(1, bench.nodes)) for _, bench in reference.benches}

    def plain(name: str, wanted: TenderBenchmark) -> TenderBenchmark:
        level = levels[name]
        return replace(
            wanted,
            figure_of_merit="",
            units=level.figure.units,
            better="lower" if level.direction == "lower" else "higher",
            size="",
            reference=ReferenceFigure(
                value=constant(level.figure.value, level.figure.units),
                nodes=(wanted.reference.nodes or used.get(name)) if counts_nodes else offered_nodes[name],
            ),
        )

    owned = tender.reference.nodes or (None if reference is None else float(run_nodes(reference)))
    return replace(
        tender,
        metric=metric,
        mean=tender.mean if tender.mean in METRICS[metric].means else None,
        reference=ReferenceRun(nodes=owned),
        benchmarks={name: plain(name, wanted) for name, wanted in tender.benchmarks.items()},
    )


def _rehearsed_criteria(criteria: Criteria, tender: Tender) -> tuple[Criteria, list[str]]:
    """Return the criteria on what is simulated, and what of them is not. Raises ConfigError for unknown benchmarks."""
    problems, notes, benches = Problems(), [], []
    for bench in criteria.benchmarks:
        if bench.name not in tender.benchmarks:
            hint = did_you_mean(bench.name, tender.benchmarks) or f"it has {', '.join(tender.benchmarks)}"
            problems.add(Problem(bench.where, f"benchmarks.{bench.name}", f"is not in {tender.file}", hint))
        has_rate = bench.of in _SIMULATED
        left_out = [
            name
            for name, is_asked in (
                ("energy", bench.energy is not None),
                ("serving", bool(bench.serving)),
                (bench.of, not has_rate and (bench.minimum or bench.maximum) is not None),
            )
            if is_asked
        ]
        notes += [f"not rehearsed, always taken as kept: {bench.name} {name} ({bench.where})" for name in left_out]
        plain = replace(bench, energy=None, serving=())
        benches.append(plain if has_rate else replace(plain, of="rate", minimum=None, maximum=None))
    problems.raise_any()
    return replace(criteria, benchmarks=tuple(benches)), notes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Room:
    """What every simulated tender has in common."""

    plan: RehearsalPlan
    tender: Tender
    metric: str
    levels: Mapping[str, _Level]
    nodes: Mapping[str, int]
    noise: Mapping[str, RunNoise]
    criteria: Criteria

    def true_scores(self) -> TenderScores:
        """Return the scores of what the offers truly are."""
        bids = [
            Bid(name=name, offer=self._offer(name, ratio))
            for name, ratio in zip(self.plan.names, self.plan.ratios, strict=True)
        ]
        return score_tender(self.tender, bids, metric=self.metric, margin=self.plan.margin)

    def one_tender(self, draw: Random, truth: TenderScores, counts: _Counts, wins: Counter[str]) -> None:
        """Measure, score, compare and accept once; count what was right."""
        tender = self._measured_reference(draw)
        logs = [
            {name: self.noise[name].logs(draw, self.plan.launches, self.nodes[name]) for name in self.levels}
            for _ in self.plan.ratios
        ]
        bids = [
            self._bid(name, ratio, of_bid)
            for name, ratio, of_bid in zip(self.plan.names, self.plan.ratios, logs, strict=True)
        ]
        scores = score_tender(tender, bids, metric=self.metric, margin=self.plan.margin)
        _count_verdicts(scores, truth, counts)
        _count_coverage(scores, truth, counts)
        best = self._best(scores)
        if best is None:
            counts.add(AWARD, WON, hit=False)
            counts.add(AWARD, SHOWN, hit=False)
            counts.add(AWARD, SHOWN_WRONG, hit=False)
            return
        wins[self.plan.names[best]] += 1
        others = [bid for at, bid in enumerate(bids) if at != best]
        is_shown = (
            score_tender(tender, [bids[best], *others], metric=self.metric, margin=self.plan.margin) if others else None
        )
        is_better = is_shown is not None and all(entry.verdict == "SLOWER" for entry in is_shown.bids[1:])
        is_right = self._is_best(truth, best)
        counts.add(AWARD, WON, hit=is_right)
        counts.add(AWARD, SHOWN, hit=is_better and is_right)
        counts.add(AWARD, SHOWN_WRONG, hit=is_better and not is_right)
        self._accept(draw, self.plan.ratios[best], logs[best], counts)

    def _best(self, scores: TenderScores) -> int | None:
        """Return which offer has the best score of those that break no rule."""
        marks = {
            at: entry.score.value.value
            for at, entry in enumerate(scores.bids)
            if entry.score is not None and not entry.score.breaches
        }
        return max(marks, key=marks.__getitem__) if marks else None

    def _is_best(self, truth: TenderScores, at: int) -> bool:
        best = self._best(truth)
        if best is None:
            return False
        values = [entry.score.value.value if entry.score else math.nan for entry in truth.bids]
        return at == best or math.isclose(values[at], values[best], rel_tol=1e-12)

    def _true_figure(self, bench: str, ratio: float) -> UncertainValue:
        level = self.levels[bench]
        return constant(times_as_fast(level.figure.value, ratio, level.direction), level.figure.units)

    def _offer(self, name: str, ratio: float | None = None) -> Offer:
        """Return an offer with the runs behind it, or with what it truly is where that is given."""
        benchmarks = {
            bench: OfferBenchmark(
                name=bench, nodes=nodes, value=None if ratio is None else self._true_figure(bench, ratio)
            )
            for bench, nodes in self.nodes.items()
        }
        return Offer(file="", vendor=name, nodes=self.plan.nodes, benchmarks=benchmarks, origin=self.tender.origin)

    def _measured_reference(self, draw: Random) -> Tender:
        """Return the tender with a reference that was measured again, or published with an error, as its own was."""
        benchmarks = {}
        for name, wanted in self.tender.benchmarks.items():
            level = self.levels[name]
            value: UncertainValue = constant(level.figure.value, level.figure.units)
            if level.launches is not None and level.launches > 1:
                logs = self.noise[name].logs(draw, level.launches, self.nodes[name])
                numbers = [times_as_fast(level.figure.value, math.exp(mean(row)), level.direction) for row in logs]
                value = UncertainValue.of_launches(numbers, level.figure.units, f"reference:{name}")
            elif level.figure.deviations:
                away = sum(part.sd * draw.gauss(0, 1) for part in level.figure.deviations)
                value = replace(level.figure, value=level.figure.value * math.exp(away))
            benchmarks[name] = replace(wanted, reference=replace(wanted.reference, value=value))
        return replace(self.tender, benchmarks=benchmarks)

    def _bid(self, name: str, ratio: float, logs: Mapping[str, Logs]) -> Bid:
        """Return an offer with the runs behind it; a launch is one number of all its nodes."""
        benches = []
        for bench, rows in logs.items():
            level = self.levels[bench]
            single = [[mean(row)] for row in rows]
            summary = simulated_bench(bench, level.figure.value, level.figure.units, level.direction, ratio, single)
            benches.append(replace(summary, nodes=self.nodes[bench]))
        system = System(name=name, summary=simulated_run(name, benches))
        return Bid(name=name, offer=self._offer(name), runs=dict.fromkeys(logs, system))

    def _recorded(
        self,
        name: str,
        ratio: float,
        logs: Mapping[str, Logs],
        draw: Random | None = None,
    ) -> Summary:
        """Return the run of a system as its nodes record it; with `draw` its steps also fail as often as they do."""
        benches = []
        for bench, rows in logs.items():
            level = self.levels[bench]
            share = self.noise[bench].failures if draw is not None else 0.0
            failed = {
                (launch, node)
                for launch, row in enumerate(rows)
                for node in range(len(row))
                if share and draw is not None and draw.random() < share
            }
            args = (level.rate, level.rate_units, level.rate_direction, ratio, rows, failed)
            benches.append(replace(simulated_bench(bench, *args), nodes=len(rows[0])))
        return simulated_run(name, benches)

    def _accept(self, draw: Random, ratio: float, offered: Mapping[str, Logs], counts: _Counts) -> None:
        """Judge the system that won as delivered, without bad nodes and with them, beside what it offered."""
        plan = self.plan
        promised = self._recorded("offered", ratio, offered)
        bad = frozenset(draw.sample(range(plan.nodes), plan.bad_nodes))
        delivered = {}
        for group, nodes in ((GOOD, frozenset[int]()), (BAD, bad)):
            if group == BAD and not bad:
                continue
            logs = {
                name: self.noise[name].logs(draw, plan.launches, plan.nodes, slowdown=plan.slowdown, bad=nodes)
                for name in self.levels
            }
            delivered[group] = self._recorded(group, ratio, logs, draw)
            verdict = evaluate_criteria(self.criteria, delivered[group], promised).verdict
            counts.add_each(group, (PASSED, FAILED, UNDECIDED), verdict)
        if bad and plan.nodes >= LEAST_PLACES:
            found = outliers([delivered[BAD]], baseline([delivered[BAD]])).outliers
            reported = {str(outlier.location.node) for outlier in found if outlier.side in ("worse", "failed")}
            for node in range(plan.nodes):
                counts.add(FLEET, FOUND if node in bad else BLAMED, hit=node_name(node) in reported)


def _count_verdicts(scores: TenderScores, truth: TenderScores, counts: _Counts) -> None:
    """Count the verdicts on scores over the first one's, and those on the least score."""
    is_any_wrong = False
    for found, true in zip(scores.bids[1:], truth.bids[1:], strict=True):
        if found.verdict is None or true.ratio is None:
            continue
        happened = _rightness(found.verdict, math.log(true.ratio.value), scores.margin)
        is_any_wrong |= happened == WRONG
        counts.add_each(VERDICTS, (RIGHT, WRONG, NONE), happened)
    if len(scores.bids) > 1:
        counts.add(VERDICTS, ANY_WRONG, hit=is_any_wrong)
    for found, true in zip(scores.bids, truth.bids, strict=True):
        if found.meets is not None and found.least is not None and true.score is not None:
            is_met = true.score.value.value >= found.least
            happened = NONE if found.meets == UNDECIDED else RIGHT if (found.meets == PASSED) == is_met else WRONG
            counts.add_each(VERDICTS, (LEAST + RIGHT, LEAST + WRONG, LEAST + NONE), LEAST + happened)


def _rightness(verdict: Verdict, true: float, margin: float) -> str:
    """Return whether a verdict says what is so, `true` being the logarithm of the true ratio."""
    edge = math.log1p(margin)
    match verdict:
        case "INCONCLUSIVE":
            return NONE
        case "FASTER":
            is_right = true > edge * (1 - 1e-9)
        case "SLOWER":
            is_right = true < -edge * (1 - 1e-9)
        case _:
            is_right = abs(true) <= edge * (1 + 1e-9)
    return RIGHT if is_right else WRONG


def _count_coverage(scores: TenderScores, truth: TenderScores, counts: _Counts) -> None:
    for found, true in zip(scores.bids, truth.bids, strict=True):
        for row, true_row in zip(found.benchmarks, true.benchmarks, strict=True):
            if row.term is not None and true_row.term is not None:
                measured = row.term.speedup or row.term.term
                _count_held(OF_BENCHMARKS, measured, true_row.term.speedup or true_row.term.term, counts)
        if found.score is not None and true.score is not None:
            _count_held(OF_SCORES, found.score.value, true.score.value, counts)
        if found.ratio is not None and true.ratio is not None:
            _count_held(OF_RATIOS, found.ratio, true.ratio, counts)


def _count_held(name: str, value: UncertainValue, true: UncertainValue, counts: _Counts) -> None:
    interval = value.interval(LEVEL)
    # Without noise, launches differ by rounding: that is no interval.
    if interval is not None and not math.isclose(*interval, rel_tol=1e-12):
        counts.add(COVERAGE, name, hit=interval[0] <= true.value <= interval[1])
