"""Archives of offers, opened: the declaration, the runs that it names, and the scored bid."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from milabench.analysis.comparison_model import System
from milabench.archives import archive
from milabench.archives.opened_bundles import archived_locks, unpacked_run
from milabench.archives.verification import Verification, verify_bundle
from milabench.errors import RecordError
from milabench.events.stored_json import from_json_value
from milabench.events.values import as_mapping
from milabench.events.wire import parse_object
from milabench.procurement.expenses import metered_node_kw
from milabench.procurement.offer import Offer, OfferBenchmark, parse_offer
from milabench.procurement.offer_check import OfferCheck, OfferRecords, check_offer
from milabench.procurement.power_levels import PowerLevel
from milabench.procurement.run_expenses import metered_benches, with_expenses
from milabench.procurement.tender import Tender
from milabench.procurement.tender_scores import Bid
from milabench.procurement.tender_suites import Locks, TenderSuites, install_group, lock_texts
from milabench.procurement.tiers import NO_LOCK, TierChange, change_by
from milabench.procurement.uncertainty import UncertainValue
from milabench.workflow.options import Session
from milabench.workflow.report_inputs import ReportSource
from milabench.workflow.summaries import summary_of

DECLARATION: Final = "offer.yaml"
CONTENTS: Final = "offer.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferContents:
    """The file of an archive next to the declaration: the runs of each benchmark, and the SHA-256 of the tender."""

    schema: int = 1
    kind: str = "milabench-offer"
    tender: str
    runs: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedOffer(OfferRecords):
    """An offer whose records lie in a folder that is removed afterwards.

    `locks` are the lock files' texts by run and install group. `tender` is the SHA-256 of the tender that it was made for.
    """

    path: Path
    locks: Mapping[tuple[str, str], str]
    tender: str
    verification: Verification


def is_offer_archive(path: Path) -> bool:
    """Return whether a file is an archive that `milabench offer create` made."""
    if not path.is_file() or not zipfile.is_zipfile(path):
        return False
    with archive.open_checked(path) as file:
        return DECLARATION in archive.files(file)


def checked_offer(opened: OpenedOffer, tender: Tender, session: Session) -> OfferCheck:
    """Return the result of checking an opened offer. Warns of an archive that was made for another text of the tender."""
    if opened.tender != tender.digest:
        session.warn(f"{opened.path}: was made for another text of the tender than {tender.file}")
    own = TenderSuites(tender, session)
    changes = [
        change
        for bench, systems in opened.runs.items()
        if (declared := opened.offer.benchmarks.get(bench)) is not None
        for change in (*own.changes(systems, declared, opened.locks), *_missing_locks(systems, declared, opened.locks))
    ]
    return check_offer(opened, tender, changes, own.named)


def _missing_locks(systems: Sequence[System], declared: OfferBenchmark, locks: Locks) -> Iterator[TierChange]:
    """Yield a change that no tier allows for each run without its lock file: nothing shows which packages ran."""
    for session in (session for system in systems for session in system.sessions):
        group = install_group(session, declared.name)
        if group in as_mapping(session.manifest.get("locks")) and (session.summary.run, group) not in locks:
            asked, found = f"the lock file of {group}", f"none of {session.summary.run}"
            yield change_by(NO_LOCK, "lock file", asked, found, declared)


def offer_bid(opened: OpenedOffer, check: OfferCheck) -> Bid:
    """Return the bid of an opened offer: its declaration, its measured runs, its verification."""
    benchmarks = opened.offer.benchmarks
    return Bid(
        name=opened.offer.name,
        offer=opened.offer,
        verified=opened.verification.verdict or check.verdict,
        runs={
            bench: one_system(opened.offer.name, systems)
            for bench, systems in opened.runs.items()
            if bench in benchmarks and benchmarks[bench].standing == "measured"
        },
    )


@contextmanager
def opened_offer(path: Path, tender: Tender, allowed_signers: Path | None = None) -> Iterator[OpenedOffer]:
    """Yield the content of an archive. Raises RecordError for other files than offers, ConfigError for a bad declaration."""
    verification = verify_bundle(path, allowed_signers)
    with archive.open_checked(path) as file, tempfile.TemporaryDirectory(prefix="milabench-offer-") as scratch:
        names = archive.files(file)
        if missing := next((name for name in (DECLARATION, CONTENTS) if name not in names), None):
            raise RecordError(f"{path}: not an offer: it has no {missing}. `milabench offer create` makes an offer")
        offer = parse_offer(archive.read_member(file, DECLARATION), f"{path}:{DECLARATION}", "/")
        contents = _contents(archive.read_member(file, CONTENTS), path)
        held = {name for named in contents.runs.values() for name in named}
        if unknown := sorted(held - {*verification.manifest.runs}):
            raise RecordError(f"{path}: {CONTENTS}: names the run {unknown[0]!r}, which it does not hold")
        systems, locks = {}, dict[tuple[str, str], str]()
        levels: list[PowerLevel] = []
        metered_kw: list[UncertainValue] = []
        for name in sorted(held):
            run = unpacked_run(file, name, Path(scratch, name))
            source = ReportSource(name=offer.name, summary=summary_of(run), manifest=run.manifest, run=run)
            systems[name] = system_by(source, tender, offer)
            locks |= lock_texts(run, archived_locks(file, name))
            metered, nodes = metered_benches(run).values(), max(1, len(source.summary.nodes))
            levels += [bench.level for bench in metered if bench.level is not None]
            metered_kw += [kw for bench in metered if (kw := metered_node_kw(bench, nodes)) is not None]
        yield OpenedOffer(
            path=path,
            offer=offer,
            runs={bench: tuple(systems[name] for name in named) for bench, named in contents.runs.items()},
            locks=locks,
            tender=contents.tender,
            verification=verification,
            levels=tuple(levels),
            metered_kw=tuple(metered_kw),
        )


def _contents(content: bytes, path: Path) -> OfferContents:
    try:
        contents = from_json_value(OfferContents, {"schema": 0, "kind": "", **parse_object(content)})
    except ValueError as error:
        raise RecordError(f"{path}: {CONTENTS}: cannot be read: {error}") from None
    if contents != OfferContents(tender=contents.tender, runs=contents.runs):
        raise RecordError(f"{path}: {CONTENTS}: is of another version. Use the version of milabench that wrote it")
    return contents


def one_system(name: str, sessions: Sequence[System]) -> System:
    """Return runs of the same system as a single system."""
    first, *later = (replace(session, name=name) for session in sessions)
    return replace(first, later=tuple(later))


def system_by(source: ReportSource, tender: Tender, offer: Offer | None = None) -> System:
    """Return the system that ran, with the expenses of its work by the terms of a tender and the price of an offer."""
    costs = as_mapping(source.manifest.get("costs"))
    summary = with_expenses(source.summary, source.run, tender, costs, offer, source.metered or None)
    return replace(source, summary=summary).system
