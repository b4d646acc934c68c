"""Writes a static site about the runs of a base: a page for each run, the history of each benchmark, the map of a fleet.

Page by page, the index last: a reader meanwhile finds the old or the new index, and all its links work.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from milabench.analysis.json_codec import picked
from milabench.analysis.rescoring import machine_text
from milabench.analysis.summary_model import Summary
from milabench.devices.regular_file import read_regular
from milabench.errors import NothingSelected, RecordError, UsageError
from milabench.events.atomic_write import remove_drafts, replace_file
from milabench.events.removal import path_within, remove
from milabench.events.rundir import Run
from milabench.events.values import as_mapping
from milabench.execute.locks import take_alone
from milabench.fleet.baseline import Baseline, baseline
from milabench.history.trend import HistoryRow, trends
from milabench.report.model import result_text
from milabench.shown import counted
from milabench.site import pages as site
from milabench.site.pages import Fleets, SiteHistory, SiteRun
from milabench.version import __version__
from milabench.workflow.files import base_folder, writing
from milabench.workflow.measured_runs import resolve_runs
from milabench.workflow.options import ReportRequest, Session
from milabench.workflow.report_inputs import NO_REFERENCE, find_reference, run_source
from milabench.workflow.report_runs import beside_references
from milabench.workflow.run_lookup import RunHandle, all_runs, run_handle
from milabench.workflow.summaries import ANALYSIS_VERSION, stat_digest, summary_of

STATE = ".milabench-site.json"
KIND = "milabench-site"
_PAGE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.html")
_SAFE = re.compile(r"[^A-Za-z0-9_.-]")
_MOST_NAME = 80  # characters of a name that a file's name has of it


def write_site(request: ReportRequest, folder: Path, session: Session) -> None:
    """Write the site of some runs, by default of all runs of the base, into a folder that is new, empty or a site.

    Raises UsageError for another folder, NothingSelected, and RecordError where it cannot be written or the reference cannot
    be read. The folder is then as it was.
    """
    handles = _handles(request)
    if request.reference not in (None, NO_REFERENCE):
        find_reference(base_folder(request.base), str(request.reference))  # a bad one is no fault of the runs
    with _held(folder):
        old = _pages_of(folder)
        remove_drafts(folder)  # nobody else writes here
        files = {handle.run.path: _file("run", handle.run.name) for handle in handles}
        # First of all: what was interrupted must still be known as a site, and as whose files these are.
        _write_state(folder, {**dict.fromkeys(files.values(), ""), **old})
        pages: dict[str, str] = {}
        runs, summaries, rendered = [], [], 0
        for handle in reversed(handles):  # the newest first
            file = files[handle.run.path]
            try:
                summary = _summary(handle.run, request, session)
                digest = _digest(handle, summary, request)
                is_new = not digest or digest != old.get(file) or not (folder / file).is_file()
                drawn = run_source(handle.run, request.validations, draws=True) if is_new else None
                page = "" if drawn is None else site.run_page_of(summary, drawn.traces or ())
            except RecordError as error:
                runs.append(SiteRun(name=handle.run.name, problem=str(error)))
                continue
            if is_new:
                _write(folder / file, page)
                rendered += 1
            pages[file] = digest
            runs.append(_site_run(handle, summary, file))
            summaries.append((summary, file))
        histories, fleets = _histories(summaries), _fleets([summary for summary, _ in summaries])
        shared = {file: site.history_page(members) for file, members in histories.items()}
        if fleets:
            shared[site.FLEET] = site.fleet_page(fleets)
        title = f"milabench: {base_folder(request.base).name}"
        shared[site.INDEX] = site.index_page(title, runs, histories, fleets)
        for file, page in shared.items():  # the index is the last of them
            _write(folder / file, page)
        pages |= dict.fromkeys(shared, "")
        for file in old.keys() - pages.keys():
            with contextlib.suppress(OSError, ValueError):  # a page that nothing leads to any more
                remove(path_within(folder, file))
        _write_state(folder, pages)
    session.info(f"written to {folder / site.INDEX}: {counted(len(runs), 'run')}, {counted(rendered, 'new page')}")


def _summary(run: Run, request: ReportRequest, session: Session) -> Summary:
    summary = summary_of(run, request.validations)
    return beside_references([run], [summary], request, session, is_for_people=True)[0]


def _handles(request: ReportRequest) -> list[RunHandle]:
    if request.runs:
        runs = resolve_runs(request.base, request.runs)
        twice = [name for name, count in Counter(run.name for run in runs).items() if count > 1]
        if twice:
            raise UsageError(f"two of the runs are called '{twice[0]}', but a site has a single page for each name")
        return [run_handle(run) for run in runs]
    handles = [handle for handle in all_runs(request.base) if handle.run.phase == "run"]
    if not handles:
        raise NothingSelected(f"{base_folder(request.base) / 'runs'}: no runs, of which a site could be made")
    return handles


# ------------------------------------------------------------------------------------------------------- the folder


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Make the folder where it is missing and hold it, so that two do not write the same site."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not take_alone(descriptor):
            raise RecordError(f"{folder}: another milabench is writing this site. Wait for its end")
        yield
    finally:
        os.close(descriptor)


def _pages_of(folder: Path) -> dict[str, str]:
    """Return the pages of the site in a folder, each with the digest of its inputs. Raises UsageError for other folders."""
    try:
        if not any(folder.iterdir()):
            return {}
        state: Any = json.loads(read_regular(folder / STATE))
    except (OSError, ValueError, RecursionError):
        state = None
    if as_mapping(state).get("kind") != KIND:
        raise UsageError(f"{folder}: is not empty and not a site of milabench. Name a new or an empty folder")
    # Only our own names: a folder may come from anybody, and what is listed here is replaced and removed.
    pages = as_mapping(as_mapping(state).get("pages"))
    return {file: str(digest) for file, digest in pages.items() if _PAGE.fullmatch(file)}


def _write_state(folder: Path, pages: Mapping[str, str]) -> None:
    state = {"schema": 1, "kind": KIND, "version": __version__, "pages": dict(sorted(pages.items()))}
    _write(folder / STATE, json.dumps(state, indent=1) + "\n")


def _write(path: Path, text: str) -> None:
    with writing(path):
        # Not through a link: the folder may be somebody else's, or be served.
        replace_file(path, text.encode())


def _file(kind: str, name: str) -> str:
    """Return the name of a page's file: readable, and another for each name."""
    safe = _SAFE.sub("_", name)[:_MOST_NAME]
    return (
        f"{kind}-{safe}.html" if safe == name else f"{kind}-{safe}-{hashlib.sha256(name.encode()).hexdigest()[:8]}.html"
    )


