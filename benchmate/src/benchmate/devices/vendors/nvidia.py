"""NVIDIA."""

from __future__ import annotations

from typing import Dict, Mapping, Sequence, Tuple

from .command import number, table_rows, whole
from .vendor import Inventory, Vendor


def by_library() -> Inventory:
    """Return the devices as NVML numbers them, which is by PCI address."""
    from .nvml import nvml_inventory

    return nvml_inventory()


def inventory_by_nvidia_smi() -> Inventory:
    """Return the devices as nvidia-smi tells them."""
    fields = "index,uuid,name,memory.total,driver_version,power.limit,power.default_limit,pci.bus_id,ecc.mode.current"
    return [
        {
            "index": int(index),
            "uuid": uuid,
            "name": name,
            "memory_mib": whole(memory),
            "driver": driver,
            "power_limit_w": number(limit),
            "power_limit_default_w": number(default),
            "pci": pci,
            "ecc": {"Enabled": True, "Disabled": False}.get(ecc),
        }
        for index, uuid, name, memory, driver, limit, default, pci, ecc in table_rows(
            "nvidia-smi", "--query-gpu=" + fields, "--format=csv,noheader,nounits"
        )
    ]


class Nvidia(Vendor):
    """GPUs with CUDA. The instruments read them by pynvml, see benchmate/devices/nvidia.py."""

    arch = "cuda"
    visible_variables = ("CUDA_VISIBLE_DEVICES",)
    assigned_variable = "CUDA_VISIBLE_DEVICES"
    collective = "nccl"
    apptainer_options = ("--nv",)
    enroot_environment: Mapping[str, str] = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "all"}
    inventories = (("nvidia by library", by_library), ("nvidia by command", inventory_by_nvidia_smi))

    def assigned_environment(self, ids: Sequence[str]) -> Dict[str, str]:
        # CUDA numbers devices by speed, nvidia-smi and we by PCI address.
        return {**super().assigned_environment(ids), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}

    def container_environment(self, env: Mapping[str, str], count: int) -> Dict[str, str]:
        """Return the numbers inside a container, from 0: it has only these devices."""
        if self.assigned_variable not in env:
            return {}
        return {self.assigned_variable: ",".join(map(str, range(count)))}

    def container_options(self, engine: str, ids: Sequence[str]) -> Tuple[str, ...]:
        """Return the options that name devices: docker's own, or podman's for the container device interface."""
        if engine == "docker":
            # The value is a line of comma-separated values itself: without the quotes only the first device counts.
            return ('--gpus="device=%s"' % ",".join(ids),)
        return tuple("--device=nvidia.com/gpu=%s" % one for one in ids)


VENDOR = Nvidia()
