"""Reports and comparisons as pages of HTML, each with its drawings: a file that needs nothing else (reports.md)."""

from __future__ import annotations

from collections.abc import Sequence

from milabench.analysis.acceptance_model import Acceptance
from milabench.analysis.comparison_model import Comparison
from milabench.analysis.summary_model import Summary
from milabench.analysis.system_diff import Differences
from milabench.analysis.traces import RunTraces
from milabench.pages import comparison as compared
from milabench.pages import run
from milabench.pages.blocks import document_page
from milabench.pages.details import fineness
from milabench.pages.page import document
from milabench.report import comparison_text
from milabench.report.document_renderer import acceptance_document


def render(summaries: Sequence[Summary], traces: RunTraces = None) -> str:
    """Return a page with all runs in sequence. `traces` are the time series of their steps."""
    traced = [steps or () for steps in traces or [None] * len(summaries)]
    how = fineness(traced)
    several = len(summaries) > 1
    bodies, nav = [], []
    for position, (summary, steps) in enumerate(zip(summaries, traced, strict=True)):
        key = f"r{position}-" if several else ""
        body, sections = run.run_article(summary, steps, how, key)
        bodies.append(body)
        nav += [(f"{key}top", summary.run)] if several else sections
    title = ", ".join(summary.run for summary in summaries)
    return document(f"milabench {title}"[:200], nav, bodies)


def render_comparison(comparison: Comparison, differences: Differences = None, traces: RunTraces = None) -> str:
    """Return the page of a comparison. `traces` are the time series of each system's steps, None where unknown."""
    traced = traces if traces is not None else [None] * len(comparison.systems)
    how = fineness([system_traces for system_traces in traced if system_traces is not None])
    body, nav = compared.comparison_article(comparison, differences, traced, how)
    return document(comparison_text.title(comparison)[:200], nav, body)


def render_acceptance(acceptance: Acceptance) -> str:
    """Return the page of the verdict on a run, criterion by criterion."""
    return document_page(acceptance_document(acceptance))
