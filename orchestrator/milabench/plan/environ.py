"""The environment variables of a step, as protocol.md, section 7, promises them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from milabench.bench.api import StartedProcess
from milabench.devices.registry import vendor_of
from milabench.errors import ConfigError
from milabench.facts.model import Device
from milabench.plan.context import NodeBenchmark
from milabench.plan.method import Placement
from milabench.plan.placeholders import names_for
from milabench.plan.render import render_text


def program_environment(bench: NodeBenchmark, own: Mapping[str, str]) -> dict[str, str]:
    """Return variables of prepare.py and the program: folders, caches, the venv, the benchfile's and the suite's variables.

    `own` are the suite's, rendered.

    """
    declared = bench.declared
    python_path = [str(PurePath(bench.source, folder)) for folder in declared.python_path]
    if declared.source is not None and declared.module is not None:
        python_path.insert(0, bench.source)
    return {
        **bench.dirs.environment(),
        "MILABENCH_BENCH_CONFIG": "@config",
        "MILABENCH_NAME": bench.config.name,
        **({"VIRTUAL_ENV": bench.venv, "PATH": f"{bench.venv}/bin:@path"} if bench.venv else {}),
        "PYTHONPATH": ":".join(python_path),
        # Fetched programs stay byte for byte what was published; venvs were compiled when they were made.
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        **declared.env,
        **own,
    }


def started_environment(bench: NodeBenchmark, started: StartedProcess | None) -> dict[str, str]:
    """Return the variables of a process that its benchfile starts itself. Text that is no template stays as it is."""
    if started is None:
        return {}
    env = {**started.literal_env, **started.env}
    names = names_for(bench)
    for name, text in started.env.items():
        with contextlib.suppress(ConfigError):
            env[name] = render_text(text, names)
    return env


def search_path(bench: NodeBenchmark, inherited: str) -> str:
    """Return the folders in which a program of the benchmark is looked for. `inherited` is the PATH of its agent.

    Raises ConfigError for a placeholder that cannot be resolved.
    """
    given = {name: text for name, text in bench.config.env.items() if name == "PATH"}
    own = {name: render_text(text, names_for(bench), bench.config, f"env.{name}") for name, text in given.items()}
    return program_environment(bench, own).get("PATH", "@path").replace("@path", inherited)


def placed_environment(
    placement: Placement, *, arch: str, threads: int, visible: Sequence[Device] | None = None
) -> dict[str, str]:
    """Return the environment that depends on where a step runs: its devices and its share of the processor's threads.

    `visible` are the devices that it sees, where they are more than its own.
    """
    env = {
        "MILABENCH_SINK": "@sink",
        "MILABENCH_DEVICES_HELD": ",".join(device.uuid for device in placement.devices),
        "OMP_NUM_THREADS": str(max(1, threads)),
    }
    # A slice of a device (MIG) has no number that the vendor's library knows.
    ids = [str(device.details.get("visible_as", device.index)) for device in visible or placement.devices]
    return {**env, **vendor_of(arch).assigned_environment(ids)}
