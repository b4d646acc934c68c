"""Arguments as a process gets them: placeholders resolved, `auto(...)`, `auto_batch(...)` and `expr(...)` worked
out. No shell, no eval.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from milabench.config import expr
from milabench.config.kinds import Argument
from milabench.config.schema import BenchmarkConfig
from milabench.config.template import Field, FieldError, parts, text_of, unescaped, value_of
from milabench.errors import ConfigError, Problem

AUTO_CPU: Final = "_auto_cpu"
"""The name that says whether CPU sizing is enabled."""
AUTO_BATCH: Final = "_auto_batch"
"""The name of the function from a benchmark's own batch size to the one that fits; absent where no sizing is asked
for.
"""

_CALL: Final = re.compile(r"(?<![\w.])(auto_batch|auto|expr)\(")
_ARGUMENTS: Final = ("argv", "server.argv", "client.argv", "command")
_NUMBER: Final = re.compile(r"[-+]?\d{1,18}\Z")
_MAX_DEPTH: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where a text stands, for messages."""

    where: str
    path: str

    def error(self, what: str, way_out: str = "") -> ConfigError:
        return ConfigError(Problem(where=self.where, path=self.path, what=what, way_out=way_out))


def render_argv(
    bench: BenchmarkConfig,
    names: Mapping[str, Any],
    *,
    key: str = "argv",
    declared_flags: frozenset[str] = frozenset(),
) -> tuple[str, ...]:
    """The arguments of a benchmark; `key` is `argv`, `server.argv`, `client.argv` or `command`.

    Of a mapping, keys without a leading dash come first, then options, then what is under `--`. null and false drop
    the key, true is a bare flag, a list is joined by commas; false gives `--no-x` where `declared_flags` has `--x`.
    A list is verbatim. Raises ConfigError, with every placeholder that cannot be resolved and its place.
    """
    arguments = _arguments(bench, key)
    positional: list[str] = []
    options: list[str] = []
    tail: list[str] = []
    problems: list[Problem] = []
    for index, argument in enumerate(arguments):
        name = str(index) if isinstance(argument, str) else argument[0]
        place = _Place(where=bench.origin.where(f"{key}.{name}"), path=f"{bench.name}.{key}.{name}")
        try:
            if isinstance(argument, str):
                options.append(_rendered(argument, names, place, 0))
            elif argument[0] == "--":
                tail.extend(_rendered(_text(item), names, place, 0) for item in _items(argument[1]))
            else:
                target = options if argument[0].startswith("-") else positional
                target.extend(_option(argument[0], argument[1], names, place, declared_flags))
        except ConfigError as error:
            problems.extend(error.problems)
    if problems:
        raise ConfigError(problems)
    return (*positional, *options, *tail)


def render_env(bench: BenchmarkConfig, names: Mapping[str, Any]) -> dict[str, str]:
    """The benchmark's environment variables with their placeholders resolved. Raises ConfigError with every problem."""
    made: dict[str, str] = {}
    problems: list[Problem] = []
    for name, text in bench.env.items():
        place = _Place(where=bench.origin.where(f"env.{name}"), path=f"{bench.name}.env.{name}")
        try:
            made[name] = _rendered(text, names, place, 0)
        except ConfigError as error:
            problems.extend(error.problems)
    if problems:
        raise ConfigError(problems)
    return made


def render_text(text: str, names: Mapping[str, Any], *, where: str = "", path: str = "") -> str:
    """Any text with its placeholders resolved. Raises ConfigError where one cannot be."""
    return _rendered(text, names, _Place(where=where, path=path), 0)


def placeholders(bench: BenchmarkConfig, key: str = "argv") -> tuple[str, ...]:
    """The placeholders and functions in the value of a key, as written, for `config explain`."""
    found: dict[str, None] = {}
    for text in texts(bench, key):
        found.update((part.text, None) for part in parts(text) if isinstance(part, Field))
        found.update((f"{call[1]}(...)", None) for call in _CALL.finditer(text))
    return tuple(found)


