"""The facts of this machine: processors, memory, disks and accelerators, and which of those a program may use."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

from ...devices.locks import user_name
from ...devices.registry import VENDORS, DeviceIds, vendor_of, visible_devices
from .procfs import cgroups_of, list_folder, read_text

TYPE_CHECKING = False  # see unpack.py
if TYPE_CHECKING:
    from typing import Any, Mapping


def host_facts(disks: list[str]) -> dict[str, Any]:
    """Return the facts of this machine. An unknown fact is None, with the reason under `absent`."""
    absent: dict[str, str] = {}
    memory = memory_info()
    devices, software = find_accelerators(absent)
    usable, hidden = usable_accelerators(devices, os.environ)
    if devices and not usable:
        absent["devices"] = "%s leaves none of %d" % (" ".join("%s=%s" % pair for pair in hidden.items()), len(devices))
    return {
        "hostname": socket.gethostname(),
        "addresses": addresses(),
        "boot": read_text("/proc/sys/kernel/random/boot_id").strip(),
        "lock_folder": os.environ.get("MILABENCH_LOCK_DIR") or "",
        "user": user_name(),
        "os": os_name(),
        "kernel": os.uname().release,
        "machine": os.uname().machine,
        "python": sys.version.split()[0],
        "time": round(time.time(), 6),
        "cpu": cpu_info(absent),
        "memory_mib": memory.get("MemTotal"),
        "memory_available_mib": memory.get("MemAvailable"),
        "shm_mib": disk_space("/dev/shm", absent),
        "load": list(os.getloadavg()),
        "runnable": runnable_threads(),
        "disk": {path: disk_space(path, absent) for path in disks},
        "devices": [device for device in usable if "lost" not in device],
        "lost": [device for device in usable if "lost" in device],
        "hidden_by": hidden,
        **software,
        "absent": absent,
    }


def runnable_threads() -> int | None:
    """Return how many threads of others run or wait for a processor now. Ours are this thread and our parents' threads."""
    for line in read_text("/proc/stat").splitlines():
        name, _, count = line.partition(" ")
        if name == "procs_running":
            tasks = "/proc/%d/task/" % os.getppid()
            states = (read_text(tasks + task + "/stat").rpartition(")")[2].split() for task in list_folder(tasks))
            return max(0, int(count) - 1 - sum(fields[:1] == ["R"] for fields in states))
    return None


def addresses() -> list[str]:
    """Return the addresses of this machine but for the loopback addresses, as the kernel's routing tables list them.

    The sending address is first: bridges and tunnels come and go, and callers that need one address take the first.
    """
    addresses, last = [], ""
    for line in read_text("/proc/net/fib_trie").splitlines():
        words = line.split()
        if len(words) == 2 and words[0] in ("|--", "+--"):
            last = words[1]
        elif words[:3] == ["/32", "host", "LOCAL"] and not last.startswith("127.") and last not in addresses:
            addresses.append(last)
    for line in read_text("/proc/net/if_inet6").splitlines():
        digits, _, _, scope = line.split()[:4]
        if scope == "00":
            addresses.append(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits)))
    sender = sender_address()
    return sorted(addresses, key=lambda address: address != sender)


