"""Memory for a replay: the storages that were there before it, and views of any storage, filled with data that is safe."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from benchmate.ops.device import free_bytes
from benchmate.ops.errors import OpsError
from benchmate.ops.traces.plan import Plan, TensorView
from benchmate.ops.traces.schema import INTEGERS, Trace, contiguous, tensor_refs

SCALE = 0.1  # floating point is uniform in [0, 0.1): variances stay positive, sums of products small


class DeviceMap:
    """Where what was recorded on a device is replayed."""

    def __init__(self, trace: Trace, target: str) -> None:
        names = {ref.device for node in trace.nodes for ref in tensor_refs(node.inputs)}
        # Of a trace of an accelerator the host's tensors stay with the host.
        self._has_accelerator = any(not name.startswith("cpu") for name in names if name)
        self.target = target

    def of(self, recorded: str) -> str:
        """The device here for the name of a device there."""
        return "cpu" if recorded.startswith("cpu") and self._has_accelerator else self.target


class ReplayMemory:
    """The storages of a plan."""

    def __init__(self, plan: Plan, devices: DeviceMap, ranges: Mapping[int, tuple[int, int]], seed: int) -> None:
        import torch

        self.plan, self.devices, self.ranges = plan, devices, ranges
        self._generators: dict[str, Any] = {}
        self._seed = seed
        self._dtypes = {}
        for view in reversed(plan.views):
            self._dtypes[view.generation] = view.ref.dtype
        device_of = {view.generation: devices.of(view.ref.device) for view in plan.views}
        self._check_fits(device_of)
        self.storages: dict[int, Any] = {}
        self.substitutes: dict[int, Any] = {}
        with torch.no_grad():
            for number in sorted(plan.given):
                self.storages[number] = self._filled(number, plan.sizes[number], device_of[number]).untyped_storage()

    def view(self, view: TensorView, storage: Any) -> Any:
        """The tensor of a slot in a storage; None where it does not fit."""
        import torch

        ref = view.ref
        if storage is None or storage.nbytes() < ref.end:
            return None
        strides = ref.strides if ref.strides is not None else contiguous(ref.shape)
        empty = torch.empty(0, dtype=dtype_of(ref.dtype), device=storage.device)
        return empty.set_(storage, ref.offset, ref.shape, strides)

    def substitute(self, number: int) -> Any:
        """A tensor for a slot that no operator gave one that fits; the same in every iteration."""
        import torch

        if number not in self.substitutes:
            view = self.plan.views[number]
            ref = view.ref
            device = self.devices.of(ref.device)
            strides = ref.strides if ref.strides is not None else contiguous(ref.shape)
            flat = self._filled(view.generation, max(ref.end, ref.itemsize), device, ref.dtype)
            with torch.no_grad():
                self.substitutes[number] = torch.empty(0, dtype=flat.dtype, device=flat.device).set_(
                    flat.untyped_storage(), ref.offset, ref.shape, strides
                )
        return self.substitutes[number]

    def _filled(self, number: int, size: int, device: str, dtype_name: str | None = None) -> Any:
        import torch

        name = dtype_name or self._dtypes[number]
        dtype = dtype_of(name)
        count = math.ceil(size / dtype.itemsize)
        generator = self._generator(device)
        if name in INTEGERS:
            limit = self.plan.bounds.get(number)
            low, high = (0, limit) if limit is not None else self.ranges.get(number, (0, 1))
            if name == "bool" or high - low < 2:
                return torch.full((count,), low, dtype=dtype, device=device)
            return torch.randint(low, high, (count,), device=device, generator=generator).to(dtype)
        made_as = torch.float32 if dtype.itemsize == 1 else dtype
        return (torch.rand(count, dtype=made_as, device=device, generator=generator) * SCALE).to(dtype)

    def _generator(self, device: str) -> Any:
        import torch

        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self._seed)
        return self._generators[device]

    def _check_fits(self, device_of: Mapping[int, str]) -> None:
        needed: dict[str, int] = {}
        for number in self.plan.given:
            device = device_of[number]
            needed[device] = needed.get(device, 0) + self.plan.sizes[number]
        for device, count in needed.items():
            free = free_bytes(device)
            if free is not None and count > free:
                raise OpsError(
                    f"the trace's parameters and inputs need {count / 2**30:.1f} GiB, {device} has {free / 2**30:.1f} GiB "
                    "free; replay it where there is more"
                )


def dtype_of(name: str) -> Any:
    """torch's element type of a name. Raises OpsError for one that it does not have."""
    import torch

    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise OpsError(f"this torch ({torch.__version__}) has no element type '{name}' of the trace")
    return found
