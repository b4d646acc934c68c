"""Offers as archives: packs a declaration with the runs that it names, and checks one against its records and its tender."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from milabench.analysis.comparison_model import System
from milabench.analysis.score import Score
from milabench.analysis.summary_model import Summary
from milabench.bundle import archive
from milabench.bundle.create import RECORDS, Manifest, RunParts, create_bundle
from milabench.bundle.verify import Verification, verify_bundle
from milabench.errors import ConfigError, NothingSelected, Problem, RecordError
from milabench.events.rundir import open_run
from milabench.events.values import as_mapping
from milabench.plan.model import STEP_DIRS
from milabench.procurement.offer_check import OfferCheck, check_offer
from milabench.procurement.offer_costs import offer_costs
from milabench.procurement.tender import Tender
from milabench.procurement.tiers import TierChange, lock_change, tier_change, tier_changes
from milabench.version import __version__
from milabench.workflow.bundle_runs import bundle_parts
from milabench.workflow.files import base_folder, display_path, read_file
from milabench.workflow.measured_runs import resolve_runs
from milabench.workflow.opened_offers import (
    CONTENTS,
    DECLARATION,
    OFFER_KIND,
    OFFER_SCHEMA,
    OpenedOffer,
    offer_bid,
    opened_offer,
)
from milabench.workflow.summaries import recompute_summary
from milabench.workflow.tender_files import read_offer, read_tender
from milabench.workflow.tenders import score_bids

if TYPE_CHECKING:
    from milabench.report.offers import OfferTable
    from milabench.workflow.options import Session

_ZIP: Final = b"PK\x03\x04"


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferVerification:
    """What `milabench offer verify` found: whether anything was altered, and how it compares with its tender."""

    path: Path
    verification: Verification
    check: OfferCheck


def signed_text(verified: Verification) -> str:
    """Return who signed, and whether that is known."""
    if not verified.is_signed:
        return "no"
    return verified.signer + (
        "" if verified.is_trusted else "; --allowed-signers says whether that is someone you know"
    )


def create_offer(
    tender_file: Path, offer_file: Path, output: Path, base: Path | None, key: Path | None = None
) -> Manifest:
    """Write an archive of an offer's declaration and of every run that it names, signed with the SSH key `key`.

    Raises ConfigError, with the place, for an offer that does not fit its tender or names what has no records; RecordError.
    """
    tender = read_tender(tender_file)
    offer = read_offer(offer_file, tender)
    with tempfile.TemporaryDirectory(prefix="milabench-offer-") as scratch:
        packed: dict[Path, list[RunParts]] = {}
        for bench, declared in offer.benchmarks.items():
            for path in declared.runs:
                if path.resolve() not in packed:
                    where = offer.origin.where(f"benchmarks.{bench}.run")
                    packed[path.resolve()] = _parts_of(path, base, Path(scratch, str(len(packed))), where)
        names = {path: [part.run.name for part in parts] for path, parts in packed.items()}
        contents = {
            "schema": OFFER_SCHEMA,
            "kind": OFFER_KIND,
            "tender": hashlib.sha256(read_file(tender_file)).hexdigest(),
            "runs": {
                bench: [name for path in declared.runs for name in names[path.resolve()]]
                for bench, declared in offer.benchmarks.items()
            },
        }
        files = {
            DECLARATION: read_file(offer_file),
            CONTENTS: json.dumps(contents, indent=1).encode() + b"\n",
        }
        parts = [part for several in packed.values() for part in several]
        return create_bundle(output, parts, version=__version__, key=key, declared=files)


def _parts_of(path: Path, base: Path | None, scratch: Path, where: str) -> list[RunParts]:
    """Return the runs of a folder or a bundle; those of a bundle are unpacked into `scratch`."""
    if path.is_dir():
        return [replace(bundle_parts(run), left_out=(STEP_DIRS,)) for run in resolve_runs(base, [str(path)])]
    content = read_file(path, hint=f"{where} names it; paths are relative to the file")[: len(_ZIP)]
    if content != _ZIP:
        what = f"{path.name} has no records, of which numbers could be computed again"
        raise ConfigError(Problem(where, "run", what, "name the folder of the run, or a bundle of it"))
    verified = verify_bundle(path, recompute_summary)
    if verified.wrong:
        raise RecordError(f"{path}: was modified: {verified.wrong[0]}; `milabench verify {path}` shows everything")
    with archive.open_checked(path) as file:
        names = archive.files(file)
        parts = []
        for name in verified.manifest.runs:
            folder = scratch / name
            records = [each for each in names if each.startswith(f"{RECORDS}/{name}/")]
            archive.unpack_archive(file, records, f"{RECORDS}/{name}", folder)
            locks = {
                each.removeprefix(f"locks/{name}/"): archive.read_member(file, each)
                for each in names
                if each.startswith(f"locks/{name}/")
            }
            parts.append(replace(bundle_parts(open_run(folder)), locks=locks, notes=verified.manifest.notes))
    return parts


def verify_offer(
    path: Path, tender_file: Path, session: Session, allowed_signers: Path | None = None
) -> OfferVerification:
    """Recompute an offer's numbers, and hold its changes, its power and its evidence against the tender.

    Raises ConfigError for a bad tender or declaration, RecordError for what is no offer.
    """
    tender = read_tender(tender_file)
    with opened_offer(path, tender, allowed_signers) as opened:
        check = checked_offer(opened, tender, session)
        if opened.tender != hashlib.sha256(read_file(tender_file)).hexdigest():
            session.warn(f"{path}: was made for another text of the tender than {tender_file}")
        return OfferVerification(path=path, verification=opened.verification, check=check)


def checked_offer(opened: OpenedOffer, tender: Tender, session: Session) -> OfferCheck:
    """Return what checking an opened offer found."""
    own = _TenderSuites(tender, session)
    changes = [
        change for bench in opened.runs if bench in opened.offer.benchmarks for change in _changes(opened, bench, own)
    ]
    return check_offer(opened.offer, tender, opened.runs, changes, own.named, opened.levels)


def offer_table(
    folder: Path,
    tender_file: Path,
    session: Session,
    base: Path | None = None,
    *,
    metric: str = "",
    allowed_signers: Path | None = None,
) -> OfferTable:
    """Return all offers in a folder, the first by the name of its file being what the others are compared with.

    Raises NothingSelected without an offer, and as `verify_offer` and `compare_by_tender`.
    """
    from milabench.report.offers import OfferSide, OfferTable

    tender = read_tender(tender_file)
    paths = [path for path in sorted(folder.iterdir()) if path.is_file() and path.suffix.lower() == ".zip"]
    if not paths:
        raise NothingSelected(f"{folder}: has no offer; `milabench offer create` makes one, NAME.zip")
    with ExitStack() as stack:
        opened = [stack.enter_context(opened_offer(path, tender, allowed_signers)) for path in paths]
        bids = [offer_bid(each) for each in opened]
        scores = score_bids(tender, bids, base_folder(base), metric=metric)
        sides = tuple(
            OfferSide(
                file=each.path.name,
                offer=each.offer,
                entry=entry,
                costs=offer_costs(each.offer, tender),
                check=checked_offer(each, tender, session),
                signer=signed_text(each.verification),
                altered=each.verification.wrong,
            )
            for each, entry in zip(opened, scores.bids, strict=True)
        )
    return OfferTable(tender=tender, scores=scores, sides=sides)


def _changes(opened: OpenedOffer, bench: str, own: _TenderSuites) -> Iterator[TierChange]:
    """Yield how the runs of a benchmark differ from the tender's own suite, each change once."""
    seen = set()
    for system in opened.runs[bench]:
        for change in _changes_of(system, opened, bench, own):
            if (change.name, change.found) not in seen:
                seen.add((change.name, change.found))
                yield change


