"""Were the devices used, by this step alone, and did clocks, power and sensors hold while it measured."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from milabench.checks.check import Check
from milabench.events.model import Verdict
from milabench.events.readings import THROTTLED, energy_of, share_of
from milabench.events.values import finite_number

if TYPE_CHECKING:
    from milabench.analysis.measure import Measurement


class UsageCheck(Check):
    """Fails when a device's mean load, or the share of its memory in use at the peak, stays below the suite's threshold.

    Settings: `gpu_load_threshold` and `gpu_mem_threshold`, 0 to 1 each. A missing setting is not checked. Only readings
    within the window count. An instance that sees several devices (`njobs`) has to use at least one of them.
    """

    name = "usage"
    doc = (
        "mean load and peak memory in the window against `validation.usage.gpu_load_threshold`, `.gpu_mem_threshold`, "
        "only where given"
    )
    severities = ("fail", "warn")
    needs_settings = True

    def verdict(self, measured: Measurement) -> Verdict:
        """Fail, warn or pass, with each device's load and memory."""
        readings = measured.readings
        asked = {"load": "gpu_load_threshold", "memory": "gpu_mem_threshold"}
        thresholds = {
            name: least for name, key in asked.items() if (least := finite_number(self.settings.get(key))) is not None
        }
        by_device: dict[str, object] = {}
        low: list[str] = []
        unknown: list[str] = []
        is_used = False
        for key, device in readings.devices.items():
            indices = device.within(readings.window)
            loads = [device.load[index] for index in indices if not math.isnan(device.load[index])]
            shares = [device.used[index] / device.total[index] for index in indices if device.total[index] > 0]
            usage = {
                "load": math.fsum(loads) / len(loads) if loads else None,
                "memory": max((share for share in shares if not math.isnan(share)), default=None),
            }
            by_device[key] = {**usage, "samples": len(indices)}
            lacking = len(low) + len(unknown)
            for name, threshold in thresholds.items():
                value = usage[name]
                if value is None:
                    unknown.append(f"{name} of device {key}")
                elif value < threshold:
                    low.append(f"{name} of device {key} is {value:.1%}, below {threshold:.1%}")
            is_used |= len(low) + len(unknown) == lacking
        numbers = {"thresholds": thresholds, "devices": by_device}
        if is_used and self.context.may_use_one:
            return self.passed(numbers)
        if low:
            return self.failure("; ".join(low), numbers)
        if unknown:
            return self.warning(f"not read in the window: {', '.join(unknown)}", numbers)
        if not by_device and self.context.devices:
            return self.warning("no monitor read the devices", numbers)
        return self.passed(numbers)


# methodology.md, 1.1: any of THROTTLED in more than one sample of a hundred is throttling; a power cap in software is not.
# A single sample may catch a clock as it changes: in a short window that alone is more than one in a hundred.
MAX_SHARE = 0.01
FEWEST_SLOWED = 2


class ThrottleCheck(Check):
    """Fails when a device was slowed down in more than 1 % of the samples within the window, and in two at least.

    Where its clocks say by how much, that is a component of the uncertainty. Warns when no device reported whether it was.
    """

    name = "throttle"
    doc = (
        "`hw_slowdown sw_thermal hw_thermal power_brake` in more than 1 % of the window's samples, and in at least two. "
        "Where clocks bound its effect, it is the component `throttling`"
    )
    severities = ("fail", "warn")
    doubt = "throttled"
    component = "throttling"
    remedy = "look at the cooling and the power supply"
    unmarked = "that no device says why its clocks change is no sign that it was slowed down"

    def verdict(self, measured: Measurement) -> Verdict:
        """Fail or pass, with the share of the samples by device and which reasons there were."""
        readings = measured.readings
        by_device: dict[str, object] = {}
        slowed = []
        for key, device in readings.devices.items():
            sampled = [device.throttle[index] for index in device.within(readings.window)]
            share, samples = share_of(sampled, THROTTLED)
            if share is None:
                continue
            reasons = sorted({reason for sample in sampled for reason in sample or ()} & THROTTLED)
            by_device[key] = {"share": share, "samples": samples, **({"reasons": reasons} if reasons else {})}
            if share > MAX_SHARE and round(share * samples) >= FEWEST_SLOWED:
                slowed.append(f"device {key} in {share:.1%} of the samples ({', '.join(reasons)})")
        bound = readings.slowed(THROTTLED)
        numbers = {"devices": by_device, **({} if bound is None else {"slowed": bound})}
        if slowed:
            return self.failure(f"slowed down: {'; '.join(slowed)}", numbers)
        if not by_device and any(device.within(readings.window) for device in readings.devices.values()):
            return self.warning("no device reported whether it was slowed down", numbers)
        return self.passed(numbers)


