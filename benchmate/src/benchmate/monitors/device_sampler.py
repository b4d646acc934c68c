"""Samples of devices, as records of the steps that hold them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from benchmate.devices.api import Device, DeviceLostError
from benchmate.devices.vendors.vendor import Sample, Survey

IsOurs = Callable[[int], "bool | None"]
"""Whether a pid belongs to the group of steps. None when that process is not visible here."""


@dataclass(slots=True)
class WatchedDevice:
    """A device of a step: its number in the step, and its unsent readings."""

    device: Device
    key: str
    lost: str = ""
    survey: dict[str, object] = field(default_factory=dict)


class DeviceSampler:
    """Samples the devices of a step."""

    def __init__(
        self, devices: Iterable[tuple[str, Device]], is_ours: IsOurs, send_message: Callable[[str], None]
    ) -> None:
        self._devices = [WatchedDevice(device=device, key=key) for key, device in devices]
        self._is_ours = is_ours
        self._send_message = send_message
        self._reported_readings: set[str] = set()

    def __len__(self) -> int:
        return len(self._devices)

    def survey(self) -> None:
        """Read the values of once a second. They are sent with the next sample."""
        for watched in self._devices:
            if not watched.lost:
                try:
                    watched.survey = _survey_data(watched.device.survey(), self._is_ours)
                except DeviceLostError as error:
                    self._lose(watched, error)

    def sample(self) -> dict[str, object]:
        """Return the `gpudata` of now, by the number of the device. Of a device that was lost only that, and only once."""
        data: dict[str, object] = {}
        for watched in self._devices:
            if watched.lost:
                continue
            try:
                sample = watched.device.sample()
            except DeviceLostError as error:
                self._lose(watched, error)
                data[watched.key] = {"uuid": watched.device.uuid, "lost": watched.lost}
                continue
            data[watched.key] = {"uuid": watched.device.uuid, **_sample_data(sample), **watched.survey}
            watched.survey = {}
        return data

    def report_absent(self) -> None:
        """Send a message for each kind of reading that devices do not give, however many they are."""
        keys_by_reason: dict[tuple[str, str], list[str]] = {}
        for watched in self._devices:
            for reading, reason in watched.device.absent.items():
                keys_by_reason.setdefault((reading, reason), []).append(watched.key)
        for (reading, reason), keys in keys_by_reason.items():
            if reading not in self._reported_readings:
                self._reported_readings.add(reading)
                self._send_message(f"device {_list_keys(keys)}: no reading of {reading}: {reason}")

    def _lose(self, watched: WatchedDevice, error: DeviceLostError) -> None:
        watched.lost = str(error)
        self._send_message(f"device {watched.key}: its sensors do not answer any more: {error}")


def _list_keys(keys: Sequence[str]) -> str:
    return ", ".join(keys) if len(keys) < 9 else f"{keys[0]} to {keys[-1]}"


def _sample_data(sample: Sample) -> dict[str, object]:
    memory = None
    if sample.memory_used_mib is not None:
        memory = [round(sample.memory_used_mib, 1), sample.memory_total_mib]
    return _known(
        memory=memory,
        load=sample.load,
        power_W=sample.power_w,
        sm_clock_MHz=sample.sm_clock_mhz,
        mem_clock_MHz=sample.mem_clock_mhz,
        throttle=None if sample.throttle is None else list(sample.throttle),
        energy_J=None if sample.energy_j is None else round(sample.energy_j, 3),
    )


def _survey_data(survey: Survey, is_ours: IsOurs) -> dict[str, object]:
    processes = survey.processes
    return _known(
        temperature=survey.temperature_c,
        ecc=None if survey.ecc is None else dict(survey.ecc),
        xid=list(survey.xid) or None,
        processes=None
        if processes is None
        else [
            _known(
                pid=process.pid,
                memory_MiB=None if process.memory_mib is None else round(process.memory_mib, 1),
                own=is_ours(process.pid),
            )
            for process in processes
        ],
    )


def _known(**readings: object) -> dict[str, object]:
    """Return the readings that the device gave. A reading that is not available is absent, not zero."""
    return {name: value for name, value in readings.items() if value is not None}
