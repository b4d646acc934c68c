"""`milabench dev`: a shell, or one command, in a benchmark's environment."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from milabench.cli.completion_hooks import benchmark_names
from milabench.cli.options import SuiteOptions, suite_options
from milabench.errors import UsageError
from milabench.execute.interrupts import interrupts
from milabench.workflow.context import read_context
from milabench.workflow.planning import plan_single_suite

if TYPE_CHECKING:
    from milabench.plan.model import Step


@click.command(
    "dev",
    help="Open a shell in a benchmark's environment; with a command, run it there and return its exit code.",
    context_settings={"ignore_unknown_options": True},
)
@suite_options(selection=False, environment=True)
@click.argument("bench", shell_complete=benchmark_names)
@click.argument("argv", nargs=-1, type=click.UNPROCESSED)
def command(options: SuiteOptions, bench: str, argv: tuple[str, ...]) -> int:
    """Hand the command line's values on; see the help text above."""
    from milabench.workflow.preflight import require_installed

    inputs = read_context(replace(options, select=bench), repeats=1)
    if len(inputs.benches) != 1:
        names = ", ".join(ready.config.name for ready in inputs.benches)
        raise UsageError(f"dev works in one benchmark; '{bench}' selects {names}")
    plan = plan_single_suite(inputs)
    require_installed(inputs, replace(options, select=bench))
    with tempfile.TemporaryDirectory(prefix="milabench-dev-") as folder:
        return enter(plan.steps[0], argv, Path(folder), os.environ)


def enter(step: Step, argv: tuple[str, ...], folder: Path, environ: Mapping[str, str]) -> int:
    """Run the command, or the user's shell, as the step would be started; the exit code is the command's.

    There is no agent here: the sink is left unset, so that instruments print a table. Ctrl-C is for what runs here.
    """
    import json

    config = folder / "config.json"
    config.write_text(json.dumps(step.config, indent=1))
    env = {
        **environ,
        **{
            name: value.replace("@config", str(config)).replace("@path", environ.get("PATH", os.defpath))
            for name, value in step.env.items()
            if value != "@sink"
        },
        "MILABENCH_DEV": step.bench,
    }
    argv, shown = (tuple(_filled(word, step, folder) for word in words) for words in (argv, step.argv))
    Path(step.cwd).mkdir(parents=True, exist_ok=True)
    print(f"# {step.id}: run would execute, in {step.cwd}:", file=sys.stderr)
    print(shlex.join(shown), file=sys.stderr)
    if not argv:
        argv = (environ.get("SHELL") or "/bin/sh",)
        print(f"# {argv[0]}; leave it with exit", file=sys.stderr)
    with interrupts().held():
        try:
            process = subprocess.Popen(argv, env=env, cwd=step.cwd)
        except FileNotFoundError:
            raise UsageError(f"{argv[0]}: no such command in {step.venv}/bin or on PATH") from None
        except PermissionError:
            raise UsageError(f"{argv[0]}: is not executable") from None
        with interrupts().left_to(process.send_signal):
            code = process.wait()
    # A shell reports a command ended by signal N as 128 + N; so do we.
    return code if code >= 0 else 128 - code


def _filled(word: str, step: Step, folder: Path) -> str:
    """A word of a command with what an agent would fill in for the step's container."""
    if step.container is None:
        return word
    head, at, name = word.rpartition("@")
    values = {
        "container": f"milabench-dev-{os.getpid()}",
        "marker": "dev",
        "user": f"{os.getuid()}:{os.getgid()}",
        "userns": "keep-id" if os.getuid() else "host",
        "folder": f"{folder}:{folder}",
    }
    return f"{head}{values[name]}" if at and name in values else word
