"""Whether a benchmark has all that its sweep over a server needs, and nothing that does not go with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from milabench.config.kinds import ValueParser
from milabench.config.schema import ServerConfig
from milabench.config.serving import FREE_PORT, POINTS, ServeConfig
from milabench.config.source_map import Located

_OF_PROMPTS: Final = ("input_tokens", "output_tokens", "prefix_tokens")


def is_whole_sweep(name: str, node: Located, values: Mapping[str, Any], parser: ValueParser) -> bool:
    """Return whether a benchmark has all that its sweep needs, and nothing that does not go with it; problems are noted.

    `node` is the benchmark, `values` are its keys, each of which is of its kind.
    """
    serve: ServeConfig | None = values.get("serve")
    if serve is None:
        return True
    located: Located = node.value["serve"]
    given = {key for key, child in located.value.items() if child.value is not None}
    server: ServerConfig | None = values.get("server")

    def wrong(what: str, hint: str, key: str = "", *, of_serve: bool = True) -> bool:
        parent, path = (located, f"{name}.serve") if of_serve else (node, name)
        parser.reject(parent.value.get(key, parent), f"{path}.{key}" if key else path, what, hint)
        return False

    if server is None:
        return wrong("a sweep needs a server", "write server: {command: [...], argv: {...}, ready: {port: '@port'}}")
    if "definition" not in values:
        return wrong("the client needs an environment", "write definition: FOLDER, whose requirements hold the client")
    if "command" in values:
        return wrong("a command stands for server and client", "write it as server.command", "command", of_serve=False)
    if not serve.model:
        return wrong("the key 'model' is missing", "name the model that requests ask for")
    if not serve.points:
        return wrong("a sweep needs at least one point", f"give {', '.join(POINTS[:-1])} or {POINTS[-1]}")
    if serve.scenario and serve.client != "loadgen":
        return wrong(f"{serve.client} has no scenarios", "write client: loadgen, or concurrency or rate", "scenario")
    if "trace" in given and (key := next((key for key in _OF_PROMPTS if key in given), None)) is not None:
        return wrong("a trace has prompts and lengths of its own", f"leave out {key} or trace", key)
    if not _has_port(server):
        what = "the client has no port to go to: server.ready has none, and no argument is @port"
        return wrong(
            what, "write ready: {port: '@port'}, and give the server's program '@port'", "server", of_serve=False
        )
    return True


def _has_port(server: ServerConfig) -> bool:
    words = [*server.command, *(word for argument in server.argv for word in _words(argument))]
    condition = server.ready.condition
    return condition == FREE_PORT or condition.isdecimal() or any(word.endswith(FREE_PORT) for word in words)


def _words(argument: Any) -> tuple[str, ...]:
    if isinstance(argument, str):
        return (argument,)
    value = argument[1]
    return tuple(map(str, value)) if isinstance(value, tuple) else (str(value),)
