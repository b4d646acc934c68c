"""Task files (`.cfg`): commands with the patterns that find metrics in their output, as the deep learning driver has them.

The grammar is Python's ConfigParser without interpolation, with two corrections: a section may be indented as a
whole, and its known keys begin a value however deep they stand. Values that are lists are Python lists of text.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from milabench.config.problems import did_you_mean
from milabench.config.read import content_of
from milabench.config.source_map import Located, Mark, SourceLocation, mapping_at, scalar
from milabench.config.yaml_reader import decode_text
from milabench.devices.regular_file import MIB
from milabench.errors import ConfigError, Problem

_REDUCTIONS: Final = {"average": "mean", "total": "sum", "average_aggregate": "mean"}
_METHODS: Final = (
    *("average", "last", "total", "p50", "p90", "average_aggregate", "min", "max", "median", "std", "first", "count"),
    *("p95", "p99", "harmonic"),
)
METHODS: Final = {method: _REDUCTIONS.get(method, method) for method in _METHODS}
"""The compute methods of a task file, and the `reduce` of a suite that each is."""
WORKERS: Final = "DEEPLEARNING_WORKERS_COUNT"
"""The variable that says by how many `total` is divided, and `average_aggregate` multiplied."""

_LISTS: Final = ("patterns", "metrics", "compute_method")
_KEYS: Final = (*_LISTS, "command_to_execute", "num_gpus")
_DEFAULT: Final = "DEFAULT"
MAX_TASK_FILE: Final = MIB
MAX_METRICS: Final = 1_000
"""How many metrics a task may have: each pattern is compared with all others."""
MAX_DOUBTS: Final = 100
_HEADER: Final = re.compile(r"\[([^\[\]'\",]+)\]\s*\Z")
_OPTION: Final = re.compile(r"([^\s=:\[#;][^=:]*)[=:]\s?[ \t]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMetric:
    """A metric of a task: `method` is a key of METHODS. `where` is the place of its pattern, `file:line:column`."""

    name: str
    pattern: str
    method: str
    where: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredTask:
    """A section of a task file. A section with only metrics has no command. `where` is the place of its heading."""

    name: str
    metrics: tuple[TaskMetric, ...]
    command: str = ""
    num_gpus: int = 0
    where: str = field(default="", compare=False)
    warnings: tuple[Problem, ...] = field(default=(), compare=False)


class _Line(NamedTuple):
    """A piece of a value: its text, and where that begins."""

    text: str
    file: str
    number: int
    column: int

    def where(self, offset: int = 0) -> str:
        """Return the place of a character of the text."""
        return f"{self.file}:{self.number}:{self.column + offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    """A section as it stands in the file. `warnings` are its other headings and keys that were there before."""

    name: str
    heading: _Line
    values: dict[str, list[_Line]] = field(default_factory=dict)
    warnings: list[Problem] = field(default_factory=list)

    def warn(self, where: str, what: str) -> None:
        """Note odd but valid text."""
        self.warnings.append(Problem(where, self.name, what))


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFile:
    """The sections of a task file, by name. Those that are asked for are looked into then."""

    name: str
    sections: Mapping[str, _Section]

    def task(self, name: str) -> ConfiguredTask:
        """Return the task of this name.

        Raises ConfigError, with the place, for a task that is missing or cannot be understood.
        """
        if name not in self.sections:
            hint = did_you_mean(name, self.sections) or f"known: {', '.join(self.sections) or 'none'}"
            raise ConfigError(Problem(self.name, name, "unknown section", hint))
        return _task(self.sections[name])


def read_tasks(file: Path) -> TaskFile:
    """Return a task file. Raises ConfigError where it cannot be read."""
    return parse_tasks(decode_text(content_of(file, MAX_TASK_FILE), str(file)), str(file))


def parse_tasks(text: str, name: str) -> TaskFile:
    """Return the sections of a task file. `name` is used in messages. Raises ConfigError for a line that belongs to nothing."""
    sections: dict[str, _Section] = {}
    section: _Section | None = None
    value: list[_Line] | None = None  # that later lines may continue
    indent = 0  # of the section's heading
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#;":
            continue
        here = _Line(stripped, name, number, len(line) - len(line.lstrip()) + 1)
        header, option = _HEADER.match(stripped), _OPTION.match(stripped)
        key = option[1].rstrip().lower() if option is not None else ""
        is_deeper = here.column > indent
        if header is not None:
            section, value, indent = _headed(sections, header[1], here), None, here.column
        elif option is not None and section is not None and (value is None or not is_deeper or key in _KEYS):
            if key in section.values:
                section.warn(f"{name}:{number}:1", f"{key} is there twice. The later value is used")
            value = [_Line(stripped[option.end() :], name, number, here.column + option.end())]
            section.values[key] = value
        elif value is not None and is_deeper:
            value.append(here)
        else:
            what = f"expected [section], key = value, or more of a value, got {stripped[:40]!r}"
            path = section.name if section is not None else ""
            raise ConfigError(Problem(here.where(), path, what, "indent what goes on from the line before"))
    default = sections.pop(_DEFAULT, None)
    for section in sections.values():
        for key, lines in (default.values if default is not None else {}).items():
            section.values.setdefault(key, lines)
    return TaskFile(name=name, sections=sections)


def _headed(sections: dict[str, _Section], name: str, heading: _Line) -> _Section:
    """Return the section of a heading. Where it is there twice, it begins again."""
    section = sections.setdefault(name, _Section(name=name, heading=heading))
    if section.heading is not heading and name != _DEFAULT:
        section.warn(heading.where(), f"the section is there twice, first in line {section.heading.number}")
        section.values.clear()
    return section


def edited(task: ConfiguredTask, *, num_gpus: int | None = None, **options: object) -> ConfiguredTask:
    """Return the task with options of its command replaced (`epochs`, `kvstore`, `dtype`), each wherever it stands.

    `num_gpus` of 0 takes `--gpus` out. A list of devices is cut to its first ones, or counted from 0 where it is too short.
    Raises ConfigError for an option that the command does not have.
    """
    command = task.command
    if num_gpus is not None and num_gpus != task.num_gpus:
        command = _GPUS.sub(lambda match: _gpus(match, num_gpus), command)
    for key, value in options.items():
        if value is not None:
            quoted = str(value).replace("\\", r"\\")
            command, count = _OPTIONS[key].subn(rf"\g<1>{quoted}", command)
            if not count:
                what = f"its command has no --{key} to replace"
                raise ConfigError(Problem(task.where, task.name, what, f"leave out --{key}"))
    return replace(task, command=command, num_gpus=task.num_gpus if num_gpus is None else num_gpus)


# Of a shell: a word in quotes, a command in its place, or all up to what ends a word, a quoted line or a subshell.
_VALUE: Final = r"""("[^"]*"|'[^']*'|\$\([^)]*\)|[^\s;&|()"']+)"""


