"""The file of an execution trace: every schema read into the same values, and problems of a file reported in a line."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmate.ops import arguments
from benchmate.ops.base import JsonMapping, OpsError
from benchmate.ops.json_files import parse_json, read_unpacked
from benchmate.ops.sampling import gc_paused

FLAT = ("1.0.1",)  # a node's fields stand side by side; later ones have inputs, outputs and a list of attributes
NESTED = ("1.0.2", "1.0.3", "1.0.4", "1.1.0", "1.1.1")
SCHEMAS = (*FLAT, *NESTED)

# Names of element types in a trace, without c10:: and in small letters -> names in torch. C++ has two names for some.
DTYPES = {
    **arguments.DTYPES,
    "long int": "int64",
    "short int": "int16",
    "signed char": "int8",
    "unsigned char": "uint8",
    "byte": "uint8",
    "unsigned short": "uint16",
    "short unsigned int": "uint16",
    "unsigned int": "uint32",
    "unsigned long": "uint64",
    "long unsigned int": "uint64",
    "complex<float>": "complex64",
    "complex<double>": "complex128",
}
FUSED = re.compile(r"(graph_\d+_)?(triton|cpp)_(\w+_)?fused_")  # torch.compile's names of kernels, as labels
INTEGERS = (*arguments.INTEGERS, "bool")


@dataclass(frozen=True, slots=True)
class TensorRef:
    """A tensor as an operator saw it. `offset` in elements, `dtype` as torch names it. `strides` None in old schemas."""

    tensor: int
    storage: int
    offset: int
    numel: int
    itemsize: int
    device: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None

    @property
    def steps(self) -> tuple[int, ...]:
        """Strides, by default of a contiguous tensor."""
        return self.strides if self.strides is not None else contiguous(self.shape)

    @property
    def end(self) -> int:
        """Bytes from the start of the storage to the end of the last element."""
        if 0 in self.shape:
            return self.offset * self.itemsize
        last = sum((size - 1) * stride for size, stride in zip(self.shape, self.steps, strict=True))
        return (self.offset + last + 1) * self.itemsize

    @property
    def bytes(self) -> int:
        """Bytes of its elements."""
        return self.numel * self.itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRef:
    """A device among the arguments."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpaqueValue:
    """An argument whose value is not in the trace: a process group, a generator, a class of C++."""

    kind: str


Sizes = Sequence[Any]
"""Shapes or strides, nested for lists."""
Value = TensorRef | DeviceRef | OpaqueValue | None | bool | int | float | str | tuple["Value", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """An entry of a trace: an operator when it has a `schema`, else a label. An undefined tensor is None."""

    id: int
    name: str
    parent: int
    schema: str = ""
    rf_id: int | None = None
    inputs: tuple[Value, ...] = ()
    outputs: tuple[Value, ...] = ()
    attributes: JsonMapping = field(default_factory=dict)

    @property
    def is_kernel(self) -> bool:
        """Whether it is compiled code that was launched as it is: no schema tells how to call it."""
        return not self.schema and bool(self.attributes.get("kernel_backend") or FUSED.match(self.name))

    @property
    def is_operator(self) -> bool:
        return bool(self.schema) or self.name == "record_param_comms" or self.is_kernel

    @property
    def is_compiled_region(self) -> bool:
        """Whether it is a region of torch.compile. On a CPU the recorder lists the operators in it, and no kernels."""
        return self.name.startswith("Torch-Compiled Region") or self.name == "CompiledFunctionBackward"

    @property
    def is_collective(self) -> bool:
        return self.name.startswith(("c10d::", "_c10d_functional::")) or self.name == "record_param_comms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A trace: its nodes in the order in which they began. `about` are our recorder's additions: step_s, rank, ranks, torch."""

    path: str
    schema: str
    nodes: tuple[Node, ...]
    about: JsonMapping = field(default_factory=dict)


def dtype_name(kind: str) -> str:
    """Return torch's name of an element type. The given name where torch has none."""
    return DTYPES.get(kind.lower().removeprefix("c10::"), kind)


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor, in elements."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def tensor_refs(value: object) -> Iterator[TensorRef]:
    """Yield the tensors of a value, lists walked through."""
    if isinstance(value, TensorRef):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from tensor_refs(item)


def read_trace(path: str) -> Trace:
    """Read a trace from JSON, compressed by gzip or in a tar archive. Raises OpsError for incomplete traces and other files."""
    text = read_unpacked(path, "Expected an execution trace (.json, .json.gz)")
    # Millions of small objects, all of which stay: looking for cycles among them takes most of the time.
    with gc_paused():
        return parse_trace(parse_json(text, path), path)


def parse_trace(data: object, path: str = "trace") -> Trace:
    """Return the trace that plain data is. Raises OpsError, naming the node, for other data."""
    if isinstance(data, Mapping) and "traceEvents" in data:
        raise OpsError(f"{path}: a trace of the profiler, not an execution trace. `trace replay` takes it by --profile")
    if not isinstance(data, Mapping) or not isinstance(data.get("nodes"), list) or "schema" not in data:
        raise OpsError(f"{path}: not an execution trace: it has no 'schema' and 'nodes'. Make it with `trace record`")
    schema = str(data["schema"])
    version = schema.partition("-")[0]
    if version not in SCHEMAS:
        raise OpsError(f"{path}: unknown schema '{schema}' of an execution trace. Known: {', '.join(SCHEMAS)}")
    nodes = []
    for number, entry in enumerate(data["nodes"]):
        try:
            nodes.append(_node(entry, version in FLAT))
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError) as error:
            name = entry.get("id", number) if isinstance(entry, Mapping) else number
            problem = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise OpsError(f"{path}: node {name} does not fit schema {schema}: {problem}") from None
    twice = [number for number, count in Counter(node.id for node in nodes).items() if count > 1]
    if twice:
        raise OpsError(f"{path}: two nodes have the id {twice[0]}. Does the file hold two traces?")
    about = data.get("benchmate")
    return Trace(
        path=path,
        schema=schema,
        # A node is written when it ends, which puts children before their parents; ids are in the order in which they began.
        nodes=tuple(sorted(nodes, key=lambda node: node.id)),
        about=about if isinstance(about, Mapping) else {},
    )


