"""Checks an offer's declaration: its changes against its tiers, its power against measurements, its evidence.

The results of the records are recomputed before (archives/verification.py).
This compares it with the declaration and the tender.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final

from milabench.analysis.acceptance_model import Verdict
from milabench.analysis.comparison_model import System, SystemResult
from milabench.analysis.json_codec import JsonKey
from milabench.errors import ConfigError, NothingSelected, UsageError, with_remedy
from milabench.procurement.measured import measured_figure, side_of
from milabench.procurement.offer import Offer, OfferBenchmark, PowerSource, Standing, offer_problems
from milabench.procurement.power_levels import PowerLevel, PowerMeasurement, power_level
from milabench.procurement.projection import Projected
from milabench.procurement.scaling_study import DeclaredBound, ScalingQuestion, scaling_study
from milabench.procurement.tender import Tender, Tier
from milabench.procurement.tiers import TierChange
from milabench.procurement.uncertainty import UncertainValue, constant

_LEVELS: Final = {"L1": 1, "L2": 2, "L3": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferRecords:
    """An offer with the runs of each benchmark.

    `levels` are the levels of the meters in its runs, `metered_kw` the metered power of a node, by run and benchmark.
    """

    offer: Offer
    runs: Mapping[str, tuple[System, ...]]
    levels: tuple[PowerLevel, ...] = ()
    metered_kw: tuple[UncertainValue, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkEvidence:
    """The evidence for a benchmark in an offer's records: `counts` are the nodes of its runs, `why_not` why no run counts.

    A figure not measured at the offer's nodes is a projection of its own measured counts: `projected`, never `value`.
    """

    bench: str
    tier: Tier
    standing: Standing
    runs: tuple[str, ...] = ()
    counts: Annotated[tuple[int, ...], JsonKey("nodes")] = ()
    value: float | None = None
    units: str = ""
    projected: Projected | None = None
    why_not: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerFinding:
    """The declared power of a node, and the evidence in the records: the level, and the power of its devices in kW.

    `missing` is the evidence for the declared level that the records lack.
    """

    level: str
    declared: UncertainValue | None
    devices: UncertainValue | None
    shown: Annotated[PowerLevel | None, JsonKey(write=lambda level: level and level.label)]
    missing: tuple[str, ...]
    verdict: Verdict
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferFinding:
    """A checked item: its name, the verdict, and why, with the place in a file where there is one."""

    what: str
    verdict: Verdict
    why: str
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferCheck:
    """An offer compared with its tender and its own records. `compared_with` is whose suite it was, empty where there is none."""

    offer: Offer
    evidence: tuple[BenchmarkEvidence, ...]
    changes: tuple[TierChange, ...]
    power: PowerFinding
    compared_with: str
    findings: tuple[OfferFinding, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """FAIL where anything fails, else INCONCLUSIVE where anything is not shown."""
        found = {finding.verdict for finding in self.findings}
        return "FAIL" if "FAIL" in found else "INCONCLUSIVE" if "INCONCLUSIVE" in found else "PASS"


def check_offer(records: OfferRecords, tender: Tender, changes: Sequence[TierChange], compared_with: str) -> OfferCheck:
    """Return the findings in an offer's records."""
    offer, runs = records.offer, records.runs
    check = OfferCheck(
        offer=offer,
        evidence=tuple(_evidence(offer, tender, name, runs.get(name, ())) for name in offer.benchmarks),
        changes=tuple(changes),
        power=power_finding(records),
        compared_with=compared_with,
    )
    return replace(check, findings=tuple(_findings(check, tender)))


