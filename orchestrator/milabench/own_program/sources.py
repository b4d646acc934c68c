"""Reads the files of a program: its script, and the imported modules in the same folder."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from milabench.errors import UsageError, os_reason
from milabench.own_program.reading import Reading, read_program

MOST_FILES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramSource:
    """The files of a program by the module that each is, `__main__` first, and the result of reading them.

    `needed` are the packages without which it does not begin, with the line that imports each.
    """

    files: Mapping[str, Path]
    reading: Reading
    needed: Mapping[str, int]


def read_source(file: Path, root: Path | None = None) -> ProgramSource:
    """Read a script and its own modules, which are looked for in `root`, by default the folder of the script.

    Raises UsageError for a file that cannot be read, or is no Python.
    """
    root = file.parent if root is None else root
    files, texts = {"__main__": file}, {"__main__": _text(file)}
    waiting = ["__main__"]
    while waiting and len(files) < MOST_FILES:
        path = files[waiting[0]]
        package = path.parent.relative_to(root).parts if path.is_relative_to(root) else ()
        for module, found in _local_modules(_parsed(texts[waiting.pop(0)], path), root, package):
            if module not in files and found != file:
                files[module], texts[module] = found, _text(found)
                waiting.append(module)
    reading = read_program(texts)
    main = reading.scripts[0]
    statements = {node.lineno for node in main.tree.body}
    tops = {name.partition(".")[0]: line for name, line in main.imports.items() if line in statements}
    needed = {top: line for top, line in tops.items() if top in reading.imports}
    return ProgramSource(files=files, reading=reading, needed=needed)


def _text(file: Path) -> str:
    if file.is_dir():
        raise UsageError(f"{file}: is a folder. Name the script that it starts")
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"{file}: {os_reason(error)}") from None


def _parsed(text: str, file: Path) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) else ""
        raise UsageError(f"{file}{line}: is no Python: {getattr(error, 'msg', error)}") from None


def _local_modules(tree: ast.Module, root: Path, package: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    """Yield the modules below a folder that a file in this package imports, with their files."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parts = [*package[: len(package) + 1 - node.level]] if node.level else []
            base = ".".join([*parts, *([node.module] if node.module else [])])
            names = [base, *(f"{base}.{alias.name}" if base else alias.name for alias in node.names)]
        else:
            continue
        for name in filter(None, names):
            parts = name.split(".")
            for length in range(1, len(parts) + 1):
                path = root.joinpath(*parts[:length])
                for file in (path.with_suffix(".py"), path / "__init__.py"):
                    if file.is_file():
                        yield ".".join(parts[:length]), file