def _node(entry: JsonMapping, is_flat: bool) -> Node:
    attributes = {} if is_flat else {attribute["name"]: attribute["value"] for attribute in entry["attrs"]}
    described = entry if is_flat else attributes
    rf_id = described.get("rf_id")

    def values(side: str) -> tuple[Value, ...]:
        if is_flat:
            return _values(entry[f"{side}s"], entry[f"{side}_types"], entry[f"{side}_shapes"], None)
        nested = entry[f"{side}s"]
        return _values(nested["values"], nested["types"], nested["shapes"], nested.get("strides"))

    return Node(
        id=int(entry["id"]),
        name=str(entry["name"]),
        parent=int(entry["parent" if is_flat else "ctrl_deps"]),
        schema=str(described.get("op_schema") or ""),
        rf_id=None if rf_id is None else int(rf_id),
        inputs=values("input"),
        outputs=values("output"),
        attributes=attributes,
    )


def _values(values: Any, types: Any, shapes: Any, strides: Any) -> tuple[Value, ...]:
    if not len(values) == len(types) == len(shapes):
        raise ValueError(f"{len(values)} values with {len(types)} types and {len(shapes)} shapes")
    steps = strides if strides is not None else [None] * len(values)
    return tuple(map(_value, values, types, shapes, steps))


def _value(value: Any, kind: str, shape: Sizes, strides: Sizes | None) -> Value:
    if kind.startswith("Tensor("):
        return _tensor(value, kind[7:-1], shape, strides)
    if kind.startswith("GenericList["):
        return _list(value, kind[12:-1], shape, strides)
    if kind == "Device":
        return DeviceRef(name=str(value))
    if value in ("<None>", "None") or kind in ("None", "Generator"):
        return None
    if kind in ("Int", "Bool", "SymInt"):
        return value if isinstance(value, (bool, int)) else OpaqueValue(kind=kind)
    if kind in ("Double", "SymFloat"):
        return float(value)  # infinite ones are strings
    if kind == "String":
        return str(value)
    return OpaqueValue(kind=kind)


def _tensor(value: Sequence[Any], kind: str, shape: Sizes, strides: Sizes | None) -> TensorRef | None:
    # An undefined tensor, as a gradient that is not wanted, has the type nullptr and only zeros as value.
    if kind.startswith("nullptr"):
        return None
    tensor, storage, offset, numel, itemsize = (int(number) for number in value[:5])
    device = str(value[5]) if len(value) > 5 else "cpu"
    sizes = tuple(map(int, shape))
    steps = tuple(map(int, strides)) if strides is not None and len(strides) == len(sizes) else None
    return TensorRef(tensor, storage, offset, numel, itemsize, device, dtype_name(kind), sizes, steps)


def _list(values: Any, kinds: str, shapes: Any, strides: Any) -> tuple[Value, ...]:
    names = split_types(kinds)
    items = []
    for number, value in enumerate(values):
        # Of a long list the recorder leaves types and shapes out.
        kind = names[min(number, len(names) - 1)] if names else "Int"
        shape = shapes[number] if number < len(shapes) else []
        steps = strides[number] if strides is not None and number < len(strides) else None
        items.append(_value(value, kind, shape, steps))
    return tuple(items)


# A trace has millions of lists, of few types.
@functools.lru_cache(maxsize=4096)
def split_types(text: str) -> tuple[str, ...]:
    """Split `A,B[C,D],E(F,G)` at its outermost commas."""
    parts, depth, begin = [], 0, 0
    # A comma may stand inside of a nested list or of the arguments of a template.
    for index, letter in enumerate(text):
        if letter in "[(<":
            depth += 1
        elif letter in "])>":
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append(text[begin:index])
            begin = index + 1
    return (*parts, text[begin:]) if text else ()