def _changes_of(system: System, opened: OpenedOffer, bench: str, own: _TenderSuites) -> Iterator[TierChange]:
    declared = opened.offer.benchmarks[bench]
    suite = own.suite(str(system.summary.system.get("arch") or ""))
    if suite is None:
        return
    group = str(as_mapping(as_mapping(system.manifest.get("suite")).get(bench)).get("install_group") or "")
    lock = opened.locks.get((system.summary.run, group))
    # Where both lock files are known their packages say more than digests, in which this machine's Python is too.
    kept = ("suite", "programs", "options", *(() if suite.locks else ("locks",)))
    bare = replace(system, manifest={key: system.manifest[key] for key in kept if key in system.manifest})
    yield from tier_changes(suite.system, bare, declared)
    if lock is not None and bench in suite.locks:
        yield from lock_change(suite.locks[bench], lock, declared)
    if suite.profile:
        yield from tier_change("measure.profile", suite.profile, str(system.manifest.get("profile") or ""), declared)


@dataclass(frozen=True, slots=True, kw_only=True)
class _TenderSuite:
    """A tender's suite as the manifest of a run has it, and the texts of its lock files by benchmark."""

    system: System
    locks: Mapping[str, str]
    profile: str


class _TenderSuites:
    """The tender's own suite on machines of each kind; else what its reference run recorded. `named` says which."""

    def __init__(self, tender: Tender, session: Session) -> None:
        self.tender, self.session = tender, session
        self._known: dict[str, _TenderSuite | None] = {}
        run = tender.reference.run
        self.named = "" if tender.suite is None else display_path(tender.suite)
        if not self.named and run is not None and self._reference() is not None:
            self.named = display_path(run)

    def suite(self, arch: str) -> _TenderSuite | None:
        """Return the suite for machines of this kind; None where the tender has neither a suite nor such a run."""
        if arch not in self._known:
            self._known[arch] = self._read(arch) if self.tender.suite is not None else self._reference()
        return self._known[arch]

    def _read(self, arch: str) -> _TenderSuite:
        from milabench.plan.requirements import parse_requirements
        from milabench.workflow.context import read_context
        from milabench.workflow.environments import decide_install
        from milabench.workflow.options import SuiteOptions
        from milabench.workflow.planning import suite_values
        from milabench.workflow.saved_options import program_digests

        context = read_context(SuiteOptions(config_file=self.tender.suite, arch=arch or None), self.session, warn=False)
        manifest = {
            # As a manifest that was read: JSON has no tuples.
            "suite": json.loads(json.dumps(suite_values(context))),
            "programs": program_digests(context),
            "options": {"base": context.dirs.base},
        }
        locks = {
            bench: "\n".join(file.text for file in venv.requirements)
            for venv in decide_install(context).venvs
            for bench in venv.benches
            if any(parse_requirements(file.text).pins for file in venv.requirements)
        }
        return _TenderSuite(
            system=_bare_system("the tender", manifest), locks=locks, profile=context.plan_context.profile.name
        )

    def _reference(self) -> _TenderSuite | None:
        from milabench.workflow.report_inputs import find_report_source

        if self.tender.reference.run is None:
            return None
        manifest = find_report_source(base_folder(None), str(self.tender.reference.run)).manifest
        if not manifest.get("suite"):
            return None
        kept = {key: manifest[key] for key in ("suite", "programs", "options", "locks") if key in manifest}
        return _TenderSuite(
            system=_bare_system("the reference", kept), locks={}, profile=str(manifest.get("profile") or "")
        )


def _bare_system(name: str, manifest: Mapping[str, Any]) -> System:
    """Return a system of which only the suite is known: nothing was measured."""
    return System(name=name, summary=Summary(verdict="passed", benchmarks=(), score=Score()), manifest=manifest)
