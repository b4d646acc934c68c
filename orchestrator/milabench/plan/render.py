"""Templates as a process gets them: placeholders resolved, `auto(...)`, `auto_batch(...)` and `expr(...)` worked out.

No shell, no eval. `render_benchmark` renders everything that a process of a benchmark needs, in a single pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from milabench.config import expr
from milabench.config.kinds import Argument
from milabench.config.problems import Problems, UnplacedProblem, did_you_mean
from milabench.config.schema import BenchmarkConfig
from milabench.config.template import Field, FieldError, parts, text_of, unescaped, value_of

# Names with an underscore cannot be reached by a placeholder.
AUTO_CPU: Final = "_auto_cpu"
"""The name that says whether CPU sizing is enabled."""
AUTO_BATCH: Final = "_auto_batch"
"""The name of the function from a benchmark's own batch size to the size that fits. Absent where no sizing is asked
for.
"""

_CALL: Final = re.compile(r"(?<![\w.])(auto_batch|auto|expr)\(")
_ARGUMENT_KEYS: Final = ("argv", "server.argv", "client.argv", "command", "server.command")
_SERVE_TEXTS: Final = ("model", "served_model", "tokenizer", "trace")
_RENDERED_KEYS: Final = (*_ARGUMENT_KEYS, "env", *(f"serve.{name}" for name in _SERVE_TEXTS))
_NUMBER: Final = re.compile(r"[-+]?\d{1,18}\Z")
_MAX_DEPTH: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedBenchmark:
    """Everything of a benchmark that had placeholders, as a process gets it.

    `launcher_options` are the further keys of `plan`, `batch_sizes` the distinct sizes that `auto_batch(...)` came to in
    the arguments. `serve` is the sweep with all its keys, empty where there is none.
    """

    arguments: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    serve: Mapping[str, Any] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    launcher_options: Mapping[str, object] = field(default_factory=dict)
    ready: str = ""
    url: str = ""
    prerun: str = ""
    batch_sizes: tuple[int, ...] = ()


def render_benchmark(
    bench: BenchmarkConfig,
    names: Mapping[str, Any],
    *,
    argument_keys: Sequence[str] = ("argv",),
    command_key: str = "command",
    command: Sequence[str] | None = None,
    flags: frozenset[str] = frozenset(),
    has_launcher: bool = False,
    is_preparation: bool = False,
) -> RenderedBenchmark:
    """Render the values that a process of the benchmark needs.

    `argument_keys` are where its arguments stand, in order: of a client `client.argv`, then `argv`. `command_key` is where
    its command is declared. `command` are the templates of a command from elsewhere. `flags` are those that the benchfile
    declares. Options of a launcher are rendered if it starts the process. A preparation has neither launcher nor server,
    nor a command of the suite. Raises ConfigError with every placeholder that cannot be resolved and its place.
    """
    renderer = _Renderer(bench, names)
    arguments = tuple(word for key in argument_keys for word in renderer.arguments(key, flags))
    sizes = tuple(renderer.batch_sizes)
    env = {name: renderer.text(text, f"env.{name}") for name, text in bench.env.items()}
    serve = renderer.serve()
    own_command = None if command is None else tuple(renderer.text(word, argument_keys[0]) for word in command)
    rendered = RenderedBenchmark(
        arguments=arguments, env=env, serve=serve, command=own_command or (), batch_sizes=sizes
    )
    if not is_preparation:
        rendered = replace(
            rendered,
            command=renderer.arguments(command_key) if own_command is None else own_command,
            launcher_options=renderer.launcher_options() if has_launcher else {},
            ready=renderer.text(bench.server.ready.condition, "server.ready") if bench.server is not None else "",
            url=renderer.text(bench.server.url, "server.url") if bench.server is not None else "",
            prerun=renderer.text(bench.prerun, "prerun"),
        )
    renderer.problems.raise_any()
    return rendered


def render_text(text: str, names: Mapping[str, Any], bench: BenchmarkConfig | None = None, key: str = "") -> str:
    """Render any text. `bench` and `key` say where it stands. Raises ConfigError for a placeholder that cannot be resolved."""
    renderer = _Renderer(bench, names)
    rendered = renderer.text(text, key)
    renderer.problems.raise_any()
    return rendered


def placeholders(bench: BenchmarkConfig, key: str = "argv") -> tuple[str, ...]:
    """Return the placeholders and functions in the value of a key, as written, for `config explain`."""
    written: dict[str, None] = {}
    for text in texts(bench, key):
        written.update((part.text, None) for part in parts(text) if isinstance(part, Field))
        written.update((f"{call[1]}(...)", None) for call in _CALL.finditer(text))
    return tuple(written)


def uses_auto_batch(bench: BenchmarkConfig) -> bool:
    """Return whether the sizer may choose a batch size of this benchmark."""
    written = (text for key in _ARGUMENT_KEYS for text in texts(bench, key))
    return any(call[1] == "auto_batch" for text in written for call in _CALL.finditer(text))


def texts(bench: BenchmarkConfig, key: str) -> Iterator[str]:
    """Yield every text in the value of a key whose placeholders would be resolved, as its files have it."""
    if any(f"{key}.".startswith(f"{known}.") for known in _RENDERED_KEYS):
        yield from _texts_in(bench.origin.data(key))


def _texts_in(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield name
            yield from _texts_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts_in(item)
    elif value is not None:
        yield str(value)


def _arguments_of(bench: BenchmarkConfig, key: str) -> tuple[Argument, ...]:
    """Return the arguments under a key. A benchmark without a server has no arguments for it."""
    value: Any = bench
    for name in key.split("."):
        value = getattr(value, name, ())
    return tuple(value)


def _items(value: Any) -> tuple[object, ...]:
    if value is None:
        return ()
    return value if isinstance(value, tuple) else (value,)


class _Renderer:
    """Renders the texts of a benchmark and notes the problem of each that cannot be rendered."""

    def __init__(self, bench: BenchmarkConfig | None, names: Mapping[str, Any]) -> None:
        self.batch_sizes: dict[int, None] = {}
        self._bench = bench
        self._names = names
        self.problems = Problems()

    def text(self, text: str, key: str) -> str:
        """Return a text rendered, or as it is after noting the problem. `key` is the benchmark's key that it stands under."""
        try:
            return self._rendered(text, 0)
        except UnplacedProblem as error:
            # Where a text stands is looked up only now: for most texts nobody asks.
            where = self._bench.origin.where(key) if self._bench is not None else ""
            path = f"{self._bench.name}.{key}" if self._bench is not None else ""
            self.problems.note(where, path, str(error), error.hint)
        return text

    def arguments(self, key: str, flags: frozenset[str] = frozenset()) -> tuple[str, ...]:
        """Return the arguments under a key that has arguments.

        Of a mapping, keys without a leading dash come first, then options, then the values under `--`. null and false drop
        the key, true is a bare flag, a list is joined by commas. But false gives `--no-x` where `flags` has `--x`. A list is
        verbatim.
        """
        assert self._bench is not None
        positional: list[str] = []
        options: list[str] = []
        tail: list[str] = []
        for index, argument in enumerate(_arguments_of(self._bench, key)):
            if isinstance(argument, str):
                options.append(self.text(argument, f"{key}.{index}"))
                continue
            option, value = argument
            path = f"{key}.{option}"
            if option == "--":
                tail.extend(self.text(str(item), path) for item in _items(value))
            elif value is False:
                options.extend([f"--no-{option[2:]}"] if option in flags and option.startswith("--") else [])
            elif value is not None:
                target = options if option.startswith("-") else positional
                target.append(self.text(option, path))
                if type(value) is tuple:
                    target.append(",".join([self.text(str(item), path) for item in value]))
                elif value is not True:
                    target.append(self.text(str(value), path))
        return (*positional, *options, *tail)

    def serve(self) -> dict[str, Any]:
        """Return the sweep with all its keys. Empty where there is none."""
        serve = self._bench.serve if self._bench is not None else None
        if serve is None:
            return {}
        texts: dict[str, Any] = {name: self.text(getattr(serve, name), f"serve.{name}") for name in _SERVE_TEXTS}
        options = {
            name: self.text(value, f"serve.request_options.{name}") if isinstance(value, str) else value
            for name, value in serve.request_options.items()
        }
        return replace(serve, **texts, request_options=options).to_json()

    def launcher_options(self) -> dict[str, object]:
        """Return the further keys of `plan`: flags as they are, everything else as text, a list joined by commas."""
        assert self._bench is not None
        options: dict[str, Any] = {}
        for key, value in self._bench.plan.extra.items():
            if value is None or isinstance(value, bool):
                options[key] = value
            else:
                is_list = isinstance(value, Sequence) and not isinstance(value, str)
                options[key] = self.text(",".join(map(str, value)) if is_list else str(value), f"plan.{key}")
        return options

    def _rendered(self, text: str, depth: int) -> str:
        """Return the text with its calls worked out and its placeholders filled in. Doubled braces become single."""
        if "{" not in text and "}" not in text and "(" not in text:
            return text
        if depth > _MAX_DEPTH:
            raise UnplacedProblem("functions are nested too deep")
        pieces: list[str] = []
        position = 0
        for start, end, name, argument in _calls(text):
            pieces.append(self._filled(text[position:start]))
            pieces.append(self._called(name, argument, depth))
            position = end
        pieces.append(self._filled(text[position:]))
        return "".join(pieces)

    def _called(self, name: str, argument: str, depth: int) -> str:
        match name:
            case "auto":
                choices = _split(argument)
                if len(choices) != 2 or not all(choices):
                    raise UnplacedProblem(f"auto takes two values, got auto({argument})", "write auto({n_worker}, 8)")
                return self._rendered(choices[0] if self._names.get(AUTO_CPU) else choices[1], depth + 1)
            case "auto_batch":
                size = self._batch_size(argument, depth)
                if depth == 0 and _NUMBER.match(size):
                    self.batch_sizes[int(size)] = None
                return size
            case _:
                text, lists = self._expression(argument)
                value = expr.evaluate(text, {**self._names, **lists})
                return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)

    def _batch_size(self, argument: str, depth: int) -> str:
        choices = _split(argument)
        if len(choices) != 1 or not choices[0]:
            raise UnplacedProblem(
                f"auto_batch takes a single value, got auto_batch({argument})", "write auto_batch(128)"
            )
        own = self._rendered(choices[0], depth + 1)
        sizer = self._names.get(AUTO_BATCH)
        if sizer is None:
            return own
        if not _NUMBER.match(own):
            raise UnplacedProblem(f"auto_batch takes a whole number, got {own!r}", "write auto_batch(128)")
        return str(sizer(int(own)))

    def _expression(self, argument: str) -> tuple[str, dict[str, Any]]:
        """Return an expression with placeholders as values outside quotes and as text inside, and names for lists."""
        pieces: list[str] = []
        lists: dict[str, Any] = {}
        quote = ""
        for part in parts(argument):
            if isinstance(part, str):
                quote = _open_quote(part, quote)
                pieces.append(part)
                continue
            value = self._value(part)
            if isinstance(value, Mapping | list | tuple):
                name = f"_value{len(lists)}"
                lists[name] = value
                pieces.append(name)
            else:
                # A number in a text, as the system file may have it, counts as a number in arithmetic.
                is_number = isinstance(value, str) and _NUMBER.match(value)
                is_verbatim = quote or isinstance(value, int | float)
                pieces.append(str(value) if is_verbatim else repr(int(value) if is_number else value))
        return "".join(pieces), lists

    def _filled(self, text: str) -> str:
        if "{" not in text and "}" not in text:
            return text
        pieces = parts(text)
        if "{{" not in text and "}}" not in text:
            return "".join([piece if isinstance(piece, str) else self._value_text(piece) for piece in pieces])
        fields = [piece for piece in pieces if isinstance(piece, Field)]
        # Braces are unescaped over the whole text, so that those of one JSON object are seen together; values are put in
        # afterwards. NUL marks the fields: no value of a suite can hold one, the YAML reader refuses it.
        marked = "".join(piece if isinstance(piece, str) else "\0" for piece in pieces)
        first, *literals = unescaped(marked).split("\0")
        values = [self._value_text(piece) for piece in fields]
        return first + "".join(value + literal for value, literal in zip(values, literals, strict=True))

    def _value_text(self, field: Field) -> str:
        value = self._value(field)
        if isinstance(value, Mapping | list | tuple):
            raise UnplacedProblem(
                f"the placeholder {field.text} is not a single value", "continue with [name] or [number]"
            )
        try:
            return text_of(field, value)
        except ValueError as error:
            raise UnplacedProblem(f"the placeholder {field.text} cannot be formatted: {error}") from None

    def _value(self, field: Field) -> Any:
        if field.name.startswith("_"):
            raise _no_such_name(FieldError(field, field.name, tuple(self._names)))
        try:
            value = value_of(field, self._names)
        except FieldError as error:
            raise _no_such_name(error) from None
        if value is None:
            raise UnplacedProblem(f"the placeholder {field.text} has no value here", "set it in the system file")
        return value


