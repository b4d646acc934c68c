"""`milabench size`."""

from __future__ import annotations

import json

import click

from milabench.cli.options import (
    benchmark_names,
    collected_as,
    display_option,
    file_option,
    json_option,
    suite_options,
    terminal_session,
    wait_option,
)
from milabench.errors import DONE, STEPS_FAILED
from milabench.workflow.options import SizeRequest, SuiteOptions


@click.command("size")
@suite_options(selection=False, environment=True)
@click.argument("bench", shell_complete=benchmark_names)
@click.option("--min", "least", type=click.IntRange(1), default=1, show_default=True, help="Smallest size to try.")
@click.option("--max", "most", type=click.IntRange(1), help="Largest size to try. Default: until it does not fit.")
@file_option("--save", help="Add the observations to this file.")
@wait_option
@json_option
@display_option
@collected_as("request", SizeRequest)
def command(options: SuiteOptions, request: SizeRequest, as_json: bool, display: str) -> int:
    """Find the largest batch size of BENCH that fits: double, then bisect, by running it."""
    from milabench.workflow.size_search import find_batch_size

    session = terminal_session(display)
    search = find_batch_size(options, request, session)
    if search.failure:
        return search.failure
    largest = search.largest
    if as_json:
        click.echo(json.dumps(search.to_json(), indent=1))
    elif largest is None:
        session.error(f"{search.bench}: not even a batch size of {min(search.tried)} fits")
    else:
        # Every size fitted: there was a bound, and it was reached.
        bound = " (--max)" if largest == max(search.tried) else ""
        click.echo(f"{search.bench}: the largest batch size that fits is {largest}{bound}")
    return DONE if largest is not None else STEPS_FAILED
