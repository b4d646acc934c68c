"""`milabench ops`: operator micro-benchmarks and execution traces by hand, in the environment of benchmarks/ops."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path

import click

from milabench.cli.dev import enter
from milabench.cli.options import SuiteOptions
from milabench.devices.registry import ARCHS
from milabench.errors import ConfigError
from milabench.workflow.context import read_context
from milabench.workflow.planning import plan_single_suite

BENCHMARK = "ops"
PROGRAM = ("python", "-m", "benchmate.ops")


@click.command(
    "ops",
    help="Time operators, or record and replay execution traces, in the environment of benchmarks/ops: what follows is "
    "given to `python -m benchmate.ops`, such as `-c FILE`, `trace replay FILE` or `--help` after `--`.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option(
    "--suite",
    type=click.Path(path_type=Path),
    help="Suite file with the benchmark. Default: config/ops.yaml.",
)
@click.option("--bench", default=BENCHMARK, show_default=True, metavar="NAME", help="The benchmark in it.")
@click.option("--base", type=click.Path(path_type=Path), envvar="MILABENCH_BASE", help="Default: ./results.")
@click.option("--arch", type=click.Choice(list(ARCHS)), envvar="MILABENCH_GPU_ARCH", help="Default: what is found.")
@click.option(
    "--use-current-env", is_flag=True, envvar="MILABENCH_USE_CURRENT_ENV", help="Run in the active environment."
)
@click.argument("argv", nargs=-1, type=click.UNPROCESSED)
def command(
    suite: Path | None, bench: str, base: Path | None, arch: str | None, use_current_env: bool, argv: tuple[str, ...]
) -> int:
    """Hand the command line's values on; see the help text above."""
    from milabench.workflow.preflight import require_installed

    options = SuiteOptions(
        config_file=suite or ops_suite_file(), select=bench, base=base, arch=arch, use_current_env=use_current_env
    )
    inputs = read_context(options, repeats=1)
    require_installed(inputs, options)
    # All that the name selects share one environment; names of files mean those of whoever types them.
    step = replace(plan_single_suite(inputs).steps[0], cwd=str(Path.cwd()), argv=(*PROGRAM, *argv))
    with tempfile.TemporaryDirectory(prefix="milabench-ops-") as folder:
        return enter(step, step.argv, Path(folder), os.environ)


def ops_suite_file() -> Path:
    """The suite of operators, beside this package. Raises ConfigError where only the package is installed."""
    path = Path(__file__).resolve().parents[3] / "config" / "ops.yaml"
    if not path.is_file():
        raise ConfigError(f"{path}: no such file; name a suite that has operators with --suite FILE")
    return path
