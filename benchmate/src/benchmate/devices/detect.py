"""Which devices there are, and which of them this process may see."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmate.devices.api import Device, NotAvailableError, Vendor
from benchmate.devices.none import NoVendor
from benchmate.devices.simulated import VARIABLE, SimulatedVendor

# Each filters what the ones before it left, so that its indices count from those.
VISIBLE_DEVICES = {
    "cuda": ("CUDA_VISIBLE_DEVICES",),
    "rocm": ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    "xpu": ("ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR"),
    "hpu": ("HABANA_VISIBLE_DEVICES", "HABANA_VISIBLE_MODULES"),
    "simulated": ("CUDA_VISIBLE_DEVICES",),
}


def open_vendor(arch: str, env: Mapping[str, str], simulated: str = "") -> tuple[Vendor, str]:
    """The vendor of this machine, and one line when there should be devices but they cannot be read.

    `arch` cuda, rocm, xpu, hpu; `auto`: the first that answers; `cpu`: none. A file of simulated devices, given here or by
    MILABENCH_SIMULATED_DEVICES, takes the place of all of them.
    """
    path = simulated or env.get(VARIABLE, "")
    try:
        if path:
            return SimulatedVendor(path), ""
        if arch == "auto":
            return _told(_first_that_answers())
        if arch in _VENDORS:
            return _told(_VENDORS[arch]())
    except NotAvailableError as error:
        return NoVendor(), f"devices cannot be read: {error}"
    return NoVendor(), ""


def _told(vendor: Vendor) -> tuple[Vendor, str]:
    """The vendor, and one line on devices that its driver lists and that do not answer."""
    lost: Mapping[int, str] = getattr(vendor, "lost", {})
    return vendor, "; ".join(f"device {index} cannot be read: {why}" for index, why in lost.items())


def _first_that_answers() -> Vendor:
    for make in _VENDORS.values():
        try:
            vendor = make()
        except (NotAvailableError, ValueError, KeyError, TypeError, AttributeError):
            continue
        if vendor.devices:
            return vendor
    return NoVendor()


def _nvidia() -> Vendor:
    from benchmate.devices.nvidia import NvidiaVendor

    return NvidiaVendor()


def _amd() -> Vendor:
    from benchmate.devices.amd import amd

    return amd()


def _intel() -> Vendor:
    from benchmate.devices.intel import intel

    return intel()


def _habana() -> Vendor:
    from benchmate.devices.habana import habana

    return habana()


_VENDORS: Mapping[str, Callable[[], Vendor]] = {"cuda": _nvidia, "rocm": _amd, "xpu": _intel, "hpu": _habana}


def visible(devices: Sequence[Device], env: Mapping[str, str], arch: str) -> tuple[Device, ...]:
    """The devices that a program with this environment may use, in the order in which it numbers them."""
    found = tuple(devices)
    for variable in VISIBLE_DEVICES.get(arch, ()):
        if variable in env:
            found = chosen(found, env[variable])
    return found


def chosen(devices: Sequence[Device], text: str) -> tuple[Device, ...]:
    """The devices that a visible-devices variable with this value names.

    Numbers, UUIDs (whole or their beginning) and UUIDs of MIG slices; spaces mean nothing; an empty value means none, and
    the list ends before the first entry that names nothing, -1 for one, as CUDA has it. `all` means all.
    """
    words = [word.strip() for word in text.rpartition(":")[2].split(",")] if text.startswith("level_zero:") else None
    words = [word.strip() for word in text.split(",")] if words is None else words
    if words in (["all"], ["*"]):
        return tuple(devices)
    found: list[Device] = []
    for word in words:
        device = named(devices, word)
        if device is None:
            break
        if device not in found:
            found.append(device)
    return tuple(found)


def named(devices: Sequence[Device], word: str) -> Device | None:
    """The device, or the slice of one, that a number or a UUID stands for."""
    if word.isdigit():
        return devices[int(word)] if int(word) < len(devices) else None
    if not word or word.startswith("-"):
        return None
    slices: list[Any] = [piece for device in devices for piece in getattr(device, "slices", ())]
    for candidate in (*devices, *slices):
        if candidate.uuid.startswith(word) or word in getattr(candidate, "aliases", ()):
            return candidate
    return None
