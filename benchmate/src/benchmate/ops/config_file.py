"""The JSON configuration: read, checked before anything runs, and walked input by input."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmate.ops import registry
from benchmate.ops.errors import OpsError
from benchmate.ops.macros import has_macros

# Names of element types in a configuration -> names in torch.
DTYPES = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "int": "int32",
    "long": "int64",
    "short": "int16",
    **{
        name: name
        for name in [
            "float16",
            "float32",
            "float64",
            "bfloat16",
            "uint8",
            "uint16",
            "uint32",
            "uint64",
            "int8",
            "int16",
            "int32",
            "int64",
            "bool",
            "complex64",
            "complex128",
            "float8_e4m3fn",
            "float8_e5m2",
            "float8_e4m3fnuz",
            "float8_e5m2fnuz",
        ]
    },
}
TYPES = ("int", "long", "float", "double", "bool", "str", "none", "device", "dtype", "genericlist", "tuple", "tensor")
ITERATED = ("DefaultConfigIterator", "RangeConfigIterator")  # whose specifications are arguments of the types above
OPERATOR_KEYS = ("build_iterator", "input_iterator", "build_data_generator", "input_data_generator", "config")


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSpec:
    """One operator of a configuration; `config` as in the file."""

    name: str
    build_iterator: str | None
    input_iterator: str | None
    build_data_generator: str | None
    input_data_generator: str
    config: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class OperatorInput:
    """One input of one operator, and how the object that runs it is built (None: it is not built)."""

    operator: str
    config_id: int
    build_id: Any
    input_id: Any
    build: Any
    input: Any
    earlier_builds: tuple[Any, ...] = ()
    build_generator: str | None = None
    input_generator: str = "PyTorch:DefaultDataGenerator"

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
        """Sixteen digits of the sha256 of what runs: the same wherever in whichever file it stands."""
        content = json.dumps([self.operator, self.build, self.input], sort_keys=True, default=str)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def answers_to(self, name: str) -> bool:
        """Whether `-r` or `-s` with this name means this input: its id, its hash, or the original's spelling of its id.

        The original appended the id of a build to those of the builds before it.
        """
        if name in (self.run_id, self.hash):
            return True
        builds = "|".join(map(str, (*self.earlier_builds, self.build_id)))
        return name == f"{self.operator}|{self.config_id}|{builds}|{self.input_id}"


def read_operators(path: str) -> tuple[OperatorSpec, ...]:
    """The operators of a configuration file. Raises OpsError with file, line and column, or the path of the value."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise OpsError(f"{path}: {error.strerror}; -c takes a JSON configuration") from error
    except UnicodeDecodeError as error:
        raise OpsError(f"{path}: not UTF-8 at byte {error.start}") from error
    return parse_operators_text(text, path)


def parse_operators_text(text: str, place: str = "configuration") -> tuple[OperatorSpec, ...]:
    """The operators of a configuration in JSON. Raises OpsError with line and column where it does not parse."""
    try:
        data = json.loads(text, object_pairs_hook=_without_duplicates)
    except json.JSONDecodeError as error:
        raise OpsError(f"{place}:{error.lineno}:{error.colno}: not JSON: {error.msg.lower()}") from None
    except _Duplicate as error:
        raise OpsError(f"{place}: key {str(error)!r} stands twice in one object; the first would be lost") from None
    return parse_operators(data, place)


def parse_operators(data: Any, place: str = "configuration") -> tuple[OperatorSpec, ...]:
    """The operators of a configuration that is already plain data, checked. Raises OpsError naming the value."""
    if not isinstance(data, Mapping):
        raise OpsError(f"{place}: expected an object of operators, got {_kind(data)}")
    return tuple(_operator(name, value, place) for name, value in data.items())


def iterate_inputs(spec: OperatorSpec, device: str) -> Iterator[OperatorInput]:
    """Every input of an operator in order, one at a time. Raises OpsError for a macro that cannot be carried out."""
    build_iterator = registry.find_config_iterator(spec.build_iterator, spec.name)
    input_iterator = registry.find_config_iterator(spec.input_iterator, spec.name)
    for config_id, config in enumerate(spec.config):
        earlier: tuple[Any, ...] = ()
        for build_id, build in _builds(config, build_iterator, device):
            # An iterator of its own kind reads the build that its inputs are for.
            for input_id, one in input_iterator({**config, "build": build}, "input", device):
                yield OperatorInput(
                    operator=spec.name,
                    config_id=config_id,
                    build_id=build_id,
                    input_id=input_id,
                    build=build,
                    input=one,
                    earlier_builds=earlier,
                    build_generator=spec.build_data_generator,
                    input_generator=spec.input_data_generator,
                )
            earlier = (*earlier, build_id)


