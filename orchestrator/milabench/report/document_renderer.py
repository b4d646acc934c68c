"""Runs, comparisons and verdicts as documents (report/document.py), and the formats that only differ in how they write these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from milabench.analysis.acceptance_model import WORST_FIRST, Acceptance
from milabench.report import comparison_text, document, model, run_tables
from milabench.report.columns import LEGEND, REFERENCE_LEGEND, run_table
from milabench.report.curves import curve_blocks
from milabench.report.document import Document
from milabench.report.system_lines import system_lines

# A report needs none of these at run time.
if TYPE_CHECKING:
    from milabench.analysis.comparison_model import Comparison
    from milabench.analysis.summary_model import Summary
    from milabench.analysis.system_diff import Differences
    from milabench.analysis.traces import RunTraces


def run_document(summary: Summary) -> document.Document:
    """Return the report as a document: system, benchmarks, score, then everything that explains them."""
    (label, run), *properties = system_lines(summary)
    return (
        *ab_statement(summary),
        document.Title(text=run, label=label),
        document.Properties(pairs=(("result", model.result_text(summary)), *properties)),
        *(() if summary.is_ended else (model.INCOMPLETE,)),
        run_table(summary.benchmarks),
        document.Value(name="score", text=model.score_line(summary)),
        document.Notes(lines=(*LEGEND, *([REFERENCE_LEGEND] if summary.score.reference else []))),
        *document.section("without a ratio to the reference", model.without_ratio(summary)),
        *document.section("benchmarks represent", model.benchmark_lines(summary)),
        *curve_blocks(summary),
        *run_tables.milabench13_tables(summary),
        *run_tables.compute_tables(summary),
        *run_tables.expense_tables([("", summary)]),
        *run_tables.launch_time_tables(summary),
        *run_tables.window_tables(summary),
        *run_tables.uncertainty_tables(summary),
        *ab_blocks(summary),
        *run_tables.node_tables(summary),
        *document.section(model.JOBS_TITLE, model.unfinished_jobs(summary)),
        *document.section("failures", model.failures(summary)),
        *document.section("flaky", model.flaky(summary)),
        *document.section("repeats", model.replicate_lines(summary)),
        *document.section("skipped", model.skips(summary)),
        *document.section("validations", model.validations(summary)),
        *document.section("messages", model.messages(summary)),
        *run_tables.metric_tables(summary),
        document.Notes(lines=(model.next_line(summary),), name="next"),
    )


def ab_statement(summary: Summary) -> document.Document:
    """Return the verdict of an A/B run, which its report begins with. Nothing for another run."""
    return () if summary.ab is None else (document.Statement(text=summary.ab.sentence),)


def ab_blocks(summary: Summary, *, is_brief: bool = False) -> document.Document:
    """Return the two sides of an A/B run and their pairs; `is_brief`: without a legend. Nothing for another run."""
    if summary.ab is None:
        return ()
    sides = zip("AB", summary.ab.suites, strict=False)
    return (
        *document.section("A and B", sides),
        *([document.Value(name="differs", text=summary.ab.differs)] if summary.ab.differs else []),
        run_tables.pair_table(summary.ab),
        *([] if is_brief else [document.Notes(lines=(run_tables.PAIR_LEGEND,))]),
    )


def comparison_document(comparison: Comparison, differences: Differences) -> document.Document:
    """Return the comparison as a document: sentence, failures, exclusions, tables. `differences` where requested."""
    differing = () if differences is None else (comparison_text.differences_table(comparison, differences),)
    return (
        document.Title(text=comparison_text.title(comparison)),
        document.Statement(text=comparison.sentence),
        document.Value(name="differs", text=comparison.differs),
        *document.notes(comparison.warnings, name="note"),
        *document.section("failures", comparison_text.failed_entries(comparison)),
        *document.section("excluded", comparison.excluded),
        *document.section("suspect", comparison_text.suspects(comparison)),
        comparison_text.index_table(comparison),
        comparison_text.ratio_table(comparison),
        *curve_blocks(comparison),
        *comparison_text.job_tables(comparison),
        *run_tables.expense_tables(comparison_text.named_summaries(comparison)),
        *document.notes(comparison_text.power_lines(comparison)),
        *document.notes(comparison_text.verdict_notes(comparison)),
        *differing,
        *document.notes(comparison_text.legend_lines(comparison)),
    )


def acceptance_document(acceptance: Acceptance) -> document.Document:
    """Return the verdict, the criteria with the worst first, and the evidence that is missing to decide the rest."""
    return (
        document.Title(text=acceptance_title(acceptance)),
        document.Statement(text=acceptance_sentence(acceptance)),
        criteria_table(acceptance),
        *document.section("inconclusive", missing_evidence(acceptance)),
        *document.notes(acceptance.notes),
    )


def acceptance_title(acceptance: Acceptance) -> str:
    """Return the verdict and its subject."""
    return f"{acceptance.verdict}: {acceptance.title or 'acceptance'}"


def acceptance_sentence(acceptance: Acceptance) -> str:
    """Return which run was checked against which criteria, and how many of them hold."""
    counts = Counter[str](check.verdict for check in acceptance.checks)
    against = f" against {acceptance.reference}" if acceptance.reference else ""
    by = f", by {acceptance.file}" if acceptance.file else ""
    return (
        f"{acceptance.run}{against}{by}: {counts['PASS']} of {len(acceptance.checks)} criteria hold, "
        f"{counts['FAIL']} fail{'s' * (counts['FAIL'] == 1)}, {counts['INCONCLUSIVE']} inconclusive"
    )


def criteria_table(acceptance: Acceptance) -> document.Table:
    """Return a row for each criterion, the worst verdict first."""
    worst_first = sorted(acceptance.checks, key=lambda check: WORST_FIRST.index(check.verdict))
    rows = [(c.verdict, c.bench or "the run", c.criterion, c.requirement, c.measured) for c in worst_first]
    return document.words_table("criteria", ("verdict", "benchmark", "criterion", "required", "measured"), rows)


def missing_evidence(acceptance: Acceptance) -> list[tuple[str, str]]:
    """Return the missing evidence of undecided criteria, with their lines in the file."""
    return [
        (f"{check.bench or 'the run:'} {check.criterion}", check.missing + (f" ({check.where})" if check.where else ""))
        for check in acceptance.checks
        if check.missing
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentRenderer:
    """A Renderer without drawings. `write` turns a document into text, the others turn results into a document.

    `lines`, where given, yields the result of `write` line by line.
    """

    write: Callable[..., str]
    lines: Callable[..., Iterator[str]] | None = None
    document: Callable[[Summary], Document] = run_document
    comparison: Callable[[Comparison, Differences], Document] = comparison_document
    acceptance: Callable[[Acceptance], Document] = acceptance_document

    def fitted(self, width: int | None) -> DocumentRenderer:
        """Return the renderer whose tables fit a terminal of this width, if its `write` can fit them."""
        lines = None if self.lines is None else partial(self.lines, width=width)
        return replace(self, write=partial(self.write, width=width), lines=lines)

    def render(self, summaries: Sequence[Summary], traces: RunTraces = None) -> str:
        """Return the reports on some runs in sequence."""
        return "\n".join(self.write(self.document(summary)) for summary in summaries)

    def render_comparison(
        self, comparison: Comparison, differences: Differences = None, traces: RunTraces = None
    ) -> str:
        """Return a comparison. `differences` where requested."""
        return self.write(self.comparison(comparison, differences))

    def comparison_lines(self, comparison: Comparison, differences: Differences = None) -> Iterator[str]:
        """Yield the lines of the same, without their ends."""
        assert self.lines is not None
        return self.lines(self.comparison(comparison, differences))

    def render_acceptance(self, acceptance: Acceptance) -> str:
        """Return the verdict on a run, criterion by criterion."""
        return self.write(self.acceptance(acceptance))
