"""Shows a suite to people: resolved YAML, and the source of each value."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any, Final

from milabench.config.definition import plain_definition
from milabench.config.interpolate import escaped
from milabench.config.kinds import Argument
from milabench.config.problems import did_you_mean
from milabench.config.scalars import resolve_scalar
from milabench.config.schema import BENCHMARK, BenchmarkConfig, ServerConfig, Suite
from milabench.config.select import lacking_problems
from milabench.config.sizes import SIZES_KEY, layers_of
from milabench.config.source_map import BUILT_IN, Origin, shown_scalar
from milabench.errors import ConfigError, with_remedy
from milabench.redaction import MASK, is_secret_name, mask_settings

_PLAIN_TEXT: Final = re.compile(r"[A-Za-z_/][A-Za-z0-9_./+-]*(?: [A-Za-z0-9_./+-]+)*\Z")
_PLAIN_KEY: Final = re.compile(r"(?:[A-Za-z_]|-{1,2}[A-Za-z_])[A-Za-z0-9_./+=-]*\Z")
# What a double-quoted text cannot hold, or a terminal cannot show.
_NOT_AS_IT_IS: Final = re.compile('["\\\\\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\U00010000-\U0010ffff]')
_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}
_NOT_SET: Final = "(not set)"
_REFERENCE: Final = re.compile(r"\$\{[^{}]*\}")


class Written(str):
    """A text that is written into a suite unchanged, with its interpolations."""


# --- plain data and YAML --------------------------------------------------------------------------------------------


def plain_benchmark(bench: BenchmarkConfig) -> dict[str, Any]:
    """Return the benchmark as plain data under the keys of the suite language, without default values."""
    keys: dict[str, Any] = {} if bench.definition is None else {"definition": plain_definition(bench.definition)}
    for declared in fields(bench):
        name = declared.name
        value = getattr(bench, name)
        if name in BENCHMARK.keys and name not in ("inherits", "definition") and value != BENCHMARK.keys[name].default:
            keys[name] = _plain_field(name, value)
    if any(isinstance(value, list | tuple) for value in bench.matrix.values()):
        keys["job"] = None  # a choice that is a list; without this it would read as a matrix that lacks its job
    if bench.size:
        keys["sizes"] = {bench.size: {}}  # it is one of a size, whose keys are among the others
    keys.update({key: _data(value) for key, value in bench.options.items()})
    return keys


def benchmark_completions(bench: BenchmarkConfig) -> dict[str, Any]:
    """Return the benchmark as plain JSON data, as programs receive it: every key, including defaults, and its name."""
    names = [declared.name for declared in fields(bench) if declared.name != "origin"]
    return {name: _plain_field(name, getattr(bench, name)) for name in names}


def plain_file(suite: Suite) -> dict[str, Any]:
    """Return the keys of a suite that are no benchmarks as plain data, without default values."""
    asked = {"profile": suite.profile, "precision": suite.precision, "size": suite.size}
    file: dict[str, Any] = {key: value for key, value in asked.items() if value not in ("default", None, "")}
    # The kind of accelerator that was detected is in the mapping too.
    system = {key: value for key, value in suite.system.raw.items() if key != "arch" or suite.system.arch is not None}
    if system:
        file["system"] = system
    if suite.multirun:
        file["multirun"] = {"runs": [{"name": each.name, "matrix": dict(each.matrix)} for each in suite.multirun]}
    return file


def to_yaml(suite: Suite, names: Iterable[str] | None = None) -> str:
    """Return the suite, or its named benchmarks, as YAML in which everything is resolved but placeholders.

    Reading it back gives the same values, but for secrets, which are shown nowhere. Raises ConfigError for benchmarks that
    lack the size asked for.
    """
    if names is None and (problems := lacking_problems(suite)):
        raise ConfigError(problems)
    file = plain_file(suite) if names is None else {}
    chosen = suite.benchmarks if names is None else names
    parts = [file, *({name: plain_benchmark(_benchmark(suite, name))} for name in chosen)]
    return "\n".join(mapping_yaml(mask_settings(part)) for part in parts if part) or "{}\n"


def mapping_yaml(mapping: Mapping[str, object]) -> str:
    """Return plain data as YAML, in the style of `to_yaml`. Secrets stay in it."""
    lines: list[str] = []
    for key, value in mapping.items():
        _emit(key, value, 0, lines)
    return "".join(f"{line}\n" for line in lines)


def _plain_field(name: str, value: Any) -> Any:
    match name:
        case "definition":
            return plain_definition(value)
        case "argv":
            return _plain_arguments(value)
        case "client" if value is not None:
            return {"argv": _plain_arguments(value.argv)}
        case "server" if value is not None:
            return _plain_server(value)
        case "serve" if value is not None:
            defaults = type(value)()
            return {key: _data(item) for key, item in _fields_of(value).items() if item != getattr(defaults, key)}
        case "container" | "describe":
            return {key: _data(item) for key, item in _fields_of(value).items() if item not in (None, "", ())}
        case "gated" | "answers":
            return None if value is None else _fields_of(value)
        case "plan":
            given = {key: item for key, item in _fields_of(value).items() if key != "extra" and item not in (None, ())}
            return _data({**given, **value.extra})
        case "resources":
            return _plain_resources(value)
        case "cwd":
            return None if value is None else str(value)
        case "metrics":
            return {metric: _fields_of(keys) for metric, keys in value.items()}
        case _:
            return _data(value)


def _plain_server(value: ServerConfig) -> dict[str, Any]:
    server = {"command": _data(value.command)} if value.command else {}
    ready: Any = value.ready.condition
    if value.ready.path:
        ready = {key: item for key, item in _fields_of(value.ready).items() if item not in (None, "")}
    elif ready and value.ready.timeout:
        ready = {"pattern": ready, "timeout": value.ready.timeout}
    return {**server, "argv": _plain_arguments(value.argv), **({"ready": ready} if ready else {})}


def _fields_of(value: Any) -> dict[str, Any]:
    return {declared.name: getattr(value, declared.name) for declared in fields(value)}


def _plain_resources(value: object) -> dict[str, Any]:
    """Return known resources by their keys. Amounts of memory are numbers of MiB."""
    given = {name.removesuffix("_mib"): item for name, item in _fields_of(value).items() if item is not None}
    if "environment" in given:
        given["environment"] = _plain_resources(given["environment"])
    return {name: item for name, item in given.items() if item != {}}


def _plain_arguments(arguments: tuple[Argument, ...]) -> Any:
    if any(isinstance(argument, str) for argument in arguments):
        return [argument for argument in arguments if isinstance(argument, str)]
    return {argument[0]: _data(argument[1]) for argument in arguments}


def _data(value: object) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _data(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_data(item) for item in value]
    return value


def _emit(key: str, value: object, indent: int, lines: list[str]) -> None:
    start = f"{' ' * indent}{_key(key)}:"
    if isinstance(value, Mapping) and value:
        lines.append(start)
        for name, item in value.items():
            _emit(str(name), item, indent + 2, lines)
    elif isinstance(value, list | tuple) and value and any(isinstance(item, Mapping | list | tuple) for item in value):
        lines.append(start)
        for item in value:
            lines.append(f"{' ' * (indent + 2)}- {_flow(item)}")
    else:
        lines.append(f"{start} {_flow(value)}")


def _flow(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(str(key))}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    match value:
        case Written():
            return _quoted(value)
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float():
            return _float(value)
        case int():
            return str(value)
        case _:
            return _text(str(value))


def _float(value: float) -> str:
    return str(value) if math.isfinite(value) else str(value).replace("inf", ".inf").replace("nan", ".nan")


def _key(text: str) -> str:
    return text if _PLAIN_KEY.match(text) and not text.endswith("-") else _quoted(text)


def _text(text: str) -> str:
    if _PLAIN_TEXT.match(text) and resolve_scalar(text) == (text, ""):
        return text
    return _quoted(escaped(text))


def _quoted(text: str) -> str:
    return '"' + _NOT_AS_IT_IS.sub(lambda char: _SHORT.get(char[0], f"\\U{ord(char[0]):08x}"), text) + '"'


# --- where a value comes from ---------------------------------------------------------------------------------------


def explain(suite: Suite, key: str) -> tuple[str, ...]:
    """Return lines with the value of `benchmark.key` (or `system.key`), where it was set, and the value it replaced.

    Raises ConfigError, with the nearest names, where there is no such benchmark or key.
    """
    name, rest = split_key(suite, key)
    if name == "system" and name not in suite.benchmarks:
        return _explained(key, rest, suite.system.origin, suite.system.raw)
    bench = _benchmark(suite, name)
    values = benchmark_completions(bench)
    values.update(values.pop("options"))
    values[SIZES_KEY] = bench.origin.data(SIZES_KEY) or {}
    if rest in ("size", SIZES_KEY):
        return (f"{key} = {_flow(mask_settings(values)[rest])}", *_size_lines(suite, bench, values[SIZES_KEY]))
    if bench.serve is not None:
        values.update({f"serve.{of}": value for of, value in bench.serve.to_json().items()})
    return _explained(key, rest, bench.origin, values)


def _size_lines(suite: Suite, bench: BenchmarkConfig, sizes: Mapping[str, Any]) -> Iterator[str]:
    """Yield the size of a benchmark, its source, the size it replaced, and the keys laid over the benchmark for it."""
    asked = bench.origin.get("size")
    if asked is None:
        yield "  it has no sizes: it is the same at each"
        return
    is_default = asked.where == str(BUILT_IN)
    by = "the default: no file, --size or MILABENCH_SIZE chooses a size" if is_default else f"chosen by {asked.where}"
    yield f"  the size {bench.origin.data('size')} is {by}"
    yield from (f"  replaces {_flow(value)}, set at {where}" for where, value in asked.replaced)
    if lacks := suite.lacking.get(bench.name):
        yield f"  {with_remedy(lacks.what, lacks.hint)}"
    for size in layers_of(bench.size):
        if size in sizes:
            keys = ", ".join(sizes[size] or ()) or "nothing"
            yield f"  {size} changes {keys}, at {bench.origin.where(f'{SIZES_KEY}.{size}')}"


def split_key(suite: Suite, key: str) -> tuple[str, str]:
    """Return the benchmark, or `system`, and the key in `benchmark.key`. Raises ConfigError where there is no such benchmark."""
    names = [name for name in (*suite.benchmarks, "system") if key == name or key.startswith(name + ".")]
    if not names:
        known = (*suite.benchmarks, "system")
        hint = (
            did_you_mean(key.partition(".")[0], known)
            or "write BENCH.KEY, with a name from `milabench list`, or system.KEY"
        )
        raise ConfigError(with_remedy(f"unknown benchmark in {key!r}", hint))
    name = max(names, key=len)
    return name, key[len(name) + 1 :]


def _explained(key: str, rest: str, origins: Mapping[str, Origin], given: Mapping[str, object]) -> tuple[str, ...]:
    values = dict(_by_path(mask_settings(given), ""))
    if not rest:
        # What the other sizes would say is no value of it.
        paths = [path for path in origins if path.partition(".")[0] != SIZES_KEY]
        ends = [path for path in paths if not any(other.startswith(path + ".") for other in paths)]
        return tuple(f"{key}.{path} = {values.get(path, _NOT_SET)}  ({origins[path].where})" for path in ends)
    origin = origins.get(rest)
    if origin is None:
        if rest in values:
            return (f"{key} = {values[rest]}", "  built-in default")
        hint = did_you_mean(rest, [*origins, *given])
        raise ConfigError(with_remedy(f"{key!r} is not set", hint))
    lines = [f"{key} = {values.get(rest, _NOT_SET)}", f"  set at {origin.where}"]
    if origin.interpolated is not None:
        references = ", ".join(dict.fromkeys(_REFERENCE.findall(origin.interpolated)))
        lines.append(
            f"  written as {shown_scalar(origin.interpolated)}, in which {references or '${...}'} was resolved"
        )
    is_secret = is_secret_name(rest.rpartition(".")[2])
    replaced = ((where, MASK if is_secret else mask_settings(value)) for where, value in origin.replaced)
    lines.extend(f"  replaces {_flow(value)}, set at {where}" for where, value in replaced)
    return tuple(lines)


def _by_path(value: object, path: str) -> Iterator[tuple[str, str]]:
    """Yield the dotted path of a value and of every value in it, each with its text."""
    yield path, _flow(value)
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _by_path(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _by_path(item, f"{path}.{index}")


def _benchmark(suite: Suite, name: str) -> BenchmarkConfig:
    if name not in suite.benchmarks:
        hint = did_you_mean(name, suite.benchmarks)
        raise ConfigError(with_remedy(f"unknown benchmark {name!r}", hint))
    return suite.benchmarks[name]
