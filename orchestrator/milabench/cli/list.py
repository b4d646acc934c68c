"""`milabench list`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from milabench.bench.readme import first_sentence
from milabench.cli.options import json_option, suite_options, table_width, wide_option
from milabench.execute.shims import shims_of
from milabench.workflow.context import read_suite_only, selected_benchmarks
from milabench.workflow.files import base_folder
from milabench.workflow.options import SuiteOptions

if TYPE_CHECKING:
    from milabench.config.schema import BenchmarkConfig


@click.command("list")
@suite_options()
@click.option(
    "--references", is_flag=True, help="List the shipped reference results instead, which runs are held beside."
)
@wide_option
@json_option
def command(options: SuiteOptions, references: bool, wide: bool, as_json: bool) -> None:
    """List the benchmarks of the suite."""
    if references:
        from milabench.workflow.report_inputs import shipped_references

        entries = [reference_json(name) for name in shipped_references()]
        text = (
            json.dumps({"schema": 1, "references": entries}, indent=1)
            if as_json
            else references_table(entries, table_width(wide))
        )
        click.echo(text)
        return
    venvs = base_folder(options.base) / "venv"
    suite = read_suite_only(options)
    is_all_disabled = suite.benchmarks and not any(bench.enabled for bench in suite.benchmarks.values())
    if is_all_disabled and options.select is None and options.exclude is None:
        benches = tuple(suite.benchmarks.values())
    else:
        benches = selected_benchmarks(suite, options)
    rows = [{**bench_json(bench), "shims": list(shims_of(str(venvs / bench.install_group)))} for bench in benches]
    if as_json:
        click.echo(json.dumps({"schema": 1, "benchmarks": rows}, indent=1))
    else:
        click.echo(benchmarks_table(rows, table_width(wide)))


def benchmarks_table(benches: Sequence[Mapping[str, Any]], width: int | None = None) -> str:
    """Return a line for each benchmark, fitted to a terminal's width."""
    from milabench.report.text_table import text_table

    headings = ["name", "enabled", "plan", "weight", "environment", "tags", "stands for"]
    rows = [
        [
            bench["name"],
            "yes" if bench["enabled"] else "no",
            bench["plan"],
            f"{bench['weight']:g}",
            bench["install_group"] + "".join(f" ({shim} by a shim)" for shim in bench["shims"]),
            " ".join(bench["tags"]),
            bench["about"],
        ]
        for bench in benches
    ]
    is_text = [True, True, True, False, True, True, True]
    spare = ("environment", "tags", "weight", "plan", "stands for")
    return "\n".join(text_table(headings, rows, is_text, spare=spare, width=width))


def reference_json(name: str) -> dict[str, Any]:
    """Return a shipped reference result as `list --references --json` has it."""
    from milabench.analysis.rescoring import machine_text
    from milabench.analysis.summary_model import validity_words
    from milabench.workflow.report_inputs import read_reference

    summary = read_reference(name).summary
    return {
        "name": name,
        "machine": machine_text(summary),
        "created": summary.created,
        "version": summary.version,
        "profile": summary.profile,
        "benchmarks": {
            bench.bench: validity_words(bench.validity, bench.reasons, bench.uncertainty)
            for bench in summary.benchmarks
        },
    }


def references_table(entries: Sequence[Mapping[str, Any]], width: int | None = None) -> str:
    """Return a line for each reference result: its machine, when and how it was measured, how many numbers are valid."""
    from milabench.report.text_table import text_table

    rows = [
        [
            entry["name"],
            entry["machine"],
            entry["created"].partition("T")[0],
            entry["profile"],
            f"{list(entry['benchmarks'].values()).count('valid')} of {len(entry['benchmarks'])}",
            " ".join(entry["benchmarks"]),
        ]
        for entry in entries
    ]
    headings = ["name", "machine", "measured", "profile", "valid", "benchmarks"]
    is_text, spare = [True, True, True, True, False, True], ("profile", "measured", "benchmarks")
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
        "about": first_sentence(bench.definition) if isinstance(bench.definition, Path) else "",
    }
