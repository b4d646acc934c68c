"""Reads the files of a program: its script, and the imported modules in the same folder."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from milabench.errors import UsageError, os_reason
from milabench.own_program.reading import Reading, read_program
from milabench.own_program.script import MAIN, Script

MOST_FILES = 200


def read_source(file: Path, root: Path | None = None) -> Reading:
    """Read a script and its own modules, which are looked for in `root`, by default the folder of the script.

    Raises UsageError for a file that cannot be read, or is no Python.
    """
    root = file.parent if root is None else root
    scripts = {MAIN: _script(file, MAIN)}
    waiting = [scripts[MAIN]]
    while waiting and len(scripts) < MOST_FILES:
        for module, found in _local_modules(waiting.pop(0), root):
            if module not in scripts and found != file:
                scripts[module] = _script(found, module)
                waiting.append(scripts[module])
    return read_program(tuple(scripts.values()))


def _script(file: Path, module: str) -> Script:
    if file.is_dir():
        raise UsageError(f"{file}: is a folder. Name the script that it starts")
    try:
        return Script(ast.parse(file.read_text(encoding="utf-8", errors="replace")), module, file)
    except OSError as error:
        raise UsageError(f"{file}: {os_reason(error)}") from None
    except (SyntaxError, ValueError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) else ""
        raise UsageError(f"{file}{line}: is no Python: {getattr(error, 'msg', error)}") from None


def _local_modules(script: Script, root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the modules below a folder that a script imports, and the packages that they are in, with their files."""
    folder = script.file.parent
    package = folder.relative_to(root).parts if folder.is_relative_to(root) else ()
    for imported in script.imported:
        name = imported.name.lstrip(".")
        level = len(imported.name) - len(name)
        parts = (*package[: len(package) + 1 - level], *name.split(".")) if level else name.split(".")
        for length in range(1, len(parts) + 1):
            path = root.joinpath(*parts[:length])
            for file in (path.with_suffix(".py"), path / "__init__.py"):
                if file.is_file():
                    yield ".".join(parts[:length]), file
