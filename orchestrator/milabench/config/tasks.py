"""Task files (`.cfg`): commands with the patterns that find metrics in what they print, as the deep learning driver has them.

The grammar is that of Python's ConfigParser without interpolation, with two things mended: a section may be indented as a
whole, and its known keys begin a value however deep they stand. Values that are lists are Python lists of text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from milabench.config.problems import did_you_mean
from milabench.config.source_map import Located, Mark, SourceLocation, mapping_at, scalar
from milabench.errors import ConfigError, Problem

METHODS: Final[Mapping[str, str]] = {
    "average": "mean",
    "last": "last",
    "total": "sum",
    "p50": "p50",
    "p90": "p90",
    "average_aggregate": "mean",
    "min": "min",
    "max": "max",
    "median": "median",
    "std": "std",
    "first": "first",
    "count": "count",
    "p95": "p95",
    "p99": "p99",
    "harmonic": "harmonic",
}
"""The compute methods of a task file, and the `reduce` of a suite that each is."""
WORKERS: Final = "DEEPLEARNING_WORKERS_COUNT"
"""The variable that says by how many `total` is divided, and `average_aggregate` multiplied."""

_LISTS: Final = ("patterns", "metrics", "compute_method")
_KEYS: Final = (*_LISTS, "command_to_execute", "num_gpus")
_DEFAULT: Final = "DEFAULT"
_HEADER: Final = re.compile(r"\[([^\[\]'\",]+)\]\s*\Z")
_OPTION: Final = re.compile(r"([^\s=:\[#;][^=:]*?)\s*[=:]\s?[ \t]*")
_STRING: Final = re.compile(
    r"([rRuU]?)('''(?:\\.|[^\\])*?'''|\"\"\"(?:\\.|[^\\])*?\"\"\"|'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\")",
    re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(\n|[\\'\"abfnrtv]|[0-7]{1,3}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})")
_ESCAPES: Final = {"\n": "", **dict(zip("\\'\"abfnrtv", "\\'\"\a\b\f\n\r\t\v", strict=True))}
_SPACE: Final = re.compile(r"\s*")
_LONGEST_CODE: Final = 3  # an octal escape has as many digits; \x, \u and \U are longer


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMetric:
    """A metric of a task: `method` is a key of METHODS; `where` is the place of its pattern, `file:line:column`."""

    name: str
    pattern: str
    method: str
    where: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredTask:
    """A section of a task file; one that holds only metrics has no command. `where` is the place of its heading."""

    name: str
    metrics: tuple[TaskMetric, ...]
    command: str = ""
    num_gpus: int = 0
    where: str = field(default="", compare=False)
    warnings: tuple[Problem, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A piece of a value: its text, and where that begins in the file."""

    text: str
    number: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Value:
    """The value of a key, line by line."""

    key: str
    lines: tuple[_Line, ...]

    @property
    def text(self) -> str:
        return "\n".join(line.text for line in self.lines)

    def place(self, offset: int = 0) -> str:
        """Return `line:column` of a character of the text."""
        for line in self.lines:
            if offset <= len(line.text):
                return f"{line.number}:{line.column + offset}"
            offset -= len(line.text) + 1
        return f"{self.lines[-1].number}:{self.lines[-1].column + len(self.lines[-1].text)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    """A section as it stands in the file; `again` are its other headings and keys that were there before, with places."""

    name: str
    number: int
    values: Mapping[str, _Value]
    again: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFile:
    """The sections of a task file, by name; those that are asked for are looked into then."""

    name: str
    sections: Mapping[str, _Section]

    def task(self, name: str) -> ConfiguredTask:
        """Return the task of this name. Raises ConfigError, with the place, for one that is not there or cannot be understood."""
        if name not in self.sections:
            hint = did_you_mean(name, self.sections) or f"known: {', '.join(self.sections) or 'none'}"
            raise ConfigError(Problem(where=self.name, path=name, what="unknown section", hint=hint))
        return _task(self, self.sections[name])


def parse_tasks(text: str, name: str) -> TaskFile:
    """Return the sections of a task file; `name` is used in messages. Raises ConfigError for a line that belongs to nothing."""
    reader = _Reader(name)
    for number, line in enumerate(text.split("\n"), 1):
        reader.read(line.removesuffix("\r").removeprefix("\ufeff" if number == 1 else ""), number)
    return TaskFile(name=name, sections=reader.sections())


def edited(
    task: ConfiguredTask,
    *,
    num_gpus: int | None = None,
    epochs: int | None = None,
    kvstore: str | None = None,
    dtype: str | None = None,
) -> ConfiguredTask:
    """Return the task with options of its command replaced, each wherever it stands and whatever its value is.

    `num_gpus` of 0 takes `--gpus` out; a list of devices is cut to its first ones, or counted from 0 where it is too short.
    Raises ConfigError for an option that the command does not have.
    """
    command = task.command
    if num_gpus is not None and num_gpus != task.num_gpus:
        command = _GPUS.sub(lambda match: _gpus(match, num_gpus), command)
    for key, value in (("epochs", epochs), ("kvstore", kvstore), ("dtype", dtype)):
        if value is not None:
            quoted = str(value).replace("\\", r"\\")
            command, count = _OPTIONS[key].subn(rf"\g<1>{quoted}", command)
            if not count:
                what = f"its command has no --{key} to replace"
                raise ConfigError(Problem(where=task.where, path=task.name, what=what, hint=f"leave out --{key}"))
    return replace(task, command=command, num_gpus=task.num_gpus if num_gpus is None else num_gpus)


def _options(*names: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\S)(--(?:{'|'.join(names)})(?:[ \t]+|=))([^\s;&|]+)")


_GPUS: Final = re.compile(r"(?<!\S)(--(?:gpus|num[_-]gpus)(?:[ \t]+|=))(\d+(?:,\d+)*)(?=[\s;&|]|\Z)[ \t]*")
_OPTIONS: Final = {
    "epochs": _options("epochs", "num-epochs", "num_epochs"),
    "kvstore": _options("kvstore", "kv-store", "kv_store"),
    "dtype": _options("dtype"),
}


def _gpus(match: re.Match[str], count: int) -> str:
    if not count and "num" not in match[1]:
        return ""
    gap = match[0][len(match[1]) + len(match[2]) :]
    if "," not in match[2] or not count:
        return f"{match[1]}{count}{gap}"
    devices = match[2].split(",")
    kept = devices[:count] if count <= len(devices) else [str(device) for device in range(count)]
    return f"{match[1]}{','.join(kept)}{gap}"


def as_benchmark(task: ConfiguredTask, workers: int | None = None) -> dict[str, Any]:
    """Return the task under the keys of the suite language: `metrics`, and where it has one `command`, a line for the shell.

    `workers` is what WORKERS says. Raises ConfigError for `average_aggregate` where nobody says how many there are.
    """
    metrics: dict[str, dict[str, Any]] = {}
    for metric in task.metrics:
        scale = 1.0
        if metric.method == "average_aggregate":
            if not workers:
                what = f"{metric.method} needs the number of workers, which is not set"
                path = f"{task.name}.{metric.name}"
                raise ConfigError(Problem(where=metric.where, path=path, what=what, hint=f"set {WORKERS}"))
            scale = float(workers)
        elif metric.method == "total" and workers:
            scale = 1 / workers
        metrics[metric.name] = {"pattern": metric.pattern, "reduce": METHODS[metric.method], "scale": scale}
    if not task.command:
        return {"metrics": metrics}
    return {"command": verbatim(task.command), "shell": True, "metrics": metrics}


def as_nodes(task: ConfiguredTask, folder: str, workers: int | None = None) -> dict[str, Located]:
    """Return what `as_benchmark` does, with the places in the task file, and its `folder` as `cwd`."""
    keys = as_benchmark(task, workers)
    marks = {metric.name: _mark(metric.where, folder) for metric in task.metrics}
    heading = _mark(task.where, folder)
    metrics = {
        name: mapping_at({key: scalar(value, marks[name]) for key, value in settings.items()}, marks[name])
        for name, settings in keys.pop("metrics").items()
    }
    nodes = {key: scalar(value, heading) for key, value in {**keys, "cwd": folder}.items()}
    return {**nodes, "metrics": mapping_at(metrics, heading)}


def _mark(where: str, folder: str) -> Mark:
    name, line, column = where.rsplit(":", 2)
    return Mark(SourceLocation(name, folder), int(line), int(column))


def verbatim(command: str) -> str:
    """Return the text of a suite that comes to this command, whatever braces it has."""
    return command.replace("{", "{{").replace("}", "}}")


def workers_of(text: str) -> int | None:
    """Return the number of workers in the variable WORKERS; None where it is empty or 0. Raises ConfigError for other text."""
    if text.strip() in ("", "0"):
        return None
    if not text.strip().isdigit():
        what = f"expected a number of workers, got {text!r}"
        raise ConfigError(Problem(where=WORKERS, path="", what=what, hint="unset it, or give 1 or more"))
    return int(text)


# --- lines --------------------------------------------------------------------------------------------------------------


class _Reader:
    """Gathers sections, keys and the lines of their values."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._sections: dict[str, tuple[int, dict[str, list[_Line]], list[tuple[str, str]]]] = {}
        self._section = ""
        self._indent = 0
        self._value: list[_Line] | None = None

    def sections(self) -> dict[str, _Section]:
        """Return what was read, with what the default section says where a section says nothing."""
        sections = {}
        defaults = self._sections.pop(_DEFAULT, (0, {}, []))[1]
        for name, (number, values, again) in self._sections.items():
            merged = {**defaults, **values}
            values_of = {key: _Value(key=key, lines=tuple(lines)) for key, lines in merged.items()}
            sections[name] = _Section(name=name, number=number, values=values_of, again=tuple(again))
        return sections

    def read(self, line: str, number: int) -> None:
        """Take one line into account."""
        text = line.strip()
        if not text or text[0] in "#;":
            return
        indent = len(line) - len(line.lstrip())
        header = _HEADER.match(text)
        option = _OPTION.match(text)
        if header is not None:
            self._head(header[1], number, indent)
        elif option is not None and self._section and self._begins(option[1], indent):
            self._key(option[1], _Line(text=text[option.end() :], number=number, column=indent + option.end() + 1))
        elif self._value is not None and indent > self._indent:
            self._value.append(_Line(text=text, number=number, column=indent + 1))
        else:
            where = f"{self._name}:{number}:{indent + 1}"
            what = f"expected [section], key = value, or more of a value, got {text[:40]!r}"
            hint = "indent what goes on from the line before"
            raise ConfigError(Problem(where=where, path=self._section, what=what, hint=hint))

    def _begins(self, key: str, indent: int) -> bool:
        """Return whether a line begins a value, or continues one."""
        return self._value is None or indent <= self._indent or key.lower() in _KEYS

    def _head(self, name: str, number: int, indent: int) -> None:
        self._section, self._indent, self._value = name, indent, None
        if name in self._sections and name != _DEFAULT:
            first, values, again = self._sections[name]
            again.append((f"{self._name}:{number}:{indent + 1}", f"the section is there twice, first in line {first}"))
            values.clear()
        else:
            self._sections.setdefault(name, (number, {}, []))

    def _key(self, key: str, line: _Line) -> None:
        _, values, again = self._sections[self._section]
        key = key.lower()
        if key in values:
            again.append((f"{self._name}:{line.number}:1", f"{key} is there twice; the later one holds"))
        self._value = values[key] = [line]


