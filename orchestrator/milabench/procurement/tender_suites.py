"""A tender's own suite, and how the suites of runs differ from it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from milabench.analysis.comparison_model import System
from milabench.analysis.score import Score
from milabench.analysis.summary_model import Summary
from milabench.analysis.system_diff import knows_work
from milabench.archives.bundle_runs import LOCK_FILES, locks_of
from milabench.events.rundir import Run
from milabench.events.values import as_mapping
from milabench.procurement.offer import OfferBenchmark
from milabench.procurement.tender import Tender
from milabench.procurement.tender_scores import Bid
from milabench.procurement.tiers import SuiteCheck, TierChange, lock_change, tier_change, tier_changes
from milabench.workflow.files import base_folder, display_path
from milabench.workflow.options import Session, SuiteOptions
from milabench.workflow.report_inputs import find_report_source

LOCK = LOCK_FILES[".requirements.txt"]
Locks = Mapping[tuple[str, str], str]
"""The texts of lock files by run and install group."""


def lock_texts(run: Run, locks: Mapping[str, bytes] | None = None) -> dict[tuple[str, str], str]:
    """Return the lock files of a run's environments: the given ones, else those that still exist."""
    return {
        (run.name, group): content.decode("utf-8", "replace")
        for name, content in (locks_of(run)[0] if locks is None else locks).items()
        for group, _, file in [name.rpartition("/")]
        if file == LOCK
    }


def install_group(system: System, bench: str) -> str:
    """Return the install group of a benchmark in a run. Empty where none is recorded."""
    return str(as_mapping(as_mapping(system.manifest.get("suite")).get(bench)).get("install_group") or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class _TenderSuite:
    """A tender's suite as the manifest of a run has it, and the texts of its lock files by benchmark."""

    system: System
    locks: Mapping[str, str]
    profile: str


class TenderSuites:
    """The tender's own suite on machines of each kind. Else the suite that its reference run recorded."""

    def __init__(self, tender: Tender, session: Session) -> None:
        self.tender, self.session = tender, session
        self._known: dict[str, _TenderSuite | None] = {}

    @property
    def named(self) -> str:
        """Whose suite it is. Empty where the tender has neither a suite nor a run that recorded its suite."""
        if self.tender.suite is not None:
            return display_path(self.tender.suite)
        run = self.tender.reference.run
        return "" if run is None or self._suite("") is None else display_path(run)

    def check(self, bid: Bid, locks: Locks) -> SuiteCheck | None:
        """Return how the runs of a bid differ from the suite that the tender names. None where it names none."""
        if self.tender.suite is None:
            return None
        changes: list[TierChange] = []
        unknown: list[str] = []
        for bench in self.tender.benchmarks:
            system = bid.measured(bench)
            if system is None or all(each.bench != bench for _, each in system.benches):
                continue
            if not knows_work(system, bench):
                unknown.append(bench)
                continue
            declared = None if bid.offer is None else bid.offer.benchmarks.get(bench)
            changes += self.changes([system], declared or OfferBenchmark(name=bench), locks)
        return SuiteCheck(named=self.named, changes=tuple(changes), unknown=tuple(unknown))

    def changes(self, systems: Sequence[System], declared: OfferBenchmark, locks: Locks) -> Iterator[TierChange]:
        """Yield how the runs of a benchmark differ from the suite, each change once."""
        seen = set()
        for session in (session for system in systems for session in system.sessions):
            for change in self._changes(session, declared, locks):
                if (change.name, change.found) not in seen:
                    seen.add((change.name, change.found))
                    yield change

    def _changes(self, system: System, declared: OfferBenchmark, locks: Locks) -> Iterator[TierChange]:
        bench = declared.name
        suite = self._suite(str(system.summary.system.get("arch") or ""))
        if suite is None:
            return
        lock = locks.get((system.summary.run, install_group(system, bench)))
        # Where both lock files are known their packages say more than digests, in which this machine's Python is too.
        kept = ("suite", "programs", "options", *(() if suite.locks else ("locks",)))
        bare = replace(system, manifest={key: system.manifest[key] for key in kept if key in system.manifest}, later=())
        yield from tier_changes(suite.system, bare, declared)
        if lock is not None and bench in suite.locks:
            yield from lock_change(suite.locks[bench], lock, declared)
        if suite.profile:
            found = str(system.manifest.get("profile") or "")
            yield from tier_change("measure.profile", suite.profile, found, declared)

    def _suite(self, arch: str) -> _TenderSuite | None:
        """Return the suite for machines of this kind. None where the tender has neither a suite nor such a run."""
        if arch not in self._known:
            self._known[arch] = self._read(arch) if self.tender.suite is not None else self._reference()
        return self._known[arch]

    def _read(self, arch: str) -> _TenderSuite:
        from milabench.plan.requirements import parse_requirements
        from milabench.workflow.context import read_context
        from milabench.workflow.environments import decide_install
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
        if self.tender.reference.run is None:
            return None
        manifest = find_report_source(base_folder(None), str(self.tender.reference.run)).manifest
        if not manifest.get("suite"):
            return None
        kept = {key: manifest[key] for key in ("suite", "programs", "options", "locks") if key in manifest}
        return _TenderSuite(
            system=_bare_system("the reference", kept), locks={}, profile=str(manifest.get("profile") or "")
        )


def _bare_system(name: str, manifest: Mapping[str, object]) -> System:
    """Return a system of which only the suite is known: nothing was measured."""
    return System(name=name, summary=Summary(verdict="passed", benchmarks=(), score=Score()), manifest=manifest)
