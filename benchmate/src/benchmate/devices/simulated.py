"""Devices that only a file describes: scripted readings, so that everything behind them runs on any machine.

The file is JSON: `{"devices": [{"uuid", "name", "readings": [{"t": 0, "memory_MiB": [512, 81920], "load": 0.9, "power_W": 300,
"sm_clock_MHz", "mem_clock_MHz", "throttle": ["hw_slowdown"] or a bit mask, "temperature", "energy_J", "ecc", "xid",
"processes": [{"pid", "memory_MiB"}], "lost": "why"}, ...]}]}`, and `"count"` makes so many copies of the first device. A
reading holds from its second `t` on, keys that it leaves out keep their value, null takes one away. Energy is the integral of
power, times `energy_factor`, unless it is given.
"""

from __future__ import annotations

import json
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Any

from benchmate.devices.api import Device, DeviceLostError, NotAvailableError, SensorBackend, throttle_reasons
from benchmate.devices.vendors.regular_file import MIB, read_regular
from benchmate.devices.vendors.vendor import DeviceProcess, Sample, Survey

VARIABLE = "MILABENCH_SIMULATED_DEVICES"
_KNOWN = {
    *("t", "memory_MiB", "load", "power_W", "sm_clock_MHz", "mem_clock_MHz", "throttle", "temperature", "energy_J"),
    *("energy_factor", "ecc", "xid", "processes", "lost"),
}


class SimulatedVendor(SensorBackend):
    """The devices of a file. `clock` in seconds; time begins when this is made. Raises NotAvailableError for a bad file."""

    period_s = 0.1

    def __init__(self, path: str, clock: Callable[[], float] = time.monotonic) -> None:
        try:
            script = json.loads(read_regular(path, 64 * MIB))
            described = list(script["devices"])
            if script.get("count") is not None:
                described = [
                    {**described[0], "uuid": f"{described[0].get('uuid', 'SIM')}-{n}"} for n in range(script["count"])
                ]
            start_s = clock()
            self.arch = str(script.get("arch", "simulated"))
            self.devices = tuple(
                SimulatedDevice(index, description, lambda: clock() - start_s)
                for index, description in enumerate(described)
            )
        except OSError as error:
            raise NotAvailableError(
                f"{path}: {error.strerror}; {VARIABLE} names a file of scripted readings"
            ) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            what = f"no {error} in it" if isinstance(error, KeyError) else str(error)
            raise NotAvailableError(f"{path}: not a description of simulated devices: {what}") from error


class SimulatedDevice(Device):
    """One scripted device; `elapsed_s` is the position in the script."""

    def __init__(self, index: int, script: Mapping[str, Any], elapsed_s: Callable[[], float]) -> None:
        self.index = index
        self.uuid = str(script.get("uuid", f"SIM-{index}"))
        self.name = str(script.get("name", "simulated"))
        self.absent: dict[str, str] = {}
        self._elapsed_s = elapsed_s
        self._reported_xids = 0
        self._steps: list[tuple[float, dict[str, Any], float]] = []
        state: dict[str, Any] = {}
        energy_j, before_s = 0.0, 0.0
        for reading in sorted(script.get("readings") or [{}], key=lambda reading: reading.get("t", 0)):
            unknown = set(reading) - _KNOWN
            if unknown:
                raise ValueError(
                    f"device {index}: unknown reading {sorted(unknown)[0]!r}; known: {', '.join(sorted(_KNOWN))}"
                )
            start_s = float(reading.get("t", 0))
            energy_j += (state.get("power_W") or 0) * (start_s - before_s)
            state = {**state, "xid": [], **reading}
            if isinstance(state.get("throttle"), int):
                state["throttle"] = list(throttle_reasons(state["throttle"]))
            self._steps.append((start_s, state, energy_j))
            before_s = start_s
        self._starts = [start for start, *_ in self._steps]
        for key, name in (("power_W", "power"), ("memory_MiB", "memory"), ("load", "load"), ("throttle", "throttle")):
            if all(state.get(key) is None for _, state, _ in self._steps):
                self.absent[name] = "the script does not tell it"

    def sample(self) -> Sample:
        state, energy_j = self._now()
        used, total = state.get("memory_MiB") or (None, None)
        throttle = state.get("throttle")
        return Sample(
            memory_used_mib=used,
            memory_total_mib=total,
            load=state.get("load"),
            power_w=state.get("power_W"),
            sm_clock_mhz=state.get("sm_clock_MHz"),
            mem_clock_mhz=state.get("mem_clock_MHz"),
            throttle=None if throttle is None else tuple(throttle),
            energy_j=energy_j,
        )

    def survey(self) -> Survey:
        state, _ = self._now()
        happened = [
            xid for _, step, _ in self._steps[: bisect_right(self._starts, self._elapsed_s())] for xid in step["xid"]
        ]
        new, self._reported_xids = happened[self._reported_xids :], len(happened)
        processes = state.get("processes")
        if processes is not None:
            processes = tuple(DeviceProcess(process["pid"], process.get("memory_MiB")) for process in processes)
        return Survey(temperature_c=state.get("temperature"), ecc=state.get("ecc"), xid=tuple(new), processes=processes)

    def _now(self) -> tuple[Mapping[str, Any], float | None]:
        """Return what holds now, and the joules so far. Raise DeviceLostError where the script says so."""
        elapsed_s = self._elapsed_s()
        start_s, state, energy_j = self._steps[max(0, bisect_right(self._starts, elapsed_s) - 1)]
        if state.get("lost"):
            raise DeviceLostError(str(state["lost"]))
        if state.get("energy_J") is not None:
            return state, float(state["energy_J"])
        if state.get("power_W") is None:
            return state, None
        return state, (energy_j + state["power_W"] * (elapsed_s - start_s)) * float(state.get("energy_factor") or 1)
