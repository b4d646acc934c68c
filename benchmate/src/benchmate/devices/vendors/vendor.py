"""What a vendor's file has to say: names and options, how devices are asked what they are and what they do."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple


class DeviceProcess(NamedTuple):
    """A process that computes on a device; `memory_mib` None where the driver hides it."""

    pid: int
    memory_mib: Optional[float] = None


class Sample(NamedTuple):
    """One look at a device, cheap enough for ten a second. None: it could not be read, never zero in its place.

    `memory_used_mib` and `memory_total_mib` in MiB, of all processes on the device; `load` the share, 0 to 1, of the last
    sampling period in which something ran; `power_w` in watts; clocks in MHz; `throttle` the reasons (THROTTLE_REASONS) for
    which clocks are not higher, empty when there is none; `energy_j` joules of the board since some point in the past.
    """

    memory_used_mib: Optional[float] = None
    memory_total_mib: Optional[float] = None
    load: Optional[float] = None
    power_w: Optional[float] = None
    sm_clock_mhz: Optional[int] = None
    mem_clock_mhz: Optional[int] = None
    throttle: Optional[Tuple[str, ...]] = None
    energy_j: Optional[float] = None


class Survey(NamedTuple):
    """What changes slowly or costs more to ask, once a second. None: it could not be read.

    `temperature_c` of the die in degrees Celsius; `ecc` counts of corrected and uncorrected memory errors since the
    driver was loaded; `xid` the driver's error numbers since the last survey; `processes` those that compute on it.
    """

    temperature_c: Optional[float] = None
    ecc: Optional[Mapping[str, int]] = None
    xid: Tuple[int, ...] = ()
    processes: Optional[Tuple[DeviceProcess, ...]] = None


class Reading(NamedTuple):
    """What a vendor's tool tells of one device at one moment; `device` is its number."""

    device: int
    uuid: str
    name: str
    sample: Sample
    survey: Survey = Survey()


ReadAll = Callable[[], Sequence[Reading]]
Inventory = List[Dict[str, Any]]
"""The devices, as protocol.md describes `facts`; each has the versions that belong to all of them."""


class Vendor:
    """A machine without accelerators; each vendor's class overrides what is different about it."""

    arch = "cpu"
    """What records, plans and options call it."""
    visible_variables: Tuple[str, ...] = ()
    """Which variables hide devices from programs. Each counts from what those before it left."""
    assigned_variable = ""
    """The one by which a plan gives devices to a step."""
    collective = "gloo"
    """The collective communication library."""
    apptainer_options: Tuple[str, ...] = ()
    enroot_environment: Mapping[str, str] = {}
    inventories: Tuple[Tuple[str, Callable[[], Inventory]], ...] = ()
    """The ways to ask what the devices are, the best first, each with its name.

    They raise OSError, ValueError, LookupError, TypeError, AttributeError or SubprocessError where they do not work.
    """
    readers: Tuple[Callable[[], ReadAll], ...] = ()
    """The command lines that tell what the devices do, the best first, as what opens each of them; they raise the same."""

    @property
    def torch_device(self) -> str:
        """What torch calls its devices."""
        return self.arch

    def effective(self, variables: Dict[str, str]) -> Dict[str, str]:
        """Return those of the set variables that the vendor's runtime reads."""
        return variables

    def words(self, value: str) -> Optional[List[str]]:
        """Return the entries of a variable's value, each a number or an id; None when it means all devices."""
        words = [word.strip() for word in value.split(",")]
        return None if words in (["all"], ["*"]) else words

    def assigned_environment(self, ids: Sequence[str]) -> Dict[str, str]:
        """Return the variables that give a step these devices."""
        return {self.assigned_variable: ",".join(ids)} if self.assigned_variable else {}

    def container_environment(self, env: Mapping[str, str], count: int) -> Dict[str, str]:
        """Return what changes of a step's environment in a container that has only its own devices, so many."""
        return {}

    def container_options(self, engine: str, ids: Sequence[str]) -> Tuple[str, ...]:
        """Return the options with which docker or podman let a container see these devices, of which there are some."""
        return ()
