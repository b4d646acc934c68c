"""Computes the expected numbers of the nodes and devices of a fleet, and finds outliers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from milabench.analysis.summary_model import Summary
from milabench.errors import NothingSelected, RecordError
from milabench.events.wire import parse_object
from milabench.fleet.baseline import LEAST_PLACES, Baseline, Findings, baseline, baseline_from_json, outliers
from milabench.workflow.files import read_file, write_file
from milabench.workflow.measured_runs import resolve_runs
from milabench.workflow.options import Session
from milabench.workflow.references import work_record
from milabench.workflow.summaries import summary_of


def compute_baseline(names: Sequence[str], base: Path | None, output: Path, session: Session) -> Baseline:
    """Compute the baseline of runs and write it to a file. Raises NothingSelected and RecordError."""
    expected = baseline(_summaries(names, base))
    if not expected.expected:
        raise NothingSelected(f"{', '.join(expected.runs)}: no benchmark passed with a number. Nothing can be expected")
    write_file(output, json.dumps(expected.to_json(), indent=1) + "\n")
    session.info(f"written to {output}")
    units = {unit for number in expected.expected for unit in number.values}
    session.info(f"metrics: {len(expected.expected)}, places: {len(units)}")
    few = sorted({number.bench for number in expected.expected if number.n < LEAST_PLACES})
    if few:
        session.warn(f"fewer than {LEAST_PLACES} places measured {', '.join(few)}: no outlier can be found among them")
    for suspect in expected.suspects:
        session.warn(f"suspect, and counted all the same: {suspect}")
    return expected


def find_outliers(names: Sequence[str], base: Path | None, reference: Path, *, level: float, floor: float) -> Findings:
    """Return the nodes and devices of runs that differ from a baseline's file.

    `level` is the share of good ones that are not reported, `floor` the relative difference below which none is. Raises
    NothingSelected and RecordError.
    """
    content = read_file(reference, RecordError)
    try:
        expected = baseline_from_json(parse_object(content), str(reference))
    except ValueError as error:
        raise RecordError(f"{reference}: is not a baseline: {error}") from None
    return outliers(_summaries(names, base), expected, level=level, floor=floor)


def _summaries(names: Sequence[str], base: Path | None) -> list[Summary]:
    """Return the summaries of runs, each with the work of its benchmarks."""
    return [structs.replace(summary_of(run), manifest=work_record(run)) for run in resolve_runs(base, names)]