def _builds(config: Mapping[str, Any], iterator: Any, device: str) -> Iterator[tuple[Any, Any]]:
    given = config.get("build")
    if given is None:
        return iter([(0, None)])
    if not given:
        return iter([(0, {"args": [], "kwargs": {}})])
    return iter(iterator(config, "build", device))


class _Duplicate(ValueError):
    pass


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise _Duplicate(key)
        made[key] = value
    return made


def _operator(name: str, value: Any, place: str) -> OperatorSpec:
    where = f"{place}: {name}"
    if not isinstance(value, Mapping):
        raise OpsError(f"{where}: expected an object with 'config', got {_kind(value)}")
    for key in OPERATOR_KEYS[:4]:
        if value.get(key) is not None and not isinstance(value[key], str):
            raise OpsError(f"{where}.{key}: expected a name, got {_kind(value[key])}")
    if value.get("input_data_generator") is None:
        raise OpsError(f"{where}: no 'input_data_generator'; the usual one is \"PyTorch:DefaultDataGenerator\"")
    for key in ("build_iterator", "input_iterator"):
        registry.find_config_iterator(value.get(key), f"{where}.{key}")
    for key in ("build_data_generator", "input_data_generator"):
        if value.get(key) is not None:
            registry.find_data_generator(value[key], f"{where}.{key}")
    configs = value.get("config")
    if not isinstance(configs, list):
        raise OpsError(f"{where}.config: expected a list, got {_kind(configs)}")
    for number, config in enumerate(configs):
        _check_config(config, value, f"{where}.config[{number}]")
    return OperatorSpec(
        name=name,
        config=tuple(configs),
        build_iterator=value.get("build_iterator"),
        input_iterator=value.get("input_iterator"),
        build_data_generator=value.get("build_data_generator"),
        input_data_generator=value["input_data_generator"],
    )


def _check_config(config: Any, operator: Mapping[str, Any], where: str) -> None:
    if not isinstance(config, Mapping):
        raise OpsError(f"{where}: expected an object with 'input', got {_kind(config)}")
    if not isinstance(config.get("input"), list):
        raise OpsError(f"{where}.input: expected a list, got {_kind(config.get('input'))}")
    if config.get("build") is not None and not isinstance(config["build"], list):
        raise OpsError(f"{where}.build: expected a list, got {_kind(config['build'])}")
    if config.get("build") is not None and operator.get("build_data_generator") is None:
        raise OpsError(
            f"{where}.build: needs a 'build_data_generator'; the usual one is \"PyTorch:DefaultDataGenerator\""
        )
    for key in ("build", "input"):
        iterator = operator.get(f"{key}_iterator") or ITERATED[0]
        if iterator not in ITERATED:
            continue
        for number, spec in enumerate(config.get(key) or ()):
            check_arguments(spec, f"{where}.{key}[{number}]", is_ranged=iterator == ITERATED[1])


def check_arguments(spec: Any, where: str, *, is_ranged: bool = False) -> None:
    """Check one build or input specification. Raises OpsError that names the value which is wrong."""
    if not isinstance(spec, Mapping):
        raise OpsError(f"{where}: expected an object with 'args' and 'kwargs', got {_kind(spec)}")
    args, kwargs = spec.get("args", []), spec.get("kwargs", {})
    if not isinstance(args, list):
        raise OpsError(f"{where}.args: expected a list, got {_kind(args)}")
    if not isinstance(kwargs, Mapping):
        raise OpsError(f"{where}.kwargs: expected an object, got {_kind(kwargs)}")
    if not is_ranged and has_macros(spec):
        raise OpsError(f'{where}: has a macro; it needs "RangeConfigIterator" as iterator')
    for number, one in enumerate(args):
        _check_type(one, f"{where}.args[{number}]")
    for name, one in kwargs.items():
        _check_type(one, f"{where}.kwargs.{name}")


def _check_type(spec: Any, where: str) -> None:
    if not isinstance(spec, Mapping):
        raise OpsError(f"{where}: expected an object with 'type', got {_kind(spec)}")
    kind = spec.get("type")
    if kind not in TYPES:
        hint = registry.did_you_mean(str(kind), TYPES) or f"; there are {', '.join(TYPES)}"
        raise OpsError(f"{where}.type: unknown type {kind!r}{hint}")
    for macro in ("__range__", "__list__"):
        for attribute in spec.get(macro) or ():
            if not isinstance(spec.get(attribute), list):
                raise OpsError(f"{where}.{attribute}: expected a list, because {macro} names it")
    if kind == "tensor":
        _check_tensor(spec, where)
    elif kind in ("genericlist", "tuple"):
        _check_list(spec, where)
    elif kind == "device":
        _need(spec, "value", str, "a device such as 'cpu'", where)
    elif kind == "dtype":
        for name in _each(spec, "value"):
            _check_dtype(name, f"{where}.value")
    elif kind == "str":
        _need({"value": "", **spec}, "value", str, "a string", where)
    elif kind == "bool":
        _need(spec, "value", bool, "true or false", where)
    elif kind != "none":
        _check_number(spec, kind, where)


