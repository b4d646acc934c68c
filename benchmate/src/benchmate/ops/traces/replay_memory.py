"""Memory for a replay: the storages that were there before it, and views of any storage, filled with data that is safe."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping

from benchmate.ops.device import free_bytes
from benchmate.ops.errors import OpsError
from benchmate.ops.traces.plan import Plan, TensorView
from benchmate.ops.traces.schema import INTEGERS, TensorRef, Trace, contiguous, tensor_refs
from benchmate.ops.types import DType, Generator, Storage, Tensor

DeviceOf = Callable[[str], str]
SCALE = 0.1  # floating point is uniform in [0, 0.1): variances stay positive, sums of products small


def map_devices(trace: Trace, target: str) -> DeviceOf:
    """Return the device of a replay for the name of one of its recording."""
    names = {ref.device for node in trace.nodes for ref in tensor_refs(node.inputs)}
    # Of a trace of an accelerator the host's tensors stay with the host.
    has_accelerator = any(not name.startswith("cpu") for name in names if name)
    return lambda name: "cpu" if has_accelerator and name.startswith("cpu") else target


class ReplayMemory:
    """The storages of a plan."""

    def __init__(self, plan: Plan, device_of: DeviceOf, ranges: Mapping[int, tuple[int, int]], seed: int) -> None:
        self.plan, self.device_of, self.ranges = plan, device_of, ranges
        self._generators: dict[str, Generator] = {}
        self._seed = seed
        self._dtypes = {view.generation: view.ref.dtype for view in reversed(plan.views)}
        devices = {view.generation: device_of(view.ref.device) for view in plan.views}
        self._check_fits(devices)
        self.storages: dict[int, Storage] = {}
        self.substitutes: dict[int, Tensor] = {}
        for number in sorted(plan.given):
            filled = self._fill(number, plan.sizes[number], devices[number])
            self.storages[number] = filled.untyped_storage()

    def view(self, view: TensorView, storage: Storage | None) -> Tensor | None:
        """Return the tensor of a slot in a storage; None where it does not fit."""
        return None if storage is None or storage.nbytes() < view.ref.end else _view_of(storage, view.ref)

    def substitute(self, number: int) -> Tensor:
        """Return a tensor for a slot that no operator gave one that fits; the same in every iteration."""
        if number not in self.substitutes:
            view = self.plan.views[number]
            ref = view.ref
            flat = self._fill(view.generation, max(ref.end, ref.itemsize), self.device_of(ref.device), ref.dtype)
            self.substitutes[number] = _view_of(flat.untyped_storage(), ref)
        return self.substitutes[number]

    def _fill(self, number: int, size: int, device: str, dtype_name: str | None = None) -> Tensor:
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
        drawn_as = torch.float32 if dtype.itemsize == 1 else dtype
        return (torch.rand(count, dtype=drawn_as, device=device, generator=generator) * SCALE).to(dtype)

    def _generator(self, device: str) -> Generator:
        import torch

        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self._seed)
        return self._generators[device]

    def _check_fits(self, devices: Mapping[int, str]) -> None:
        needed: Counter[str] = Counter()
        for number in self.plan.given:
            needed[devices[number]] += self.plan.sizes[number]
        for device, count in needed.items():
            free = free_bytes(device)
            if free is not None and count > free:
                raise OpsError(
                    f"the trace's parameters and inputs need {count / 2**30:.1f} GiB, {device} has {free / 2**30:.1f} GiB "
                    "free; replay it where there is more"
                )


def _view_of(storage: Storage, ref: TensorRef) -> Tensor:
    import torch

    strides = ref.strides if ref.strides is not None else contiguous(ref.shape)
    empty = torch.empty(0, dtype=dtype_of(ref.dtype), device=storage.device)
    return empty.set_(storage, ref.offset, ref.shape, strides)


def dtype_of(name: str) -> DType:
    """Return torch's element type of a name. Raises OpsError for one that it does not have."""
    import torch

    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise OpsError(f"this torch ({torch.__version__}) has no element type '{name}' of the trace")
    return dtype
