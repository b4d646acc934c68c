"""The steps of a benchmark that swept a server -> its repeats: which count, their devices' energy, the number of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from milabench.analysis.job_mix import Costs
from milabench.analysis.serving_model import LaunchCurve, ServingCurve
from milabench.analysis.step_results import SharedClocks, StepResult
from milabench.analysis.summary_model import ReplicateResult
from milabench.events.readings import DeviceReadings, energy_of
from milabench.shown import grouped
from milabench.sweeps.curve import serving_curve, with_costs


def _curves_by_step(results: Sequence[StepResult], costs: Costs, clocks: SharedClocks) -> dict[str, LaunchCurve]:
    """Return the curve of each client's step, with the energy of all devices of its repeat. Empty for any other benchmark."""
    curves: dict[str, LaunchCurve] = {}
    for result in results:
        curve = result.measured.serving
        if curve is not None:
            launch = [member for member in results if member.step.repeat == result.step.repeat]
            curves[result.step.id] = with_costs(curve, _joules_of(result, launch, clocks), costs)
    return curves


def _joules_of(
    client: StepResult, launch: Sequence[StepResult], clocks: SharedClocks
) -> Callable[[float, float], float | None]:
    """Return the function for the joules of a repeat's devices between two moments on the client's clock, each device once.

    None unless all of them have readings for it.
    """
    devices: dict[tuple[str, str], tuple[DeviceReadings, float]] = {}
    ahead_s = _ahead_s(client, clocks)
    for member in launch:
        for key, device in member.measured.readings.devices.items():
            devices.setdefault((member.step.node, device.uuid or key), (device, _ahead_s(member, clocks) - ahead_s))

    def joules(start: float, stop: float) -> float | None:
        energies = [energy_of(device, (start + later, stop + later)) for device, later in devices.values()]
        known = [each.integral_j if each.counter_j is None else each.counter_j for each in energies]
        whole = [value for value in known if value is not None]
        return math.fsum(whole) if whole and len(whole) == len(known) else None

    return joules


def _ahead_s(result: StepResult, clocks: SharedClocks) -> float:
    return clocks.get(result.step.id, ("", 0.0))[1]


def over_launches(
    results: Sequence[StepResult], processes: tuple[ReplicateResult, ...], costs: Costs, clocks: SharedClocks
) -> tuple[ServingCurve | None, tuple[ReplicateResult, ...]]:
    """Return the curve over repeats, and the repeats with the number of each at its best point."""
    curves = _curves_by_step(results, costs, clocks)
    serving = _curve_over(results, curves, costs.currency)
    return serving, _at_best_point(processes, curves, serving)


def _curve_over(results: Sequence[StepResult], curves: Mapping[str, LaunchCurve], currency: str) -> ServingCurve | None:
    """Return the curve over the repeats in which every step passed, over those that failed where none did."""
    failed = {result.step.repeat for result in results if result.outcome != "passed"}
    launches = grouped((result.step.repeat, curves[result.step.id]) for result in results if result.step.id in curves)
    counted = [launch for repeat, launch in launches.items() if repeat not in failed]
    curve = serving_curve(counted or list(launches.values()))
    return None if curve is None else replace(curve, currency=currency)


def _at_best_point(
    processes: Sequence[ReplicateResult], curves: Mapping[str, LaunchCurve], serving: ServingCurve | None
) -> tuple[ReplicateResult, ...]:
    """Return the repeats with the number of each at the best point of all. Without a best point, none has a number."""
    if serving is None:
        return tuple(processes)
    counted = []
    for process in processes:
        own = [curves[step] for step in process.steps if step in curves][:1]
        point = next((point for curve in own for point in curve.points if point.name == serving.best), None)
        if point is not None and "output_tps" in point.values:
            number, answered = point.values["output_tps"], point.requests - point.errors
            throughput = replace(process.throughput, value=number, observations=answered)
            counted.append(replace(process, throughput=throughput))
    return tuple(counted)