def _check_number(spec: Mapping[str, Any], kind: str, where: str) -> None:
    wanted: Any = (int,) if kind in ("int", "long") else (int, float)
    said = "a whole number" if kind in ("int", "long") else "a number"
    bounds = spec.get("value_range")
    if "value" not in spec and bounds is None:
        raise OpsError(f"{where}: {kind} needs 'value' or 'value_range'")
    if bounds is not None:
        _check_bounds(bounds, wanted, said, where)
    if "value" in spec:
        if "value" in (spec.get("__range__") or ()):
            _check_range(spec["value"], wanted, said, f"{where}.value")
        else:
            _need(spec, "value", wanted, said, where)


def _check_tensor(spec: Mapping[str, Any], where: str) -> None:
    for key in ("dtype", "shape"):
        if key not in spec:
            raise OpsError(f"{where}: tensor needs '{key}'")
    for name in _each(spec, "dtype"):
        _check_dtype(name, f"{where}.dtype")
    shapes = spec["shape"] if "shape" in (spec.get("__list__") or ()) else [spec["shape"]]
    for shape in shapes:
        if not isinstance(shape, list):
            raise OpsError(f"{where}.shape: expected a list of sizes, got {_kind(shape)}")
        for number, size in enumerate(shape):
            if isinstance(size, list) and "shape" in (spec.get("__range__") or ()):
                _check_range(size, (int,), "a whole number", f"{where}.shape[{number}]")
            elif not _is(size, (int,)) or size < 0:
                raise OpsError(f"{where}.shape[{number}]: expected a size, got {size!r}")
    asked = spec.get("requires_grad")
    if asked is not None and not isinstance(asked, bool):
        raise OpsError(f"{where}.requires_grad: expected true or false, got {asked!r}")
    if spec.get("value_range") is not None:
        _check_bounds(spec["value_range"], (int, float), "a number", where)
    for rule in spec.get("__copy__") or ():
        _check_copy(rule, where)


def _check_copy(rule: Any, where: str) -> None:
    for value in rule.values() if isinstance(rule, Mapping) else [None]:
        match value:
            case [int(), [int(), int()]]:
                continue
            case _:
                raise OpsError(
                    f"{where}.__copy__: expected {{attribute: [own element, [argument, its element]]}}, got {rule!r}"
                )


def _check_list(spec: Mapping[str, Any], where: str) -> None:
    if not isinstance(spec.get("value"), list):
        raise OpsError(f"{where}.value: expected a list of arguments, got {_kind(spec.get('value'))}")
    for number, item in enumerate(spec["value"]):
        _check_type(item, f"{where}.value[{number}]")


def _check_dtype(name: Any, where: str) -> None:
    if not isinstance(name, str) or name not in DTYPES:
        hint = registry.did_you_mean(str(name), DTYPES) or f"; there are {', '.join(DTYPES)}"
        raise OpsError(f"{where}: unknown dtype {name!r}{hint}")


def _check_range(bounds: Any, wanted: Any, said: str, where: str) -> None:
    fits = isinstance(bounds, list) and len(bounds) in (2, 3) and all(_is(bound, wanted) for bound in bounds)
    if not fits or (len(bounds) == 3 and bounds[2] == 0):
        raise OpsError(f"{where}: expected [first, last, step], each {said} and no step of 0, got {bounds!r}")


def _check_bounds(bounds: Any, wanted: Any, said: str, where: str) -> None:
    if not isinstance(bounds, list) or len(bounds) != 2 or not all(_is(bound, wanted) for bound in bounds):
        raise OpsError(f"{where}.value_range: expected [min, max], each {said}, got {bounds!r}")
    if bounds[0] > bounds[1]:
        raise OpsError(f"{where}.value_range: min {bounds[0]!r} is above max {bounds[1]!r}")


def _need(spec: Mapping[str, Any], key: str, wanted: Any, said: str, where: str) -> None:
    if key not in spec:
        raise OpsError(f"{where}: {spec.get('type')} needs '{key}'")
    for value in _each(spec, key):
        if not _is(value, wanted if isinstance(wanted, tuple) else (wanted,)):
            raise OpsError(f"{where}.{key}: expected {said}, got {value!r}")


def _each(spec: Mapping[str, Any], key: str) -> Sequence[Any]:
    is_several = any(key in (spec.get(macro) or ()) for macro in ("__range__", "__list__"))
    return spec.get(key) if is_several else [spec.get(key)]  # type: ignore[return-value]


def _is(value: Any, wanted: tuple[type, ...]) -> bool:
    """isinstance in which true and false are no numbers."""
    return isinstance(value, wanted) and (bool in wanted or not isinstance(value, bool))


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), type(value).__name__)
