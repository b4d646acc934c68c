"""The energy, money and carbon of a run's work: its summary, its meters' measurements, and the terms of a tender."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from milabench.analysis.comparison_model import System
from milabench.analysis.intervals import Interval
from milabench.analysis.job_mix import costs_of
from milabench.analysis.summary_model import Summary
from milabench.events.rundir import Run
from milabench.events.values import as_mapping
from milabench.procurement.expenses import MeteredBench, expenses
from milabench.procurement.metering import level_of, metered_launch
from milabench.procurement.offer import Offer
from milabench.procurement.offer_costs import kept_share, price_of
from milabench.procurement.run_meters import StepPower, meters_of, step_powers
from milabench.procurement.tender import Tender, Terms, read_tender, tender_currency
from milabench.procurement.uncertainty import product
from milabench.workflow.options import Session


def with_expenses(
    summary: Summary,
    run: Run | None,
    tender: Tender | None = None,
    costs: Mapping[str, object] | None = None,
    offer: Offer | None = None,
    metered: Mapping[str, MeteredBench] | None = None,
) -> Summary:
    """Return the summary with the expenses of its work: by the terms of a tender, or in energy alone where a meter measured it.

    `metered` is by default the run's. Without a tender and a meter the summary is as it was. `costs` are the costs of the
    system, by default of its manifest. An offer's price, power and nodes come first: the nodes that ran bear their
    part of its fixed price. An offer in another currency than the tender's has no costs. Raises ConfigError for two currencies of
    tender and system, RecordError for a meter's bad record.
    """
    if metered is None:
        metered = {} if run is None else metered_benches(run)
    if tender is None and not metered:
        return summary
    terms = Terms() if tender is None else replace(tender.terms, currency=tender_currency(tender))
    declared = as_mapping(costs if costs is not None else {} if run is None else run.manifest.get("costs"))
    # Without a tender nobody asked for money.
    known = costs_of(declared if tender is not None else {})
    nodes = max(1, len(summary.nodes))
    whole = None if offer is None else offer.nodes
    price = None if offer is None else price_of(offer, nodes)
    if price is not None and terms.currency and price.units != terms.currency:
        return summary  # no offer that fits the tender: verifying it says so, with the place
    power_kw, declared_by = None, "power_W of the system file"
    if offer is not None:
        terms = replace(terms, upkeep=terms.upkeep * kept_share(offer))
    if price is not None:
        known = replace(known, price=None, currency=price.units)
    if offer is not None and offer.power.node is not None:
        power_kw = product([(offer.power.node, 1)], nodes, "kW")
        declared_by = f"power.node of the offer, its level {offer.power.level}"
    listed = [
        expenses(bench, terms, known, nodes, metered.get(bench.bench), price, power_kw, whole, declared_by)
        for bench in summary.benchmarks
    ]
    return structs.replace(summary, expenses=tuple(itertools.chain(*listed)))


def metered_benches(run: Run) -> dict[str, MeteredBench]:
    """Return the meters' measurements of each benchmark of a run. Empty for a run without meters. Raises RecordError."""
    meters = meters_of(run)
    if not meters:
        return {}
    steps = step_powers(run)
    curves = [meter.curve for meter in meters]
    whole = (min((step.span[0] for step in steps), default=0.0), max((step.span[1] for step in steps), default=0.0))
    errors = [
        meter.declared.error for meter in meters if meter.declared is not None and meter.declared.error is not None
    ]
    benches = {}
    for bench in dict.fromkeys(step.bench for step in steps):
        windows, has_windows = _windows([step for step in steps if step.bench == bench])
        launched = {
            repeat: launch
            for repeat, window in windows.items()
            if (launch := metered_launch(meters, curves, window)) is not None
        }
        least = min(
            (
                level_of(meter, curve, window, whole)
                for meter, curve in zip(meters, curves, strict=True)
                for window in windows.values()
            ),
            key=lambda each: each.level,
        )
        benches[bench] = MeteredBench(
            launches=launched,
            error=max(errors) if len(errors) == len(meters) else None,
            level=least if all(meter.declared is not None for meter in meters) else None,
            source="; ".join(meter.label for meter in meters),
            has_windows=has_windows,
        )
    return benches


def _windows(steps: Sequence[StepPower]) -> tuple[dict[int, Interval], bool]:
    """Return when each repeat measured, by replicate. Where a step has no window, from beginning to end, and False."""
    windows: dict[int, Interval] = {}
    measured = [step.window for step in steps if step.window is not None]
    has_windows = len(measured) == len(steps)
    for step, window in zip(steps, measured if has_windows else [step.span for step in steps], strict=True):
        start, stop = windows.get(step.repeat, window)
        windows[step.repeat] = min(start, window[0]), max(stop, window[1])
    return windows, has_windows


def with_expenses_of_runs(
    tender_file: Path | None, runs: Sequence[Run], summaries: Sequence[Summary], session: Session
) -> list[Summary]:
    """Return the summaries with energy, cost and carbon by a tender, or in energy alone where a meter measured a run."""
    tender = None if tender_file is None else read_tender(tender_file)
    if tender is not None:
        _warn_of_other_suite(tender, runs, summaries, session)
    paired = zip(runs, summaries, strict=True) if runs else ((None, summary) for summary in summaries)
    return [with_expenses(summary, run, tender) for run, summary in paired]


def _warn_of_other_suite(tender: Tender, runs: Sequence[Run], summaries: Sequence[Summary], session: Session) -> None:
    """Warn of the parts of each run's suite that are not the tender's."""
    from milabench.procurement.tender_report import suite_lines
    from milabench.procurement.tender_scores import Bid
    from milabench.procurement.tender_suites import TenderSuites, lock_texts

    own = TenderSuites(tender, session)
    for run, summary in zip(runs, summaries, strict=False):  # results of a store have no runs
        bid = Bid(name=run.name, system=System(name=run.name, summary=summary, manifest=run.manifest))
        for line in suite_lines(run.name, own.check(bid, lock_texts(run))):
            session.warn(line)
