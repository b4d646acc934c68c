"""`milabench doctor`."""

from __future__ import annotations

import json

import click

from milabench.cli.options import json_option, other_command, suite_options, terminal_session
from milabench.errors import DONE, STEPS_FAILED
from milabench.workflow.options import SuiteOptions

_MAKES = {
    "environments": ("install", "makes the environments that are missing"),
    "data": ("prepare", "makes the data that is missing"),
}
"""The command that makes each missing part, with its effect."""


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
        missing = next((finding.what for finding in findings if finding.state == "bad" and finding.what in _MAKES), "")
        verb, why = _MAKES.get(missing, ("run", "measures it"))
        if missing or not bad:
            click.echo(f"\nnext: `{other_command(verb)}`: {why}")
    return STEPS_FAILED if bad else DONE
