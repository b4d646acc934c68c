"""The pages of a static site about many runs: its index, the history of each benchmark, the map of a fleet.

The page of a run comes from `pages/run.py`. Links lead to files next to the page, so that it works from a disk.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from milabench.analysis.summary_model import Summary
from milabench.analysis.traces import Trace
from milabench.fleet.baseline import FLOOR, LEAST_PLACES, LEVEL, Baseline, Expected
from milabench.history.trend import Trend
from milabench.pages import run as run_page
from milabench.pages.details import fineness
from milabench.pages.markup import Child, Markup, badge, el, html_table, note
from milabench.pages.page import article, document, tile
from milabench.pages.plots import Dots, dots, figure
from milabench.report.document import Table, headed_table, words_table
from milabench.report.labels import format_number

INDEX = "index.html"
FLEET = "fleet.html"
_KINDS = {"passed": "good", "failed": "bad", "interrupted": "doubt", "running": "none"}
_MOST_DRAWN = 40  # runs of a history


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteRun:
    """A line of the index: a run with the file of its page (empty: its records cannot be read, `problem` says why)."""

    name: str
    file: str = ""
    began: str = ""
    verdict: str = ""
    suite: str = ""
    system: str = ""
    profile: str = ""
    result: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteHistory:
    """The history of a benchmark on a system, with the file of each run's page. `about` is what the benchmark represents."""

    trend: Trend
    files: Mapping[str, str]
    about: str = ""

    @property
    def system(self) -> str:
        """The system, and the size of the benchmark where it has sizes."""
        return f"{self.trend.system}, size {self.trend.size}" if self.trend.size else self.trend.system

    @property
    def remark(self) -> str:
        """A note on the level of its numbers."""
        if not self.trend.is_judged:
            return "too few runs to look for changes"
        count = len(self.trend.changes)
        return f"{count or 'no'} change{'s' * (count > 1)} of the level"


Fleets = Mapping[str, Baseline]
"""Numbers of the places of each kind of system."""


def index_page(
    title: str, runs: Sequence[SiteRun], histories: Mapping[str, Sequence[SiteHistory]], fleets: Fleets
) -> str:
    """Return the index: the runs, the newest first, and the benchmarks with links to their histories (by file)."""
    counts = Counter(run.verdict or "cannot be read" for run in runs)
    systems = {history.system for members in histories.values() for history in members}
    tiles = [
        tile("runs", len(runs), ", ".join(f"{count} {verdict}" for verdict, count in counts.items()), kind="even"),
        tile("benchmarks", len(histories), kind="even"),
        tile("systems", len(systems), kind="even"),
    ]
    sections: list[tuple[str, str, Child]] = [
        ("runs", "Runs", _runs(runs)),
        ("history", "Benchmarks", _benchmarks(histories)),
    ]
    if fleets:
        places = sum(len(_places(expected)) for expected in fleets.values())
        sections.append(
            ("fleet", "Fleet", el("p", el("a", f"{places} nodes and devices compared with their median", href=FLEET)))
        )
    lead = f"{len(runs)} runs of {len(histories)} benchmarks, the newest first."
    body, nav = article(title, lead, tiles, None, sections)
    return document(title, nav, body)


def _runs(runs: Sequence[SiteRun]) -> Child:
    if not runs:
        return note("No runs yet: start one with `milabench run`.")
    headings = ("run", "verdict", "began", "suite", "system", "profile", "result")
    rows = [(r.name, r.verdict, r.began, r.suite, r.system, r.profile, r.problem or r.result) for r in runs]
    names: list[Child] = [el("a", r.name, href=r.file) if r.file else r.name for r in runs]
    verdicts = [badge(r.verdict or "unreadable", _KINDS.get(r.verdict, "bad")) for r in runs]
    table = words_table("runs, the newest first", headings, rows)
    states = [r.verdict or "unreadable" for r in runs]
    return html_table(table, shown={0: names, 1: verdicts}, states=states, is_alone=True)


def _benchmarks(histories: Mapping[str, Sequence[SiteHistory]]) -> Child:
    if not histories:
        return note("No benchmark passed with a number yet.")
    columns = "benchmark | system | #runs | #newest | units | newest run's validity | level | represents"
    rows, names = [], []
    for file, members in histories.items():
        for history in members:
            trend, newest = history.trend, history.trend.points[-1]
            names.append(el("a", trend.bench, href=file))
            value = format_number(newest.value)
            numbers = (str(len(trend.points)), value, trend.units, newest.validity)
            rows.append((trend.bench, history.system, *numbers, history.remark, history.about))
    shown = headed_table("benchmarks by system", columns, rows).without_empty(("represents",))[0]
    return html_table(shown, shown={0: names}, is_alone=True)


