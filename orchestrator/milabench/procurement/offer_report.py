"""The findings of an offer's check: a document, and the same for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from milabench.analysis.json_codec import picked
from milabench.procurement.offer_check import OfferCheck
from milabench.report.document import Document, Notes, Properties, Statement, Table, Title, headed_table, section
from milabench.report.labels import format_number
from milabench.shown import counted, cut_text

_MOST_SHOWN = 60  # characters of a value that changed


def offer_document(check: OfferCheck, archive: str, wrong: Sequence[str], signer: str) -> Document:
    """Return the result of an offer's check: the verdict, failed and missing evidence, changes and power.

    `archive` is ALTERED or UNTRUSTED, else empty, and `wrong` says why. `signer` says who signed it.
    """
    offer = check.offer
    open_findings = [
        (f"{f.verdict} {f.what}", _with_place(f.why, f.where)) for f in check.findings if f.verdict != "PASS"
    ]
    return (
        Title(text=f"{archive or check.verdict}: {offer.name}"),
        Statement(text=_sentence(check, archive, wrong)),
        Properties(
            pairs=(
                ("nodes", str(offer.nodes)),
                ("signed", signer),
                ("compared with", check.compared_with or "nothing: the tender names no suite"),
                ("power", f"{check.power.level}: {check.power.why}"),
                *((name, str(text)) for name, text in offer.stack.items()),
            )
        ),
        *section(archive.lower(), [("", line) for line in wrong]),
        *section("fails or is inconclusive", open_findings),
        *section("missing for the declared power level", [("", line) for line in check.power.missing]),
        evidence_table(check),
        *projected_tables([check]),
        *([change_table(check)] if check.changes else []),
        Notes(
            lines=(
                "measured: by runs on this number of nodes",
                "projected: from runs on other numbers of nodes",
                "declared: no run shows it",
                "tier: the strictest tier that allows the change; experts decide whether changed source keeps to its tier",
            )
        ),
    )


def _sentence(check: OfferCheck, archive: str, wrong: Sequence[str]) -> str:
    if archive:
        what = "The archive was modified" if archive == "ALTERED" else "Not by an allowed signer"
        return f"{what}: {wrong[0]}"
    count = sum(finding.verdict == "FAIL" for finding in check.findings)
    open_ones = sum(finding.verdict == "INCONCLUSIVE" for finding in check.findings)
    allowed = sum(change.verdict == "allowed" for change in check.changes)
    runs = {run for row in check.evidence for run in row.runs}
    declared = [row.bench for row in check.evidence if row.standing == "declared"]
    recomputed = (
        f"All numbers of {counted(len(runs), 'run')} were computed again from the records"
        if runs
        else "No number was computed again, for no run is in the archive: its declaration was compared with the tender"
    )
    if declared:
        recomputed += f". Declared only: {', '.join(declared)}"
    return (
        f"{recomputed}. {counted(count, 'failure')}, {open_ones} inconclusive, "
        f"{allowed} of {counted(len(check.changes), 'change')} allowed."
    )


def _with_place(text: str, where: str) -> str:
    return f"{text} ({where})" if where else text


def evidence_table(check: OfferCheck) -> Table:
    """Return the evidence of each benchmark."""
    rows = [
        (
            *(row.bench, row.tier, row.standing, ", ".join(map(str, row.counts))),
            "" if row.value is None else format_number(row.value),
            *(row.units, ", ".join(row.runs), row.why_not),
        )
        for row in check.evidence
    ]
    columns = "benchmark | tier | shown by | #nodes | #figure | units | runs | why not"
    return headed_table("evidence", columns, rows).without_empty()[0]


def projected_tables(checks: Sequence[OfferCheck]) -> Iterator[Table]:
    """Yield the projected values, apart from all measured values."""
    rows = tuple(
        (
            *(check.offer.name, row.bench, f"{row.projected.count:g}", f"{row.projected.centre:.5g}"),
            "" if row.projected.prediction is None else "[{:.5g}, {:.5g}]".format(*row.projected.prediction),
            *(row.units, row.projected.law, row.projected.why_no_interval, check.offer.benchmarks[row.bench].bound),
        )
        for check in checks
        for row in check.evidence
        if row.projected is not None
    )
    columns = "system | benchmark | #nodes | #by the law | 95 % interval | units | law | why none | bound"
    if rows:
        yield headed_table("projected, in no score", columns, rows).without_empty()[0]


def change_table(check: OfferCheck) -> Table:
    """Return every difference from the tender's own suite with its tier."""
    rows = [
        (
            *(change.bench, change.name, cut_text(change.asked, _MOST_SHOWN), cut_text(change.found, _MOST_SHOWN)),
            *(change.needs or "none", change.declared, change.verdict, change.why),
        )
        for change in check.changes
    ]
    return headed_table("changes", "benchmark | what | tender | offer | tier | declared | verdict | why", rows)


def check_to_json(check: OfferCheck) -> dict[str, object]:
    """Return a checked offer for programs, without its schema."""
    return {
        **picked(check, offer="offer.name", verdict="verdict", nodes="offer.nodes"),
        **picked(check, "compared_with", "findings", "evidence", "changes", "power"),
    }
