"""`milabench list`."""

from __future__ import annotations

import json
import os
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from milabench.analysis.json_codec import picked
from milabench.bench.readme import stands_for
from milabench.cli.options import json_option, suite_options, table_width, wide_option
from milabench.errors import UsageError
from milabench.execute.shims import shims_of
from milabench.execute.sizes import size_text
from milabench.report.text_table import text_table
from milabench.shown import wrapped
from milabench.workflow.context import read_suite_only, selected_benchmarks
from milabench.workflow.files import base_folder
from milabench.workflow.options import SuiteOptions

if TYPE_CHECKING:
    from milabench.config.schema import BenchmarkConfig, Suite

WIDTH = 100
"""Characters of a line where no terminal says how many it fits."""
_LEAST_ABOUT = 12
_MIB = 2**20
_CLAUSE = re.compile(r"[:;.]\s|\s\(")


@click.command("list")
@suite_options()
@click.option("--references", is_flag=True, help="List the shipped reference results instead.")
@click.option(
    "--gated",
    is_flag=True,
    help="List those whose weights or data need accepted terms, where to accept them, and whether a token is there.",
)
@wide_option
@json_option
def command(options: SuiteOptions, references: bool, gated: bool, wide: bool, as_json: bool) -> None:
    """List the benchmarks of the suite."""
    if references and gated:
        raise UsageError("--gated lists benchmarks, and --references results. Use only one of them")
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
    if gated:
        click.echo(gated_text(suite, options, table_width(wide), as_json=as_json))
        return
    is_all_disabled = suite.benchmarks and not any(bench.enabled for bench in suite.benchmarks.values())
    if is_all_disabled and options.select is None and options.exclude is None:
        benches = tuple(suite.benchmarks.values())
    else:
        benches = selected_benchmarks(suite, options)
    rows = [{**bench_json(bench), "shims": list(shims_of(str(venvs / bench.install_group)))} for bench in benches]
    if as_json:
        click.echo(json.dumps({"schema": 1, "benchmarks": rows}, indent=1))
    else:
        click.echo(benchmarks_table(rows, None if wide else table_width(wide) or WIDTH))


def benchmarks_table(benches: Sequence[Mapping[str, object]], width: int | None = None) -> str:
    """Return a line for each benchmark, fitted to a width: its measurement, its minutes and disk. None: every column."""
    # Heading, cell, and whether it is text; the last five only where every column is asked for.
    columns: list[tuple[str, Callable[[Mapping[str, Any]], str], bool]] = [
        ("name", lambda bench: bench["name"], True),
        ("measures", lambda bench: bench["about"], True),
        ("minutes", lambda bench: "" if bench["minutes"] is None else f"{bench['minutes']:g}", False),
        ("disk", lambda bench: _disk(bench["data_MiB"]), False),
        ("enabled", lambda bench: "yes" if bench["enabled"] else "no", True),
        ("plan", lambda bench: bench["plan"], True),
        ("weight", lambda bench: f"{bench['weight']:g}", False),
        ("environment", _environment, True),
        ("tags", lambda bench: " ".join(bench["tags"]), True),
    ]
    if width is not None:
        columns = columns[: 4 if all(bench["enabled"] for bench in benches) else 5]
    rows = [[cell(bench) for _, cell, _ in columns] for bench in benches]
    headings = [heading for heading, _, _ in columns]
    if width is not None:
        others = sum(max(map(len, cells)) + 3 for at, cells in enumerate(zip(headings, *rows, strict=True)) if at != 1)
        rows = [line for row in rows for line in _wrapped_row(row, max(_LEAST_ABOUT, width - others))]
    # Of the benchmarks of a group one may say what its environment takes.
    environments = sorted(
        {bench["install_group"]: _environment(bench) for bench in sorted(benches, key=_environment)}.values()
    )
    legend = f"minutes: of a repeat, profile default. disk: of its data. environments: {', '.join(environments)}"
    marked = " | ".join(heading if is_text else f"#{heading}" for heading, _, is_text in columns)
    lines = text_table(marked, rows, ("disk", "minutes"), width)
    return "\n".join([*lines, "", *wrapped(legend, width=width or WIDTH)])