POWER_CAP = frozenset({"sw_power_cap"})


class PowerCheck(Check):
    """Warns when a board's power limit is set below its default. Reports how often the limit was reached, which is normal."""

    name = "power"
    doc = (
        "a power limit below the default, which is the component `power limit` where clocks bound its effect. Also the share of "
        "samples at the limit, which is normal"
    )
    severities = ("warn",)
    doubt = "power-limited"
    component = "power limit"
    remedy = "look at the power limit and the power supply"

    def verdict(self, measured: Measurement) -> Verdict:
        """Warn or pass, with the share of the samples at the limit by device."""
        readings = measured.readings
        shares = {
            key: share_of([device.throttle[index] for index in device.within(readings.window)], POWER_CAP)[0]
            for key, device in readings.devices.items()
        }
        numbers: dict[str, Any] = {"at_limit": {key: share for key, share in shares.items() if share is not None}}
        limited: dict[str, dict[str, float]] = {}
        for key in map(str, self.context.devices):
            about = readings.described.get(key, {})
            limit, default = (finite_number(about.get(name)) for name in ("power_limit_w", "power_limit_default_w"))
            if limit is not None and default is not None and limit < default:
                limited[key] = {"limit_W": limit, "default_W": default}
        if limited:
            numbers["limited"] = limited
            if (bound := readings.slowed(POWER_CAP)) is not None:
                numbers["slowed"] = bound
            limits = (f"device {key} to {w['limit_W']:g} of {w['default_W']:g} W" for key, w in limited.items())
            return self.warning(f"power limit below its default: {', '.join(limits)}", numbers)
        return self.passed(numbers)


class ForeignCheck(Check):
    """Fails when a process that is not of the step's group was seen on any of its devices within the window."""

    name = "foreign"
    doc = "processes of others on the step's devices in the window"
    severities = ("fail",)
    doubt = "foreign-process"
    remedy = "end the other process (for example the server of NVIDIA MPS), then measure again"

    def verdict(self, measured: Measurement) -> Verdict:
        """Fail or pass, with the foreign processes and their memory in MiB by device."""
        readings = measured.readings
        window = readings.window
        memory_of: dict[str, dict[str, float]] = {}
        for key, device in readings.devices.items():
            for time, pid, memory_mib in device.foreign:
                # A list of processes is read once a second: what was there just before the window was there in it.
                if window is None or window[0] - 1 <= time <= window[1] + 1:
                    known = memory_of.setdefault(key, {})
                    known[str(pid)] = max(known.get(str(pid), memory_mib), memory_mib)
        numbers: dict[str, Any] = {
            "devices": {
                key: {pid: None if math.isnan(memory_mib) else memory_mib for pid, memory_mib in processes.items()}
                for key, processes in memory_of.items()
            }
        }
        if memory_of:
            seen = "; ".join(f"{', '.join(processes)} on device {key}" for key, processes in memory_of.items())
            return self.failure(f"foreign processes: {seen}", numbers)
        return self.passed(numbers)


