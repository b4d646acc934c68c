"""`milabench size`."""

from __future__ import annotations

import json

import click

from milabench.cli import options as shared
from milabench.errors import DONE, STEPS_FAILED
from milabench.workflow.options import SizeRequest, SuiteOptions


@click.command("size")
@shared.suite_options(selection=False, environment=True, nodes="engine")
@click.argument("bench", shell_complete=shared.benchmark_names)
@click.option("--min", "least", type=click.IntRange(1), default=1, show_default=True, help="Smallest size to try.")
@click.option("--max", "most", type=click.IntRange(1), help="Largest size to try. Default: until it does not fit.")
@shared.file_option("--save", help="Add the observations to this file.")
@shared.wait_option
@shared.json_option
@shared.display_option
@shared.collected_as("request", SizeRequest)
def command(options: SuiteOptions, request: SizeRequest, as_json: bool, display: str) -> int:
    """Find the largest batch size of BENCH that fits: double, then bisect, by running it."""
    from milabench.batch_size.size_search import find_batch_size

    session = shared.terminal_session(display)
    search = find_batch_size(options, request, session)
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
