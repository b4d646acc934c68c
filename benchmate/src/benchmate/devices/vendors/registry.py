"""All vendors, and which of a vendor's devices a program may use."""

from __future__ import annotations

from importlib import import_module
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .vendor import Vendor

# In the order in which they are asked. A new vendor is a line here and a file of that name, which defines VENDOR.
NAMES = (
    "nvidia",
    "amd",
    "intel",
    "habana",
)
VENDORS: Tuple[Vendor, ...] = tuple(import_module("." + name, __package__).VENDOR for name in NAMES)
CPU = Vendor()
ARCHS = (*(vendor.arch for vendor in VENDORS), CPU.arch)


def vendor_of(arch: str) -> Vendor:
    """Return the vendor that an arch belongs to. For other names, the processor."""
    return next((vendor for vendor in VENDORS if vendor.arch == arch), CPU)


def displaced_by(variables: Iterable[str]) -> List[str]:
    """Return the variables that a step with these variables must not inherit.

    A variable that names devices of the machine displaces all of its vendor: an inherited one would be relative to it
    or overrule it.
    """
    given = set(variables)
    return [name for vendor in VENDORS if given & set(vendor.visible_variables) for name in vendor.visible_variables]


class DeviceIds(NamedTuple):
    """The names of a device: its UUID, and for each of its slices (MIG) the slice's UUID and older names."""

    uuid: str
    slices: Tuple[Tuple[str, ...], ...] = ()


Choice = Tuple[int, Optional[int]]
"""The place of a device in the list, and of a slice in that device. None for the whole device."""


def visible_devices(
    vendor: Vendor, devices: Sequence[DeviceIds], env: Mapping[str, str]
) -> Tuple[List[Choice], Dict[str, str]]:
    """Return the devices that programs with this environment may use, in their order, and the variables read.

    The slices (MIG) of a device take its place: CUDA cannot use it as a whole.
    """
    variables = vendor.effective({name: env[name] for name in vendor.visible_variables if name in env})
    variables = variables or given_by_slurm(env, len(devices))
    choices: List[Choice] = [(index, None) for index in range(len(devices))]
    for value in variables.values():
        choices = select_devices(vendor, devices, value, choices)
    usable: List[Choice] = []
    for index, piece in choices:
        pieces = range(len(devices[index].slices)) if piece is None else ()
        usable += [(index, number) for number in pieces] or [(index, piece)]
    return list(dict.fromkeys(usable)), variables


def given_by_slurm(env: Mapping[str, str], count: int) -> Dict[str, str]:
    """Return the variable by which Slurm says which of `count` devices a step or job has, where no vendor's says it.

    A site may have switched those off, or its Slurm not know them. Empty where all are given: they are counted over the whole
    node, and the devices that we see may be ours alone.
    """
    for name in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS"):
        words = env.get(name, "").split(",")
        if all(word.isdigit() for word in words):
            return {name: env[name]} if len(words) < count else {}
    return {}


def select_devices(vendor: Vendor, devices: Sequence[DeviceIds], value: str, choices: Sequence[Choice]) -> List[Choice]:
    """Return the choices that the value of a variable names, in its order.

    An entry is a number, a UUID or its beginning, or a slice's. The list ends before the first entry that names nothing, -1
    for one, as CUDA has it. An empty value names none, `all` and `*` all.
    """
    words = vendor.words(value)
    if words is None:
        return list(choices)
    selected: List[Choice] = []
    for word in words:
        choice = find_device(devices, word, choices)
        if choice is None:
            break
        if choice not in selected:
            selected.append(choice)
    return selected


def find_device(devices: Sequence[DeviceIds], word: str, choices: Sequence[Choice]) -> Optional[Choice]:
    """Return the choice of a number or an id. None when there is none."""
    if word.isdigit():
        return choices[int(word)] if int(word) < len(choices) else None
    if not word or word.startswith("-"):
        return None
    for index, piece in choices:
        device = devices[index]
        if piece is None and device.uuid.startswith(word):
            return index, None
        for number, names in enumerate(device.slices):
            if piece in (None, number) and names and (names[0].startswith(word) or word in names[1:]):
                return index, number
    return None