# --- values -------------------------------------------------------------------------------------------------------------


def _task(file: TaskFile, section: _Section) -> ConfiguredTask:
    where = f"{file.name}:{section.number}:1"
    problems: list[Problem] = []

    def problem(place: str, key: str, what: str, hint: str = "") -> None:
        place = f"{file.name}:{place}" if place else where
        problems.append(
            Problem(where=place, path=".".join((section.name, *([key] if key else []))), what=what, hint=hint)
        )

    lists: dict[str, list[tuple[str, int]]] = {}
    for key in _LISTS:
        value = section.values.get(key)
        if value is None:
            problem("", "", f"the key {key!r} is missing", did_you_mean(key, section.values))
            continue
        items = _list(value.text)
        if isinstance(items, int):
            problem(value.place(items), key, "expected a list of text such as ['a', 'b'] here")
        else:
            lists[key] = items
    gpus = section.values.get("num_gpus")
    if gpus is not None and not gpus.text.strip().isdigit():
        problem(gpus.place(), "num_gpus", f"expected a whole number, got {gpus.text.strip()!r}")
    if len({len(items) for items in lists.values()}) > 1:
        counts = ", ".join(f"{key} {len(items)}" for key, items in lists.items())
        value = section.values[min(lists, key=lambda key: len(lists[key]))]
        problem(
            value.place(), value.key, f"the lists are of unequal length: {counts}", "they belong together one by one"
        )
    for pattern, offset in lists.get("patterns", ()):
        wrong = _wrong_pattern(pattern)
        if wrong:
            problem(section.values["patterns"].place(offset), "patterns", f"{pattern!r} is not usable: {wrong}")
    for method, offset in lists.get("compute_method", ()):
        if method not in METHODS:
            hint = did_you_mean(method, METHODS) or f"known: {', '.join(METHODS)}"
            problem(
                section.values["compute_method"].place(offset), "compute_method", f"unknown method {method!r}", hint
            )
    if problems:
        raise ConfigError(problems)
    patterns = section.values["patterns"]
    command = section.values.get("command_to_execute")
    metrics = tuple(
        TaskMetric(name=name, pattern=pattern, method=method, where=f"{file.name}:{patterns.place(offset)}")
        for (pattern, offset), (name, _), (method, _) in zip(*(lists[key] for key in _LISTS), strict=True)
    )
    warnings = [Problem(where=place, path=section.name, what=what) for place, what in section.again]
    return ConfiguredTask(
        name=section.name,
        metrics=metrics,
        command="" if command is None else command.text.strip(),
        num_gpus=0 if gpus is None else int(gpus.text),
        where=where,
        warnings=(*warnings, *_doubts(section.name, metrics)),
    )


