"""`milabench gated`."""

from __future__ import annotations

import json
import os

import click

from milabench.cli.options import json_option, suite_options, table_width, wide_option
from milabench.workflow.context import read_suite_only, selected_benchmarks
from milabench.workflow.options import SuiteOptions


@click.command("gated")
@suite_options()
@wide_option
@json_option
def command(options: SuiteOptions, wide: bool, as_json: bool) -> None:
    """List the benchmarks whose weights or data need accepted terms, where to accept them, and whether a token is there."""
    from milabench.report.text_table import text_table
    from milabench.workflow.gated import HOW, gated_benches, token_place

    suite = read_suite_only(options)
    # Without a selection also those that are not enabled: what must be accepted keeps them from being so.
    is_selected = options.select or options.exclude
    found = gated_benches(selected_benchmarks(suite, options) if is_selected else suite.benchmarks.values())
    disabled = {name for name, bench in suite.benchmarks.items() if not bench.enabled}
    token = token_place(os.environ)
    if as_json:
        entries = [{**gated.to_json(), "enabled": gated.bench not in disabled} for gated in found]
        click.echo(json.dumps({"schema": 1, "token": token or None, "gated": entries}, indent=1))
        return
    if not found:
        click.echo("no benchmark of this selection needs accepted terms")
        return
    marks = {name: f"{name} (not enabled)" for name in disabled}
    rows = [
        [marks.get(gated.bench, gated.bench), gated.terms.repository, gated.terms.revision, gated.terms.page]
        for gated in found
    ]
    headings = ["benchmark", "repository", "revision", "terms"]
    lines = text_table(headings, rows, [True] * 4, spare=("revision",), width=table_width(wide))
    click.echo("\n".join([*lines, "", f"token: {f'there, by {token}' if token else f'none; {HOW}'}"]))
