"""`milabench doctor`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from milabench.cli.options import json_option, suite_options, terminal_session
from milabench.errors import DONE, STEPS_FAILED
from milabench.workflow.options import SuiteOptions

if TYPE_CHECKING:
    from milabench.facts.compare import NodeFinding


@click.command("doctor")
@suite_options(environment=True)
@json_option
def command(options: SuiteOptions, as_json: bool) -> int:
    """Check whether this machine can run the suite."""
    from milabench.workflow.doctor import diagnose

    findings = diagnose(options, terminal_session())
    bad = sum(finding.state == "bad" for finding in findings)
    if as_json:
        values = [{"what": finding.what, "state": finding.state, "says": finding.says} for finding in findings]
        click.echo(json.dumps({"schema": 1, "findings": values}, indent=1))
    else:
        click.echo(findings_text(findings))
        click.echo(f"{bad} in the way of a run" if bad else "nothing in the way of a run")
    return STEPS_FAILED if bad else DONE


def findings_text(findings: Sequence[NodeFinding]) -> str:
    """Return a line for each finding."""
    width = max(len(finding.what) for finding in findings)
    return "\n".join(f"{finding.state:4}  {finding.what.ljust(width)}  {finding.says}" for finding in findings)
