"""Rehearses a tender that is in a file, with the noise of a run or a stated one."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from milabench.errors import UsageError
from milabench.procurement.noise import RunNoise, measured_noise, stated
from milabench.workflow.files import base_folder
from milabench.workflow.report_inputs import find_report_source
from milabench.workflow.report_runs import read_criteria
from milabench.workflow.tender_files import read_tender
from milabench.workflow.tenders import reference_system, reference_warnings

if TYPE_CHECKING:
    from milabench.procurement.rehearsal_model import Rehearsal, RehearsalPlan
    from milabench.procurement.tender import Tender


def rehearse_tender(
    tender_file: Path,
    base: Path | None,
    plan: RehearsalPlan,
    *,
    noise_of: str | None = None,
    shares: Mapping[str, float] | None = None,
    criteria_file: Path | None = None,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> Rehearsal:
    """Return how often a tender comes out right, and how often with twice the launches; nothing is written.

    The noise is that of the run `noise_of`, by default the tender's reference run, with what `shares` state instead. Raises
    ConfigError for bad files, UsageError, NothingSelected and RecordError.
    """
    from milabench.procurement.rehearsal import rehearse

    if plan.bad_nodes >= plan.nodes:
        raise UsageError(f"--bad-nodes {plan.bad_nodes}: give fewer than the {plan.nodes} of --nodes")
    tender, folder = read_tender(tender_file), base_folder(base)
    reference = reference_system(folder, tender)
    criteria = None if criteria_file is None else read_criteria(criteria_file, "the offer")
    noise = _noise(tender, folder, noise_of, shares or {})
    done = itertools.count(1)

    def count(_: int) -> None:
        progress(next(done), 2 * plan.tenders)

    def rehearsed(plan: RehearsalPlan) -> Rehearsal:
        return rehearse(tender, noise, plan, random.Random(plan.seed), reference, criteria, count)

    first = rehearsed(plan)
    return replace(
        first,
        notes=(*reference_warnings(tender, reference), *first.notes),
        with_more=rehearsed(replace(plan, launches=2 * plan.launches)),
    )


def _noise(tender: Tender, folder: Path, noise_of: str | None, shares: Mapping[str, float]) -> dict[str, RunNoise]:
    name = noise_of or (str(tender.reference.run) if tender.reference.run is not None else None)
    if "launches" in shares and noise_of is None:
        return dict.fromkeys(tender.benchmarks, stated(RunNoise(), shares))
    if name is None:
        raise UsageError(
            "how numbers vary is not known: name a run with --noise RUN, or state it: --noise launches=1%,nodes=0.5%"
        )
    measured = {bench.bench: bench for bench in find_report_source(folder, name).summary.benchmarks}
    if missing := [bench for bench in tender.benchmarks if bench not in measured]:
        raise UsageError(
            f"{name}: did not measure {', '.join(missing)}: name another run with --noise, or state it: --noise launches=1%"
        )
    return {bench: stated(measured_noise(measured[bench], name), shares) for bench in tender.benchmarks}
