"""`milabench list`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from milabench.cli.options import json_option, suite_options
from milabench.workflow.context import read_suite_only, selected_benchmarks
from milabench.workflow.options import SuiteOptions

if TYPE_CHECKING:
    from milabench.config.schema import BenchmarkConfig


@click.command("list")
@suite_options()
@json_option
def command(options: SuiteOptions, as_json: bool) -> None:
    """List the benchmarks of the suite."""
    rows = [bench_json(bench) for bench in selected_benchmarks(read_suite_only(options), options)]
    if as_json:
        click.echo(json.dumps({"schema": 1, "benchmarks": rows}, indent=1))
        return
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


def bench_json(bench: BenchmarkConfig) -> dict[str, Any]:
    """Return a benchmark as `list --json` has it."""
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
