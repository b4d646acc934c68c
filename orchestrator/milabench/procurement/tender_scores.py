"""Systems and offers scored by a tender: every term with its source, broken rules, comparisons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from milabench.analysis import acceptance_model
from milabench.analysis.comparison_model import System
from milabench.analysis.summary_model import validity_words
from milabench.analysis.system_diff import differing_work, knows_work
from milabench.analysis.two_samples import DEFAULT_MARGIN, Verdict, judge_family
from milabench.config.problems import Problems
from milabench.errors import ConfigError, NothingSelected, Problem, UsageError
from milabench.procurement.measured import SourcedFigure, direction_of, measured_figure, side_of
from milabench.procurement.offer import Offer, Standing
from milabench.procurement.offer_costs import NO_COSTS, LimitCheck, OfferCosts, decide, limit_checks, offer_costs
from milabench.procurement.reference_nodes import nodes_on, reference_problems, run_nodes, unknown_reference_nodes
from milabench.procurement.scores import (
    METRICS,
    BenchmarkFigures,
    MachineSize,
    OfferScore,
    ScoreTerm,
    offer_score,
    potency,
    potency_value,
)
from milabench.procurement.tender import Tender, TenderBenchmark, Tier, metric_problems, with_places
from milabench.procurement.tiers import SuiteCheck
from milabench.procurement.uncertainty import Mean, UncertainValue, product

OF_REFERENCE: Final = "reference, "
"""Beginning of a warning about a figure of the reference."""
Admissible = Literal["yes", "no", "inconclusive"]
Verified = Literal["PASS", "FAIL", "INCONCLUSIVE", "ALTERED", "UNTRUSTED"]
"""The verification of an archive: no finding, changes that its tender forbids, missing evidence, modified, or that
none of the allowed signers signed it."""
_UNBELIEVED: Final = {
    "ALTERED": "its archive was modified",
    "UNTRUSTED": "its archive is by none of the allowed signers",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bid:
    """The scored subject: a run, or an offer with the runs that it names by benchmark.

    `suite` is how these differ from the tender's own suite, None where it names none. `verified` is the finding on an archive,
    None without an archive.
    """

    name: str
    system: System | None = None
    offer: Offer | None = None
    runs: Mapping[str, System] = field(default_factory=dict)
    suite: SuiteCheck | None = None
    verified: Verified | None = None

    def measured(self, bench: str) -> System | None:
        """Return the system that ran a benchmark. None where none did."""
        return self.runs.get(bench) if self.offer is not None else self.system

    @property
    def nodes(self) -> float | None:
        """N: the nodes of the offer, else the measured nodes."""
        if self.offer is not None:
            return self.offer.nodes
        return None if self.system is None else run_nodes(self.system)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredBenchmark:
    """A benchmark of a bid. `term` is its part of the score, None where it has none, and `why_not` why.

    `wanted` is what the tender says of it. `nodes` is n, `reference_nodes` n_ref. `standing` is None where the bid does not
    contain it.
    """

    wanted: TenderBenchmark
    tier: Tier | None = None
    standing: Standing | None = "measured"
    figure: SourcedFigure | None = None
    reference: SourcedFigure | None = None
    nodes: float | None = None
    reference_nodes: float | None = None
    term: ScoreTerm | None = None
    why_not: str = ""

    @property
    def bench(self) -> str:
        """Its name."""
        return self.wanted.name

    @property
    def is_declared(self) -> bool:
        """Whether nothing measured its figure."""
        return self.figure is not None and self.figure.launches is None

    @property
    def counts(self) -> bool:
        """Whether its figure may stand in a score."""
        return self.figure is not None and not self.why_not


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredBid:
    """A bid with its score. `why_not` says why it has none. `costs` are an offer's.

    `least` is the tender's minimum score and `meets` whether it is reached, one-sided at 95 %. `ratio` is the score over
    the first bid's, with its verdict. All ratios form a family of claims (Holm). `potency` is the sum over the
    phases of the delivery, `value` the potency for a unit of the offer's cost.
    """

    bid: Bid
    machine: MachineSize
    benchmarks: tuple[ScoredBenchmark, ...]
    score: OfferScore | None = None
    why_not: str = ""
    least: float | None = None
    meets: acceptance_model.Verdict | None = None
    ratio: UncertainValue | None = None
    verdict: Verdict | None = None
    potency: UncertainValue | None = None
    costs: OfferCosts = NO_COSTS
    limits: tuple[LimitCheck, ...] = ()

    @property
    def value(self) -> UncertainValue | None:
        """The potency for a unit of money."""
        whole = self.costs.whole
        return None if self.potency is None or whole is None else potency_value(self.potency, whole)

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why nothing is decided of its score: numbers in it that nothing measured, or that are suspect, its reference's too."""
        rows = [row for row in self.benchmarks if row.term is not None]
        declared = [row.bench for row in rows if row.is_declared]
        figures = [("", row.bench, row.figure) for row in rows] + [
            (OF_REFERENCE, row.bench, row.reference) for row in rows
        ]
        return (
            *((_UNBELIEVED[self.bid.verified],) if self.bid.verified in _UNBELIEVED else ()),
            *((f"declared, not measured: {', '.join(declared)}",) if declared else ()),
            *(
                f"{whose}{bench}: {validity_words(figure.validity, figure.doubt_words or figure.doubts)}"
                for whose, bench, figure in figures
                if figure is not None and figure.validity in ("suspect", "invalid")
            ),
        )

    @property
    def breaches(self) -> tuple[str, ...]:
        """The rules of the metric and of verification and the limits of the tender that it breaks, a line for each."""
        of_score: tuple[str, ...] = ()
        if self.score is not None:
            missed = f"{self.score.metric}: {self.score.value.value:.6g}, the minimum is {self.least or 0:g}"
            of_score = (*self.score.breaches, *((missed,) if self.meets == "FAIL" else ()))
        return (
            *((f"verification: {self.bid.verified}",) if self.bid.verified in (*_UNBELIEVED, "FAIL") else ()),
            *of_score,
            *(
                f"{limit.name}: {amount_text(limit.offered.value)} {limit.most.units},"
                f" the maximum is {amount_text(limit.most.value)}"
                for limit in self.limits
                if limit.decision == "FAIL" and limit.offered is not None
            ),
        )

    @property
    def admissible(self) -> Admissible:
        """Whether it has a score, breaks no rule and keeps the limits, including the minimum score.

        Inconclusive where a limit is, an S has no interval, or verifying its archive left something open.
        """
        if self.score is None or self.breaches:
            return "no"
        is_known = all(not term.doubt or term.speedup is None or term.speedup.interval() for term in self.score.terms)
        is_within = all(decision == "PASS" for decision in (self.meets or "PASS", *(it.decision for it in self.limits)))
        is_verified = self.bid.verified != "INCONCLUSIVE"
        return "yes" if is_known and is_within and is_verified else "inconclusive"

    @property
    def is_admissible(self) -> bool:
        """Whether it has a score and breaks no rule that is decided."""
        return self.admissible != "no"

    @property
    def tiers(self) -> Mapping[Tier, tuple[str, ...]]:
        """The benchmarks in the score by tier."""
        tiers: dict[Tier, tuple[str, ...]] = {}
        for row in self.benchmarks:
            if row.term is not None and row.tier is not None:
                tiers[row.tier] = (*tiers.get(row.tier, ()), row.bench)
        return tiers


