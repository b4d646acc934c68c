"""The JSON configuration: read, checked before anything runs, and walked input by input, or made by a program, in pieces."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmate.devices.vendors.regular_file import MIB
from benchmate.ops import arguments, builtin, registry
from benchmate.ops.arguments import DEFAULT_GENERATOR, check_arguments, json_kind, require_list, require_object
from benchmate.ops.base import JsonMapping, JsonObject, OpsError
from benchmate.ops.config_iterators import ConfigIterator, Identified
from benchmate.ops.json_files import parse_json, read_unpacked

logger = logging.getLogger("benchmate.ops")

ITERATED = ("DefaultConfigIterator", "RangeConfigIterator")  # whose specifications are arguments of the types above
ITERATORS = ("build_iterator", "input_iterator")
GENERATORS = ("build_data_generator", "input_data_generator")

MAX_CONFIGURATION = 64 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSpec:
    """An operator of a configuration. `config` as in the file."""

    name: str
    build_iterator: str | None
    input_iterator: str | None
    build_data_generator: str | None
    input_data_generator: str
    config: Sequence[JsonMapping]


@dataclass(frozen=True)
class OperatorInput:
    """An input of an operator, and how the object that runs it is built (None: it is not built)."""

    spec: OperatorSpec
    config_id: int
    build_id: object
    input_id: object
    build: Any
    input: Any
    earlier_builds: tuple[object, ...] = ()

    @property
    def operator(self) -> str:
        return self.spec.name

    @property
    def build_key(self) -> tuple[object, ...]:
        """The key that inputs of the same build share."""
        return self.operator, self.config_id, self.build_id

    @property
    def id(self) -> str:
        """`config|build|input`, unique within the operator."""
        return f"{self.config_id}|{self.build_id}|{self.input_id}"

    @property
    def run_id(self) -> str:
        """`operator|config|build|input`, unique within the configuration."""
        return f"{self.operator}|{self.id}"

    @functools.cached_property
    def hash(self) -> str:
        """Sixteen digits of the sha256 of the work: the same in any file."""
        # Sorted, so that neither the order of keys nor the file around it changes a resume id.
        content = json.dumps([self.operator, self.build, self.input], sort_keys=True, default=str)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def answers_to(self, name: str) -> bool:
        """Whether `-r` or `-s` with this name means this input: its id, its hash, or the original's spelling of its id.

        The original appended the id of a build to the ids of earlier builds.
        """
        if name in (self.run_id, self.hash):
            return True
        builds = "|".join(map(str, (*self.earlier_builds, self.build_id)))
        return name == f"{self.operator}|{self.config_id}|{builds}|{self.input_id}"


def read_operators(path: str) -> tuple[OperatorSpec, ...]:
    """Return the operators of a configuration file. Raises OpsError with file, line and column, or the path of the value."""
    return parse_operators_text(read_unpacked(path, "-c takes a JSON configuration", MAX_CONFIGURATION), path)


def parse_operators_text(text: str, source: str = "configuration") -> tuple[OperatorSpec, ...]:
    """Return the operators of a configuration in JSON. Raises OpsError with line and column where it does not parse."""
    return parse_operators(parse_json(text, source, functools.partial(_without_duplicates, source)), source)


def parse_operators(data: object, source: str = "configuration") -> tuple[OperatorSpec, ...]:
    """Return the operators of a configuration that is already plain data, checked. Raises OpsError naming the value."""
    operators = require_object(data, source, "an object of operators")
    return tuple(_operator(name, value, source) for name, value in operators.items())


def iterate_inputs(spec: OperatorSpec, device: str) -> Iterator[OperatorInput]:
    """Yield every input of an operator in order. Raises OpsError for a macro that cannot be expanded."""
    build_iterator = registry.find_config_iterator(spec.build_iterator, spec.name)
    input_iterator = registry.find_config_iterator(spec.input_iterator, spec.name)
    for config_id, config in enumerate(spec.config):
        earlier: tuple[object, ...] = ()
        for build_id, build in _builds(config, build_iterator, device):
            # An iterator of its own kind reads the build that its inputs are for.
            for input_id, spec_of_input in input_iterator({**config, "build": build}, "input", device):
                yield OperatorInput(spec, config_id, build_id, input_id, build, spec_of_input, earlier)
            earlier = (*earlier, build_id)


def _builds(config: JsonMapping, iterator: Callable[..., ConfigIterator], device: str) -> Iterator[Identified]:
    builds = config.get("build")
    if builds is None:
        return iter([(0, None)])
    if not builds:
        return iter([(0, {"args": [], "kwargs": {}})])
    return iter(iterator(config, "build", device))


def _without_duplicates(source: str, pairs: list[tuple[str, object]]) -> JsonObject:
    # json would keep the last of two equal keys and say nothing.
    unique: JsonObject = {}
    for key, value in pairs:
        if key in unique:
            raise OpsError(f"{source}: key {key!r} is there twice in an object. Remove a copy")
        unique[key] = value
    return unique


def _operator(name: str, value: object, source: str) -> OperatorSpec:
    where = f"{source}: {name}"
    value = require_object(value, where, "an object with 'config'")
    names: dict[str, Any] = {key: value.get(key) for key in (*ITERATORS, *GENERATORS)}
    for key, given in names.items():
        if given is not None and not isinstance(given, str):
            raise OpsError(f"{where}.{key}: expected a name, got {json_kind(given)}")
    if value.get("input_data_generator") is None:
        raise OpsError(f"{where}: no 'input_data_generator'. The usual value is \"{DEFAULT_GENERATOR}\"")
    for key in ITERATORS:
        registry.find_config_iterator(names[key], f"{where}.{key}")
    for key in GENERATORS:
        if names[key] is not None:
            registry.find_data_generator(names[key], f"{where}.{key}")
    configs = require_list(value.get("config"), f"{where}.config")
    for number, config in enumerate(configs):
        _check_config(config, value, f"{where}.config[{number}]")
    return OperatorSpec(name=name, config=tuple(configs), **names)


def _check_config(config: object, operator: JsonMapping, where: str) -> None:
    config = require_object(config, where, "an object with 'input'")
    require_list(config.get("input"), f"{where}.input")
    if config.get("build") is not None:
        require_list(config["build"], f"{where}.build")
        if operator.get("build_data_generator") is None:
            raise OpsError(f"{where}.build: needs a 'build_data_generator'. The usual value is \"{DEFAULT_GENERATOR}\"")
    for key in ("build", "input"):
        iterator = operator.get(f"{key}_iterator") or ITERATED[0]
        if iterator not in ITERATED:
            continue
        for number, spec in enumerate(config.get(key) or ()):
            is_ranged = iterator == ITERATED[1]
            check_arguments(spec, f"{where}.{key}[{number}]", is_ranged=is_ranged, warn=logger.warning)


def create_bench_config(name: str) -> JsonObject:
    """Return a configuration with an operator that has no input yet."""
    return {name: create_op_info()}


def create_op_info() -> JsonObject:
    """Return the description of an operator, to be filled in."""
    names = dict.fromkeys(("build_iterator", "input_iterator", "build_data_generator"))
    return {**names, "input_data_generator": DEFAULT_GENERATOR, "config": [{"build": [], "input": []}]}


def create_op_args(args: Sequence[object], kwargs: JsonMapping) -> JsonObject:
    """Return a build or input specification."""
    return {"args": list(args), "kwargs": dict(kwargs)}


def create_type(kind: str, *values: Any) -> JsonObject:
    """Return an argument: `create_type("tensor", [2, 3], "float")`, `("int", 5)`, `("int_range", 1, 9)`, `("none")`, ...

    `<number>_range` takes min and max. `genericlist` and `tuple` take the list of arguments. Without values they are None, to be
    filled in. Raises OpsError for a kind that is not known.
    """
    if kind.endswith("_range") and kind[:-6] in arguments.NUMBERS:
        low_high = list(values[0] if len(values) == 1 else values) or None
        return {"type": kind[:-6], "value_range": low_high}
    if kind == "tensor" and not values:
        return {"type": "tensor", "dtype": "float", "shape": None}
    if kind == "tensor":
        shape, dtype = (*values, "float")[:2]
        if isinstance(shape, str):
            shape, dtype = dtype, shape
        spec: JsonObject = {"type": "tensor", "dtype": dtype, "shape": list(shape)}
        if not arguments.DTYPES.get(dtype, "").startswith(("float", "bfloat", "complex")):
            spec["requires_grad"] = False
        return spec
    if kind not in arguments.TYPES:
        raise OpsError(f"create_type: unknown kind '{kind}'")
    return {"type": kind} if kind == "none" else {"type": kind, "value": values[0] if values else None}


class OperatorConfig:
    """An operator with its iterators and generators, ready to be run by the user's program."""

    def __init__(self, name: str, info: JsonMapping, device: str) -> None:
        self.name, self.info, self.device = name, info, device
        self.op = builtin.operator(name)
        self.op.device = device
        self.build_iterator = registry.find_config_iterator(info.get("build_iterator"), name)
        self.input_iterator = registry.find_config_iterator(info.get("input_iterator"), name)
        build = info.get("build_data_generator")
        self.build_data_generator = registry.find_data_generator(build, name) if build is not None else None
        self.input_data_generator = registry.find_data_generator(
            info.get("input_data_generator") or DEFAULT_GENERATOR, name
        )


make_op_config = OperatorConfig  # its name in the original; raises OpsError for an operator's name that means nothing
