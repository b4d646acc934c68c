"""Opens a shell, or runs a command, as a step of a benchmark would be started."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

from milabench.errors import UsageError
from milabench.execute.interrupts import interrupts
from milabench.execute.locks import hold_in_use
from milabench.plan.model import Step
from milabench.plan.step_dir import with_step_dir
from milabench.workflow.context import on_this_machine, read_context, read_single_context
from milabench.workflow.device_use import held_devices
from milabench.workflow.options import CommandContext, Extent, Session, SuiteOptions
from milabench.workflow.planning import plan_single_suite
from milabench.workflow.preflight import require_installed

OPS = ("python", "-m", "benchmate.ops")


def open_shell(
    options: SuiteOptions,
    bench: str,
    argv: tuple[str, ...],
    session: Session,
    *,
    audit: bool = False,
    is_run: bool = False,
    wait: bool = False,
) -> int:
    """Run a command, by default the user's shell, in a benchmark's environment. Return its exit code.

    With `is_run` it is the benchmark's own, with `audit` the same with a second count of its loop in addition to the
    voirfile's. Another command is started in the current folder. The benchmark's own command holds the devices. `wait` waits
    for them. Raises UsageError unless `bench` selects one benchmark, EnvironmentFailed unless it is installed,
    Unreachable for a device in use.
    """
    context = _with_every_benchmark(read_single_context(options, bench, session, Extent(repeat=1), "dev works in"))
    plan = plan_single_suite(context)
    require_installed(context)
    step = plan.steps[0]
    for other in plan.steps[1:]:
        if step.config.get("role") and other.job == step.job:
            session.info(f"# {other.id}: run would execute at the same time:\n{shlex.join(other.argv)}")
    if audit:
        if "benchmate.run" not in step.argv:
            raise UsageError(
                f"--audit: {bench} has no voirfile, so that nothing is counted from outside of its program"
            )
        step, argv = replace(step, env={**step.env, "MILABENCH_AUDIT": "1"}), step.argv
    elif is_run:
        argv = step.argv
    if argv is step.argv:
        with held_devices(context, f"dev {bench}", plan, wait=wait):
            return enter(step, argv, session)
    return enter(step, argv, session, cwd=Path.cwd() if argv else None)


def run_ops(options: SuiteOptions, argv: tuple[str, ...], session: Session, *, wait: bool) -> int:
    """Run `python -m benchmate.ops` in the environment of the selected benchmarks; return its exit code.

    It holds the devices; `wait` waits for them. Raises Unreachable for a device in use.
    """
    context = _with_every_benchmark(read_context(options, session, Extent(repeat=1)))
    require_installed(context)
    # All selected benchmarks share one environment; relative paths are those of the user's folder.
    plan = plan_single_suite(context)
    step = replace(plan.steps[0], cwd=str(Path.cwd()), argv=(*OPS, *argv))
    if {"-h", "--help"} & set(argv):
        return enter(step, step.argv, session)
    with held_devices(context, "ops", plan, wait=wait):
        return enter(step, step.argv, session)


def _with_every_benchmark(context: CommandContext) -> CommandContext:
    """Return the context on this machine, where no benchmark is left out for want of packages: here somebody looks for them."""
    here = on_this_machine(context)
    return replace(here, plan_context=replace(here.plan_context, unavailable={}))


def enter(step: Step, argv: tuple[str, ...], session: Session, *, cwd: Path | None = None) -> int:
    """Run the command, or the user's shell, as the step would be started. Return the command's exit code.

    It is started in `cwd`, by default the step's folder, a temporary folder. There is no agent here: the sink is left unset, so
    that instruments print a table. Ctrl-C is for the command.
    """
    with tempfile.TemporaryDirectory(prefix="milabench-dev-") as scratch:
        folder = Path(scratch)
        step = with_step_dir(step, str(folder / "step"))
        config = folder / "config.json"
        config.write_text(json.dumps(step.config, indent=1))
        path = os.environ.get("PATH", os.defpath)
        own = {name: value for name, value in step.env.items() if value != "@sink"}
        own = {name: value.replace("@config", str(config)).replace("@path", path) for name, value in own.items()}
        env = {**os.environ, **own, "MILABENCH_DEV": step.bench}
        argv, shown = (tuple(_filled(word, step, folder) for word in words) for words in (argv, step.argv))
        (folder / "step").mkdir()
        Path(step.cwd).mkdir(parents=True, exist_ok=True)
        where = " (the folder of a repeat, here removed at the end)" if step.cwd == str(folder / "step") else ""
        session.info(f"# {step.id}: run would execute, in {step.cwd}{where}:\n{shlex.join(shown)}")
        if not argv:
            argv = (os.environ.get("SHELL") or "/bin/sh",)
            session.info(f"# {argv[0]}. Leave it with exit")
        # As a shell does, it waits for the command: Ctrl-C is the command's, and this process ends after it.
        with interrupts().deferred(), hold_in_use({f"{Path(step.venv).resolve()}.lock": step.venv}):
            try:
                process = subprocess.Popen(argv, env=env, cwd=cwd or step.cwd)
            except (FileNotFoundError, PermissionError):
                raise UsageError(f"{argv[0]}: no such executable file, in {step.venv}/bin or on PATH") from None
            with interrupts().forwarded_to(process.send_signal):
                code = process.wait()
    # As a shell does for a command ended by signal N: 128 + N.
    return code if code >= 0 else 128 - code


def _filled(word: str, step: Step, folder: Path) -> str:
    """Return an argument with the values that an agent would fill in for the step's container."""
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