MAX_SILENCE_S = 3.0
PROGRAM_XIDS = frozenset({13, 31, 43, 45})
"""Errors of the driver that a program causes, by its own errors or by being ended. The others tell of the device."""


class SensorCheck(Check):
    """Warns when a device stopped answering before the window was over, or reported a fatal error (Xid, ECC).

    So does a window in which none of the step's accelerators was read at all. New errors that the memory corrected are
    counted, and do not warn.
    """

    name = "sensor"
    doc = "devices that stopped answering, Xid errors, new uncorrected ECC errors"
    severities = ("warn",)
    doubt = "sensor-lost"
    remedy = "check the device and its driver, and leave the monitor on"

    def verdict(self, measured: Measurement) -> Verdict:
        """Warn or pass, with the lost readings and the errors by device."""
        readings = measured.readings
        window = readings.window
        by_device: dict[str, object] = {}
        problems = []
        # Silence is no proof of health: without a reading nothing can be said for the device.
        if window is not None and self.context.devices and not readings.devices:
            problems.append("no accelerator was read: whether it was throttled, shared or capped is not known")
        for key, device in readings.devices.items():
            numbers: dict[str, Any] = {"samples": len(device.within(window))}
            if device.lost and not (window is not None and device.lost_at > window[1]):
                numbers["lost"] = device.lost
                problems.append(f"device {key} stopped answering: {device.lost}")
            elif window is not None and device.time and device.time[-1] < window[1] - MAX_SILENCE_S:
                numbers["silent_s"] = round(window[1] - device.time[-1], 3)
                problems.append(f"device {key} was not read in the last {numbers['silent_s']:g} s of the window")
            xids = [number for time, number in device.xid if window is None or time <= window[1] + 1]
            numbers |= {"xid": xids} if xids else {}
            if of_device := [str(number) for number in xids if number not in PROGRAM_XIDS]:
                problems.append(f"device {key} reported Xid {', '.join(of_device)}")
            numbers |= {f"ecc_{kind}": last - first for kind, (first, last) in device.ecc.items() if last > first}
            if "ecc_uncorrected" in numbers:
                problems.append(f"device {key} has {numbers['ecc_uncorrected']} new uncorrected memory errors")
            by_device[key] = numbers
        if problems:
            return self.warning("; ".join(problems), {"devices": by_device})
        return self.passed({"devices": by_device})


MAX_DISAGREEMENT = 0.05
POWER_LAG_S = 0.5
"""NVML's power is the mean of the last second: at both ends of a window it is so late."""


class EnergyCheck(Check):
    """Warns when the energy counter and the integral of power differ by more than 5 % and the energy of half a second."""

    name = "energy"
    doc = "counter against power integrated over the window, further apart than 5 % and the energy of half a second"
    severities = ("warn",)
    doubt = "energy"
    remedy = "do not use the energy (`perf` is not concerned)"

    def verdict(self, measured: Measurement) -> Verdict:
        """Warn or pass, with both in joules by device."""
        by_device: dict[str, object] = {}
        problems, window = [], measured.readings.window
        limit = MAX_DISAGREEMENT + (POWER_LAG_S / (window[1] - window[0]) if window is not None else 0)
        for key, device in measured.readings.devices.items():
            energy = energy_of(device, window)
            if energy.counter_j is None and energy.integral_j is None:
                continue
            by_device[key] = {"counter_J": energy.counter_j, "integral_J": energy.integral_j}
            # Sampling alone explains a few percent; a counter in another unit, or of another device, is off by far more.
            disagreement = energy.disagreement
            if disagreement is not None and math.isfinite(disagreement) and disagreement > limit:
                problems.append(
                    f"device {key}: counter {energy.counter_j:.4g} J, power over time {energy.integral_j:.4g} J"
                )
        if problems:
            return self.warning(f"they disagree: {'; '.join(problems)}", {"devices": by_device})
        return self.passed({"devices": by_device})
