"""Readings of devices, as records of the steps that own them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmate.devices.api import Device, DeviceLostError, Sample, Survey

SILENT_READINGS = 10


@dataclass(slots=True)
class WatchedDevice:
    """A device under watch: under which number its step knows it, and what has been said of it."""

    device: Device
    key: str
    lost: str = ""
    failures: int = 0
    surveyed: dict[str, Any] = field(default_factory=dict)


class DeviceSampler:
    """Reads the devices of one step; `is_ours` tells whether a pid belongs to the group, None when that pid is not seen here."""

    def __init__(
        self, devices: Iterable[tuple[str, Device]], is_ours: Callable[[int], bool | None], say: Callable[[str], None]
    ) -> None:
        self._devices = [WatchedDevice(device=device, key=key) for key, device in devices]
        self._is_ours = is_ours
        self._say = say
        self._said: set[str] = set()

    def __len__(self) -> int:
        return len(self._devices)

    def survey(self) -> None:
        """What is asked once a second; it goes out with the next sample."""
        for one in self._devices:
            if not one.lost:
                try:
                    one.surveyed = _survey_data(one.device.survey(), self._is_ours)
                except DeviceLostError as error:
                    self._lost(one, error)

    def sample(self) -> dict[str, Any]:
        """The `gpudata` of now, by the number of the device; of a device that was lost only that, and only once."""
        found: dict[str, Any] = {}
        for one in self._devices:
            if one.lost:
                continue
            try:
                sample = one.device.sample()
            except DeviceLostError as error:
                self._lost(one, error)
                found[one.key] = {"uuid": one.device.uuid, "lost": one.lost}
                continue
            found[one.key] = {"uuid": one.device.uuid, **_sample_data(sample), **one.surveyed}
            one.surveyed = {}
        return found

    def tell_absent(self) -> None:
        """One message for each kind of reading that devices do not give, however many they are."""
        reasons: dict[tuple[str, str], list[str]] = {}
        for one in self._devices:
            for reading, reason in one.device.absent.items():
                reasons.setdefault((reading, reason), []).append(one.key)
        for (reading, reason), keys in reasons.items():
            if reading not in self._said:
                self._said.add(reading)
                self._say(f"device {_some(keys)}: no reading of {reading}: {reason}")

    def _lost(self, one: WatchedDevice, error: DeviceLostError) -> None:
        one.lost = str(error)
        self._say(f"device {one.key}: its sensors do not answer any more: {error}")


def _some(keys: Sequence[str]) -> str:
    return ", ".join(keys) if len(keys) < 9 else f"{keys[0]} to {keys[-1]}"


def _sample_data(sample: Sample) -> dict[str, Any]:
    data: dict[str, Any] = {}
    if sample.memory_used_mib is not None:
        data["memory"] = [round(sample.memory_used_mib, 1), sample.memory_total_mib]
    if sample.load is not None:
        data["load"] = sample.load
    if sample.power_w is not None:
        data["power_W"] = sample.power_w
    if sample.sm_clock_mhz is not None:
        data["sm_clock_MHz"] = sample.sm_clock_mhz
    if sample.mem_clock_mhz is not None:
        data["mem_clock_MHz"] = sample.mem_clock_mhz
    if sample.throttle is not None:
        data["throttle"] = list(sample.throttle)
    if sample.energy_j is not None:
        data["energy_J"] = round(sample.energy_j, 3)
    return data


def _survey_data(survey: Survey, is_ours: Callable[[int], bool | None]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    if survey.temperature_c is not None:
        data["temperature"] = survey.temperature_c
    if survey.ecc is not None:
        data["ecc"] = dict(survey.ecc)
    if survey.xid:
        data["xid"] = list(survey.xid)
    if survey.processes is not None:
        data["processes"] = [
            {
                "pid": one.pid,
                **({} if one.memory_mib is None else {"memory_MiB": round(one.memory_mib, 1)}),
                **({} if (ours := is_ours(one.pid)) is None else {"own": ours}),
            }
            for one in survey.processes
        ]
    return data
