"""The parts of a replay's calls: memory that was there before, its views, and arguments bound to operators."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from benchmate.ops.base import (
    Call,
    DType,
    Generator,
    OperatorFailed,
    OperatorSkipped,
    OpOverload,
    OpsError,
    Storage,
    Tensor,
)
from benchmate.ops.device import free_bytes
from benchmate.ops.operators import find_packet, parse_schema
from benchmate.ops.traces.plan import Obstacle, Plan, Slot, TensorView, static_obstacle
from benchmate.ops.traces.schema import INTEGERS, DeviceRef, Node, OpaqueValue, TensorRef, Trace, tensor_refs


def _batch_norm_backward(arguments: Sequence[object]) -> Sequence[object]:
    source, gradient, weight, mean, variance, save_mean, save_inverse, epsilon, *_ = arguments
    return (gradient, source, weight, mean, variance, save_mean, save_inverse, True, epsilon, [True] * MASK_LENGTH)


# Operators of a library for GPUs, and the operator of every device with its arguments: what a trace of a GPU has on a CPU.
OF_CUDA = {
    f"aten::{library}_batch_norm_backward": ("aten::native_batch_norm_backward", _batch_norm_backward)
    for library in ("cudnn", "miopen")
}
DeviceOf = Callable[[str], str]
SCALE = 0.1  # floating point is uniform in [0, 0.1): variances stay positive, sums of products small
MASK_LENGTH = 3  # gradients of a convolution, a norm: the operators that take a mask of the gradients wanted
Slots = list["Tensor | None"]
"""The tensors of a step by the number of their slot."""
BindSlots = Callable[[Slots], Call]
"""Put the slots' tensors into the arguments. Return the call, ready to be made and timed."""


def map_devices(trace: Trace, target: str) -> DeviceOf:
    """Return the device of a replay for a device name of its recording."""
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
        # Of several views of one memory the first one counts, which is why they are walked through backwards.
        self._dtypes = {view.generation: view.ref.dtype for view in reversed(plan.views)}
        devices = {view.generation: device_of(view.ref.device) for view in plan.views}
        self._check_fits(devices)
        self.storages: dict[int, Storage] = {}
        self.substitutes: dict[int, Tensor] = {}
        for number in sorted(plan.given):
            filled = self._fill(number, plan.sizes[number], devices[number])
            self.storages[number] = filled.untyped_storage()

    def view(self, view: TensorView, storage: Storage | None) -> Tensor | None:
        """Return the tensor of a slot in a storage. None where it does not fit."""
        return None if storage is None or storage.nbytes() < view.ref.end else _view_of(storage, view.ref)

    def substitute(self, number: int) -> Tensor:
        """Return a tensor for a slot that no operator filled with one that fits. The same in every iteration."""
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
            # Integers of which nothing is known are zeros: an index that is valid in whatever tensor has an element.
            if name == "bool" or high - low < 2:
                return torch.full((count,), low, dtype=dtype, device=device)
            return torch.randint(low, high, (count,), device=device, generator=generator).to(dtype)
        drawn_as = torch.float32 if dtype.itemsize == 1 else dtype
        # In place: the largest memory of a trace needs no second of its size.
        return torch.rand(count, dtype=drawn_as, device=device, generator=generator).mul_(SCALE).to(dtype)

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
                    "free. Replay it where there is more"
                )


def _view_of(storage: Storage, ref: TensorRef) -> Tensor:
    import torch

    empty = torch.empty(0, dtype=dtype_of(ref.dtype), device=storage.device)
    return empty.set_(storage, ref.offset, ref.shape, ref.steps)


def dtype_of(name: str) -> DType:
    """Return torch's element type of a name. Raises OpsError for an unknown name."""
    import torch

    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise OpsError(f"this torch ({torch.__version__}) has no element type '{name}' of the trace")
    return dtype


def find_overload(schema_text: str) -> OpOverload:
    """Return the operator of a schema. Raises OperatorFailed where this torch has none."""
    import torch

    schema = parse_schema(schema_text)
    overload_name = schema.overload_name or "default"
    try:
        return getattr(find_packet(schema.name), overload_name)
    except OperatorSkipped as skipped:
        raise OperatorFailed(str(skipped)) from None
    except (AttributeError, RuntimeError, OpsError):
        raise OperatorFailed(f"torch {torch.__version__} has no {schema.name}.{overload_name}") from None


