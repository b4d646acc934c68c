"""An acceptance as a document: text, Markdown, JSON or JUnit."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from xml.sax.saxutils import escape, quoteattr

from milabench.acceptance.evaluate import Acceptance, CriterionResult


def render(acceptance: Acceptance, form: str) -> str:
    """The document in one of `FORMATS`."""
    return FORMATS[form](acceptance)


def text(acceptance: Acceptance) -> str:
    """The verdict first, then what decided it, then the rest."""
    width = max((len(_name(check)) for check in acceptance.checks), default=0)
    lines = [f"{acceptance.verdict}: {_sentence(acceptance)}", ""]
    for check in _worst_first(acceptance):
        lines.append(f"{check.verdict:<12}  {_name(check):<{width}}  {check.requirement}: {check.measured}")
        if check.missing:
            lines.append(f"{'':<12}  {'':<{width}}  missing: {check.missing}")
    return "\n".join(lines) + "\n"


def markdown(acceptance: Acceptance) -> str:
    """The document for a file: headline, table, what is missing."""
    head = [f"# {acceptance.title or 'Acceptance'}: {acceptance.verdict}", "", _sentence(acceptance), ""]
    table = ["| verdict | benchmark | criterion | asked | found |", "|---|---|---|---|---|"]
    table += [
        "| "
        + " | ".join(_cell(part) for part in (c.verdict, c.bench or "the run", c.criterion, c.requirement, c.measured))
        + " |"
        for c in _worst_first(acceptance)
    ]
    missing = [f"- {_name(check)}: {check.missing} ({check.where})" for check in acceptance.checks if check.missing]
    return "\n".join([*head, *table, *(["", "## What is missing", "", *missing] if missing else [])]) + "\n"


def as_json(acceptance: Acceptance) -> str:
    """Everything, for programs."""
    return json.dumps(acceptance.to_json(), indent=2, allow_nan=False) + "\n"


def junit(acceptance: Acceptance) -> str:
    """A test suite with a test case for each criterion; one that is undecided is an error, since it was not shown to hold."""
    checks = acceptance.checks
    failed = sum(check.verdict == "FAIL" for check in checks)
    unsure = sum(check.verdict == "INCONCLUSIVE" for check in checks)
    name = quoteattr(acceptance.title or "acceptance")
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuite name={name} tests="{len(checks)}" failures="{failed}" errors="{unsure}" skipped="0">',
    ]
    for check in checks:
        case = f"  <testcase classname={quoteattr(check.bench or 'run')} name={quoteattr(check.criterion)}"
        details = f"asked: {check.requirement}; found: {check.measured}" + (
            f"; missing: {check.missing}" if check.missing else ""
        )
        if check.verdict == "PASS":
            lines.append(f"{case}><system-out>{escape(details)}</system-out></testcase>")
        else:
            tag = "failure" if check.verdict == "FAIL" else "error"
            message = quoteattr(check.missing or check.measured)
            lines.append(f"{case}><{tag} message={message}>{escape(details)}</{tag}></testcase>")
    return "\n".join([*lines, "</testsuite>"]) + "\n"


FORMATS: Mapping[str, Callable[[Acceptance], str]] = {
    "text": text,
    "markdown": markdown,
    "json": as_json,
    "junit": junit,
}


def _sentence(acceptance: Acceptance) -> str:
    counts = {v: sum(check.verdict == v for check in acceptance.checks) for v in ("PASS", "FAIL", "INCONCLUSIVE")}
    against = f" against {acceptance.reference}" if acceptance.reference else ""
    return (
        f"{acceptance.run}{against}, by {acceptance.file}: {counts['PASS']} of {len(acceptance.checks)} criteria hold, "
        f"{counts['FAIL']} fail, {counts['INCONCLUSIVE']} are undecided"
    )


def _worst_first(acceptance: Acceptance) -> list[CriterionResult]:
    order = ("FAIL", "INCONCLUSIVE", "PASS")
    return sorted(acceptance.checks, key=lambda check: order.index(check.verdict))


def _name(check: CriterionResult) -> str:
    return f"{check.bench} {check.criterion}" if check.bench else f"the run: {check.criterion}"


def _cell(value: str) -> str:
    return value.replace("|", "\\|").replace("\n", " ")
