"""Parses the command line of a program: launcher, script or module, and arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from milabench.errors import UsageError

_PYTHON: Final = re.compile(r"(?:python|pypy)[\d.]*")
# Programs that start a Python program in several processes.
_LAUNCHERS: Final = ("torchrun", "accelerate", "deepspeed")
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
    is_python = _PYTHON.fullmatch(name) is not None
    if first.endswith(".py"):
        return Program(script=first, arguments=tuple(rest))
    if not is_python and name not in _LAUNCHERS:
        return Program(start=(first,), arguments=tuple(rest))
    if name == "accelerate" and rest[:1] != ["launch"]:
        raise UsageError(f"{first}: expected `{first} launch` and a script")
    module_options = ("-m",) if is_python else ("-m", "--module")
    # Of a launcher, the first word that ends in .py: words before it may be values of its options.
    for at, word in enumerate(rest):
        start, following = (first, *rest[:at]), tuple(rest[at + 1 :])
        if word in module_options and following:
            return Program(module=following[0], start=start, arguments=following[1:])
        if word.endswith(".py") or (is_python and not word.startswith("-")):
            return Program(script=word, start=start, arguments=following)
        if is_python and word not in (*_PYTHON_FLAGS, "-m"):
            raise UsageError(
                f"{first} {word}: only scripts and modules are measured here. `milabench bench` measures any command"
            )
    raise UsageError(f"{first}: expected a script (.py), or -m and a module")