def _wrapped_row(row: Sequence[str], room: int) -> Iterator[list[str]]:
    """Yield a row. Of its second cell whole clauses are shown that fit two lines; a first clause that does not has more."""
    first, *more = textwrap.wrap(_first_clauses(row[1], 2 * room), room) or [""]
    yield [row[0], first, *row[2:]]
    for part in more:
        yield ["", part, *([""] * len(row[2:]))]


def _first_clauses(text: str, room: int) -> str:
    """Return as many clauses of a text, from its beginning, as fit. The whole text where not even the first does."""
    ends = [found.start() for found in _CLAUSE.finditer(text) if found.start() <= room]
    return text if len(text) <= room or not ends else text[: ends[-1]]


def gated_text(suite: Suite, options: SuiteOptions, width: int | None, *, as_json: bool) -> str:
    """Return the benchmarks that need accepted terms, as a table or as JSON, and whether a token is there."""
    from milabench.workflow.gated import HOW, gated_benches, token_place

    # Without a selection also those that are not enabled: what must be accepted keeps them from being so.
    is_selected = options.select or options.exclude
    found = gated_benches(selected_benchmarks(suite, options) if is_selected else suite.benchmarks.values())
    disabled = {name for name, bench in suite.benchmarks.items() if not bench.enabled}
    token = token_place(os.environ)
    if as_json:
        entries = [
            {
                "bench": name,
                **picked(terms, "repository", "revision"),
                "accept": terms.page,
                "enabled": name not in disabled,
            }
            for name, terms in found.items()
        ]
        return json.dumps({"schema": 1, "token": token or None, "gated": entries}, indent=1)
    if not found:
        return "no benchmark of this selection needs accepted terms"
    marks = {name: f"{name} (not enabled)" for name in disabled}
    rows = [[marks.get(name, name), terms.repository, terms.revision, terms.page] for name, terms in found.items()]
    lines = text_table("benchmark | repository | revision | terms", rows, ("revision",), width)
    return "\n".join([*lines, "", f"token: {f'there, by {token}' if token else f'none. {HOW}'}"])


def _disk(mib: int | None) -> str:
    return "" if mib is None else size_text(mib * _MIB)


def _environment(bench: Mapping[str, Any]) -> str:
    """Return the environment of a benchmark with its disk, where that is known, and the shims for missing parts."""
    notes = [*filter(None, (_disk(bench["environment_MiB"]),)), *(f"{shim} by a shim" for shim in bench["shims"])]
    return f"{bench['install_group']} ({', '.join(notes)})" if notes else str(bench["install_group"])


def reference_json(name: str) -> dict[str, object]:
    """Return a shipped reference result as `list --references --json` has it."""
    from milabench.analysis.rescoring import machine_text
    from milabench.analysis.summary_model import validity_words
    from milabench.workflow.report_inputs import read_reference

    summary = read_reference(name).summary
    return {
        "name": name,
        "machine": machine_text(summary),
        **picked(summary, "created", "version", "profile"),
        "benchmarks": {
            bench.bench: validity_words(bench.validity, bench.doubts, bench.uncertainty) for bench in summary.benchmarks
        },
    }


def references_table(entries: Sequence[Mapping[str, Any]], width: int | None = None) -> str:
    """Return a line for each reference result: its machine, when and how it was measured, how many numbers are valid."""
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
    columns = "name | machine | measured | profile | #valid | benchmarks"
    return "\n".join(text_table(columns, rows, ("profile", "measured", "benchmarks"), width))


def bench_json(bench: BenchmarkConfig) -> dict[str, object]:
    """Return a benchmark as `list --json` has it."""
    method = bench.plan.method
    return {
        **picked(bench, "name", "enabled"),
        "plan": f"{method} x {bench.plan.n}" if method == "njobs" else method,
        **picked(bench, "weight", "group", "install_group", "tags", "num_machines"),
        "about": stands_for(bench.describe.what, bench.definition),
        "minutes": bench.resources.minutes,
        "data_MiB": bench.resources.data_mib,
        "environment_MiB": bench.resources.environment.disk_mib,
    }
