"""Creates a benchmark from a program: a script, a folder, a module, a launched script, a Git repository or a release."""

from __future__ import annotations

import ast
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from milabench.bench.api import PyPI
from milabench.errors import UsageError
from milabench.events.removal import copy_tree, new_folder
from milabench.own_program.interpreter import interpreter_of
from milabench.own_program.observation import ProgramObservation, observation_of
from milabench.own_program.origins import (
    ProgramOrigin,
    chosen_program,
    is_compiled,
    module_in,
    origin_of,
    release_requirements,
)
from milabench.own_program.program import Program, parse_program
from milabench.own_program.sources import ProgramSource, read_source
from milabench.own_program.voirfile import ways_text
from milabench.own_program.written_benchmark import LATE, PROGRAM, WrittenProgram, benchmark_files
from milabench.scaffold.new_benchmark import creation_error, new_benchmark_folder, schema_for

_LEFT_OUT: Final = ("__pycache__", ".git", ".venv", "venv", "*.pyc", "*.egg-info", ".mypy_cache", ".ruff_cache")
_LARGEST_FOLDER: Final = 200 << 20


def new_from_program(name: str, into: Path, given: str, script: str | None, module: str | None) -> tuple[str, ...]:
    """Create a benchmark from a program, and return the lines to show, with the command that tries it.

    Raises UsageError and EnvironmentFailed.
    """
    folder = new_benchmark_folder(name, into)
    with tempfile.TemporaryDirectory(prefix="milabench-new-") as scratch:
        origin = origin_of(given, Path(scratch))
        if not origin.is_here:
            return _create(folder, origin, chosen_program(origin, script, module), "")
        if script or module:
            raise UsageError("--script and --module name a program of a release, a folder or a repository")
        words = [given] if Path(given).is_file() else shlex.split(given)
        program = parse_program(words or [""])
        if program.command:
            raise UsageError(
                f"--from '{given}': is no script (.py), folder, repository or command that starts Python. For a release "
                f"give pypi:PROJECT==VERSION. `milabench bench` measures any command"
            )
        return _create(folder, origin, program, "" if words[0].endswith(".py") else words[0])


def _create(folder: Path, origin: ProgramOrigin, program: Program, named: str) -> tuple[str, ...]:
    """Create the benchmark of a program; `named` is the interpreter or launcher of its command line, else empty."""
    packages, located = module_in(origin, program.module) if program.module else ("", origin.root / program.script)
    if not located.is_file():
        raise UsageError(f"{program.name}: no such file in {origin.name}")
    code = read_source(located, origin.root / packages if program.module else None)
    late = {each: 0 for package in code.reading.imports for each in LATE.get(package, ())}
    wanted = {**late, **code.reading.imports}
    interpreter = interpreter_of(replace(program, module=""), named, wanted, os.environ, is_complete=False)
    opens_files = origin.source is None and (any(_opened_files(code)) or _names_files(program))
    observation = observation_of(code.reading, os.environ)
    written = WrittenProgram(
        name=folder.name,
        program=replace(program, script=located.name) if program.script and origin.is_here else program,
        source=origin.source,
        folder=packages,
        interpreter=interpreter,
        reading=code.reading,
        observation=None if observation is None or observation.is_brief else observation,
        cwd=str(Path.cwd()) if opens_files else "",
    )
    if origin.source is not None:
        written = _fetched(written, origin)
    try:
        with new_folder(folder) as draft:
            draft.mkdir(parents=True, exist_ok=True)
            if origin.source is None:
                _copy(code, located, draft / PROGRAM, origin, program)
            for file, text in benchmark_files(written, schema_for(folder, draft)).items():
                (draft / file).write_text(text)
    except (OSError, shutil.Error) as error:
        raise creation_error(folder, error) from None
    return tuple(_lines(folder, written, code, observation, origin))


def _fetched(written: WrittenProgram, origin: ProgramOrigin) -> WrittenProgram:
    """Return a program with the packages of its source, and those that its release requires."""
    places = (path for each in ("", "src") for path in (origin.root / each).glob("*"))
    written = replace(written, own=frozenset(path.stem for path in places if path.suffix in ("", ".py")))
    if not isinstance(origin.source, PyPI):
        return written
    is_module = bool(written.program.module)
    is_installed = is_module and is_compiled(origin.root)
    requires = release_requirements(origin.source, origin.root, is_installed=is_installed or not is_module)
    return replace(written, is_installed=is_installed, requires=tuple(requires))


def _opened_files(code: ProgramSource) -> Iterator[str]:
    """Yield the texts in a program that are paths of files or folders here."""
    for script in code.reading.scripts:
        for node in ast.walk(script.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_here(node.value):
                yield node.value


def _names_files(program: Program) -> bool:
    return any(_is_here(word.rpartition("=")[2]) for word in program.arguments)


def _is_here(text: str) -> bool:
    is_path = 0 < len(text) < 200 and "\n" not in text and "\0" not in text and text.strip("./") != ""
    return is_path and not Path(text).is_absolute() and Path(text).exists() and not text.endswith(".py")


def _copy(code: ProgramSource, located: Path, into: Path, origin: ProgramOrigin, program: Program) -> None:
    """Copy a folder, or a script with its own modules."""
    root = origin.root
    if not origin.is_here:
        size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file() and ".git" not in path.parts)
        if size > _LARGEST_FOLDER:
            raise UsageError(f"{root}: has {size >> 20} MiB. Give its script instead, with its data elsewhere")
        # The new benchmark itself may lie in the folder.
        copy_tree(root, into, shutil.ignore_patterns(*_LEFT_OUT, into.parent.parent.name))
        return
    base = root if program.module else located.parent
    files = {located, *code.files.values()}
    packages = {base / file.relative_to(base).parts[0] for file in files if file.parent != base}
    for file in files | {file for package in packages for file in package.rglob("*.py")}:
        target = into / file.relative_to(base)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)


def _lines(
    folder: Path, written: WrittenProgram, code: ProgramSource, seen: ProgramObservation | None, origin: ProgramOrigin
) -> Iterator[str]:
    yield f"created {folder}, " + (
        f"of {origin.name}" if written.source else f"with a copy of {_counted(code.files.values())}"
    )
    observation = written.observation
    if observation is None:
        yield ways_text(written.program.script or written.program.name, written.reading, seen)
    else:
        yield f"  steps: {observation.why} ({observation.found})"
        if observation.loss_found is not None:
            yield f"  loss: {observation.loss_found}"
        for pause in observation.pauses:
            yield f"  left out of the rate: {pause.name} ({pause.found})"
        for text in observation.missing:
            yield f"  not observed: {text}"
    is_current = os.path.realpath(written.interpreter.prefix) == os.path.realpath(sys.prefix)
    flag = " --use-current-env" if is_current and not written.interpreter.missing and not written.requires else ""
    yield "try it:"
    yield f"  milabench quickstart{flag} --config {shlex.quote(str(folder / 'suite.yaml'))}"


def _counted(files: Iterable[Path]) -> str:
    first, *others = files
    return first.name + (f" and {len(others)} of its modules" if others else "")
