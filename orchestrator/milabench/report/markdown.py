"""A summary as Markdown, for an issue, a pull request or a page."""

from __future__ import annotations

from collections.abc import Sequence

from milabench.analysis.compare import Comparison
from milabench.analysis.summary_model import Summary
from milabench.analysis.system_diff import Difference
from milabench.report import comparison_text, model


def render(summaries: Sequence[Summary]) -> str:
    """The reports of some runs, one after the other."""
    return "\n".join("\n".join(_lines(summary)) + "\n" for summary in summaries)


def _lines(summary: Summary) -> list[str]:
    (_, run), *system = model.system_lines(summary)
    lines = [f"# {_escaped(run)}", "", *(f"- **{name}**: {_escaped(value)}" for name, value in system), ""]
    if not summary.is_ended:
        lines += ["**This run was cut off, or is still going: what follows is what is known.**", ""]
    shown = model.columns(summary.benchmarks)
    headings, is_text = [column.heading for column in shown], [column.is_text for column in shown]
    lines += [*_table(headings, model.cells(summary.benchmarks), is_text), ""]
    lines += [f"**Score**: {model.score_line(summary)}", "", *(f"- {line}" for line in model.LEGEND)]
    if summary.ab is not None:
        lines += ["", "## A and B", ""]
        lines += [f"- **{side}**: {_escaped(suite)}" for side, suite in zip("AB", summary.ab.suites, strict=False)]
        lines += ["", *_table(model.PAIR_HEADINGS, model.pair_rows(summary.ab), model.PAIR_TEXT), "", model.PAIR_LEGEND]
    nodes = model.node_table(summary)
    if nodes is not None:
        is_text = [heading in ("bench", "units") for heading in nodes[0]]
        lines += ["", "## By node", "", *_table(*nodes, is_text)]
    failures = model.failure_entries(summary)
    if failures:
        lines += ["", "## Failures", ""]
    for bench, failure in failures:
        lines.append(f"- **{_escaped(failure.step)}**: {_escaped(model.step_reason(failure))}")
        if failure.log:
            lines.append(f"  - log: `{failure.log}`")
        lines.append(f"  - rerun: `{model.rerun_line(summary, bench.bench)}`")
    flaky = model.flaky(summary)
    if flaky:
        lines += ["", "## Flaky", ""]
    for step, text, log in flaky:
        lines += [f"- **{_escaped(step)}**: {_escaped(text)}", *([f"  - log: `{log}`"] if log else [])]
    for heading, entries in (
        ("Replicates", model.replicate_lines(summary)),
        ("Skipped", model.skips(summary)),
        ("Validations", model.validations(summary)),
        ("Messages", model.messages(summary)),
    ):
        if entries:
            lines += ["", f"## {heading}", ""]
            lines += [f"- **{_escaped(name)}**: {_escaped(text)}" for name, text in entries]
    metrics = model.other_metrics(summary)
    if metrics:
        rows = _table(["bench", "metric", "median", "units", "n"], metrics, [True, True, False, True, False])
        lines += ["", "## Other metrics", "", *rows]
    return lines


def render_comparison(comparison: Comparison, differences: Sequence[Difference] | None = None) -> str:
    """A comparison: the sentence, what failed and is left out, the index, the benchmarks; `differences` where asked for."""
    lines = [f"# {_escaped(comparison_text.title(comparison))}", "", f"**{_escaped(comparison.sentence)}**", ""]
    lines += [f"- note: {_escaped(warning)}" for warning in comparison.warnings]
    for heading, entries in (
        ("Failures", comparison_text.failed_entries(comparison)),
        ("Excluded", comparison_text.exclusions(comparison)),
        ("Suspect", comparison_text.suspects(comparison)),
    ):
        if entries:
            lines += ["", f"## {heading}", ""]
            lines += [f"- **{_escaped(name)}**: {_escaped(text)}" for name, text in entries]
    tables = [
        comparison_text.index_table(comparison),
        comparison_text.main_table(comparison),
        comparison_text.job_table(comparison),
    ]
    if differences is not None:
        tables.append(comparison_text.differences_table(comparison, differences))
    for found in tables:
        if found is not None:
            lines += ["", f"## {_escaped(found.title.capitalize())}", ""]
            lines += _table(found.headings, found.rows, found.is_text)
    remarks = comparison_text.notes(comparison)
    lines += ["", *(f"- {_escaped(name)}: {_escaped(text)}" for name, text in remarks)] if remarks else []
    return "\n".join([*lines, "", *(f"- {_escaped(line)}" for line in comparison_text.legend_lines(comparison))]) + "\n"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], is_text: Sequence[bool]) -> list[str]:
    rule = [":---" if text else "---:" for text in is_text]
    body = ([_escaped(cell) for cell in row] for row in rows)
    return [f"| {' | '.join(cells)} |" for cells in (headings, rule, *body)]


def _escaped(text: str) -> str:
    """The text on one line, with nothing in it that Markdown would read as its own."""
    for sign in "\\`*_|<>":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())
