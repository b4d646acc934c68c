"""Offers as archives: packs a declaration with the runs that it names, and checks archives against their records and tender."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from milabench.analysis.json_codec import to_json_value
from milabench.archives import archive
from milabench.archives.bundle import Manifest, RunParts, create_bundle
from milabench.archives.bundle_runs import bundle_parts
from milabench.archives.opened_bundles import archived_locks, unpacked_run
from milabench.archives.verification import Verification, require_unaltered, verify_bundle
from milabench.errors import ConfigError, NothingSelected, Problem, RecordError, UsageError, os_reason
from milabench.events.removal import scratch_folder
from milabench.plan.model import STEP_DIRS
from milabench.procurement.award import beside_the_leading
from milabench.procurement.offer import read_offer
from milabench.procurement.offer_check import OfferCheck
from milabench.procurement.offers_report import OfferSide, OfferTable
from milabench.procurement.opened_offers import (
    CONTENTS,
    DECLARATION,
    OfferContents,
    OpenedOffer,
    checked_offer,
    offer_bid,
    opened_offer,
)
from milabench.procurement.requests import OffersRequest
from milabench.procurement.tender import read_tender
from milabench.procurement.tender_scores import score_tender
from milabench.procurement.tenders import reference_system
from milabench.shown import grouped
from milabench.workflow.files import base_folder, is_archive, read_file
from milabench.workflow.measured_runs import resolve_runs
from milabench.workflow.options import Session


def signed_text(verified: Verification) -> str:
    """Return who signed, and whether that is known."""
    if not verified.is_signed:
        return "no"
    if not verified.signer:
        return "by none of the allowed signers" if verified.distrust else "without a valid signature"
    return verified.signer + (
        "" if verified.is_trusted else ". Check with --allowed-signers whether that is someone you know"
    )


def create_offer(
    tender_file: Path, offer_file: Path, output: Path, base: Path | None, key: Path | None = None
) -> Manifest:
    """Write an archive of an offer's declaration and of every run that it names, signed with the SSH key `key`.

    Raises ConfigError, with the place, for an offer that does not fit its tender or lacks records, RecordError, also
    where the lock files of an environment are gone.
    """
    tender = read_tender(tender_file)
    offer = read_offer(offer_file, tender)
    # Beside the archive: what a kill leaves is removed by the next, which a folder of the system's is not.
    with _scratch_beside(output) as scratch:
        packed: dict[Path, list[RunParts]] = {}
        for bench, declared in offer.benchmarks.items():
            for path in declared.runs:
                if path.resolve() not in packed:
                    where = offer.origin.where(f"benchmarks.{bench}.run")
                    packed[path.resolve()] = _parts_of(path, base, Path(scratch, str(len(packed))), where)
        names = {path: [part.run.name for part in parts] for path, parts in packed.items()}
        runs = {
            bench: tuple(name for path in declared.runs for name in names[path.resolve()])
            for bench, declared in offer.benchmarks.items()
        }
        contents = to_json_value(OfferContents(tender=tender.digest, runs=runs))
        files = {
            DECLARATION: read_file(offer_file),
            CONTENTS: json.dumps(contents, indent=1).encode() + b"\n",
        }
        parts = [part for several in packed.values() for part in several]
        for part in parts:
            if part.notes:
                raise RecordError(
                    f"{part.notes[0]}. An offer needs the locks of its run: pack it in the base where the run was measured"
                )
        return create_bundle(output, parts, key, files)


@contextmanager
def _scratch_beside(output: Path) -> Iterator[Path]:
    """Make a folder next to a file that is being written. Raises RecordError."""
    try:
        with scratch_folder(output.with_name(f".{output.name}.building")) as scratch:
            yield scratch
    except OSError as error:
        raise RecordError(f"{error.filename or output}: cannot be written: {os_reason(error)}") from None


def _parts_of(path: Path, base: Path | None, scratch: Path, where: str) -> list[RunParts]:
    """Return the runs of a folder or a bundle. Runs of a bundle are unpacked into `scratch`."""
    if path.is_dir():
        return [replace(bundle_parts(run), left_out=(STEP_DIRS,)) for run in resolve_runs(base, [str(path)])]
    read_file(path, hint=f"{where} names it. Paths are relative to the file")
    if not is_archive(path):
        what = f"{path.name} has no records to compute its numbers again"
        raise ConfigError(Problem(where, "run", what, "name the folder of the run, or its bundle"))
    verified = verify_bundle(path)
    require_unaltered(path, verified.wrong)
    with archive.open_checked(path) as file:
        parts = [
            replace(bundle_parts(unpacked_run(file, name, scratch / name)), locks=archived_locks(file, name))
            for name in verified.manifest.runs
        ]
    return [replace(part, notes=verified.manifest.notes) for part in parts]


def verify_offer(
    path: Path, tender_file: Path, session: Session, allowed_signers: Path | None = None
) -> tuple[Verification, OfferCheck]:
    """Recompute an offer's numbers, and hold its changes, its power and its evidence against the tender.

    Raises ConfigError for a bad tender or declaration, RecordError for other files.
    """
    tender = read_tender(tender_file)
    with opened_offer(path, tender, allowed_signers) as opened:
        return opened.verification, checked_offer(opened, tender, session)


def offer_table(request: OffersRequest, session: Session) -> OfferTable:
    """Return all offers in a folder, the leading offer first, with which the others are compared, then by the names of files.

    An archive that cannot be read is listed with the others. Raises NothingSelected without an offer, RecordError where none can
    be read, UsageError for an offer in two archives, and as `verify_offer` and `compare_by_tender`.
    """
    tender = read_tender(request.tender)
    paths = [path for path in sorted(request.folder.iterdir()) if path.is_file() and path.suffix.lower() == ".zip"]
    if not paths:
        raise NothingSelected(f"{request.folder}: has no offer. `milabench offer create` makes NAME.zip")
    with ExitStack() as stack:
        opened: list[OpenedOffer] = []
        unreadable: list[tuple[str, str]] = []
        for path in paths:
            try:
                opened.append(stack.enter_context(opened_offer(path, tender, request.allowed_signers)))
            except RecordError as error:
                if len(unreadable) + 1 == len(paths):
                    raise
                unreadable.append((path.name, str(error).removeprefix(f"{path}: ")))
        _require_one_archive_each(opened)
        checked = [(each, checked_offer(each, tender, session)) for each in opened]
        bids = [offer_bid(each, check) for each, check in checked]
        reference = reference_system(base_folder(request.base), tender)
        scores = beside_the_leading(score_tender(tender, bids, reference, metric=request.metric or ""))
        found = {each.offer.name: (each, check) for each, check in checked}
        sides = tuple(
            OfferSide(
                file=each.path.name,
                offer=each.offer,
                entry=entry,
                check=check,
                signer=signed_text(each.verification),
                altered=each.verification.wrong,
            )
            for entry in scores.bids
            for each, check in [found[entry.bid.name]]
        )
    return OfferTable(scores=scores, sides=sides, unreadable=tuple(unreadable))


def _require_one_archive_each(opened: Sequence[OpenedOffer]) -> None:
    """Raise UsageError where two archives hold an offer of the same vendor and system."""
    for name, same in grouped((each.offer.name, each.path.name) for each in opened).items():
        if len(same) > 1:
            raise UsageError(
                f"{' and '.join(same)}: are offers of the same vendor and system, {name!r}. Leave out all but one"
            )
