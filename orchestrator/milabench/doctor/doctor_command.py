"""`milabench doctor`."""

from __future__ import annotations

import json

import click

from milabench.cli.options import json_option, suite_options, terminal_session
from milabench.errors import DONE, STEPS_FAILED
from milabench.workflow.options import SuiteOptions


@click.command("doctor")
@suite_options(environment=True)
@json_option
def command(options: SuiteOptions, as_json: bool) -> int:
    """Check whether this machine can run the suite."""
    from milabench.doctor.findings import diagnose, findings_text

    findings = diagnose(options, terminal_session())
    bad = sum(finding.state == "bad" for finding in findings)
    if as_json:
        values = [{"what": finding.what, "state": finding.state, "says": finding.says} for finding in findings]
        click.echo(json.dumps({"schema": 1, "findings": values}, indent=1))
    else:
        click.echo(findings_text(findings))
        click.echo(f"{bad} in the way of a run" if bad else "nothing in the way of a run")
    return STEPS_FAILED if bad else DONE
