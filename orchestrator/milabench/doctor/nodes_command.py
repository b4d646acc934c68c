"""`milabench nodes`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import click

from milabench.cli.options import json_option, suite_options, terminal_session
from milabench.errors import DONE, UNREACHABLE
from milabench.shown import visible_line
from milabench.workflow.options import SuiteOptions


@click.group("nodes")
def command() -> None:
    """Check the machines of a system."""


@command.command("check", short_help="Check that every node can be reached and is fit for a run")
@suite_options(selection=False, nodes="checks")
@click.option("--no-links", is_flag=True, help="Do not measure the connections between nodes.")
@json_option
def check_system(options: SuiteOptions, no_links: bool, as_json: bool) -> int:
    """Check that every node of the system file can be reached and is fit for a run."""
    from milabench.doctor.findings import check_nodes, findings_text

    checked = check_nodes(options, terminal_session(), with_links=not no_links)
    if as_json:
        click.echo(json.dumps(checked.to_json(), indent=1))
    else:
        click.echo("\n".join([findings_text(checked.findings), *map(visible_line, link_lines(checked.links))]))
    return UNREACHABLE if any(finding.state == "bad" for finding in checked.findings) else DONE


def link_lines(links: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines on the connections of nodes, under a heading."""
    width = max(map(len, links), default=0)
    if links:
        yield "links"
    for pair, link in links.items():
        if "error" in link:
            yield f"  note  {pair.ljust(width)}  {link['error']}"
        else:
            round_trip, speed = link["round_trip_s"] * 1e6, link["bytes_per_s"] * 8 / 1e9
            yield f"  ok    {pair.ljust(width)}  {round_trip:.0f} us round trip, {speed:.1f} Gbit/s"
