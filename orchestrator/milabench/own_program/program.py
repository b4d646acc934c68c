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
    """A program and its launcher: exactly one of `script`, `module` and `command` is given.

    `launcher` are the words before a script or module, without `python`. A `command` is no Python program.
    """

    script: str = ""
    module: str = ""
    command: tuple[str, ...] = ()
    launcher: tuple[str, ...] = ()
    python_flags: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name in messages."""
        if self.command:
            return PurePath(self.command[0]).name
        return f"-m {self.module}" if self.module else self.script

    def observed(self, python: str, voirfile: str) -> tuple[str, ...]:
        """Return the words that start it under the runner."""
        runner = ("benchmate.run", "--voirfile", voirfile)
        program = ("-m", self.module) if self.module else (self.script,)
        if self.launcher:
            apart = ("--",) if self.launcher[0].endswith("torchrun") else ()
            return (*self.launcher, "-m", *apart, *runner, *program, *self.arguments)
        return (python, *self.python_flags, "-m", *runner, *program, *self.arguments)

    def plain(self, python: str) -> tuple[str, ...]:
        """Return the words that start it as it is."""
        if self.command:
            return (*self.command, *self.arguments)
        program = ("-m", self.module) if self.module else (self.script,)
        start = self.launcher or (python, *self.python_flags)
        return (*start, *program, *self.arguments)


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
        flags = []
        while rest and rest[0] in _PYTHON_FLAGS:
            flags.append(rest.pop(0))
        if not rest or (rest[0] == "-m" and len(rest) == 1):
            raise UsageError(f"{first}: expected a script, or -m and a module")
        if rest[0] == "-m":
            return Program(module=rest[1], python_flags=tuple(flags), arguments=tuple(rest[2:]))
        if rest[0].startswith("-"):
            raise UsageError(
                f"{first} {rest[0]}: only scripts and modules are measured here. `milabench bench` measures any command"
            )
        return Program(script=rest[0], python_flags=tuple(flags), arguments=tuple(rest[1:]))
    if first.endswith(".py"):
        return Program(script=first, arguments=tuple(rest))
    return Program(command=(first,), arguments=tuple(rest))


def _launched(launcher: tuple[str, ...], rest: Sequence[str]) -> Program:
    """Return the program after the options of a launcher: the first word that ends in .py, or follows -m."""
    for at, word in enumerate(rest):
        if word in ("-m", "--module") and at + 1 < len(rest):
            return Program(module=rest[at + 1], launcher=(*launcher, *rest[:at]), arguments=tuple(rest[at + 2 :]))
        if word.endswith(".py"):
            return Program(script=word, launcher=(*launcher, *rest[:at]), arguments=tuple(rest[at + 1 :]))
    raise UsageError(f"{' '.join(launcher)}: expected a script (.py), or -m and a module")
