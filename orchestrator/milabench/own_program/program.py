"""Parses the command line of a program: launcher, script or module, and arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from milabench.errors import UsageError

_PYTHON: Final = re.compile(r"(?:python|pypy)[\d.]*")
# Programs that start a Python program in several processes, each with its subcommand.
_LAUNCHERS: Final = {"torchrun": (), "accelerate": ("launch",), "deepspeed": ()}
_PYTHON_FLAGS: Final = frozenset(("-u", "-O", "-OO", "-B", "-E", "-I", "-s", "-S"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program and the words that start it: a script, a module, or neither, then it is no Python program.

    `start` are the words before it: an interpreter with flags, or a launcher with options. Empty: the script was given alone.
    """

    script: str = ""
    module: str = ""
    start: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()

    @property
    def is_python(self) -> bool:
        """Whether it can be observed."""
        return bool(self.script or self.module)

    @property
    def is_launched(self) -> bool:
        """Whether another program than Python starts it."""
        return bool(self.start) and _PYTHON.fullmatch(PurePath(self.start[0]).name) is None

    @property
    def name(self) -> str:
        """Its name in messages."""
        return self.script or (f"-m {self.module}" if self.module else PurePath(self.start[0]).name)

    @property
    def typed(self) -> tuple[str, ...]:
        """Its command line."""
        return (*self.start, *self._words)

    def observed(self, python: str, voirfile: str) -> tuple[str, ...]:
        """Return the words that start it under the runner."""
        # torchrun would read the runner's options as its own.
        apart = ("--",) if self.is_launched and self.start[0].endswith("torchrun") else ()
        return (*self._started(python), "-m", *apart, "benchmate.run", "--voirfile", voirfile, *self._words)

    def plain(self, python: str) -> tuple[str, ...]:
        """Return the words that start it as it is."""
        return (*self._started(python), *self._words)

    def _started(self, python: str) -> tuple[str, ...]:
        return self.start if self.is_launched else (python, *self.start[1:])

    @property
    def _words(self) -> tuple[str, ...]:
        program = ("-m", self.module) if self.module else filter(None, [self.script])
        return (*program, *self.arguments)


def parse_program(words: Sequence[str]) -> Program:
    """Return the program that words start: `train.py ...`, `python -m x`, `torchrun train.py`, or another. Raises UsageError."""
    first, *rest = words
    name = PurePath(first).name
    if name in _LAUNCHERS:
        subcommand = _LAUNCHERS[name]
        if tuple(rest[: len(subcommand)]) != subcommand:
            raise UsageError(f"{first}: expected `{' '.join((first, *subcommand))}` and a script")
        return _launched((first, *subcommand), rest[len(subcommand) :])
    if _PYTHON.fullmatch(name):
        start = [first]
        while rest and rest[0] in _PYTHON_FLAGS:
            start.append(rest.pop(0))
        if not rest or (rest[0] == "-m" and len(rest) == 1):
            raise UsageError(f"{first}: expected a script, or -m and a module")
        if rest[0] == "-m":
            return Program(module=rest[1], start=tuple(start), arguments=tuple(rest[2:]))
        if rest[0].startswith("-"):
            raise UsageError(
                f"{first} {rest[0]}: only scripts and modules are measured here. `milabench bench` measures any command"
            )
        return Program(script=rest[0], start=tuple(start), arguments=tuple(rest[1:]))
    if first.endswith(".py"):
        return Program(script=first, arguments=tuple(rest))
    return Program(start=(first,), arguments=tuple(rest))


def _launched(launcher: tuple[str, ...], rest: Sequence[str]) -> Program:
    """Return the program after the options of a launcher: the first word that ends in .py, or follows -m."""
    for at, word in enumerate(rest):
        if word in ("-m", "--module") and at + 1 < len(rest):
            return Program(module=rest[at + 1], start=(*launcher, *rest[:at]), arguments=tuple(rest[at + 2 :]))
        if word.endswith(".py"):
            return Program(script=word, start=(*launcher, *rest[:at]), arguments=tuple(rest[at + 1 :]))
    raise UsageError(f"{' '.join(launcher)}: expected a script (.py), or -m and a module")
