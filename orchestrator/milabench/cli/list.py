"""`milabench list`: the benchmarks of the suite."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from milabench.cli.options import SuiteOptions, suite_options
from milabench.workflow.context import read_suite_only

if TYPE_CHECKING:
    from milabench.config.schema import BenchmarkConfig


@click.command("list", help="List the benchmarks of the suite.")
@suite_options()
@click.option("--json", "as_json", is_flag=True, help="JSON instead of a table.")
def command(
    options: SuiteOptions,
    as_json: bool,
) -> int:
    """Hand the command line's values on; see the help text above."""
    _, benches = read_suite_only(options)
    rows = [_row(bench) for bench in benches]
    if as_json:
        click.echo(json.dumps({"schema": 1, "benchmarks": rows}, indent=1))
        return 0
    table = [("name", "enabled", "plan", "weight", "environment", "tags")]
    table += [
        (
            row["name"],
            "yes" if row["enabled"] else "no",
            row["plan"],
            f"{row['weight']:g}",
            row["install_group"],
            " ".join(row["tags"]),
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    for line in table:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    return 0


def _row(bench: BenchmarkConfig) -> dict[str, Any]:
    method = bench.plan.method
    return {
        "name": bench.name,
        "enabled": bench.enabled,
        "plan": f"{method} x {bench.plan.n}" if method == "njobs" else method,
        "weight": bench.weight,
        "group": bench.group,
        "install_group": bench.install_group,
        "tags": list(bench.tags),
        "num_machines": bench.num_machines,
    }