def auto_batches(bench: BenchmarkConfig, names: Mapping[str, Any], keys: Sequence[str] = ("argv",)) -> tuple[int, ...]:
    """The distinct batch sizes that `auto_batch(...)` has come to in the arguments under these keys."""
    found: dict[int, None] = {}
    for text in (text for key in keys for text in texts(bench, key) if "auto_batch(" in text):
        place = _Place(where=bench.origin.where(keys[0]), path=bench.name)
        for _, _, name, argument in _calls(text, place):
            if name == "auto_batch":
                size = _batch(argument, names, place, 0)
                if _NUMBER.match(size):
                    found[int(size)] = None
    return tuple(found)


def texts(bench: BenchmarkConfig, key: str) -> Iterator[str]:
    """Every text in the value of a key whose placeholders would be resolved."""
    if key in _ARGUMENTS:
        for argument in _arguments(bench, key):
            yield from [argument] if isinstance(argument, str) else [argument[0], *map(_text, _items(argument[1]))]
        return
    top, _, rest = key.partition(".")
    if top == "env":
        yield from [bench.env[rest]] if rest in bench.env else list(bench.env.values())
        return
    for below in _ARGUMENTS:
        if key.startswith(f"{below}."):
            name = key.removeprefix(f"{below}.")
            for number, argument in enumerate(_arguments(bench, below)):
                if isinstance(argument, str):
                    yield from [argument] if name == str(number) else []
                elif argument[0] == name:
                    yield from map(_text, _items(argument[1]))


def _arguments(bench: BenchmarkConfig, key: str) -> tuple[Argument, ...]:
    match key:
        case "argv":
            return bench.argv
        case "server.argv":
            return bench.server.argv if bench.server else ()
        case "client.argv":
            return bench.client.argv if bench.client else ()
        case "command":
            return bench.command
        case _:
            raise ValueError(f"a benchmark has no arguments under {key!r}")


