"""`milabench ops`."""

from __future__ import annotations

from pathlib import Path

import click

from milabench.cli.options import base_option, current_env_option, rare_option, terminal_session, wait_option
from milabench.devices.registry import ARCHS
from milabench.workflow.options import SuiteOptions


@click.command("ops", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--suite", type=click.Path(path_type=Path), help="Suite file. Default: config/ops.yaml.")
@click.option("--bench", default="ops", show_default=True, metavar="NAME", help="The benchmark in it.")
@base_option
@rare_option("--arch", type=click.Choice(list(ARCHS)), envvar="MILABENCH_GPU_ARCH", help="Default: detected.")
@current_env_option
@wait_option
@click.argument("argv", nargs=-1, type=click.UNPROCESSED)
def command(
    suite: Path | None,
    bench: str,
    base: Path | None,
    arch: str | None,
    use_current_env: bool,
    wait: bool,
    argv: tuple[str, ...],
) -> int:
    """Time operators, or record and replay execution traces, in the environment of benchmarks/ops.

    Takes the arguments of `python -m benchmate.ops`, such as `-c FILE`, `trace replay FILE` or `--help` after `--`.
    """
    from milabench.dev.dev_shell import run_ops
    from milabench.workflow.files import shipped_suite

    config_file = suite or shipped_suite("ops")
    options = SuiteOptions(config_file=config_file, select=bench, base=base, arch=arch, use_current_env=use_current_env)
    return run_ops(options, argv, terminal_session(), wait=wait)
