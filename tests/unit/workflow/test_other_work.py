"""A number of other work decides nothing, whatever kind of reference it comes from, and whichever command asks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from milabench.acceptance.accept_runs import accept_run
from milabench.archives.bundle_runs import bundle_runs
from milabench.ci.ci_reports import Gates, write_reports
from milabench.events.rundir import Run
from milabench.history.results_store import add_runs, store_location
from milabench.workflow.options import AcceptRequest, CollectingReporter, CompareRequest, ReportRequest, Session
from milabench.workflow.references import save_reference
from milabench.workflow.report_runs import compare_runs, render_report
from tests.recorded_run import Recorded, rates, record

CRITERIA = "benchmarks: {digits: {minimum: 0.9 x reference}}\n"


def session() -> Session:
    return Session(CollectingReporter())


def made(base: Path, name: str, level: float, size: int) -> Run:
    """A run whose benchmark was given `--size`."""
    steps = [Recorded(repeat=at, events=rates(*[level * (1 + at / 1000)] * 5)) for at in range(5)]
    suite = {"digits": {"argv": {"--size": size}, "weight": 1.0, "install_group": "torch"}}
    more = {"suite": suite, "locks": {"torch": "abc"}, "options": {"base": str(base)}}
    return record(base, *steps, name=name, manifest=more)


def itself(run: Run, base: Path) -> str:
    return str(run.path)


def bundle(run: Run, base: Path) -> str:
    bundle_runs(base / "old.tar", base, [str(run.path)])
    return str(base / "old.tar")


def report(run: Run, base: Path) -> str:
    (base / "old.json").write_text(render_report(ReportRequest(runs=(str(run.path),)), "json", session()))
    return str(base / "old.json")


def saved(run: Run, base: Path) -> str:
    save_reference(base, [str(run.path)], base / "saved.json", session())
    return str(base / "saved.json")


def stored(run: Run, base: Path) -> str:
    add_runs(store_location(base, None), base, [str(run.path)])
    request = ReportRequest(runs=(run.name,), base=base, from_db=True)
    (base / "stored.json").write_text(render_report(request, "json", session()))
    return str(base / "stored.json")


def older(run: Run, base: Path) -> str:
    """A report as an earlier version wrote it, without what its benchmarks were asked to do."""
    value = json.loads(Path(report(run, base)).read_text())
    del value["manifest"]
    (base / "older.json").write_text(json.dumps(value))
    return str(base / "older.json")


KINDS = (itself, bundle, report, saved, stored, older)


def verdicts(reference: str, run: Run, base: Path) -> tuple[str, str, int, float | None]:
    """Return what `accept`, `compare`, `ci` and `report --reference` make of a run and a reference."""
    (base / "criteria.yaml").write_text(CRITERIA)
    request = AcceptRequest(run=str(run.path), base=base, criteria=base / "criteria.yaml", reference=reference)
    accepted = accept_run(request)
    compared = compare_runs(CompareRequest(runs=(reference, str(run.path)), base=base), session()).comparison
    contrast = compared.rows[0].contrasts[0]
    gates = Gates(reports=base / "reports", reference=reference, criteria=base / "criteria.yaml")
    code = write_reports(ReportRequest(runs=(str(run.path),), base=base, reference=reference), gates, 0, session())
    beside = json.loads((base / "reports" / "report.json").read_text())["benchmarks"][0]
    return accepted.verdict, "none" if contrast is None else contrast.verdict, code, beside.get("ratio")


@pytest.mark.parametrize("kind", KINDS)
def test_other_arguments_are_never_accepted_and_have_no_ratio(kind: Callable[[Run, Path], str], tmp_path: Path) -> None:
    old, new = made(tmp_path, "old", 50.0, size=1), made(tmp_path, "new", 100.0, size=2)
    assert verdicts(kind(old, tmp_path), new, tmp_path) == ("INCONCLUSIVE", "none", 8, None)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not older])
def test_the_same_arguments_are_decided_by_every_kind_of_reference(
    kind: Callable[[Run, Path], str], tmp_path: Path
) -> None:
    old, new = made(tmp_path, "old", 50.0, size=2), made(tmp_path, "new", 100.0, size=2)
    accepted, compared, code, ratio = verdicts(kind(old, tmp_path), new, tmp_path)
    assert (accepted, compared, code) == ("PASS", "FASTER", 0)
    assert ratio == pytest.approx(2.0, rel=1e-3)


def test_a_report_that_cannot_be_checked_says_so_and_how_to_compare_all_the_same(tmp_path: Path) -> None:
    old, new = made(tmp_path, "old", 50.0, size=1), made(tmp_path, "new", 100.0, size=2)
    request = CompareRequest(runs=(older(old, tmp_path), str(new.path)), base=tmp_path)
    ((bench, why),) = compare_runs(request, session()).comparison.excluded
    assert (bench, "arguments are not recorded in" in why, "--across" in why) == ("digits", True, True)
    (tmp_path / "criteria.yaml").write_text(CRITERIA)
    criteria, reference = tmp_path / "criteria.yaml", older(old, tmp_path)
    asked = AcceptRequest(run=str(new.path), base=tmp_path, criteria=criteria, reference=reference, across=True)
    assert accept_run(asked).verdict == "PASS"


def test_version_and_profile_of_a_report_are_known_in_a_comparison(tmp_path: Path) -> None:
    old, new = made(tmp_path, "old", 50.0, size=1), made(tmp_path, "new", 100.0, size=1)
    request = CompareRequest(runs=(older(old, tmp_path), str(new.path)), base=tmp_path)
    differs = compare_runs(request, session()).comparison.differs
    assert "version" not in differs and "profile" not in differs
