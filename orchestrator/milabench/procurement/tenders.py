"""Tenders and offers as files: reads them, and the runs that they name."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from milabench.analysis.comparison_model import System
from milabench.analysis.summary_model import validity_words
from milabench.archives.verification import require_unaltered
from milabench.config.problems import Problems
from milabench.config.source_map import Origins
from milabench.errors import ConfigError, NothingSelected, Problem, RecordError
from milabench.procurement.offer import Offer, offer_problems, read_offer
from milabench.procurement.opened_offers import (
    checked_offer,
    is_offer_archive,
    offer_bid,
    one_system,
    opened_offer,
    system_by,
)
from milabench.procurement.provenance import Provenance, scores_provenance, tender_provenance
from milabench.procurement.tender import Tender, read_tender
from milabench.procurement.tender_scores import Bid, Scoring, TenderScores, score_tender
from milabench.procurement.tender_suites import Locks, TenderSuites, lock_texts
from milabench.shown import counted
from milabench.workflow.files import base_folder
from milabench.workflow.options import CompareRequest, Session
from milabench.workflow.report_inputs import ReportSource, find_report_source, session_names
from milabench.workflow.report_runs import unique_names

_OFFERS = (".yaml", ".yml")


def compare_by_tender(
    tender_file: Path, request: CompareRequest, session: Session, metric: str | None = None
) -> TenderScores:
    """Score runs, or JSON reports or bundles of runs, and offers (`offer.yaml`) by a tender. `A1,A2` are runs of the same system.

    Runs are compared with the tender's own suite, where it names a suite.

    Raises ConfigError for bad files and for bids that cannot be scored, NothingSelected and RecordError for runs.
    """
    tender, folder = read_tender(tender_file), base_folder(request.base)
    names = [name for name in request.runs if isinstance(name, str)]
    reference = reference_system(folder, tender)
    with ExitStack() as opened:
        bids = _bids(names, folder, tender, session, opened)
        return score_tender(tender, bids, reference, metric or "", request.margin, across=request.across)


def reference_system(folder: Path, tender: Tender) -> System | None:
    """Return the run that a tender names as its reference, if any. Raises ConfigError, at its place, where it is not there."""
    run = tender.reference.run
    return None if run is None else _named_source(folder, str(run), tender.origin, "reference.run").system


def _bids(names: Sequence[str], folder: Path, tender: Tender, session: Session, opened: ExitStack) -> list[Bid]:
    """Return runs, under the names by which a comparison calls them, and offers with the runs that they name.

    Archives of offers stay unpacked until `opened` is closed. Raises RecordError for an altered archive.
    """

    def offer_in(path: Path) -> tuple[Bid, Locks] | None:
        """Return the offer in a declaration or an archive. None for other files."""
        if path.suffix in _OFFERS and path.is_file():
            return _offered(folder, read_offer(path, tender), tender)
        if not is_offer_archive(path):
            return None
        found = opened.enter_context(opened_offer(path, tender))
        require_unaltered(path, found.verification.wrong, "offer verify")
        if problems := offer_problems(found.offer, tender):
            raise ConfigError(problems)
        return offer_bid(found, checked_offer(found, tender, session)), found.locks

    own = TenderSuites(tender, session)
    offers = {name: offer for name in names if (offer := offer_in(Path(name))) is not None}
    sides = [
        tuple(find_report_source(folder, part) for part in session_names(folder, name))
        for name in names
        if name not in offers
    ]
    systems = (
        (Bid(name=name, system=one_system(name, [system_by(source, tender) for source in side])), _locks(side))
        for name, side in zip(unique_names(sides), sides, strict=True)
    )
    read = [offers[name] if name in offers else next(systems) for name in names]
    return [replace(bid, suite=own.check(bid, locks)) for bid, locks in read]


def _offered(folder: Path, offer: Offer, tender: Tender) -> tuple[Bid, Locks]:
    """Return an offer with the runs that measured it, and their lock files."""
    sources = {
        bench: [_named_source(folder, str(path), offer.origin, f"benchmarks.{bench}.run") for path in declared.runs]
        for bench, declared in offer.benchmarks.items()
        if declared.standing == "measured"
    }
    runs = {
        bench: one_system(offer.name, [system_by(source, tender, offer) for source in side])
        for bench, side in sources.items()
    }
    return Bid(name=offer.name, offer=offer, runs=runs), _locks(itertools.chain(*sources.values()))


def _locks(sources: Iterable[ReportSource]) -> Locks:
    return {key: text for source in sources if source.run is not None for key, text in lock_texts(source.run).items()}


def _named_source(folder: Path, name: str, origin: Origins, key: str) -> ReportSource:
    """Return a run. A missing run's error has the place in the file that names it."""
    if not Path(name).exists():
        raise ConfigError(_absent(name, origin, key))
    return find_report_source(folder, name)