def sender_address() -> str:
    """Return the source address for traffic beyond the local networks. Empty without a route. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))  # of a network that nobody has (RFC 5737)
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def os_name() -> str:
    """Return the name of the distribution."""
    for line in read_text("/etc/os-release").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip('"')
    return os.uname().sysname


def memory_info() -> dict[str, int]:
    """Return memory in MiB by the names of /proc/meminfo. The total is limited by cgroups."""
    memory = {}
    for line in read_text("/proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        if rest.strip().endswith("kB"):
            memory[name] = int(rest.split()[0]) // 1024
    limits = [*cgroup_files("memory.max"), *cgroup_files("memory/memory.limit_in_bytes")]
    if "MemTotal" in memory:
        memory["MemTotal"] = min([memory["MemTotal"], *(int(text) >> 20 for text in limits if text.isdigit())])
    return memory


def cgroup_files(name: str) -> list[str]:
    """Return the contents of a control file in our cgroup and all above it. Version 1 names start with their controller."""
    controller, _, file = name.rpartition("/")
    texts = []
    for controllers, path in cgroups_of("self"):
        if controller not in (controllers or [""]):
            continue
        names = [",".join(controllers), controller] if controller else ["", "unified"]
        parts = path.split("/")
        for count in range(len(parts), 0, -1):
            file_of_group = "/".join([*parts[:count], file])
            candidates = [read_text("/sys/fs/cgroup/%s%s" % (base, file_of_group)).strip() for base in names]
            texts += [text for text in candidates if text][:1]
    return texts


def cpu_info(absent: dict[str, str]) -> dict[str, Any]:
    """Return the processor: `count` is limited by affinity and cgroup quotas, at least 1."""
    model, cores, sockets = None, set(), set()
    physical, is_virtual = "", False
    for line in read_text("/proc/cpuinfo").splitlines():
        name, _, value = (part.strip() for part in line.partition(":"))
        if name in ("model name", "Model", "cpu model") and model is None:
            model = value
        elif name == "physical id":
            physical = value
            sockets.add(value)
        elif name == "core id":
            cores.add((physical, value))
        elif name == "flags":
            is_virtual = is_virtual or "hypervisor" in value.split()
    if model is None:
        absent["cpu.model"] = "/proc/cpuinfo does not name it"
    if not cores:
        absent["cpu.cores"] = "/proc/cpuinfo does not tell cores from threads"
    usable = len(os.sched_getaffinity(0))
    quota = cpu_quota()
    return {
        "model": model,
        "count": max(1, min(usable, int(quota) if quota is not None else usable)),
        "affinity": usable,
        "online": os.cpu_count(),
        "quota": quota,
        "cores": len(cores) or None,
        "sockets": len(sockets) or None,
        # Only processors of x86 say so.
        **({"virtual": True} if is_virtual else {}),
    }


def cpu_quota() -> float | None:
    """Return how many processors' time cgroups allow us. None without a limit."""
    limits = [text.partition(" ")[::2] for text in cgroup_files("cpu.max")]
    limits += zip(cgroup_files("cpu/cpu.cfs_quota_us"), cgroup_files("cpu/cpu.cfs_period_us"))
    # `max` and -1 are no number of microseconds: no limit.
    quotas = (int(quota) / int(period) for quota, period in limits if quota.isdigit() and int(period or 0))
    return min(quotas, default=None)


def disk_space(path: str, absent: dict[str, str]) -> dict[str, int] | None:
    """Return the free and the total MiB of the file system where a path is or would be."""
    existing = os.path.abspath(path)
    while not os.path.exists(existing) and existing != "/":
        existing = os.path.dirname(existing)
    try:
        space = os.statvfs(existing)
    except OSError as error:
        absent["disk." + path] = str(error.strerror)
        return None
    block = space.f_frsize
    return {"free_mib": space.f_bavail * block >> 20, "total_mib": space.f_blocks * block >> 20}


FAILURES = (OSError, ValueError, LookupError, TypeError, AttributeError, subprocess.SubprocessError)


def find_accelerators(absent: dict[str, str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the devices of the first vendor that has any, and the versions that belong to all of them.

    Why there are none is written to `absent`.
    """
    reasons = []
    for vendor in VENDORS:
        for name, ask in vendor.inventories:
            try:
                devices = [{"arch": vendor.arch, **device} for device in ask()]
            except FileNotFoundError as error:
                reasons.append("no %s" % (error.filename or name))
                continue
            except FAILURES as error:
                reasons.append("%s: %s" % (name, error))
                continue
            if devices:
                return devices, {name: devices[0][name] for name in ("driver", "cuda") if name in devices[0]}
            reasons.append("%s: none" % name)
    absent["devices"] = "; ".join(reasons)
    return [], {}


def usable_accelerators(
    devices: list[dict[str, Any]], env: Mapping[str, str]
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the devices that programs with this environment may use, in their order, and the variables that hide others.

    CUDA does not count a device that is lost, or that a control group forbids: those behind it have other numbers than NVML's.
    Then, and where they are slices, devices are known by their UUIDs (`visible_as`).
    """
    has_gap = any("lost" in device or "forbidden" in device for device in devices)
    devices = [device for device in devices if "forbidden" not in device]
    if not devices:
        return [], {}
    vendor = vendor_of(devices[0]["arch"])
    ids = [
        DeviceIds(str(device.get("uuid") or ""), tuple((str(piece["uuid"]),) for piece in device.get("slices") or ()))
        for device in devices
    ]
    choices, variables = visible_devices(vendor, ids, env)
    usable = []
    for index, piece in choices:
        device = devices[index]
        if piece is not None:  # a slice (MIG) is listed as a device
            whole = {name: value for name, value in device.items() if name != "slices"}
            device = dict(whole, slice_of=device["uuid"], **device["slices"][piece])
        elif has_gap and device.get("uuid"):
            device = dict(device, visible_as=device["uuid"])
        usable.append(device)
    if any("slice_of" in device for device in usable):
        # Slices of one device share its number, and CUDA knows them by their UUIDs only.
        usable = [dict(device, index=number, visible_as=device["uuid"]) for number, device in enumerate(usable)]
    return usable, variables
