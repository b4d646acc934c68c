"""Small execution traces, made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmate.ops.traces.schema import Trace, contiguous, parse_trace

NESTED = "1.1.1-chakra.0.0.4"
ROOT = 1

ADD = "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
EMBEDDING = (
    "aten::embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False, "
    "bool sparse=False) -> Tensor"
)
RELU = "aten::relu(Tensor self) -> Tensor"
LINEAR = "aten::linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor"
VIEW = "aten::t(Tensor(a) self) -> Tensor(a)"
EMPTY = (
    "aten::empty.memory_format(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
    "bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor"
)

Argument = tuple[Any, str, Any, Any]  # value, type, shape, strides


def tensor(number: int, storage: int, *shape: int, dtype: str = "float", offset: int = 0, size: int = 4) -> Argument:
    count = 1
    for one in shape:
        count *= one
    value = [number, storage, offset, count, size, "cpu"]
    return value, f"Tensor({dtype})", list(shape), list(contiguous(shape))


def number(value: float) -> Argument:
    return value, "Int" if isinstance(value, int) else "Double", [], []


def listed(*items: Argument) -> Argument:
    kinds = ",".join(item[1] for item in items)
    return [i[0] for i in items], f"GenericList[{kinds}]", [i[2] for i in items], [i[3] for i in items]


NONE: Argument = ("<None>", "None", [], [])
UNDEFINED: Argument = ([9, 0, 0, 0, 0, ""], "Tensor(nullptr (uninitialized))", [], [])


def side(arguments: list[Argument]) -> dict[str, Any]:
    keys = ("values", "types", "shapes", "strides")
    return {key: [argument[place] for argument in arguments] for place, key in enumerate(keys)}


def node(
    number: int,
    name: str,
    inputs: list[Argument],
    outputs: list[Argument],
    *,
    schema: str = "",
    parent: int = ROOT,
    **attributes: Any,
) -> dict[str, Any]:
    given = {"rf_id": number, "tid": 1, "op_schema": schema, **attributes}
    return {
        "id": number,
        "name": name,
        "ctrl_deps": parent,
        "inputs": side(inputs),
        "outputs": side(outputs),
        "attrs": [{"name": key, "type": "", "value": value} for key, value in given.items()],
    }


def flat(nested: dict[str, Any]) -> dict[str, Any]:
    """The same node as schema 1.0.1 writes it."""
    attributes = {one["name"]: one["value"] for one in nested["attrs"]}
    made = {"id": nested["id"], "name": nested["name"], "parent": nested["ctrl_deps"], "fw_parent": 0, "seq_id": -1}
    made |= {"scope": 0, "tid": attributes["tid"], "fw_tid": 0, "op_schema": attributes["op_schema"]}
    for key in ("inputs", "outputs"):
        values = nested[key]
        short = key[:-1]
        made |= {key: values["values"], f"{short}_types": values["types"], f"{short}_shapes": values["shapes"]}
    return made


def content(nodes: list[dict[str, Any]], schema: str = NESTED, **more: Any) -> dict[str, Any]:
    root = node(ROOT, "[pytorch|profiler|execution_trace|process]", [], [])
    every = [*reversed(nodes), root]  # written when they end: children before parents, the root last
    if schema == "1.0.1":
        every = [flat(one) for one in every]
    elif not schema.startswith("1.1.1"):
        every = [{**one, **{key: _without_strides(one[key]) for key in ("inputs", "outputs")}} for one in every]
    return {"schema": schema, "pid": 1, "time": "2026-01-01 00:00:00", "start_ts": 1, "nodes": every, **more}


def _without_strides(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != "strides"}


def trace(*nodes: dict[str, Any], schema: str = NESTED, **more: Any) -> Trace:
    return parse_trace(content(list(nodes), schema, **more))


def file(folder: Path, *nodes: dict[str, Any], schema: str = NESTED, **more: Any) -> Path:
    path = folder / "trace.json"
    path.write_text(json.dumps(content(list(nodes), schema, **more)))
    return path


def small() -> list[dict[str, Any]]:
    """An embedding, a product that hides what a later operator reads, a sum that is made twice."""
    rows, index = tensor(2, 3, 10, 4), tensor(4, 5, 6, dtype="long int", size=8)
    chosen = tensor(6, 7, 6, 4)
    weight, turned = tensor(8, 9, 5, 4), tensor(12, 9, 4, 5)
    product, hidden = tensor(13, 14, 6, 5), tensor(15, 16, 6, 4)
    return [
        node(10, "aten::embedding", [rows, index, number(-1)], [chosen], schema=EMBEDDING),
        node(20, "aten::linear", [chosen, weight, NONE], [product], schema=LINEAR),
        node(21, "aten::t", [weight], [turned], schema=VIEW, parent=20),
        node(22, "aten::relu", [chosen], [hidden], schema=RELU, parent=20),
        node(
            23,
            "aten::mm",
            [hidden, turned],
            [product],
            schema="aten::mm(Tensor self, Tensor mat2) -> Tensor",
            parent=20,
        ),
        node(30, "aten::add", [chosen, chosen, number(1)], [tensor(31, 32, 6, 4)], schema=ADD),
        node(33, "aten::add", [chosen, chosen, number(1)], [tensor(34, 35, 6, 4)], schema=ADD),
    ]