def _digest(handle: RunHandle, summary: Summary, request: ReportRequest) -> str:
    """Return the digest of a run page's inputs. Empty for an active run, whose page is always made again."""
    if handle.is_active:
        return ""
    about = (stat_digest(handle.run.path), __version__, ANALYSIS_VERSION, request.validations, summary.score.reference)
    return hashlib.sha256(repr(about).encode()).hexdigest()


# -------------------------------------------------------------------------------------------------------- the values


def _site_run(handle: RunHandle, summary: Summary, file: str) -> SiteRun:
    began = handle.status.began
    return SiteRun(
        name=handle.run.name,
        file=file,
        began=time.strftime("%Y-%m-%d %H:%M", time.localtime(began))
        if began
        else summary.created[:16].replace("T", " "),
        verdict=handle.state_text,
        suite=Path(str(handle.run.manifest.get("suite_file") or "")).name,
        system=machine_text(summary),
        profile=summary.profile,
        result=result_text(summary),
    )


def _histories(summaries: Sequence[tuple[Summary, str]]) -> dict[str, list[SiteHistory]]:
    """Return the histories of every benchmark, system by system, by the file of its page."""
    rows: dict[str, list[HistoryRow]] = {}
    about: dict[str, str] = {}
    for summary, _ in reversed(summaries):
        host = ", ".join(dict.fromkeys(str(node.get("hostname") or node.get("name") or "") for node in summary.nodes))
        for bench in summary.benchmarks:
            about[bench.bench] = bench.about or about.get(bench.bench, "")
            low, high = bench.ci95 or (None, None)
            row = HistoryRow(
                run=summary.run,
                created=summary.created,
                host=host,
                device=machine_text(summary),
                value=bench.perf,
                low=low,
                high=high,
                **picked(bench, "size", "units", "direction", "validity", "outcome"),
            )
            rows.setdefault(bench.bench, []).append(row)
    files = {summary.run: file for summary, file in summaries}
    histories = {
        bench: [SiteHistory(trend=trend, files=files, about=about[bench]) for trend in trends(bench, "rate", members)]
        for bench, members in sorted(rows.items())
    }
    return {_file("history", bench): members for bench, members in histories.items() if members}


def _fleets(summaries: Sequence[Summary]) -> Fleets:
    """Return the numbers of the places of each kind of system that has several places."""
    kinds: dict[str, list[Summary]] = {}
    for summary in summaries:
        names = sorted({str(device.get("name") or "unknown") for device in summary.devices})
        kinds.setdefault(", ".join(names) or "unknown devices", []).append(summary)
    fleets: dict[str, Baseline] = {kind: baseline(members) for kind, members in sorted(kinds.items())}
    return {
        kind: expected
        for kind, expected in fleets.items()
        if any(number.metric == "rate" and number.n > 1 for number in expected.expected)
    }
