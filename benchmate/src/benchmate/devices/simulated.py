"""Devices that only a file describes: scripted readings, so that everything behind them runs on any machine.

The file is JSON: `{"devices": [{"uuid", "name", "readings": [{"t": 0, "memory_MiB": [512, 81920], "load": 0.9, "power_W": 300,
"sm_clock_MHz", "mem_clock_MHz", "throttle": ["hw_slowdown"] or a bit mask, "temperature", "energy_J", "ecc", "xid",
"processes": [{"pid", "memory_MiB"}], "lost": "why"}, ...]}]}`. A reading holds from its second `t` on, keys that it leaves out
keep their value, null removes a value. `"count"` is the number of copies of the first device. With `"busy"` only that number of
them follow the script: the others are idle.

Sensors are no better than a board's. Power is the mean of the last second (`power_average_s` of the device), energy
a counter renewed every 0.1 s (`energy_period_s`): the integral of power, times `energy_factor`, unless `energy_J` is
given. `reserve_MiB` is memory that the driver keeps, which counts as used. `call_ms` is the time of each call. Readings named
in `unanswered` fail once, those in `not_supported` of a device always. A process whose pid is "held" represents every process
that the agent gave the device to.
"""

from __future__ import annotations

import json
import math
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmate.devices.api import Device, DeviceLostError, NotAvailableError, SensorBackend, throttle_reasons
from benchmate.devices.vendors.regular_file import MIB, read_regular
from benchmate.devices.vendors.vendor import DeviceProcess, Sample, Survey

VARIABLE = "MILABENCH_SIMULATED_DEVICES"
_KNOWN = {
    *("t", "memory_MiB", "load", "power_W", "sm_clock_MHz", "mem_clock_MHz", "throttle", "temperature", "energy_J"),
    *("energy_factor", "ecc", "xid", "processes", "lost", "reserve_MiB", "call_ms", "unanswered"),
}
_IDLE = {"load": 0.0, "power_W": 80, "memory_MiB": [0, 81920], "throttle": [], "processes": []}
_FIELDS = {
    "memory": ("memory_used_mib", "memory_total_mib"),
    "load": ("load",),
    "power": ("power_w",),
    "clocks": ("sm_clock_mhz", "mem_clock_mhz"),
    "throttle": ("throttle",),
    "energy": ("energy_j",),
    "temperature": ("temperature_c",),
    "ecc": ("ecc",),
    "xid": (),
    "processes": ("processes",),
}
"""The script's name of a reading, and the fields of a sample or a survey."""