@dataclass(frozen=True, slots=True, kw_only=True)
class TenderScores:
    """The result of a comparison by a tender. `scored` are the benchmarks in every score, `excluded` the others and why."""

    tender: Tender
    metric: str
    mean: Mean
    margin: float
    bids: tuple[ScoredBid, ...]
    scored: tuple[str, ...]
    excluded: tuple[tuple[str, str], ...] = ()
    reference: System | None = None

    @property
    def is_refused(self) -> bool:
        """Whether a bid is not admissible, or is worse than the first."""
        return any(not entry.is_admissible or entry.verdict == "SLOWER" for entry in self.bids)


def score_tender(
    tender: Tender,
    bids: Sequence[Bid],
    reference: System | None = None,
    metric: str = "",
    margin: float = DEFAULT_MARGIN,
    *,
    across: bool = False,
) -> TenderScores:
    """Return the scores of bids by a tender, over the benchmarks that it requires and the others that all of them have.

    `reference` is the run that the tender names. `metric` is the tender's by default. `across` also scores other work
    than the reference. Raises ConfigError, with file, line and column, for problems of the score: units that differ, a reference
    without a benchmark, numbers that the metric needs and nobody gives. Raises NothingSelected for a run of another suite,
    UsageError for two bids of the same name.
    """
    taken = [bid.name for bid in bids]
    if again := next((name for name in taken if taken.count(name) > 1), ""):
        raise UsageError(f"{again!r} is given twice: vendor and system of an offer, and names of runs, must differ")
    metric = metric or tender.metric
    problems = Problems()
    problems.extend(metric_problems(tender, metric))
    problems.raise_any()
    scoring = Scoring(tender, metric, reference, problems, across=across)
    rows = scoring.rows(bids)
    problems.raise_any()
    for bid in bids:
        ran = bid.system.benches if bid.system is not None else ()
        if bid.offer is None and not {bench.bench for _, bench in ran} & tender.benchmarks.keys():
            what = f"is a run of another suite: it has none of the benchmarks of {tender.file}"
            raise NothingSelected(f"{bid.name}: {what}, which are {', '.join(tender.benchmarks)}")
    complete = [{row.bench: row for row in bid_rows} for bid_rows in rows if not _lacking(bid_rows)]
    scored = [name for name in tender.benchmarks if all(by_name[name].counts for by_name in complete)]
    entries = [scoring.scored(bid, bid_rows, scored) for bid, bid_rows in zip(bids, rows, strict=True)]
    problems.raise_any()
    return TenderScores(
        tender=tender,
        metric=metric,
        mean=scoring.mean or METRICS[metric].means[0],
        margin=margin,
        bids=tuple(compared_with_first(entries, margin)),
        scored=tuple(scored) if complete else (),
        excluded=tuple(scoring.excluded(scored, bids, rows)) if complete else (),
        reference=reference,
    )


