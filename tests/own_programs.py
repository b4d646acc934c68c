"""Programs that are read from their texts."""

from __future__ import annotations

import ast

from milabench.own_program.reading import Reading, read_program
from milabench.own_program.script import MAIN, Script


def read(text: str, **modules: str) -> Reading:
    """What is found in a program, and in the modules beside it, by name."""
    texts = {MAIN: text, **modules}
    return read_program(tuple(Script(ast.parse(each), module) for module, each in texts.items()))
