"""Whether a benchmark has all that its sweep over a server needs, and nothing that does not go with it, and whether a file
is a trace.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from milabench.config.kinds import ValueParser
from milabench.config.read import content_of
from milabench.config.schema import ServerConfig
from milabench.config.serving import FREE_PORT, MOST_REQUESTS, POINTS, ServeConfig
from milabench.config.source_map import Located
from milabench.errors import ConfigError, Problem

MAX_TRACE: Final = 256 * 2**20
_OF_PROMPTS: Final = ("input_tokens", "prefix_tokens")


def is_whole_sweep(name: str, node: Located, values: Mapping[str, object], parser: ValueParser) -> bool:
    """Return whether a benchmark has all that its sweep needs, and nothing that does not go with it. A problem is noted.

    `node` is the benchmark, `values` are its keys, each of which is of its kind.
    """
    wrong = next(_wrong(node, values, parser), None)
    if wrong is not None:
        key, what, hint = wrong
        located = node
        for part in key.split("."):
            located = located.value.get(part, located)
        parser.reject(located, f"{name}.{key}", what, hint)
    return wrong is None


def _wrong(node: Located, values: Mapping[str, Any], parser: ValueParser) -> Iterator[tuple[str, str, str]]:
    """Yield problems of a benchmark and its sweep: the key, the problem, a hint."""
    server: ServerConfig | None = values.get("server")
    url = server.url if server is not None else ""
    if values.get("serve") is not None:
        given = {key for key, child in node.value["serve"].value.items() if child.value is not None}
        yield from _wrong_benchmark_elsewhere(values) if url else _wrong_benchmark(values)
        if "definition" not in values:
            hint = "write definition: FOLDER, whose requirements have the client"
            yield "serve", "its client needs an environment", hint
        yield from _wrong_sweep(values["serve"], given, parser)
    elif url:
        yield "server.url", "only a sweep goes to a server that runs already", "write serve: {...}"


def _wrong_benchmark(values: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield other keys of the benchmark that contradict its sweep."""
    serve: ServeConfig = values["serve"]
    server: ServerConfig | None = values.get("server")
    if server is None:
        hint = "write server: {command: [...], argv: {...}, ready: {port: '@port'}}, or server: {url: ...} of a running server"
        yield "serve", "a sweep needs a server", hint
        return
    if "command" in values:
        yield "command", "with a sweep it would be server and client", "write it as server.command"
    if not _has_port(server):
        what = "the client does not know its port: ready has none, and no argument is @port"
        yield "server", what, "write ready: {port: '@port'}, and give '@port' to its program"
    if serve.on_server_exit == "restart" and not _is_port(server.ready.condition):
        yield "serve.on_server_exit", "nobody would know when the server is back", "write server.ready: {port: '@port'}"


def _wrong_benchmark_elsewhere(values: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield keys that contradict a sweep over a server that is not started here."""
    server: ServerConfig = values["server"]
    own = {"command": server.command, "argv": server.argv, "ready": server.ready.condition}
    given = ["command"] * ("command" in values) + [f"server.{name}" for name, is_given in own.items() if is_given]
    for name in given:
        yield name, "server.url names a server that runs already", "leave out either of them"
    if values["serve"].on_server_exit == "restart":
        yield "serve.on_server_exit", "nobody here starts the server of server.url", "leave it out"


def _wrong_sweep(serve: ServeConfig, given: Collection[str], parser: ValueParser) -> Iterator[tuple[str, str, str]]:
    if not serve.model:
        yield "serve", "the key 'model' is missing", "name the model that requests ask for"
    tokenizer = serve.tokenizer or serve.model
    if tokenizer and tokenizer != "words" and not tokenizer.startswith(("/", "{")):
        # The step runs in a folder of its own: no relative path leads anywhere from there.
        hint = "name its folder, as {milabench_data}/... or with its whole path; or `words`, for a server without a tokenizer"
        yield (
            f"serve.{'tokenizer' if serve.tokenizer else 'model'}",
            f"{tokenizer}/tokenizer.json is not a whole path",
            f"in serve.tokenizer {hint}",
        )
    if not serve.points:
        yield "serve", "a sweep needs a point", f"give {', '.join(POINTS[:-1])} or {POINTS[-1]}"
    if serve.scenario and serve.client != "loadgen":
        yield "serve.scenario", f"{serve.client} has no scenarios", "write client: loadgen, or give concurrency or rate"
    if serve.most_requests > MOST_REQUESTS:
        what = f"a point would have {serve.most_requests:.4g} requests, {MOST_REQUESTS} are the most"
        yield "serve", what, "give fewer requests, rounds or seconds"
    yield from _wrong_lengths(serve)
    if not serve.trace:
        return
    for key in _OF_PROMPTS:
        if key in given:
            yield f"serve.{key}", "a trace has prompts of its own", f"leave out {key} or trace"
    # What begins with a placeholder is made by prepare, and looked at by the client.
    if not serve.trace.startswith("{"):
        try:
            parser.read_once(check_conversations, Path(serve.trace))
        except ConfigError as error:
            (problem,) = error.problems
            yield "serve.trace", f"{problem.where}: {problem.what}", problem.hint


def _wrong_lengths(serve: ServeConfig) -> Iterator[tuple[str, str, str]]:
    lengths = serve.input_tokens
    name, least = "", lengths
    if isinstance(lengths, Mapping):
        name, least = next((f".{name}", lengths[name]) for name in ("mean", "least") if name in lengths)
    if serve.prefix_tokens > least:
        what = f"{serve.prefix_tokens} is above input_tokens{name}, {least}, of which it is a part"
        yield "serve.prefix_tokens", what, "give a longer input or a shorter prefix"


def _has_port(server: ServerConfig) -> bool:
    words = [*server.command, *(word for argument in server.argv for word in _words(argument))]
    condition = server.ready.condition
    return _is_port(condition) or any(word.endswith(FREE_PORT) for word in words)


def _is_port(condition: str) -> bool:
    # What a placeholder becomes is known when it is planned.
    return condition == FREE_PORT or condition.isdecimal() or condition.startswith("{")


def _words(argument: Any) -> tuple[str, ...]:
    if isinstance(argument, str):
        return (argument,)
    value = argument[1]
    return tuple(map(str, value)) if isinstance(value, tuple) else (str(value),)


def check_conversations(file: Path) -> None:
    """Return when the lines of a file are conversations. Raises ConfigError with the first that is none.

    A line is `{"session": NAME, "turns": [{"input": TEXT, "output_tokens": N, "delay_ms": MS}, ...]}`, of which `session`,
    `output_tokens` and `delay_ms` may be absent.
    """
    count = 0
    for number, line in enumerate(content_of(file, MAX_TRACE).split(b"\n"), 1):
        if not line.strip():
            continue
        count += 1
        if what := _wrong_session(line):
            raise ConfigError(Problem(f"{file}:{number}", "", what, _TRACE_HINT))
    if not count:
        raise ConfigError(Problem(str(file), "", "it has no line", _TRACE_HINT))


_TRACE_HINT: Final = (
    'a line is {"session": NAME, "turns": [{"input": TEXT, "output_tokens": NUMBER, "delay_ms": NUMBER}, ...]}'
)


def _wrong_session(line: bytes) -> str:
    from milabench.events.stored_json import from_json_value
    from milabench.sweeps.trace import TraceSession

    try:
        from_json_value(TraceSession, json.loads(line))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        return "not JSON"
    except ValueError as error:
        return str(error)
    return ""