def reference_figures(
    tender: Tender, metric: str, reference: System | None, problems: Problems
) -> Mapping[str, SourcedFigure]:
    """Return the reference's figure of each benchmark, where the metric has a reference at all."""
    if "reference" not in METRICS[metric].needs:
        return {}
    figures = {}
    for name, wanted in tender.benchmarks.items():
        published = wanted.reference.value
        if published is not None:
            where = tender.origin.where(f"benchmarks.{name}.reference.value")
            direction = direction_of(wanted, published.units)
            figures[name] = SourcedFigure(value=published, direction=direction, formula="published", where=(where,))
        elif reference is not None:
            side = side_of(name, reference)
            if not side.counts:
                what = f"{reference.name}: {name!r} {side.why_not}"
                hint = f"give benchmarks.{name}.reference a value, or name another run"
                problems.add(tender.origin.problem("reference.run", what, hint))
                continue
            with problems.taking():
                figures[name] = measured_figure(wanted, reference, side, tender.origin, "reference")
    return figures


@dataclass(frozen=True, slots=True)
class Scoring:
    """A comparison by a tender with this metric. Problems are noted. `across` also takes other work than the reference's."""

    tender: Tender
    metric: str
    reference: System | None
    problems: Problems
    across: bool = False

    @property
    def mean(self) -> Mean | None:
        """The tender's mean, None where its metric has only one."""
        return self.tender.mean if self.tender.mean in METRICS[self.metric].means else None

    def rows(self, bids: Sequence[Bid]) -> list[tuple[ScoredBenchmark, ...]]:
        """Return the figures of each bid with the reference's, not scored yet."""
        self.problems.extend(reference_problems(self.tender, self.reference))
        if any(bid.offer is not None for bid in bids):
            self.problems.extend(unknown_reference_nodes(self.tender, self.metric, self.reference))
        published = reference_figures(self.tender, self.metric, self.reference, self.problems)
        return [
            tuple(
                _by_nodes(self.metric, self._row(wanted, bid, published.get(name)))
                for name, wanted in self.tender.benchmarks.items()
            )
            for bid in bids
        ]

    def _row(self, wanted: TenderBenchmark, bid: Bid, published: SourcedFigure | None) -> ScoredBenchmark:
        """Return the figures of a benchmark of a bid, not scored yet."""
        name = wanted.name
        declared = None if bid.offer is None else bid.offer.benchmarks.get(name)
        row = ScoredBenchmark(
            wanted=wanted,
            tier=None if declared is None else declared.tier,
            standing="measured" if declared is None else declared.standing,
            reference=published,
            nodes=None if declared is None else declared.nodes,
            reference_nodes=wanted.reference.nodes or nodes_on(self.reference, name),
        )
        if bid.offer is not None and declared is None:
            return replace(row, standing=None, why_not="is not in the offer")
        if row.standing == "projected":
            return replace(row, why_not="is projected: no measured figure at this count of nodes")
        if declared is not None and declared.value is not None and bid.offer is not None:
            direction = direction_of(wanted, declared.value.units, published.direction if published else "higher")
            where = (bid.offer.origin.where(f"benchmarks.{name}.value"),)
            figure = SourcedFigure(value=declared.value, direction=direction, formula="declared", where=where)
            row = replace(row, figure=figure)
        elif (system := bid.measured(name)) is not None:
            row = self._measured(wanted, bid, row, system)
        else:
            row = replace(row, why_not="has no run")
        if row.figure is not None and published is not None and row.figure.value.units != published.value.units:
            self.problems.add(_differing_units(self.tender, bid, name, published, row.figure))
        return row

    def _measured(self, wanted: TenderBenchmark, bid: Bid, row: ScoredBenchmark, system: System) -> ScoredBenchmark:
        """Return the row with the figure that a system's runs show, or with why they show none."""
        name = wanted.name
        # A larger problem than the reference's is other work, and c says so.
        is_same_work = row.reference is not None and row.reference.launches is not None and wanted.capability == 1
        side = side_of(name, system, self.reference if is_same_work else None, across=self.across)
        if wanted.capability != 1 and _did_the_work_of(self.reference, system, row):
            return replace(row, why_not=f"did the reference's own work, so that c = {wanted.capability:g} is not shown")
        if side.outcome == "absent" and bid.offer is not None:
            what = f"{system.summary.run} is a run of another suite: it has no benchmark {name!r}"
            hint = "name the run that measured it"
            self.problems.add(bid.offer.origin.problem(f"benchmarks.{name}.run", what, hint))
        if not side.counts:
            return replace(row, why_not=side.why_not)
        size = next((bench.size for _, bench in system.benches if bench.bench == name), "")
        if wanted.size and size and size != wanted.size:
            return replace(row, why_not=f"was run at the size {size}, the tender asks for {wanted.size}")
        nodes = max(1, side.nodes)
        if row.nodes is not None and row.nodes != nodes and bid.offer is not None:
            what = f"{row.nodes:g}, and its run measured {nodes}"
            hint = "give the nodes of the run, or say that it is projected (measured: false)"
            self.problems.add(bid.offer.origin.problem(f"benchmarks.{name}.nodes", what, hint))
        with self.problems.taking():
            figure = measured_figure(wanted, system, side, self.tender.origin, bid.name)
            return replace(row, figure=figure, nodes=row.nodes or nodes)
        return row

    def scored(self, bid: Bid, rows: tuple[ScoredBenchmark, ...], names: Sequence[str]) -> ScoredBid:
        """Return a bid with its score over the benchmarks of these names."""
        tender, costs = self.tender, NO_COSTS if bid.offer is None else offer_costs(bid.offer, self.tender)
        entry = ScoredBid(
            bid=bid,
            machine=MachineSize(nodes=bid.nodes, reference_nodes=self._reference_nodes()),
            benchmarks=rows,
            why_not=_lacking(rows) or ("" if names else "no benchmark is in every offer"),
            costs=costs,
            limits=tuple(limit_checks(tender.limits, costs)),
        )
        if entry.why_not:
            return entry
        figures = [
            BenchmarkFigures(
                name=row.bench,
                offered=row.figure.value,
                reference=None if row.reference is None else row.reference.value,
                direction=row.figure.direction,
                weight=row.wanted.weight if METRICS[self.metric].is_weighted else 1.0,
                capability=row.wanted.capability,
                nodes=row.nodes,
                reference_nodes=row.reference_nodes,
                work=row.wanted.work,
            )
            for row in rows
            if row.bench in names and row.figure is not None
        ]
        try:
            score = offer_score(self.metric, figures, entry.machine, self.mean)
            phases = bid.offer.phases if self.metric == "ssp" and bid.offer is not None else ()
            # Scored anew: a phase may have fewer nodes than a benchmark needs.
            machines = [replace(entry.machine, nodes=phase.nodes) for phase in phases]
            delivered = [
                (offer_score(self.metric, figures, machine, self.mean).value, phase.months)
                for machine, phase in zip(machines, phases, strict=True)
            ]
        except ConfigError as error:
            # What an offer or a tender lacks has the place of the benchmark in the offer, else in the tender.
            of_offer = error if bid.offer is None else with_places(error, bid.offer.origin)
            self.problems.take(with_places(of_offer, tender.origin))
            return entry
        terms = {term.name: term for term in score.terms}
        least = tender.limits.scores.get(self.metric)
        return replace(
            entry,
            benchmarks=tuple(replace(row, term=terms.get(row.bench)) for row in rows),
            score=score,
            least=least,
            meets=None if least is None else decide(score.value, least),
            potency=potency(delivered) if delivered else None,
        )

    def excluded(
        self, scored: Sequence[str], bids: Sequence[Bid], rows: Sequence[Sequence[ScoredBenchmark]]
    ) -> Iterator[tuple[str, str]]:
        """Yield each benchmark that is in no score, with the first bid that lacks it, and why."""
        for name in self.tender.benchmarks:
            if name in scored:
                continue
            for bid, bid_rows in zip(bids, rows, strict=True):
                row = next(row for row in bid_rows if row.bench == name)
                if not row.counts:
                    yield name, f"{bid.name}: {row.why_not}"
                    break

    def _reference_nodes(self) -> float | None:
        given = self.tender.reference.nodes
        return run_nodes(self.reference) if given is None and self.reference is not None else given