def _doubts(section: str, metrics: Sequence[TaskMetric]) -> Iterable[Problem]:
    """Return a pattern that finds what another one is for too, and a name that two metrics have."""
    for at, metric in enumerate(metrics):
        if any(other.name == metric.name for other in metrics[:at]):
            what = f"two metrics are named {metric.name!r}; the later one holds"
            yield Problem(where=metric.where, path=section, what=what)
        for other in metrics:
            if metric.pattern != other.pattern and other.pattern.endswith(metric.pattern):
                what = f"{metric.pattern!r} of {metric.name} also matches what {other.pattern!r} of {other.name} does"
                yield Problem(where=metric.where, path=section, what=what, hint="begin it with ^ or more text")


def _wrong_pattern(pattern: str) -> str:
    """Return why a pattern cannot be used, with the position in it; empty when it can."""
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        return f"{error.msg}" + ("" if error.pos is None else f" at position {error.pos}")
    except (RecursionError, OverflowError) as error:
        return str(error)
    return "" if groups <= 1 else f"it has {groups} groups; keep one, around the number, and write the others (?:...)"


def _list(text: str) -> list[tuple[str, int]] | int:
    """Return the items of a Python list of text with their offsets; where it is wrong, the offset of that."""

    def skip(at: int) -> int:
        match = _SPACE.match(text, at)
        return match.end() if match else at

    at = skip(0)
    if not text.startswith("[", at):
        return at
    at = skip(at + 1)
    items: list[tuple[str, int]] = []
    while not text.startswith("]", at):
        begin, parts = at, []
        while (match := _STRING.match(text, at)) is not None:
            parts.append(_unquoted(match[1], match[2]))
            at = skip(match.end())
        if not parts:
            return at
        items.append(("".join(parts), begin))
        if text.startswith(",", at):
            at = skip(at + 1)
        elif not text.startswith("]", at):
            return at
    end = skip(at + 1)
    return items if end == len(text) else end


def _unquoted(prefix: str, quoted: str) -> str:
    """Return the text of a Python string; an escape that there is not stands for itself, as Python reads it."""
    marks = 3 if quoted[:3] in ("'''", '"""') else 1
    inner = quoted[marks:-marks]
    return inner if prefix in ("r", "R") else _ESCAPE.sub(_escaped, inner)


def _escaped(match: re.Match[str]) -> str:
    code = match[1]
    if code in _ESCAPES:
        return _ESCAPES[code]
    return chr(int(code, 8)) if len(code) <= _LONGEST_CODE and code.isdigit() else chr(int(code[1:], 16))