def _evidence(offer: Offer, tender: Tender, name: str, systems: Sequence[System]) -> BenchmarkEvidence:
    declared = offer.benchmarks[name]
    sides = [side_of(name, system) for system in systems]
    reasons = [side.why_not or "was not measured" for side in sides if not side.counts]
    value, units = (declared.value.value, declared.value.units) if declared.value is not None else (None, "")
    if declared.standing == "measured" and sides and not reasons:
        value, units, why_not = _figure(tender, name, systems[0], sides[0])
        reasons += [why_not] if why_not else []
    evidence = BenchmarkEvidence(
        bench=name,
        tier=declared.tier,
        standing=declared.standing,
        runs=tuple(system.summary.run for system in systems),
        counts=tuple(max(1, side.nodes) for side in sides if side.counts),
        value=value,
        units=units,
        why_not="; ".join(dict.fromkeys(reasons)),
    )
    return _with_projection(evidence, declared, systems) if declared.standing == "projected" else evidence


def _figure(tender: Tender, name: str, system: System, side: SystemResult) -> tuple[float | None, str, str]:
    """Return the figure of merit that a run shows, its units, and why it shows none. The main rate where none is asked for."""
    wanted = tender.benchmarks.get(name)
    if wanted is None or not wanted.figure_of_merit:
        return side.value, side.units, ""
    try:
        figure = measured_figure(wanted, system, side, tender.origin, name).value
    except ConfigError as error:
        return None, "", str(error)
    return figure.value, figure.units, ""


def _with_projection(
    evidence: BenchmarkEvidence, declared: OfferBenchmark, systems: Sequence[System]
) -> BenchmarkEvidence:
    """Return the projection to the nodes of the offer, as `milabench project` does, or why it is missing."""
    assert declared.nodes is not None  # a projected benchmark without it is a mistake of the declaration
    bound = DeclaredBound(count=declared.nodes, why=declared.bound) if declared.bound else None
    try:
        question = ScalingQuestion(of="nodes", to=(declared.nodes,), bound=bound)
        study = scaling_study(systems, question, [declared.name])
    except (NothingSelected, UsageError) as error:
        why_not = str(error).removesuffix(" (--bound)")
        return evidence if evidence.why_not else replace(evidence, why_not=why_not)
    (scaling,) = study.benchmarks
    return replace(evidence, projected=scaling.projected[0], units=scaling.units)


def power_finding(records: OfferRecords) -> PowerFinding:
    """Return whether the declared power of a node is shown.

    It is not where its devices alone, or a meter beyond its error, show more, or where no meter says so.
    """
    declared, level = records.offer.power.node, records.offer.power.level
    ran = [(name, system) for name, systems in records.runs.items() for system in systems]
    devices = max((watts for name, system in ran for watts in _device_power(name, system)), default=None)
    shown = max(records.levels, key=lambda one: one.level, default=None)
    if shown is None and devices is not None:
        # What devices say of themselves: one component, behind all conversion.
        shown = power_level(
            PowerMeasurement(compute="measured", location="device", sample_s=1.0, reports=frozenset({"core"}))
        )
    lacking = [what for at, what in shown.missing if at <= _LEVELS.get(level, 0)] if shown is not None else []
    missing = tuple(dict.fromkeys(lacking))
    limit = None if declared is None else (declared.interval() or (declared.value, declared.value))[1]
    verdict: Verdict
    if limit is None:
        verdict, why = "PASS", "no power is declared"
    elif devices is not None and devices / 1000 > limit:
        verdict, why = "FAIL", f"the devices of a node alone drew {devices / 1000:.4g} kW, more than is declared"
    elif above := [kw for kw in records.metered_kw if kw.value > limit]:
        verdict, why = _above(max(above, key=lambda kw: kw.value), limit)
    else:
        verdict, why = _shown_by(level, shown, is_metered=any(one.location != "device" for one in records.levels))
    measured = None if devices is None else constant(devices / 1000, "kW")
    return PowerFinding(
        declared=declared, level=level, shown=shown, devices=measured, missing=missing, verdict=verdict, why=why
    )