def _by_nodes(metric: str, row: ScoredBenchmark) -> ScoredBenchmark:
    """Return a row without its figure where that is of other nodes than the metric takes it to be of.

    With a ratio that does not count nodes, a measurement on more nodes would raise the score. With the figure of one
    instance, a measurement on fewer nodes would: it would count as more copies on all nodes.
    """
    needs = METRICS[metric].needs
    if row.figure is None or row.is_declared:
        return row
    counts_machine = "machine.nodes" in needs
    nodes, reference_nodes = row.nodes or 1, row.reference_nodes or 1
    here, there = row.figure.instances, 1 if row.reference is None else row.reference.instances
    taken, reference_taken = nodes, reference_nodes
    if not counts_machine:  # then a figure of one instance is of the nodes that this one takes
        taken, reference_taken = max(1, nodes / here), max(1, reference_nodes / there)
    if "reference" in needs and "nodes" not in needs and taken != reference_taken:
        what = f"was run on {nodes:g} nodes, the reference on {reference_nodes:g}: {metric} needs the same number"
        return replace(row, why_not=what)
    if here == there or not counts_machine:
        return row
    beside = f", of {there} on the reference" if row.reference is not None and row.reference.launches else ""
    formula = row.figure.formula if row.figure.formula.isidentifier() else f"({row.figure.formula})"
    all_of_them = f"{formula} {'/' if row.figure.direction == 'lower' else '*'} instances"
    what = f"is the figure of a single instance of {here}{beside}, which {metric} cannot divide by nodes"
    return replace(row, why_not=f"{what}. The figure of all instances is '{all_of_them}'")