def machine_obstacle(device: str) -> Obstacle:
    """Return the function that tells why this machine's torch and packages cannot run an operator on a device."""
    import torch

    has_kernel = torch._C._dispatch_has_computed_kernel_for_dispatch_key

    def obstacle(node: Node) -> str | None:
        if (reason := static_obstacle(node)) or node.is_collective:
            return reason
        try:
            name = find_overload(node.schema).name()
        except OperatorFailed as error:
            return str(error)
        # What a torch without it says of another device's kernels cannot be relied on.
        if device.startswith("cpu") and not has_kernel(name, "CPU"):
            return f"torch {torch.__version__} has no {name} for cpu"
        return None

    return obstacle


def bind_operator(node: Node, arguments: Sequence[object], device_of: DeviceOf) -> BindSlots:
    """Return how to call the operator of a node.

    Raises OperatorFailed for an operator that this torch does not have, or whose arguments it wants otherwise.
    """
    if node.name in OF_CUDA and not device_of("cuda").startswith("cuda"):
        name, reorder = OF_CUDA[node.name]
        return _bind_slots(find_packet(name).default, list(reorder(arguments)), {})
    overload = find_overload(node.schema)
    recorded = parse_schema(node.schema).arguments
    named = dict(zip((argument.name for argument in recorded), arguments, strict=False))
    positional: list[object] = []
    keywords: dict[str, object] = {}
    # By name: between versions of torch arguments move, become keyword-only, and new ones with a default are added.
    for argument in overload._schema.arguments:
        if argument.name in named:
            value = _constant(named[argument.name], str(argument.type), device_of)
        elif argument.has_default_value():
            value = argument.default_value
        else:
            raise OperatorFailed(f"this torch wants an argument '{argument.name}' that was not recorded")
        if not argument.kwarg_only:
            positional.append(value)
        elif argument.name in named:
            keywords[argument.name] = value
    return _bind_slots(overload, positional, keywords)


def bind_function(function: Callable[..., object], arguments: Sequence[object], device_of: DeviceOf) -> BindSlots:
    """Return how to call any function of the recorded arguments by position."""
    return _bind_slots(function, [_constant(argument, "", device_of) for argument in arguments], {})


def _bind_slots(function: Callable[..., object], positional: list[object], keywords: dict[str, object]) -> BindSlots:
    values = [*positional, *keywords.values()]
    count = len(positional)
    # Found once: the call is made anew in every step, and what is done there is timed with it.
    flat = [(index, value.number) for index, value in enumerate(values) if isinstance(value, Slot)]
    nested = [(index, value) for index, value in enumerate(values) if _has_slots(value)]

    def bind(slots: Slots) -> Call:
        filled = list(values)
        for index, number in flat:
            filled[index] = slots[number]
        for index, value in nested:
            filled[index] = _fill_slots(value, slots)
        if not keywords:
            return functools.partial(function, *filled)
        return functools.partial(function, *filled[:count], **dict(zip(keywords, filled[count:], strict=True)))

    return bind


def _has_slots(value: object) -> bool:
    return isinstance(value, (list, tuple)) and any(isinstance(item, Slot) or _has_slots(item) for item in value)


def _fill_slots(value: object, slots: Slots) -> object:
    if isinstance(value, Slot):
        return slots[value.number]
    return [_fill_slots(item, slots) for item in value] if isinstance(value, (list, tuple)) else value


def _constant(value: object, kind: str, device_of: DeviceOf) -> object:
    if isinstance(value, DeviceRef):
        import torch

        return torch.device(device_of(value.name))
    if isinstance(value, tuple):
        return [_constant(item, "", device_of) for item in value]
    if isinstance(value, OpaqueValue):
        # Old schemas did not write lists of booleans; those are masks of the gradients wanted.
        return [True] * MASK_LENGTH if "bool" in kind else None
    return value
