"""A report or a comparison as one page that needs nothing else: no network, no other file (docs/reports.md)."""

from __future__ import annotations

from collections.abc import Sequence

from milabench import __version__
from milabench.analysis.compare import Comparison
from milabench.analysis.summary_model import Summary
from milabench.analysis.system_diff import Difference
from milabench.analysis.traces import Trace
from milabench.report import comparison_text
from milabench.report.html import comparison as compared
from milabench.report.html import run
from milabench.report.html.comparison import SYSTEMS_DRAWN
from milabench.report.html.details import fineness
from milabench.report.html.page import document

__all__ = ["SYSTEMS_DRAWN", "render", "render_comparison"]


def render(summaries: Sequence[Summary], traced: Sequence[Sequence[Trace]]) -> str:
    """The page of some runs, one after the other; `traced` is what their steps did over time."""
    how = fineness(traced)
    several = len(summaries) > 1
    bodies, nav = [], []
    for place, (summary, traces) in enumerate(zip(summaries, traced, strict=True)):
        key = f"r{place}-" if several else ""
        body, sections = run.run_article(summary, traces, how, key)
        bodies.append(body)
        nav += [(f"{key}top", summary.run)] if several else sections
    title = ", ".join(summary.run for summary in summaries)
    return document(f"milabench {title}"[:200], nav, bodies, __version__)


def render_comparison(
    comparison: Comparison, differences: Sequence[Difference] | None, traced: Sequence[Sequence[Trace] | None]
) -> str:
    """The page of a comparison; `traced` is what the steps of each system did over time, None where that is not known."""
    how = fineness([one for one in traced if one is not None])
    body, nav = compared.comparison_article(comparison, differences, traced, how)
    return document(comparison_text.title(comparison)[:200], nav, body, __version__)
