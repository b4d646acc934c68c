"""Configurations made by a program instead of written by hand: the pieces of the JSON, as plain dictionaries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmate.ops.argument_specs import DTYPES, NUMBERS, TYPES
from benchmate.ops.builtin import operator
from benchmate.ops.data_generators import DEFAULT_GENERATOR
from benchmate.ops.errors import OpsError
from benchmate.ops.registry import find_config_iterator, find_data_generator
from benchmate.ops.types import JsonMapping, JsonObject


def create_bench_config(name: str) -> JsonObject:
    """Return a configuration with one operator that has no input yet."""
    return {name: create_op_info()}


def create_op_info() -> JsonObject:
    """Return the description of one operator, to be filled in."""
    names = dict.fromkeys(("build_iterator", "input_iterator", "build_data_generator"))
    return {**names, "input_data_generator": DEFAULT_GENERATOR, "config": [{"build": [], "input": []}]}


def create_op_args(args: Sequence[object], kwargs: JsonMapping) -> JsonObject:
    """Return a build or input specification."""
    return {"args": list(args), "kwargs": dict(kwargs)}


def create_type(kind: str, *values: Any) -> JsonObject:
    """Return one argument: `create_type("tensor", [2, 3], "float")`, `("int", 5)`, `("int_range", 1, 9)`, `("none")`, ...

    `<number>_range` takes min and max; `genericlist` and `tuple` take the list of arguments. Raises OpsError for a kind that is
    not known.
    """
    if kind.endswith("_range") and kind[:-6] in NUMBERS:
        low, high = values[0] if len(values) == 1 else values
        return {"type": kind[:-6], "value_range": [low, high]}
    if kind == "tensor":
        shape, dtype = (*values, "float")[:2]
        if isinstance(shape, str):
            shape, dtype = dtype, shape
        spec: JsonObject = {"type": "tensor", "dtype": dtype, "shape": list(shape)}
        if not DTYPES.get(dtype, "").startswith(("float", "bfloat", "complex")):
            spec["requires_grad"] = False
        return spec
    if kind not in TYPES:
        raise OpsError(f"create_type: unknown kind '{kind}'")
    return {"type": kind} if kind == "none" else {"type": kind, "value": values[0]}


class OperatorConfig:
    """One operator with its iterators and generators, ready to be run by a program of one's own."""

    def __init__(self, name: str, info: JsonMapping, device: str) -> None:
        self.name, self.info, self.device = name, info, device
        self.op = operator(name)
        self.op.device = device
        self.build_iterator = find_config_iterator(info.get("build_iterator"), name)
        self.input_iterator = find_config_iterator(info.get("input_iterator"), name)
        build = info.get("build_data_generator")
        self.build_data_generator = find_data_generator(build, name) if build is not None else None
        self.input_data_generator = find_data_generator(info.get("input_data_generator") or DEFAULT_GENERATOR, name)


make_op_config = OperatorConfig  # its name in the original; raises OpsError for an operator's name that means nothing
