"""The interface of a vendor's file: names and options, how devices report their facts and readings."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple


class DeviceProcess(NamedTuple):
    """A process that computes on a device. `memory_mib` None where the driver hides it."""

    pid: int
    memory_mib: Optional[float] = None


class Sample(NamedTuple):
    """A reading of a device, cheap enough for ten a second. None: it could not be read, never zero in its place.

    `memory_used_mib` and `memory_total_mib` in MiB, of all processes on the device. `load` the share, 0 to 1, of the last
    sampling period in which something ran. `power_w` in watts. Clocks in MHz. `throttle` the reasons (THROTTLE_REASONS) for
    which clocks are not higher, empty when there is none. `energy_j` joules of the board since some point in the past.
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
    """Readings that change slowly or cost more, once a second. None: it could not be read.

    `temperature_c` of the die in degrees Celsius. `ecc` counts of corrected and uncorrected memory errors since the
    driver was loaded. `xid` the driver's error numbers since the last survey. `processes` those that compute on it.
    """

    temperature_c: Optional[float] = None
    ecc: Optional[Mapping[str, int]] = None
    xid: Tuple[int, ...] = ()
    processes: Optional[Tuple[DeviceProcess, ...]] = None


class Reading(NamedTuple):
    """A vendor tool's reading of a device at a moment. `device` is its number."""

    device: int
    uuid: str
    name: str
    sample: Sample
    survey: Survey = Survey()


ReadAll = Callable[[], Sequence[Reading]]
Inventory = List[Dict[str, Any]]
"""The devices, as protocol.md describes `facts`. Each has the versions that belong to all of them."""


class Vendor:
    """A machine without accelerators. Each vendor's class overrides its differences."""

    arch = "cpu"
    """Its name in records, plans and options."""
    visible_variables: Tuple[str, ...] = ()
    """The variables that hide devices from programs. Each counts from the rest that earlier ones left."""
    assigned_variable = ""
    """The variable by which a plan gives devices to a step."""
    collective = "gloo"
    """The collective communication library."""
    apptainer_options: Tuple[str, ...] = ()
    enroot_environment: Mapping[str, str] = {}
    inventories: Tuple[Tuple[str, Callable[[], Inventory]], ...] = ()
    """The ways to list the devices, the best first, each with its name.

    They raise OSError, ValueError, LookupError, TypeError, AttributeError or SubprocessError where they do not work.
    """
    readers: Tuple[Callable[[], ReadAll], ...] = ()
    """The command lines that read the devices, the best first, each as the function that opens it. They raise the same."""

    @property
    def torch_device(self) -> str:
        """The name of its devices in torch."""
        return self.arch

    def effective(self, variables: Dict[str, str]) -> Dict[str, str]:
        """Return the set variables that the vendor's runtime reads."""
        return variables

    def words(self, value: str) -> Optional[List[str]]:
        """Return the entries of a variable's value, each a number or an id. None when it means all devices."""
        words = [word.strip() for word in value.split(",")]
        return None if words in (["all"], ["*"]) else words

    def assigned_environment(self, ids: Sequence[str]) -> Dict[str, str]:
        """Return the variables that give a step these devices."""
        return {self.assigned_variable: ",".join(ids)} if self.assigned_variable else {}

    def container_environment(self, env: Mapping[str, str], count: int) -> Dict[str, str]:
        """Return the changes of a step's environment in a container that has only its own devices, with their number."""
        return {}

    def container_options(self, engine: str, ids: Sequence[str]) -> Tuple[str, ...]:
        """Return the options with which docker or podman let a container see these devices, of which there are some."""
        return ()
