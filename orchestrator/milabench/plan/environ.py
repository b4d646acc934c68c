"""The environment variables of a step, as protocol.md, section 7, promises them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from milabench.devices.registry import vendor_of
from milabench.facts.model import Device
from milabench.plan.context import NodeBenchmark
from milabench.plan.method import Placement

# Names of variables whose values are kept out of every record.
SECRET = re.compile(
    r"(^|_)(TOKENS?|SECRETS?|PASSWORD|PASSWD|PASS|PGPASSWORD|APIKEY|KEY|PAT|CREDENTIALS?|AUTH)(_|$)", re.IGNORECASE
)
# Records keep the command line that a run was started with.
_OVERRIDDEN_VARIABLE = re.compile(r"((?:--[^=]*=)?[^=]*\.env\.([^=]*))=")


def secret_names(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names among `env` that hold secrets, by what they are called."""
    return tuple(sorted(name for name in env if SECRET.search(name)))


def without_secrets(words: Sequence[str]) -> tuple[str, ...]:
    """Return a command line of ours with the values left out that its overrides give to secret variables.

    `bench.env.HF_TOKEN=value`, by itself or behind `--override=`, loses its value.
    """
    given = ((word, _OVERRIDDEN_VARIABLE.match(word)) for word in words)
    return tuple(f"{match[1]}=(secret)" if match and SECRET.search(match[2]) else word for word, match in given)


def program_environment(bench: NodeBenchmark, own: Mapping[str, str]) -> dict[str, str]:
    """Return what both prepare.py and the program see: folders, caches, the venv, the benchfile's and the suite's variables.

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


def placed_environment(
    placement: Placement, *, arch: str, threads: int, visible: Sequence[Device] | None = None
) -> dict[str, str]:
    """Return what depends on where a step runs: its devices and its share of the processor's threads.

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