def _note_absent(paths: Sequence[Path], origin: Origins, key: str, problems: Problems) -> None:
    for path in paths:
        if not path.exists():
            problems.add(_absent(str(path), origin, key))


def _absent(name: str, origin: Origins, key: str) -> Problem:
    return origin.problem(key, f"{name} is not there", "paths are relative to the file")


def explain_numbers(
    tender_file: Path, request: CompareRequest, session: Session, metric: str | None
) -> list[Provenance]:
    """Return where every number of a tender comes from, and of the scores of these runs and offers. Errors as of those."""
    numbers = list(tender_provenance(read_tender(tender_file)))
    if request.runs:
        numbers += scores_provenance(compare_by_tender(tender_file, request, session, metric))
    return numbers


def check_tender_files(tender_file: Path, offers: Sequence[Path]) -> str:
    """Return that a tender and its offers are valid, and which of these have no score for want of a figure.

    Raises ConfigError with everything that is wrong with any of them.

    Files that they name have to be there and to be read, figures of merit to have values in the runs, and nodes to be nodes of
    the runs.
    """
    problems, folder = Problems(), base_folder(None)
    tender, reference, is_read = None, None, False
    with _noting(problems, tender_file):
        tender = read_tender(tender_file)
        if tender.suite is not None:
            _note_absent([tender.suite], tender.origin, "suite", problems)
        reference, is_read = reference_system(folder, tender), True
    bids = []
    for file in offers:
        with _noting(problems, file):
            # Of a tender that cannot be read the offers have mistakes of their own.
            offer = read_offer(file, tender)
            for bench, declared in offer.benchmarks.items():
                _note_absent(declared.runs, offer.origin, f"benchmarks.{bench}.run", problems)
            if tender is not None:
                bids.append(_offered(folder, offer, tender)[0])
    lacking: list[str] = []
    if tender is not None and is_read:
        rows = Scoring(tender, tender.metric, reference, problems).rows(bids)
        lacking = [
            f"{bid.name}: {row.bench} {row.why_not}"
            for bid, bid_rows in zip(bids, rows, strict=True)
            for row in bid_rows
            if row.why_not and row.wanted.is_required
        ]
    problems.raise_any()
    valid = f"the tender and {counted(len(offers), 'offer')} are valid" if offers else "the tender is valid"
    doubtful = reference_warnings(tender, reference) if tender is not None else []
    return "\n".join([valid, *(f"no score: {line}" for line in lacking), *doubtful])


def reference_warnings(tender: Tender, reference: System | None) -> list[str]:
    """Return a line for each benchmark of a tender whose number in the reference run is not valid: scores rest on it."""
    if reference is None:
        return []
    return [
        f"warning: reference {reference.name}: {bench.bench} is "
        f"{validity_words(bench.validity, bench.doubts, bench.uncertainty)}: measure it again before offers are compared with it"
        for bench in reference.summary.benchmarks
        if bench.bench in tender.benchmarks and bench.validity not in ("valid", None)
    ]


@contextmanager
def _noting(problems: Problems, file: Path) -> Iterator[None]:
    """Note the errors that end the block: mistakes, and a run of this file that cannot be read."""
    try:
        with problems.taking():
            yield
    except (NothingSelected, RecordError) as error:
        problems.note(file, "", str(error))
