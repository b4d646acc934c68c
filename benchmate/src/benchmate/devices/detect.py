"""Which devices there are, and which of them this process may see."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from benchmate.devices.amdsmi import AmdVendor
from benchmate.devices.api import FAILURES, CommandVendor, Device, NotAvailableError, SensorBackend, describe_failure
from benchmate.devices.nvidia import NvidiaVendor
from benchmate.devices.simulated import VARIABLE, SimulatedVendor
from benchmate.devices.vendors.registry import VENDORS, Choice, DeviceIds, find_device, vendor_of, visible_devices
from benchmate.devices.vendors.vendor import ReadAll

# What reads more, and more often, than a command line can.
_LIBRARIES: Mapping[str, Sequence[Callable[[], SensorBackend]]] = {"cuda": (NvidiaVendor,), "rocm": (AmdVendor,)}


def open_vendor(arch: str, env: Mapping[str, str], simulated: str = "") -> tuple[SensorBackend, str]:
    """Return the vendor of this machine, and a line when there should be devices but they cannot be read.

    `arch`: a name of vendors/registry.py. `auto`: the first that answers. `cpu`: none. A file of simulated devices, given here
    or by MILABENCH_SIMULATED_DEVICES, takes the place of all of them.
    """
    path = simulated or env.get(VARIABLE, "")
    try:
        backend = SimulatedVendor(path) if path else _open(arch)
    except NotAvailableError as error:
        return SensorBackend(), f"devices cannot be read: {error}"
    return backend, "; ".join(f"device {index} cannot be read: {why}" for index, why in backend.lost.items())


def _open(arch: str) -> SensorBackend:
    """Return a vendor's devices, by its Python library where it exists. Raise NotAvailableError unless `arch` is `auto`."""
    reasons = []
    for vendor in VENDORS:
        if arch not in ("auto", vendor.arch):
            continue
        ways: list[Callable[[], SensorBackend | ReadAll]] = [*_LIBRARIES.get(vendor.arch, ()), *vendor.readers]
        for open_way in ways:
            try:
                opened = open_way()
                backend = opened if isinstance(opened, SensorBackend) else CommandVendor(vendor.arch, opened)
            except (NotAvailableError, *FAILURES) as error:
                reasons.append(describe_failure(error))
            else:
                # NVML answers on a machine whose driver has no device: another vendor may have some.
                if backend.devices or arch != "auto":
                    return backend
    if arch in (vendor.arch for vendor in VENDORS):
        raise NotAvailableError("; ".join(reasons) or f"{arch}: nothing reads its devices")
    return SensorBackend()


def visible(devices: Sequence[Device], env: Mapping[str, str], arch: str) -> tuple[Device, ...]:
    """Return the devices that a program with this environment may use, in the order in which it numbers them."""
    # Simulated devices are hidden as those of CUDA are, unless their file says whose they are.
    vendor = vendor_of("cuda" if arch == "simulated" else arch)
    return tuple(_device(devices, choice) for choice in visible_devices(vendor, _ids(devices), env)[0])


def named(devices: Sequence[Device], word: str) -> Device | None:
    """Return the device or slice of a number or a UUID."""
    choice = find_device(_ids(devices), word, [(index, None) for index in range(len(devices))])
    return None if choice is None else _device(devices, choice)


def _ids(devices: Sequence[Device]) -> list[DeviceIds]:
    return [
        DeviceIds(device.uuid, tuple((piece.uuid, *piece.aliases) for piece in device.slices)) for device in devices
    ]


def _device(devices: Sequence[Device], choice: Choice) -> Device:
    index, piece = choice
    return devices[index] if piece is None else devices[index].slices[piece]
