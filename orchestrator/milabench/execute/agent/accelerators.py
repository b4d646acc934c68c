"""Which accelerators this machine has, and which of them a program may use."""

from __future__ import annotations

import subprocess
from typing import Any, Dict, List, Mapping, Tuple

from ...devices.registry import VENDORS, DeviceIds, visible_devices

FAILURES = (OSError, ValueError, LookupError, TypeError, AttributeError, subprocess.SubprocessError)


def find_accelerators(absent: Dict[str, str]) -> Tuple[List[Dict[str, Any]], Dict[str, Any]]:
    """Return the devices, and the versions that belong to all of them; of the first vendor that has any.

    Why there are none is written to `absent`.
    """
    reasons = []
    for vendor in VENDORS:
        for name, ask in vendor.inventories():
            try:
                devices = ask()
            except FAILURES as error:
                reasons.append("%s: %s" % (name, error))
                continue
            if devices:
                return devices, {name: devices[0][name] for name in ("driver", "cuda") if name in devices[0]}
            reasons.append("%s: none" % name)
    absent["devices"] = "; ".join(reasons)
    return [], {}


def usable_accelerators(
    devices: List[Dict[str, Any]], env: Mapping[str, str]
) -> Tuple[List[Dict[str, Any]], Dict[str, str]]:
    """Return the devices that programs with this environment may use, in their order, and the variables that hide others."""
    vendor = next((vendor for vendor in VENDORS if devices and vendor.arch == devices[0]["arch"]), None)
    if vendor is None:
        return devices, {}
    ids = [
        DeviceIds(str(device.get("uuid") or ""), tuple((str(piece["uuid"]),) for piece in device.get("slices") or ()))
        for device in devices
    ]
    choices, variables = visible_devices(vendor, ids, env)
    usable = [
        devices[index] if piece is None else slice_of(devices[index], devices[index]["slices"][piece])
        for index, piece in choices
    ]
    if any("slice_of" in device for device in usable):
        # Slices of one device share its number, and CUDA knows them by their UUIDs only.
        usable = [dict(device, index=number, visible_as=device["uuid"]) for number, device in enumerate(usable)]
    return usable, variables


def slice_of(device: Mapping[str, Any], piece: Mapping[str, Any]) -> Dict[str, Any]:
    """Return a slice (MIG) as a device."""
    whole = {name: value for name, value in device.items() if name != "slices"}
    return dict(whole, slice_of=device["uuid"], **piece)
