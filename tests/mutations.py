"""Mutations of JSON that know its structure: each value in it replaced by one of another shape, left out, or doubled."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Place = tuple[Any, ...]

_DEEP = "@deep@"
_LONG = "@long@"
_TEXT = {f'"{_DEEP}"': "[" * 500 + "]" * 500, f'"{_LONG}"': "9" * 5000}
TERMINAL = "\x1b]0;owned\x07\x1b[2J\u202egnp.exe\u2066\x9b31m\r\nforged | line\u2028 \udcff\ud800\x00"
"""What a terminal would obey, what turns letters round, what ends a line or a cell, and what UTF-8 has no form for."""

WRONG: dict[str, Any] = {
    "null": None,
    "true": True,
    "negative": -1,
    "huge": 10**400,
    "longer than Python reads": _LONG,
    "1e308": 1e308,
    "NaN": math.nan,
    "infinite": math.inf,
    "empty text": "",
    "terminal": TERMINAL,
    "path": "../../../../etc/passwd",
    "empty list": [],
    "list of null": [None],
    "list of lists": [[1], "x"],
    "empty mapping": {},
    "mapping of null": {"": None},
    "mapping of lists": {"a": [{}], "b": {"c": [1]}},
    "deep": _DEEP,
}


@dataclass(frozen=True)
class Mutation:
    """What is done to one value of a file: `line` is that of a file of records, None for a file that is one value."""

    file: str
    line: int | None
    place: Place
    what: str

    def __str__(self) -> str:
        where = "" if self.line is None else f":{self.line + 1}"
        return f"{self.file}{where} {'.'.join(map(str, self.place)) or '(all)'} {self.what}"

    def apply(self, folder: Path) -> None:
        """Change the file in this folder."""
        path = folder / self.file
        if self.line is None:
            path.write_text(_dumped(self._changed(json.loads(path.read_text()))) + "\n")
            return
        lines = path.read_text().splitlines()
        lines[self.line] = _dumped(self._changed(json.loads(lines[self.line])))
        path.write_text("\n".join(lines) + "\n")

    def _changed(self, value: Any) -> Any:
        if not self.place:
            return WRONG[self.what]
        value = copy.deepcopy(value)
        below = value
        for key in self.place[:-1]:
            below = below[key]
        last = self.place[-1]
        if self.what == "left out":
            del below[last]
        elif self.what == "doubled":
            below.insert(last, copy.deepcopy(below[last]))
        elif self.what == "renamed":
            below[TERMINAL] = below.pop(last)
        else:
            below[last] = WRONG[self.what]
        return value


def mutations(folder: Path, is_wanted: Callable[[str], bool] = lambda _: True) -> Iterator[Mutation]:
    """Yield every mutation of every kind of value in the JSON files of a folder; of values alike in kind, one."""
    seen: set[tuple[str, Place]] = set()
    for path in sorted(folder.iterdir()):
        if not is_wanted(path.name) or path.suffix not in (".json", ".jsonl", ".data"):
            continue
        documents = [(None, path.read_text())] if path.suffix == ".json" else enumerate(path.read_text().splitlines())
        for line, text in documents:
            value = json.loads(text)
            for place in _places(value):
                kind = (path.suffix, (*_kind_of(value), *map(_alike, place)))
                if kind not in seen:
                    seen.add(kind)
                    yield from (Mutation(path.name, line, place, what) for what in _ways(value, place))


def _places(value: Any, place: Place = ()) -> Iterator[Place]:
    yield place
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _places(item, (*place, key))


def _kind_of(record: Any) -> tuple[str, ...]:
    """What tells kinds of records apart: their event and the keys of their payload, or what a journal says."""
    data = record.get("data")
    keys = tuple(sorted(data)) if isinstance(data, dict) and record.get("event") == "data" else ()
    return (*(str(record.get(key, "")) for key in ("event", "state", "run")), *keys)


def _alike(key: Any) -> Any:
    """Items of a list, and names of benchmarks and steps, are of one kind."""
    return "*" if isinstance(key, int) or "." in key or key in ("digits", "other", "loader") else key


def _ways(value: Any, place: Place) -> Iterator[str]:
    yield from WRONG
    if place:
        yield "left out"
        yield "doubled" if isinstance(place[-1], int) else "renamed"


def _dumped(value: Any) -> str:
    text = json.dumps(value)
    for token, replacement in _TEXT.items():
        text = text.replace(token, replacement)
    return text
