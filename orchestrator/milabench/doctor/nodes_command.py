"""`milabench nodes`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from milabench.cli.options import json_option, suite_options, terminal_session
from milabench.errors import DONE, UNREACHABLE
from milabench.shown import counted, visible_line, wrapped
from milabench.workflow.options import SuiteOptions

if TYPE_CHECKING:
    from milabench.doctor.findings import NodeCheck


@click.group("nodes")
def command() -> None:
    """Check the machines of a system."""


@command.command("check", short_help="Check that every node can be reached and is fit for a run")
@suite_options(selection=False, nodes="checks")
@click.option("--no-links", is_flag=True, help="Do not measure the connections between nodes.")
@json_option
def check_system(options: SuiteOptions, no_links: bool, as_json: bool) -> int:
    """Check that every node of the system file can be reached and is fit for a run."""
    from milabench.doctor.findings import check_nodes

    checked = check_nodes(options, terminal_session(), with_links=not no_links)
    click.echo(
        json.dumps(checked.to_json(), indent=1) if as_json else "\n".join(map(visible_line, check_lines(checked)))
    )
    return UNREACHABLE if any(finding.state == "bad" for finding in checked.findings) else DONE


def check_lines(checked: NodeCheck) -> Iterator[str]:
    """Yield the lines on each node, on the differences between the nodes, and on their connections."""
    width = max(len(finding.what) for finding in checked.findings)
    bad = sum(finding.state == "bad" for finding in checked.findings)
    yield f"a run is not possible yet: {counted(bad, 'problem')}" if bad else "a run is possible"
    for node in [*dict.fromkeys(finding.node for finding in checked.findings if finding.node), ""]:
        own = [finding for finding in checked.findings if finding.node == node]
        if own:
            yield node or "between nodes"
        for finding in own:
            yield from wrapped(finding.says, f"  {finding.state:4}  {finding.what.ljust(width)}  ")
    if checked.links:
        yield "links"
    for pair, link in checked.links.items():
        if "error" in link:
            yield f"  note  {pair.ljust(width)}  {link['error']}"
        else:
            round_trip, speed = link["round_trip_s"] * 1e6, link["bytes_per_s"] * 8 / 1e9
            yield f"  ok    {pair.ljust(width)}  {round_trip:.0f} us round trip, {speed:.1f} Gbit/s"
