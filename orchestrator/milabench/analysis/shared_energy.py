"""The joules of the steps of a benchmark, each device's counted once in a repeat, however many steps used it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from milabench.analysis.measure import energy_metric
from milabench.analysis.step_results import SharedClocks, StepResult
from milabench.events.readings import device_joules
from milabench.events.values import as_mapping

Joules = Mapping[tuple[str, str], float]
"""Joules by node and device. Empty where they are not known."""


def with_shared_energy(results: Sequence[StepResult], clocks: SharedClocks) -> Sequence[StepResult]:
    """Return the results with the joules of each device counted once in a repeat.

    A server counts no items: its devices' energy belongs to its client, in the seconds that the client counts. Steps that count
    on a device at once, as instances do, have equal parts of its joules.
    """
    servers = {result.step.id: result for result in results if result.measured.config.get("role") == "server"}
    used: dict[str, Joules] = {}
    for result in results:
        used.setdefault(result.step.id, _joules(result))
        server = servers.get(str(as_mapping(result.measured.config.get("server")).get("step")))
        if server is not None and result.outcome == "passed":
            used |= {result.step.id: _with_server(result, server, clocks), server.step.id: {}}
    users = Counter((result.step.repeat, device) for result in results for device in used[result.step.id])
    if not servers and all(count == 1 for count in users.values()):
        return results
    return [_with_energy(result, used[result.step.id], users) for result in results]


def _joules(result: StepResult) -> Joules:
    return {(result.step.node, device): joules for device, joules in result.measured.energy_by_device.items()}


def _with_server(client: StepResult, server: StepResult, clocks: SharedClocks) -> Joules:
    """Return the joules of the devices of both, where a device that both read has those that the client read."""
    own, of_client, of_server = _joules(client), client.measured.readings, server.measured.readings
    later_s = clocks.get(server.step.id, ("", 0.0))[1] - clocks.get(client.step.id, ("", 0.0))[1]
    spans = client.measured.counted_spans or (of_client.window,)
    joules = device_joules(of_server, [span and (span[0] + later_s, span[1] + later_s) for span in spans])
    if bool(of_client.devices) > bool(own) or bool(of_server.devices) > bool(joules):
        return {}  # of some nothing is known
    return {**{(server.step.node, device): value for device, value in joules.items()}, **own}


def _with_energy(result: StepResult, used: Joules, users: Mapping[tuple[int, tuple[str, str]], int]) -> StepResult:
    """Return the result with its part of the joules. A server whose client has them has 0 J."""
    measured = result.measured
    others = tuple(metric for metric in measured.metrics if metric.name != "energy")
    if len(others) < len(measured.metrics) and not measured.energy_by_device:
        return result  # the program's own
    if used or (result.measured.config.get("role") == "server" and measured.energy_by_device):
        part = (value / users[result.step.repeat, device] for device, value in used.items())
        others = (*others, energy_metric(part, is_counted=bool(measured.counted_spans)))
    return replace(result, measured=replace(measured, metrics=others))
