"""`milabench timing-audit`."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from milabench.cli import options
from milabench.cli.options import rare_option
from milabench.errors import DONE, STEPS_FAILED
from milabench.workflow.options import AuditRequest


@click.command("timing-audit")
@click.option(
    "--model",
    help="builtin:cnn (the default), torchvision:NAME, MODULE:FUNCTION or onnx:FILE, both looked for in this folder.",
)
@click.option("--batch", metavar="N,...", help="Items per call. Default: 1,8.")
@click.option("--warmup", metavar="N,...", help="Calls before the timed calls. Default: 0,50.")
@click.option("--sync", metavar="WORD,...", help="When the host waits for the device: none, each, end. Default: all.")
@rare_option("--clock", metavar="WORD,...", help="wall, event. Both are recorded. Default: both.")
@click.option("--processes", type=click.IntRange(1), help="Fresh processes for each combination. Default: 5.")
@rare_option("--shuffle/--no-shuffle", default=True, help="Random order within each block of processes.")
@rare_option("--seed", type=int, help="Seed of that order. Default: 1.")
@rare_option("--calls", type=click.IntRange(1), help="Timed calls per process, at most. Default: 1000.")
@rare_option("--seconds", type=click.FloatRange(0, min_open=True), help="Time for them. Default: 1.")
@rare_option("--threads", type=click.IntRange(1), help="Threads of the framework on the host. Default: its own.")
@click.option("--from", "from_run", metavar="RUN", help="Show the results of this run instead of measuring.")
@options.base_option
@options.current_env_option
@options.wait_option
@options.wide_option
@options.json_option
@options.collected_as("request", AuditRequest)
def command(from_run: str | None, request: AuditRequest, wide: bool, as_json: bool, **factors: object) -> int:
    """Show how the method of timing a model's call changes the result."""
    from milabench.timing_audit.experiment import read_audit, run_audit

    if from_run is None:
        given = {name: value for name, value in factors.items() if value is not None}
        audit, code = run_audit(given, request, options.terminal_session())
    else:
        audit, code = read_audit(from_run, request.base), DONE
    if as_json:
        click.echo(json.dumps(asdict(audit), indent=2))
    else:
        from milabench.timing_audit.report import render

        click.echo(render(audit, options.table_width(wide)), nl=False)
    return max(code, STEPS_FAILED if audit.errors else DONE)