def run_page_of(summary: Summary, traced: Sequence[Trace]) -> str:
    """Return the page of a run, which leads back to the index."""
    body, nav = run_page.run_article(summary, traced, fineness([traced]), "")
    return document(f"milabench {summary.run}"[:200], [(INDEX, "All runs"), *nav], body)


def history_page(histories: Sequence[SiteHistory]) -> str:
    """Return the page of a benchmark: on each system its runs in the order of time, and where the level changed."""
    bench = histories[0].trend.bench
    sections = [(f"s{at}", history.system, _history(history)) for at, history in enumerate(histories)]
    lead = histories[0].about or "Each run's number, with the 95 % interval of its repeats."
    body, nav = article(f"{bench} over time", lead, None, None, sections)
    return document(f"milabench {bench}"[:200], [(INDEX, "All runs"), *nav], body)


def _history(history: SiteHistory) -> list[Child]:
    points, units = history.trend.points, history.trend.units
    changes = {change.run: f"{change.ratio - 1:+.1%} ({change.side})" for change in history.trend.changes}
    drawn = points[-_MOST_DRAWN:]
    rows = [
        Dots(
            label=_minute(point.created) or point.run[:20],
            values=(point.value,),
            interval=point.interval,
            centre=point.value,
            note=changes.get(point.run) or (point.validity if point.validity != "valid" else ""),
        )
        for point in drawn
    ]
    text = f"The oldest first, {history.remark}."
    if len(drawn) < len(points):
        text += f" The last {len(drawn)} of {len(points)} runs are drawn."
    headings = ("run", "created", f"rate, {units}", "95 % interval", "validity", "level changes")
    cells = [
        (
            point.run,
            _minute(point.created),
            format_number(point.value),
            "" if point.interval is None else " … ".join(map(format_number, point.interval)),
            point.validity,
            changes.get(point.run, ""),
        )
        for point in reversed(points)
    ]
    table = Table(
        title=f"{history.trend.bench} on {history.system}",
        headings=headings,
        is_text=(True, True, False, True, True, True),
        rows=tuple(cells),
    )
    names = [el("a", point.run, href=history.files[point.run]) for point in reversed(points)]
    return [
        figure(
            "Each run (whisker: 95 % interval of its repeats)",
            dots("rate of each run", rows, units=units),
            text,
        ),
        html_table(table.without_empty(("level changes",))[0], shown={0: names}),
    ]


def _minute(created: str) -> str:
    """Return the date and time of a run, without seconds."""
    return created[:16].replace("T", " ")


def fleet_page(fleets: Fleets) -> str:
    """Return the map of the fleet: for each kind of system its places (nodes, devices) and the median of all of them."""
    sections = [(f"f{at}", kind, _fleet(expected)) for at, (kind, expected) in enumerate(fleets.items())]
    lead = (
        "How far the rate of each node and device is from the median of all nodes and devices of its kind. Marked: "
        f"differences above {FLOOR:.0%} that {LEVEL:.0%} of good nodes and devices would not have. "
        f"Fewer than {LEAST_PLACES} of a kind are not marked."
    )
    body, nav = article("Fleet", lead, None, None, sections)
    return document("milabench fleet", [(INDEX, "All runs"), *nav], body)


def _places(expected: Baseline) -> list[str]:
    return sorted({place for number in _rates(expected) for place in number.values})


def _rates(expected: Baseline) -> list[Expected]:
    return [number for number in expected.expected if number.metric == "rate" and number.n > 1]


def _fleet(expected: Baseline) -> Child:
    rates, places = _rates(expected), _places(expected)
    headings = [
        f"{number.bench}{f' ({number.size})' if number.size else ''}, % from {format_number(number.median)} {number.units}"
        for number in rates
    ]
    columns = [[_deviation(number, place) for place in places] for number in rates]
    table = Table(
        title="places, and their distance from the median",
        headings=("place", *headings),
        is_text=(True, *(False for _ in headings)),
        rows=tuple(zip(places, *([text for text, _ in column] for column in columns), strict=True)),
    )
    shown = {at: [mark for _, mark in column] for at, column in enumerate(columns, start=1)}
    suspects = [note(f"Suspect, and shown all the same: {text}.") for text in expected.suspects[:20]]
    return [html_table(table, shown=shown), *suspects]


def _deviation(number: Expected, place: str) -> tuple[str, Child]:
    """Return how far a place is from the median, in per cent, as text and as it is shown."""
    value = number.values.get(place)
    if value is None:
        return "", ""
    away = math.log(value / number.median)
    text = f"{round(100 * math.expm1(away), 1) or 0.0:+.1f}"
    if number.n < LEAST_PLACES or abs(away) <= number.limit(LEVEL, FLOOR):
        return text, text
    is_better = number.direction in ("higher", "lower") and (away > 0) == (number.direction == "higher")
    marked: Markup = badge(text, "good" if is_better else "bad")
    return text, marked