class SimulatedVendor(SensorBackend):
    """The devices of a file. `clock` in seconds. Time begins when this is made. Raises NotAvailableError for a bad file."""

    period_s = 0.1

    def __init__(
        self,
        path: str,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        try:
            script = json.loads(read_regular(path, 64 * MIB))
            described = list(script["devices"])
            if script.get("count") is not None:
                first, busy = described[0], script.get("busy", script["count"])
                described = [
                    {
                        **first,
                        "uuid": f"{first.get('uuid', 'SIM')}-{n}",
                        **({} if n < busy else {"readings": [_IDLE]}),
                    }
                    for n in range(script["count"])
                ]
            start_s = clock()
            self.arch = str(script.get("arch", "simulated"))
            self.devices = tuple(
                SimulatedDevice(index, description, lambda: clock() - start_s, sleep, path)
                for index, description in enumerate(described)
            )
        except OSError as error:
            raise NotAvailableError(
                f"{path}: {error.strerror}. {VARIABLE} names a file of scripted readings"
            ) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            what = f"no {error} in it" if isinstance(error, KeyError) else str(error)
            raise NotAvailableError(f"{path}: not a description of simulated devices: {what}") from error


class SimulatedDevice(Device):
    """A scripted device. `elapsed_s` is the position in the script."""

    def __init__(
        self,
        index: int,
        script: Mapping[str, Any],
        elapsed_s: Callable[[], float],
        sleep: Callable[[float], None] = time.sleep,
        path: str = "",
    ) -> None:
        self.index, self._path = index, path
        self.uuid = str(script.get("uuid", f"SIM-{index}"))
        self.name = str(script.get("name", "simulated"))
        self.absent: dict[str, str] = {}
        self._elapsed_s, self._sleep = elapsed_s, sleep
        self._power_average_s = float(script.get("power_average_s", 1.0))
        self._energy_period_s = float(script.get("energy_period_s", 0.1))
        self._reported_xids = 0
        self._steps: list[tuple[float, dict[str, Any], float]] = []
        state: dict[str, Any] = {}
        energy_j, before_s = 0.0, 0.0
        for reading in sorted(script.get("readings") or [{}], key=lambda reading: reading.get("t", 0)):
            unknown = set(reading) - _KNOWN
            if unknown:
                raise ValueError(
                    f"device {index}: unknown reading {sorted(unknown)[0]!r}. Known: {', '.join(sorted(_KNOWN))}"
                )
            start_s = float(reading.get("t", 0))
            energy_j += (state.get("power_W") or 0) * (start_s - before_s)
            state = {**state, "xid": [], "unanswered": [], **reading}
            state["unanswered"] = list(state["unanswered"])
            if isinstance(state.get("throttle"), int):
                state["throttle"] = list(throttle_reasons(state["throttle"]))
            self._steps.append((start_s, state, energy_j))
            before_s = start_s
        self._starts = [start for start, *_ in self._steps]
        for key, name in (("power_W", "power"), ("memory_MiB", "memory"), ("load", "load"), ("throttle", "throttle")):
            if all(state.get(key) is None for _, state, _ in self._steps):
                self.absent[name] = "the script does not tell it"
        self.absent |= dict.fromkeys(script.get("not_supported") or (), "Not Supported")
        for name in (*self.absent, *(name for _, state, _ in self._steps for name in state["unanswered"])):
            if name not in _FIELDS:
                raise ValueError(f"device {index}: no reading {name!r}. Known: {', '.join(_FIELDS)}")

    def sample(self) -> Sample:
        state = self._now()
        used, total = state.get("memory_MiB") or (None, None)
        throttle = state.get("throttle")
        sample = Sample(
            memory_used_mib=None if used is None else used + (state.get("reserve_MiB") or 0),
            memory_total_mib=total,
            load=state.get("load"),
            power_w=self._power_w(state),
            sm_clock_mhz=state.get("sm_clock_MHz"),
            mem_clock_mhz=state.get("mem_clock_MHz"),
            throttle=None if throttle is None else tuple(throttle),
            energy_j=self._energy_j(state),
        )
        return sample._replace(**self._unanswered(state, sample._fields))

    def survey(self) -> Survey:
        state = self._now()
        happened = [
            xid for _, step, _ in self._steps[: bisect_right(self._starts, self._elapsed_s())] for xid in step["xid"]
        ]
        new, self._reported_xids = happened[self._reported_xids :], len(happened)
        processes = state.get("processes")
        if processes is not None:
            processes = tuple(
                DeviceProcess(pid, process.get("memory_MiB"))
                for process in processes
                for pid in (
                    _holders(self.uuid, self.index, self._path) if process["pid"] == "held" else [process["pid"]]
                )
            )
        survey = Survey(temperature_c=state.get("temperature"), ecc=state.get("ecc"), processes=processes)
        if "xid" not in self.absent:
            survey = survey._replace(xid=tuple(new))
        return survey._replace(**self._unanswered(state, survey._fields))

    def _now(self) -> Mapping[str, Any]:
        """Return the present values, once the call has taken its time. Raise DeviceLostError where the script says so."""
        state = self._step_at(self._elapsed_s())[1]
        if state.get("call_ms"):
            self._sleep(state["call_ms"] / 1e3)
        if state.get("lost"):
            raise DeviceLostError(str(state["lost"]))
        return state

    def _step_at(self, elapsed_s: float) -> tuple[float, dict[str, Any], float]:
        return self._steps[max(0, bisect_right(self._starts, elapsed_s) - 1)]

    def _unanswered(self, state: Mapping[str, Any], fields: Sequence[str]) -> dict[str, Any]:
        """Return as None the fields that the device does not support, and those that fail this once."""
        names = [name for name in state["unanswered"] if set(_FIELDS[name]) & {*fields}]
        state["unanswered"][:] = [name for name in state["unanswered"] if name not in names]
        return {field: None for name in (*self.absent, *names) for field in _FIELDS[name] if field in fields}

    def _joules(self, elapsed_s: float) -> float:
        """Return the integral of power up to then. Before the script begins, power was as at its beginning."""
        start_s, state, energy_j = self._step_at(elapsed_s)
        return energy_j + (state.get("power_W") or 0) * (elapsed_s - start_s)

    def _power_w(self, state: Mapping[str, Any]) -> float | None:
        now_s, over_s = self._elapsed_s(), self._power_average_s
        if state.get("power_W") is None or over_s == 0:
            return state.get("power_W")
        return round((self._joules(now_s) - self._joules(now_s - over_s)) / over_s, 3)

    def _energy_j(self, state: Mapping[str, Any]) -> float | None:
        if state.get("energy_J") is not None:
            return float(state["energy_J"])
        if state.get("power_W") is None:
            return None
        now_s, period_s = self._elapsed_s(), self._energy_period_s
        renewals = math.floor(now_s / period_s + 1e-9)
        return self._joules(renewals * period_s) * float(state.get("energy_factor") or 1)


def _holders(uuid: str, index: int, path: str) -> Iterator[int]:
    """Yield the processes that a device was given to, as their environment says.

    A slot of a machine without devices represents the device of the same number, where the file is the same.
    """
    for file in Path("/proc").glob("[0-9]*/environ"):
        try:
            text = file.read_bytes().decode("utf-8", "replace")
        except OSError:  # another user's, or it has ended
            continue
        variables = dict(variable.partition("=")[::2] for variable in text.split("\0"))
        held = variables.get("MILABENCH_DEVICES_HELD", "").split(",")
        slots = held if variables.get(VARIABLE) == path else []
        if uuid in held or any(slot.startswith("cpu-") and slot.endswith(f"-{index}") for slot in slots):
            yield int(file.parent.name)
