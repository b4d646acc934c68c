"""`milabench accept`: whether a run holds what was asked of the system."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from milabench.cli.formats import format_options, pick_format, write_output
from milabench.report.registry import FORMATS

if TYPE_CHECKING:
    from milabench.acceptance.criteria import Criteria

EXIT_CODES = {"PASS": 0, "FAIL": 7, "INCONCLUSIVE": 8}


@click.command(
    "accept",
    help="Hold a run against criteria. Exit codes: 0 PASS, 7 FAIL, 8 INCONCLUSIVE. Default: the latest run.",
)
@click.argument("run", required=False)
@click.option("--base", type=click.Path(path_type=Path), envvar="MILABENCH_BASE", help="Default: ./results.")
@click.option(
    "--criteria",
    type=click.Path(path_type=Path, dir_okay=False),
    help="What is asked, in YAML; docs/acceptance.md.",
)
@click.option("--reference", metavar="RUN|FILE", help="The run, or JSON report of one, that `x reference` means.")
@format_options
@click.option(
    "--schema", "print_schema", is_flag=True, help="Print the JSON schema of a criteria file, and do no more."
)
def command(
    run: str | None,
    base: Path | None,
    criteria: Path | None,
    reference: str | None,
    form: str | None,
    as_json: bool,
    output: Path | None,
    print_schema: bool,
) -> int:
    """Hand the command line's values on; see the help text above."""
    from milabench.acceptance.criteria import criteria_schema
    from milabench.acceptance.evaluate import evaluate_criteria
    from milabench.errors import UsageError
    from milabench.workflow.context import base_folder
    from milabench.workflow.report_inputs import find_report_source
    from milabench.workflow.results import resolve_runs
    from milabench.workflow.summaries import summary_of

    if print_schema:
        import json

        click.echo(json.dumps(criteria_schema(), indent=2))
        return 0
    if criteria is None:
        raise UsageError("--criteria: is missing: the file that says what is asked; docs/acceptance.md shows one")
    form = pick_format(form, as_json, output)
    asked = read_criteria(criteria)
    if asked.is_relative and reference is None:
        raise UsageError(f"{criteria}: asks for 'x reference': name that run with --reference")
    found = evaluate_criteria(
        asked,
        summary_of(resolve_runs(base, [run] if run else [])[0]),
        find_report_source(base_folder(base), reference).summary if reference is not None else None,
    )
    write_output(FORMATS[form].renderer.render_acceptance(found), output)
    if output is not None:
        click.echo(found.verdict, err=True)
    return EXIT_CODES[found.verdict]


def read_criteria(path: Path) -> Criteria:
    """The criteria in a file. Raises ConfigError with everything that is wrong in it."""
    from milabench.acceptance.criteria import parse_criteria
    from milabench.errors import ConfigError, Problem

    try:
        content = path.read_bytes()
    except OSError as error:
        what = f"cannot be read: {(error.strerror or str(error)).lower()}"
        raise ConfigError(Problem(where=str(path), path="", what=what, way_out="is the path right?")) from None
    return parse_criteria(content, str(path))