def _above(metered: UncertainValue, limit: float) -> tuple[Verdict, str]:
    """Return a finding where a meter shows more than declared: a failure where its error does not explain it."""
    interval = metered.interval()
    verdict: Verdict = "FAIL" if interval is not None and interval[0] > limit else "INCONCLUSIVE"
    how_sure = "" if interval is None else f" ({interval[0]:.4g} to {interval[1]:.4g} at 95 %)"
    return verdict, f"a meter shows {metered.value:.4g} kW for a node{how_sure}, more than is declared"


def _shown_by(level: PowerSource, shown: PowerLevel | None, *, is_metered: bool) -> tuple[Verdict, str]:
    """Return whether the records support the declared power level, and why."""
    if level in _LEVELS:
        label = "no power" if shown is None else shown.label
        if shown is not None and shown.level >= _LEVELS[level]:
            return "PASS", f"shown: {label}"
        return "INCONCLUSIVE", f"{level} is declared, the records show {label}"
    if level == "provisioned":
        return "PASS", "by design, not measured"
    if level == "board":
        return ("INCONCLUSIVE", "no device recorded its power") if shown is None else ("PASS", "shown by the devices")
    return ("PASS", "shown by a meter") if is_metered else ("INCONCLUSIVE", "no meter's readings are in the records")


def _device_power(name: str, system: System) -> Iterator[float]:
    """Yield the power in W that the devices of a node drew while a benchmark measured."""
    side = side_of(name, system)
    if side.counts and side.joules_per_item and side.value and side.direction == "higher":
        yield side.joules_per_item * side.value / max(1, side.nodes)


def _findings(check: OfferCheck, tender: Tender) -> Iterator[OfferFinding]:
    offer, power, where = check.offer, check.power, check.offer.origin.where
    for problem in offer_problems(offer, tender):
        why = with_remedy(problem.what, problem.hint)
        yield OfferFinding(what=problem.path, verdict="FAIL", why=why, where=problem.where)
    for row in check.evidence:
        path = f"benchmarks.{row.bench}"
        yield OfferFinding(what=path, where=where(path), verdict=_stands(row), why=_stands_by(row, offer))
    for change in check.changes:
        if change.verdict == "allowed":
            continue
        path = f"benchmarks.{change.bench}"
        needs = "no tier allows it" if change.needs is None else f"is {change.needs}"
        why = f"{change.name}: {change.why}, {needs}, declared {change.declared}"
        if change.verdict == "not declared":
            why += ", and no change is described"
        yield OfferFinding(what=path, where=where(path), verdict="FAIL", why=why)
    if not check.compared_with:
        why = "names neither a suite nor a reference run with its records: changes cannot be found"
        yield OfferFinding(what="suite", verdict="INCONCLUSIVE", why=f"{tender.file} {why}")
    yield OfferFinding(what="power", where=where("power"), verdict=power.verdict, why=power.why)


def _stands(row: BenchmarkEvidence) -> Verdict:
    if row.why_not:
        return "FAIL"
    return "INCONCLUSIVE" if row.standing == "declared" else "PASS"


def _projected_text(row: BenchmarkEvidence) -> str:
    projected = row.projected
    if projected is None:
        return ""
    text = f": {projected.centre:.5g} {row.units} by {projected.law}".replace("  ", " ")
    if projected.prediction is None:
        return f"{text}, without an interval: {projected.why_no_interval}"
    low, high = projected.prediction
    return f"{text} ({low:.5g} to {high:.5g})"


def _stands_by(row: BenchmarkEvidence, offer: Offer) -> str:
    if row.why_not:
        return row.why_not
    counts = sorted(set(row.counts))
    nodes = "1 node" if counts == [1] else f"{', '.join(map(str, counts))} nodes"
    match row.standing:
        case "measured":
            return f"measured on {nodes}"
        case "projected":
            return f"projected to {offer.benchmarks[row.bench].nodes} nodes{_projected_text(row)}, measured on {nodes}"
        case "declared":
            return "declared: no run shows it"
