"""How much of a device a benchmark uses: its operations a second, compared with the device's published and measured peak."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from milabench.analysis.sample_statistics import median
from milabench.analysis.step_results import StepResult
from milabench.analysis.summary_model import SOUND, BenchSummary, ComputeUse, Summary
from milabench.compute_use.device_peaks import TERA, published_peak
from milabench.events.doubts import Doubt
from milabench.events.values import finite_number, mappings_in

PRODUCTS = "tflops"
"""The metric of a benchmark of matrix products: 1e12 operations a second, its case the number format."""
_PRODUCT_UNITS = ("Tflop/s", "Top/s")
_FAR_ABOVE = 2.0
"""Factor above the rate of short or small products beyond which a number is wrong, not a better shape."""
_SECONDS = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "second": 1.0, "min": 60.0, "minute": 60.0, "h": 3600.0, "hour": 3600.0}

Device = Mapping[str, Any]


def with_compute_use(
    benches: Sequence[BenchSummary],
    results: Mapping[str, Sequence[StepResult]],
    system: Mapping[str, object],
) -> list[BenchSummary]:
    """Return the benchmarks of a run, those whose items have a known number of operations with the use of their devices."""
    devices = {
        (str(node.get("name")), device.get("index")): device
        for node in mappings_in(system.get("nodes"))
        for device in mappings_in(node.get("devices"))
    }
    known = [structs.replace(bench, compute=_use_of(bench, results.get(bench.bench, ()), devices)) for bench in benches]
    peaks = measured_peaks(known)
    return [_doubted(_with_peak(bench, peaks)) for bench in known]


def _with_peak(bench: BenchSummary, peaks: Mapping[str, tuple[float, str]], of: str = "") -> BenchSummary:
    """Return a benchmark with the measured peak of its number format, where there is one and it has none."""
    use = bench.compute
    if use is None or use.measured_peak is not None or use.precision not in peaks:
        return bench
    reached, whose = peaks[use.precision]
    return structs.replace(bench, compute=replace(use, measured_peak=reached, measured_by=whose + of))


def _doubted(bench: BenchSummary) -> BenchSummary:
    """Return a benchmark, suspect where its devices cannot have done this number of operations."""
    use = bench.compute
    if use is None or not ((use.mfu or 0.0) > 1 or (use.mfu_measured or 0.0) > _FAR_ABOVE):
        return bench
    validity = "suspect" if bench.validity in SOUND else bench.validity
    return structs.replace(bench, validity=validity, doubts=tuple(sorted({*bench.doubts, Doubt.ABOVE_PEAK})))


def measured_peaks(benches: Sequence[BenchSummary]) -> dict[str, tuple[float, str]]:
    """Return the rates of a run's matrix products by number format, and their benchmark: medians over devices and repeats.

    Their trials are short. The products that go on afterwards, which are the rate of such a benchmark, may reach more.
    """
    values: dict[tuple[str, str], list[float]] = {}
    for bench in benches:
        if bench.outcome != "passed":
            continue
        # Slots of a processor are parts of it: what runs beside them at the same time counts as well.
        scale = bench.instances if not bench.ngpu else 1
        for metric in bench.metrics:
            value = finite_number(metric.get("value"))
            if metric.get("metric") == PRODUCTS and metric.get("units") in _PRODUCT_UNITS and value:
                values.setdefault((str(metric.get("case")), bench.bench), []).append(scale * value)
    peaks: dict[str, tuple[float, str]] = {}
    sustained = [
        (bench.compute.precision, bench.bench, bench.compute.achieved)
        for bench in benches
        if bench.compute is not None and any(name == bench.bench for _, name in values)
    ]
    trials = [(precision, name, TERA * median(of_one)) for (precision, name), of_one in values.items()]
    for precision, name, reached in (*trials, *sustained):
        if reached > peaks.get(precision, (0.0, ""))[0]:
            peaks[precision] = (reached, name)
    return peaks


def _use_of(
    bench: BenchSummary,
    results: Sequence[StepResult],
    devices: Mapping[tuple[str, object], Device],
) -> ComputeUse | None:
    planned = next((result.step for result in results), None)
    if planned is None or planned.flops_per_item is None or bench.perf is None or bench.direction != "higher":
        return None
    seconds = _SECONDS.get(bench.units.rpartition("/")[2].strip())
    if seconds is None:
        return None
    used = [devices.get((result.step.node, index)) for result in results for index in result.step.devices]
    # Without accelerators the device is a whole node, however many instances share it.
    achieved = planned.flops_per_item * bench.perf / seconds
    achieved *= _instances_per_device(bench, results) if bench.ngpu else bench.instances / max(1, bench.nodes)
    names = {str(device.get("name") or "") for device in used if device is not None}
    name = names.pop() if len(names) == 1 and None not in used else ""
    sizes = [finite_number(device.get("memory_MiB")) for device in used if device is not None]
    peak = published_peak(name, planned.precision, next(iter(sizes), None)) if name and bench.ngpu else None
    return ComputeUse(
        precision=planned.precision,
        flops_per_item=planned.flops_per_item,
        achieved=achieved,
        device=name,
        peak=peak.value if peak is not None else None,
        peak_source=peak.source if peak is not None else "",
    )


def _instances_per_device(bench: BenchSummary, results: Sequence[StepResult]) -> float:
    """Return how many instances of a repeat share a device: below 1 for a job over several, above 1 for several on a device."""
    launch = [process for process in bench.processes if process.repeat == bench.processes[0].repeat]
    measured = {step for process in launch for step in process.steps}
    devices = {
        (result.step.node, device) for result in results if result.step.id in measured for device in result.step.devices
    }
    return len(launch) / max(1, len(devices))


def with_peaks_of(benches: Sequence[BenchSummary], reference: Summary) -> tuple[BenchSummary, ...]:
    """Return the benchmarks with the peaks that a reference has measured on such accelerators, where their run has none."""
    names = {str(device.get("name") or "") for device in reference.devices}
    peaks = measured_peaks(reference.benchmarks)
    return tuple(
        _with_peak(bench, peaks, " of the reference")
        if bench.ngpu and bench.compute is not None and names == {bench.compute.device}
        else bench
        for bench in benches
    )