def _differing_units(tender: Tender, bid: Bid, bench: str, published: SourcedFigure, figure: SourcedFigure) -> Problem:
    key = f"benchmarks.{bench}"
    place = published.where[0] if published.launches is None else tender.origin.where(key)
    if bid.offer is not None and (figure.launches is None or published.launches is not None):
        # An offer answers the tender: what it declares, or the run that it names, is in other units than were asked for.
        key = f"{key}.{'value' if figure.launches is None else 'run'}"
        place = bid.offer.origin.where(key)
    what = f"units differ: {published.value.units!r} of the reference, {figure.value.units!r} of {bid.name}"
    return Problem(place, key, what, "give both the same figure of merit, or convert the units")


def _did_the_work_of(reference: System | None, system: System, row: ScoredBenchmark) -> bool:
    """Return whether a benchmark is known to have done the very work of the measured reference, of which it claims more."""
    if reference is None or row.reference is None or row.reference.launches is None:
        return False
    both = [reference, system]
    return all(knows_work(each, row.bench) for each in both) and not differing_work(both, row.bench)


def _lacking(rows: Sequence[ScoredBenchmark]) -> str:
    """Return which required benchmarks have no figure, and why. Empty where all have one."""
    lacking = [row for row in rows if row.wanted.is_required and not row.counts]
    return "; ".join(f"{row.bench} {row.why_not}" for row in lacking)


def amount_text(amount: float) -> str:
    """Return money or power as people write it."""
    return f"{amount:,.0f}" if amount >= 1000 else f"{amount:.4g}"


def compared_with_first(entries: Sequence[ScoredBid], margin: float) -> Iterator[ScoredBid]:
    """Yield the bids with their ratios over the first and the verdicts on these, as a single family of claims."""
    first, *others = entries
    ratios = [
        product([(entry.score.value, 1), (first.score.value, -1)])
        if entry.score is not None and first.score is not None
        else None
        for entry in others
    ]
    judged = judge_family([None if ratio is None else ratio.log_estimate for ratio in ratios], [margin] * len(others))
    yield _undoubted(first)
    for entry, ratio, judgement in zip(others, ratios, judged, strict=True):
        verdict: Verdict | None = None
        if ratio is not None:
            is_decided = judgement is not None and not (first.doubts or entry.doubts)
            verdict = judgement.verdict if judgement is not None and is_decided else "INCONCLUSIVE"
        yield replace(_undoubted(entry), ratio=ratio, verdict=verdict)


def _undoubted(entry: ScoredBid) -> ScoredBid:
    """Return a bid whose minimum score is decided only from numbers without warnings."""
    return replace(entry, meets="INCONCLUSIVE") if entry.meets is not None and entry.doubts else entry
