"""The curves of served models in reports: as the feature shows them that knows them, or a line that it is left out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from milabench.analysis.comparison_model import Comparison
from milabench.analysis.summary_model import BenchSummary, Summary
from milabench.report.document import Document, Notes
from milabench.seams import handler, made_by, missing


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveCase:
    """A curve as a test case: its result, a line for each point, and the `missing` points, each with the reason."""

    about: tuple[str, ...]
    points: tuple[str, ...]
    missing: tuple[str, ...]


def has_curves(shown: Summary | Comparison) -> bool:
    """Return whether a benchmark of a run, or of a comparison, has a curve."""
    if isinstance(shown, Comparison):
        return bool(shown.curves)
    return any(bench.serving is not None for bench in shown.benchmarks)


def curve_blocks(shown: Summary | Comparison, *, is_brief: bool = False) -> Document:
    """Return the tables of the curves of a run or a comparison. Empty without curves."""
    if not has_curves(shown):
        return ()
    if left_out := curves_left_out():
        return (Notes(lines=(left_out,)),)
    blocks: Document = handler("curves: tables")(shown, is_brief=is_brief)
    return blocks


def curve_case(bench: BenchSummary) -> CurveCase | None:
    """Return the curve of a benchmark as a test case. None without a curve."""
    case: CurveCase | None = None
    return case if bench.serving is None else made_by("curves: test case", case, bench.bench, bench.serving)


def messages_of_curve(bench: BenchSummary) -> frozenset[str]:
    """Return the messages of a benchmark that stand with its curve."""
    messages: Iterable[str] = ()
    if bench.serving is not None:
        messages = made_by("curves: messages", messages, bench.serving)
    return frozenset(messages)


def curves_left_out() -> str:
    """Return the line that replaces curves where their feature is left out. Empty where it takes part."""
    lacking = missing("curves: tables")
    return lacking and f"curves of served models: their report {lacking}. JSON and CSV have them"
