"""An acceptance as a document: text, Markdown, JSON or JUnit."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from xml.sax.saxutils import escape, quoteattr

from milabench.acceptance.evaluate import Acceptance, CriterionResult


def render(found: Acceptance, form: str) -> str:
    """The document in one of `FORMATS`."""
    return FORMATS[form](found)


def text(found: Acceptance) -> str:
    """The verdict first, then what decided it, then the rest."""
    width = max((len(_name(check)) for check in found.checks), default=0)
    lines = [f"{found.verdict}: {_sentence(found)}", ""]
    for check in _worst_first(found):
        lines.append(f"{check.verdict:<12}  {_name(check):<{width}}  {check.asked}: {check.found}")
        if check.missing:
            lines.append(f"{'':<12}  {'':<{width}}  missing: {check.missing}")
    return "\n".join(lines) + "\n"


def markdown(found: Acceptance) -> str:
    """The document for a file: headline, table, what is missing."""
    head = [f"# {found.title or 'Acceptance'}: {found.verdict}", "", _sentence(found), ""]
    table = ["| verdict | benchmark | criterion | asked | found |", "|---|---|---|---|---|"]
    table += [
        "| "
        + " | ".join(_cell(part) for part in (c.verdict, c.bench or "the run", c.criterion, c.asked, c.found))
        + " |"
        for c in _worst_first(found)
    ]
    missing = [f"- {_name(check)}: {check.missing} ({check.where})" for check in found.checks if check.missing]
    return "\n".join([*head, *table, *(["", "## What is missing", "", *missing] if missing else [])]) + "\n"


def as_json(found: Acceptance) -> str:
    """Everything, for programs."""
    return json.dumps(found.to_json(), indent=2, allow_nan=False) + "\n"


def junit(found: Acceptance) -> str:
    """A test suite with a test case for each criterion; one that is undecided is an error, since it was not shown to hold."""
    checks = found.checks
    failed = sum(check.verdict == "FAIL" for check in checks)
    unsure = sum(check.verdict == "INCONCLUSIVE" for check in checks)
    name = quoteattr(found.title or "acceptance")
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuite name={name} tests="{len(checks)}" failures="{failed}" errors="{unsure}" skipped="0">',
    ]
    for check in checks:
        case = f"  <testcase classname={quoteattr(check.bench or 'run')} name={quoteattr(check.criterion)}"
        told = f"asked: {check.asked}; found: {check.found}" + (f"; missing: {check.missing}" if check.missing else "")
        if check.verdict == "PASS":
            lines.append(f"{case}><system-out>{escape(told)}</system-out></testcase>")
        else:
            tag = "failure" if check.verdict == "FAIL" else "error"
            message = quoteattr(check.missing or check.found)
            lines.append(f"{case}><{tag} message={message}>{escape(told)}</{tag}></testcase>")
    return "\n".join([*lines, "</testsuite>"]) + "\n"


FORMATS: Mapping[str, Callable[[Acceptance], str]] = {
    "text": text,
    "markdown": markdown,
    "json": as_json,
    "junit": junit,
}


def _sentence(found: Acceptance) -> str:
    counts = {v: sum(check.verdict == v for check in found.checks) for v in ("PASS", "FAIL", "INCONCLUSIVE")}
    against = f" against {found.reference}" if found.reference else ""
    return (
        f"{found.run}{against}, by {found.file}: {counts['PASS']} of {len(found.checks)} criteria hold, "
        f"{counts['FAIL']} fail, {counts['INCONCLUSIVE']} are undecided"
    )


def _worst_first(found: Acceptance) -> list[CriterionResult]:
    order = ("FAIL", "INCONCLUSIVE", "PASS")
    return sorted(found.checks, key=lambda check: order.index(check.verdict))


def _name(check: CriterionResult) -> str:
    return f"{check.bench} {check.criterion}" if check.bench else f"the run: {check.criterion}"


def _cell(value: str) -> str:
    return value.replace("|", "\\|").replace("\n", " ")
