"""The files of observed batch sizes: find the file of a device, read it, and add the observations of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from milabench.config.schema import SystemConfig
from milabench.devices.regular_file import read_regular
from milabench.errors import ConfigError, RecordError, os_reason
from milabench.events.atomic_write import replace_file
from milabench.facts.model import SystemFacts
from milabench.plan.model import Plan
from milabench.plan.sizing import (
    Observation,
    Scaling,
    Sizer,
    device_slug,
    parse_scaling,
    scaling_text,
    sizer_options,
)
from milabench.workflow.files import IS_CHECKOUT, ROOT, display_path


def read_sizer(system: SystemConfig, facts: SystemFacts) -> Sizer:
    """Return the system's sizer, with the observations on such devices where those decide. Raises ConfigError."""
    options = sizer_options(system.origin)
    if not options.needs_observations:
        return Sizer(options=options)
    file = sizes_file(system, "config")
    path = file or scaling_file(facts)
    if file is not None and not path.is_file() and sizes_file(system) != path:
        raise ConfigError(f"system.options.sizer.config: {path}: no such file")
    return Sizer(options=options, observations=read_scaling(path).observations, source=display_path(path))


def sizes_file(system: SystemConfig, key: str = "save") -> Path | None:
    """Return the file to which the system adds the batch sizes that its runs observe, or another that its sizer names."""
    given = system.options.get("sizer")
    file = given.get(key) if isinstance(given, Mapping) else None
    return None if file is None else Path(str(file)).expanduser()


def scaling_file(facts: SystemFacts) -> Path:
    """Return `config/scaling/<device>.yaml`, here or shipped. Else the file to create, in the checkout or here."""
    devices = facts.main.devices
    name = f"{device_slug(devices[0].name if devices else facts.arch)}.yaml"
    here = Path.cwd() / "config" / "scaling" / name
    shipped = ROOT / "config" / "scaling" / name
    return here if here.is_file() or not (IS_CHECKOUT or shipped.is_file()) else shipped


def read_scaling(path: Path) -> Scaling:
    """Read the file. Where it does not exist, nothing is observed. Raises ConfigError when it cannot be understood."""
    try:
        return parse_scaling(read_regular(path), display_path(path))
    except FileNotFoundError:
        return Scaling()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {os_reason(error)}") from None


def save_observations(path: Path, observations: Mapping[str, Sequence[Observation]]) -> None:
    """Add observations to the file, which is replaced atomically. Raises ConfigError and RecordError."""
    if path.exists() and not path.is_file():
        raise ConfigError(f"{path}: is not a file. Name a file, which will be replaced")
    text = scaling_text(read_scaling(path), observations)
    path = path.resolve()  # a link stays one
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text.encode())
    except OSError as error:
        raise RecordError(f"{path}: the observations cannot be saved: {os_reason(error)}") from None


def observed_batch_sizes(run: Path, plan: Plan) -> dict[str, tuple[Observation, ...]]:
    """Return, by benchmark with a batch size to choose: the size, the highest memory peak, the mean rate of passed steps."""
    from milabench.analysis.step_results import StepResult, planned_steps, step_result
    from milabench.events.rundir import open_run

    recorded = open_run(run)
    sizes = {step.id: step.config["batch_size"] for step in plan.steps if "batch_size" in step.config}
    by_size: dict[tuple[str, int], list[StepResult]] = {}
    for planned in planned_steps(recorded):
        if planned.id in sizes and (result := step_result(recorded, planned)).outcome == "passed":
            by_size.setdefault((planned.bench, sizes[planned.id]), []).append(result)
    observations: dict[str, list[Observation]] = {}
    for (bench, size), results in by_size.items():
        peaks = [peak for result in results if (peak := result.measured.memory_peak_mib) is not None]
        rates = [result.measured.throughput.value for result in results if result.measured.throughput is not None]
        observations.setdefault(bench, []).append(
            Observation(
                batch_size=size,
                memory_mib=max(peaks, default=None),
                rate=math.fsum(rates) / len(rates) if rates else None,
            )
        )
    return {bench: tuple(own) for bench, own in observations.items()}