def _no_such_name(error: FieldError) -> UnplacedProblem:
    known = sorted(name for name in error.known if not name.startswith("_"))
    what = f"the placeholder {error.field.text} cannot be resolved, there is no {error.name!r}"
    return UnplacedProblem(what, did_you_mean(error.name, known) or "double the braces if they are meant as such")


def _scanned(text: str, quote: str = "") -> Iterator[tuple[int, str, str]]:
    """Yield the position of each character, the character, and the quote that is open after it, empty outside quotes."""
    for position, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
            yield position, "", quote
        else:
            quote = char if char in "'\"" else ""
            yield position, char, quote


def _open_quote(text: str, quote: str) -> str:
    """Return the quote that is open at the end of a text, at whose start `quote` is. Empty outside quotes."""
    return [quote, *(after for _, _, after in _scanned(text, quote))][-1]


def _calls(text: str) -> Iterator[tuple[int, int, str, str]]:
    """Yield the outermost function calls: start, end, name and the text between the parentheses."""
    position = 0
    while (call := _CALL.search(text, position)) is not None:
        start = call.end()
        depth = 1
        for offset, char, _ in _scanned(text[start:]):
            depth += (char == "(") - (char == ")")
            if depth == 0:
                position = start + offset + 1
                yield call.start(), position, call[1], text[start : position - 1]
                break
        else:
            raise UnplacedProblem(f"the parenthesis of {call[1]}( is not closed", "close it")


def _split(text: str) -> list[str]:
    """Return the arguments of a call, separated at the commas that are not inside parentheses, brackets or quotes."""
    pieces: list[str] = []
    depth = 0
    start = 0
    for position, char, _ in _scanned(text):
        if char and char in "([{":
            depth += 1
        elif char and char in ")]}":
            depth -= 1
        elif char == "," and depth == 0:
            pieces.append(text[start:position].strip())
            start = position + 1
    pieces.append(text[start:].strip())
    return pieces
