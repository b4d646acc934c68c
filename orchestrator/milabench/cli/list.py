"""`milabench list`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from milabench.cli.options import json_option, suite_options, table_width, wide_option
from milabench.workflow.context import read_suite_only, selected_benchmarks
from milabench.workflow.options import SuiteOptions

if TYPE_CHECKING:
    from milabench.config.schema import BenchmarkConfig


@click.command("list")
@suite_options()
@wide_option
@json_option
def command(options: SuiteOptions, wide: bool, as_json: bool) -> None:
    """List the benchmarks of the suite."""
    rows = [bench_json(bench) for bench in selected_benchmarks(read_suite_only(options), options)]
    if as_json:
        click.echo(json.dumps({"schema": 1, "benchmarks": rows}, indent=1))
    else:
        click.echo(benchmarks_table(rows, table_width(wide)))


def benchmarks_table(benches: Sequence[Mapping[str, Any]], width: int | None = None) -> str:
    """Return a line for each benchmark, fitted to a terminal's width."""
    from milabench.report.text import text_table

    headings = ["name", "enabled", "plan", "weight", "environment", "tags"]
    rows = [
        [
            bench["name"],
            "yes" if bench["enabled"] else "no",
            bench["plan"],
            f"{bench['weight']:g}",
            bench["install_group"],
            " ".join(bench["tags"]),
        ]
        for bench in benches
    ]
    is_text, spare = [True, True, True, False, True, True], ("environment", "weight", "plan", "tags")
    return "\n".join(text_table(headings, rows, is_text, spare=spare, width=width))


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