def _options(*names: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\S)(--(?:{'|'.join(names)})(?:[ \t]+|=)){_VALUE}")


_GPUS: Final = re.compile(r"""(?<!\S)(--(?:gpus|num[_-]gpus)(?:[ \t]+|=))(\d+(?:,\d+)*)(?=[\s;&|()"'`]|\Z)[ \t]*""")
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


def as_nodes(task: ConfiguredTask, folder: str, workers: int | None = None) -> dict[str, Located]:
    """Return the task under the keys of the suite language, with the places in the task file.

    They are `metrics`, its `folder` as `cwd`, and if it has a command `command`, a line for the shell. `workers` is the value of
    WORKERS. Raises ConfigError for `average_aggregate` where the number is unknown.
    """
    metrics: dict[str, Located] = {}
    for metric in task.metrics:
        scale = 1.0
        if metric.method == "average_aggregate":
            if not workers:
                what = f"{metric.method} needs the number of workers, which is not set"
                raise ConfigError(Problem(metric.where, f"{task.name}.{metric.name}", what, f"set {WORKERS}"))
            scale = float(workers)
        elif metric.method == "total" and workers:
            scale = 1 / workers
        keys = {"pattern": metric.pattern, "reduce": METHODS[metric.method], "scale": scale}
        mark = _mark(metric.where, folder)
        metrics[metric.name] = mapping_at({key: scalar(value, mark) for key, value in keys.items()}, mark)
    heading = _mark(task.where, folder)
    command = {"command": verbatim(task.command), "shell": True} if task.command else {}
    nodes = {key: scalar(value, heading) for key, value in {**command, "cwd": folder}.items()}
    return {**nodes, "metrics": mapping_at(metrics, heading)}


def _mark(where: str, folder: str) -> Mark:
    name, line, column = where.rsplit(":", 2)
    return Mark(SourceLocation(name, folder), int(line), int(column))


def verbatim(command: str) -> str:
    """Return the text of a suite that comes to this command, whatever braces it has."""
    return command.replace("{", "{{").replace("}", "}}")


def workers_of(text: str) -> int | None:
    """Return the number of workers in the variable WORKERS. None where it is empty or 0. Raises ConfigError for other text."""
    if text.strip() in ("", "0"):
        return None
    if not text.strip().isdigit():
        what = f"expected a number of workers, got {text!r}"
        raise ConfigError(Problem(WORKERS, "", what, "unset it, or give 1 or more"))
    return int(text)


# --- values -------------------------------------------------------------------------------------------------------------


