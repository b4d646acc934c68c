"""Runs and comparisons as JUnit XML, which build servers show: a test case for each benchmark."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from pathlib import PurePath

from milabench.analysis.acceptance_model import Acceptance
from milabench.analysis.comparison_model import Comparison, ComparisonRow, Contrast, CurveComparison, SystemResult
from milabench.analysis.paired_comparison import Pair
from milabench.analysis.summary_model import BenchSummary, Summary
from milabench.analysis.system_diff import Differences
from milabench.analysis.traces import RunTraces
from milabench.report import comparison_text, model
from milabench.report.curves import CurveCase, curve_case
from milabench.report.labels import format_number
from milabench.shown import visible


def render(summaries: Sequence[Summary], traces: RunTraces = None) -> str:
    """Return a test suite for each run: benchmarks that did not pass, invalid numbers and missing points are failures."""
    suites = []
    for summary in summaries:
        suite = ET.Element("testsuite", name=visible(summary.run), timestamp=visible(summary.created))
        if summary.capsule:
            properties = ET.SubElement(suite, "properties")
            ET.SubElement(properties, "property", name="capsule", value=visible(summary.capsule))
        for bench in model.ordered(summary.benchmarks):
            curve = curve_case(bench)
            _bench(suite, suite_name(summary), bench, curve)
            if curve is not None:
                _points(suite, suite_name(summary), bench.bench, curve)
        for pair in summary.ab.pairs if summary.ab is not None else ():
            _pair(suite, suite_name(summary), pair)
        suites.append(suite)
    return _document(suites)


def render_comparison(comparison: Comparison, differences: Differences = None, traces: RunTraces = None) -> str:
    """Return a test suite for each system but the first: failures are SLOWER, and benchmarks that failed only here."""
    suites = []
    for index in comparison.indices:
        position, name = comparison.column(index), comparison_text.index_name(index)
        suite = ET.Element("testsuite", name=visible(f"{name} compared with {comparison.systems[0].name}"))
        group = f"{suite_name(comparison.systems[position + 1].summary)} compared"
        for row in comparison.rows:
            _row(suite, row, group, row.sides[position + 1], row.contrasts[position])
        for compared in comparison.curves:
            _curve(suite, compared, group, index.system)
        case = _case(suite, "index", group)
        text = f"{comparison_text.ratio_text(index.value)} {comparison_text.interval_text(index.ci95)} {index.verdict}"
        if index.verdict == "SLOWER":
            _add_result(case, "failure", "SLOWER", text)
        _add_output(case, [text, comparison.sentence, f"differs: {comparison.differs}"])
        suites.append(suite)
    return _document(suites)


def render_acceptance(acceptance: Acceptance) -> str:
    """Return a suite with a test case for each criterion. An undecided criterion is an error: it was not shown to hold."""
    suite = ET.Element("testsuite", name=visible(acceptance.title or "acceptance"))
    for check in acceptance.checks:
        case = _case(suite, check.criterion, check.bench or "run")
        missing = f"; missing: {check.missing}" if check.missing else ""
        text = f"asked: {check.requirement}; found: {check.measured}{missing}"
        # Build servers have no third colour: what could not be decided must not look as if it had passed.
        if check.verdict == "PASS":
            _add_output(case, [text])
        else:
            kind = "failure" if check.verdict == "FAIL" else "error"
            _add_result(case, kind, check.missing or check.measured, text)
    if acceptance.notes:
        _add_output(suite, acceptance.notes)
    return _document([suite])


def suite_name(summary: Summary) -> str:
    """Return the name of the suite's file, else of the run without its time: the same in every run, for a server's history."""
    file = str(summary.options.get("config_file") or "")
    return PurePath(file).stem or summary.run.partition(".")[0]


def _bench(suite: ET.Element, group: str, bench: BenchSummary, curve: CurveCase | None) -> None:
    case = _case(suite, bench.bench, group)
    if bench.wall_s is not None:
        case.set("time", f"{bench.wall_s:.3f}")
    if bench.outcome == "skipped":
        _add_result(case, "skipped", "skipped", "; ".join(skip.detail for skip in bench.skipped))
    elif bench.outcome != "passed":
        lines = [f"{failure.name}: {failure.reason}" for failure in bench.failures]
        _add_result(case, "failure", bench.outcome, "\n".join(lines) or bench.outcome)
    elif bench.validity == "invalid" or bench.perf is None:
        why = "invalid" if bench.validity == "invalid" else "no-data"
        of_curve = () if curve is None else curve.about
        _add_result(case, "failure", why, "\n".join((model.validity_text(bench), *of_curve)))
    _add_output(case, [f"{format_number(bench.perf)} {bench.units}, {model.validity_text(bench)}", *bench.messages])


def _pair(suite: ET.Element, group: str, pair: Pair) -> None:
    case, text = _case(suite, pair.bench, f"{group} A/B"), f"{pair.verdict}: {pair.text}"
    if pair.verdict == "SLOWER":
        _add_result(case, "failure", "SLOWER", text)
    elif pair.ratio is None:
        _add_result(case, "skipped", "INCONCLUSIVE", text)
    _add_output(case, [text])


def _points(suite: ET.Element, group: str, bench: str, curve: CurveCase) -> None:
    case = _case(suite, f"{bench} curve", group)
    if curve.missing:
        _add_result(case, "failure", "points-missing", "\n".join(curve.missing))
    _add_output(case, [*curve.about, *curve.points])


def _row(suite: ET.Element, row: ComparisonRow, group: str, side: SystemResult, contrast: Contrast | None) -> None:
    first, case = row.sides[0], _case(suite, row.bench, group)
    if contrast is None:
        why = side.why_not or first.why_not or "its units differ"
        is_failure = first.counts and side.outcome not in ("passed", "skipped", "absent")
        _add_result(case, "failure" if is_failure else "skipped", side.outcome, why)
        return
    text = f"{comparison_text.ratio_text(contrast.ratio)} {comparison_text.interval_text(contrast.ci95)}"
    if contrast.verdict == "SLOWER":
        _add_result(case, "failure", "SLOWER", text)
    _add_output(case, [f"{text} {comparison_text.verdict_text(contrast)}", contrast.note])


def _curve(suite: ET.Element, compared: CurveComparison, group: str, system: str) -> None:
    case = _case(suite, f"{compared.bench} curve", group)
    lines = [
        f"{comparison_text.metric_label(r.metric)} {r.point}".rstrip()
        + f": {comparison_text.ratio_text(r.contrast.ratio)} {comparison_text.interval_text(r.contrast.ci95)} "
        + comparison_text.verdict_text(r.contrast)
        for r in compared.ratios
        if r.system == system
    ]
    if slower := [line for line in lines if line.endswith("SLOWER")]:
        _add_result(case, "failure", "SLOWER", "\n".join(slower))
    _add_output(case, lines)


def _case(suite: ET.Element, name: str, group: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", name=visible(name), classname=visible(group))


def _add_result(case: ET.Element, kind: str, message: str, text: str) -> None:
    ET.SubElement(case, kind, message=visible(message)).text = visible(text)


def _add_output(case: ET.Element, lines: Iterable[str]) -> None:
    ET.SubElement(case, "system-out").text = visible("\n".join(line for line in lines if line))


def _document(suites: Sequence[ET.Element]) -> str:
    root = ET.Element("testsuites")
    root.extend(suites)
    kinds = {"tests": "", "failures": "/failure", "errors": "/error", "skipped": "/skipped"}
    for element in (*suites, root):
        for name, result in kinds.items():
            element.set(name, str(len(element.findall(f".//testcase{result}"))))
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"