def _items(value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    return value if isinstance(value, tuple) else (value,)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


def _option(
    key: str, value: Any, names: Mapping[str, Any], place: _Place, declared_flags: frozenset[str]
) -> Iterator[str]:
    if value is None:
        return
    if value is False:
        if key in declared_flags and key.startswith("--"):
            yield f"--no-{key[2:]}"
        return
    yield _rendered(key, names, place, 0)
    if value is not True:
        yield ",".join(_rendered(_text(item), names, place, 0) for item in _items(value))


def _rendered(text: str, names: Mapping[str, Any], place: _Place, depth: int) -> str:
    """The text with its function calls worked out and its placeholders filled in; doubled braces become single."""
    if "{" not in text and "}" not in text and "(" not in text:
        return text
    if depth > _MAX_DEPTH:
        raise place.error("functions are nested too deep")
    made: list[str] = []
    position = 0
    for start, end, name, argument in _calls(text, place):
        made.append(_filled(text[position:start], names, place))
        made.append(_called(name, argument, names, place, depth))
        position = end
    made.append(_filled(text[position:], names, place))
    return "".join(made)


def _calls(text: str, place: _Place) -> Iterator[tuple[int, int, str, str]]:
    """The outermost function calls: start, end, name and what stands between the parentheses."""
    position = 0
    while (found := _CALL.search(text, position)) is not None:
        end = _closing(text, found.end())
        if end is None:
            raise place.error(f"the parenthesis of {found[1]}( is not closed", "close it")
        yield found.start(), end + 1, found[1], text[found.end() : end]
        position = end + 1


def _closing(text: str, position: int) -> int | None:
    depth = 1
    quote = ""
    for index in range(position, len(text)):
        char = text[index]
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
            if depth == 0:
                return index
    return None


def _split(text: str) -> list[str]:
    """The arguments of a call, separated at the commas that are not inside parentheses, brackets or quotes."""
    pieces: list[str] = []
    depth = 0
    quote = ""
    start = 0
    for index, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and depth == 0:
            pieces.append(text[start:index].strip())
            start = index + 1
    pieces.append(text[start:].strip())
    return pieces


def _called(name: str, argument: str, names: Mapping[str, Any], place: _Place, depth: int) -> str:
    match name:
        case "auto":
            choices = _split(argument)
            if len(choices) != 2 or not all(choices):
                raise place.error(f"auto takes two values, got auto({argument})", "write auto({n_worker}, 8)")
            return _rendered(choices[0] if names.get(AUTO_CPU) else choices[1], names, place, depth + 1)
        case "auto_batch":
            return _batch(argument, names, place, depth)
        case _:
            text, more = _expression(argument, names, place)
            value = expr.evaluate(text, {**names, **more}, where=place.where, path=place.path)
            return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _batch(argument: str, names: Mapping[str, Any], place: _Place, depth: int) -> str:
    choices = _split(argument)
    if len(choices) != 1 or not choices[0]:
        raise place.error(f"auto_batch takes one value, got auto_batch({argument})", "write auto_batch(128)")
    own = _rendered(choices[0], names, place, depth + 1)
    sizer = names.get(AUTO_BATCH)
    if sizer is None:
        return own
    if not _NUMBER.match(own):
        raise place.error(f"auto_batch takes a whole number, got {own!r}", "write auto_batch(128)")
    return str(sizer(int(own)))


def _expression(argument: str, names: Mapping[str, Any], place: _Place) -> tuple[str, dict[str, Any]]:
    """The expression with its placeholders as values outside quotes and as text inside, and names for lists."""
    made: list[str] = []
    more: dict[str, Any] = {}
    quote = ""
    for part in parts(argument):
        if isinstance(part, str):
            for char in part:
                if quote:
                    quote = "" if char == quote else quote
                elif char in "'\"":
                    quote = char
            made.append(part)
            continue
        value = _looked_up(part, names, place)
        if isinstance(value, Mapping | list | tuple):
            name = f"_value{len(more)}"
            more[name] = value
            made.append(name)
        else:
            made.append(str(value) if quote or isinstance(value, int | float) else repr(_number_or_text(value)))
    return "".join(made), more


def _number_or_text(value: Any) -> Any:
    return int(value) if isinstance(value, str) and _NUMBER.match(value) else value


def _filled(text: str, names: Mapping[str, Any], place: _Place) -> str:
    if "{" not in text and "}" not in text:
        return text
    # Braces are unescaped over the whole text, so that those of one JSON object are seen together; values are put in
    # afterwards.
    pieces = parts(text)
    if all(isinstance(piece, str) for piece in pieces):
        return unescaped(text)
    marked = "".join(piece if isinstance(piece, str) else "\0" for piece in pieces)
    literals = unescaped(marked).split("\0")
    values = [_in_place(piece, names, place) for piece in pieces if isinstance(piece, Field)]
    return literals[0] + "".join(value + literal for value, literal in zip(values, literals[1:], strict=True))


def _in_place(field: Field, names: Mapping[str, Any], place: _Place) -> str:
    value = _looked_up(field, names, place)
    if isinstance(value, Mapping | list | tuple):
        raise place.error(f"the placeholder {field.text} is not one value", "go on with [name] or [number]")
    try:
        return text_of(field, value)
    except ValueError as error:
        raise place.error(f"the placeholder {field.text} cannot be formatted: {error}") from None


def _looked_up(field: Field, names: Mapping[str, Any], place: _Place) -> Any:
    if field.name.startswith("_"):
        raise _unresolved(FieldError(field, field.name, tuple(names)), place)
    try:
        value = value_of(field, names)
    except FieldError as error:
        raise _unresolved(error, place) from None
    if value is None:
        raise place.error(f"the placeholder {field.text} has no value here", "give it one in the system file")
    return value


def _unresolved(error: FieldError, place: _Place) -> ConfigError:
    known = sorted(name for name in error.known if not name.startswith("_"))
    near = difflib.get_close_matches(error.name, known, 1)
    way_out = f"did you mean {near[0]!r}?" if near else "double the braces if they are meant as such"
    return place.error(f"the placeholder {error.field.text} cannot be resolved, there is no {error.name!r}", way_out)