def _task(section: _Section) -> ConfiguredTask:
    where = section.heading._replace(column=1).where()
    problems: list[Problem] = []

    def problem(what: str, hint: str = "", *, key: str = "", at: str = "") -> None:
        problems.append(Problem(at or where, f"{section.name}.{key}" if key else section.name, what, hint))

    lists: dict[str, list[tuple[str, str]]] = {}
    for key in _LISTS:
        if key not in section.values:
            problem(f"the key {key!r} is missing", did_you_mean(key, section.values))
            continue
        items = _list(section.values[key])
        if isinstance(items, str):
            problem("expected a list of text such as ['a', 'b'] here", key=key, at=items)
        else:
            lists[key] = items
    gpus = _text(section.values.get("num_gpus", ()))
    if "num_gpus" in section.values and not gpus.isdigit():
        at = section.values["num_gpus"][0].where()
        problem(f"expected a whole number, got {gpus!r}", key="num_gpus", at=at)
    if len({len(items) for items in lists.values()}) > 1:
        counts = ", ".join(f"{key} {len(items)}" for key, items in lists.items())
        key = min(lists, key=lambda key: len(lists[key]))
        what = f"the lists are of unequal length: {counts}"
        problem(what, "each belongs to the metric at its place", key=key, at=section.values[key][0].where())
    if len(lists.get("metrics", ())) > MAX_METRICS:
        what = f"{len(lists['metrics'])} metrics are more than the limit of {MAX_METRICS}"
        problem(what, key="metrics", at=section.values["metrics"][0].where())
    for pattern, at in lists.get("patterns", ())[:MAX_METRICS]:
        if wrong := _wrong_pattern(pattern):
            problem(f"{pattern!r} is not usable: {wrong}", key="patterns", at=at)
    for method, at in lists.get("compute_method", ()):
        if method not in METHODS:
            hint = did_you_mean(method, METHODS) or f"known: {', '.join(METHODS)}"
            problem(f"unknown method {method!r}", hint, key="compute_method", at=at)
    if problems:
        raise ConfigError(problems)
    metrics = tuple(
        TaskMetric(name=name, pattern=pattern, method=method, where=at)
        for (pattern, at), (name, _), (method, _) in zip(*(lists[key] for key in _LISTS), strict=True)
    )
    return ConfiguredTask(
        name=section.name,
        metrics=metrics,
        command=_text(section.values.get("command_to_execute", ())),
        num_gpus=int(gpus or 0),
        where=where,
        warnings=(*section.warnings, *islice(_doubts(section.name, metrics), MAX_DOUBTS)),
    )


def _text(lines: Iterable[_Line]) -> str:
    return "\n".join(line.text for line in lines).strip()


def _doubts(section: str, metrics: Sequence[TaskMetric]) -> Iterable[Problem]:
    """Yield patterns that also match another metric's text, and names that two metrics have."""
    for at, metric in enumerate(metrics):
        if any(other.name == metric.name for other in metrics[:at]):
            yield Problem(metric.where, section, f"two metrics are named {metric.name!r}. The later metric is used")
        for other in metrics:
            if metric.pattern != other.pattern and other.pattern.endswith(metric.pattern):
                what = f"{metric.pattern!r} of {metric.name} also matches what {other.pattern!r} of {other.name} does"
                yield Problem(metric.where, section, what, "begin it with ^ or more text")


def _wrong_pattern(pattern: str) -> str:
    """Return why a pattern cannot be used, with the position in it. Empty when it can."""
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        return f"{error.msg}" + ("" if error.pos is None else f" at position {error.pos}")
    except (RecursionError, OverflowError) as error:
        return str(error)
    if groups > 1:
        return f"it has {groups} groups. Keep a single group, around the number, and write the others (?:...)"
    return ""


def _list(lines: Sequence[_Line]) -> list[tuple[str, str]] | str:
    """Return the items of a Python list of text, each with its place. For other texts, the place of the error."""

    def where(number: int, offset: int) -> str:
        line = lines[min(max(number, 1), len(lines)) - 1]
        return line.where(offset)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # regular expressions without an r in front: '\d' is no escape of Python's
            tree = ast.parse("\n".join(line.text for line in lines), mode="eval").body
    except SyntaxError as error:
        return where(error.lineno or 1, max((error.offset or 1) - 1, 0))
    except (ValueError, RecursionError, MemoryError):
        return where(1, 0)
    items: list[tuple[str, str]] = []
    for node in tree.elts if isinstance(tree, ast.List) else [tree]:
        # Python counts columns in bytes.
        at = where(node.lineno, len(lines[node.lineno - 1].text.encode()[: node.col_offset].decode()))
        if not (isinstance(tree, ast.List) and isinstance(node, ast.Constant) and isinstance(node.value, str)):
            return at
        items.append((node.value, at))
    return items
