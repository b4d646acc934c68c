"""Creates a benchmark from a program: a script, a folder, a module, a launched script, a Git repository or a release."""

from __future__ import annotations

import ast
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from milabench.bench_command.measure_commands import suite_environment
from milabench.errors import UsageError
from milabench.events.removal import copy_tree, new_folder
from milabench.own_program.interpreter import find_interpreter, module_file
from milabench.own_program.observation import ProgramObservation, observation_of, ways_text
from milabench.own_program.origins import ProgramOrigin, chosen_program, find_module, origin_of
from milabench.own_program.program import Program, parse_program
from milabench.own_program.reading import read_source
from milabench.own_program.script import Script
from milabench.own_program.written_benchmark import LATE, PROGRAM, WrittenProgram, benchmark_files
from milabench.scaffold.new_benchmark import creation_error, new_benchmark_folder, schema_for

_LEFT_OUT: Final = ("__pycache__", ".git", ".venv", "venv", "*.pyc", "*.egg-info", ".mypy_cache", ".ruff_cache")
_DATA: Final = ("data", "datasets")  # where libraries keep what they fetch, in the folder that a program is started in
_LARGEST_FOLDER: Final = 200 << 20


def new_from_program(name: str, into: Path, given: str, script: str | None, module: str | None) -> tuple[str, ...]:
    """Create a benchmark from a program, and return the lines to show, with the command that tries it.

    Raises UsageError and EnvironmentFailed.
    """
    folder = new_benchmark_folder(name, into)
    with tempfile.TemporaryDirectory(prefix="milabench-new-") as scratch:
        origin = origin_of(given, Path(scratch))
        if not origin.is_here:
            return _create(folder, origin, chosen_program(origin, script, module))
        if script or module:
            raise UsageError("--script and --module name a program of a release, a folder or a repository")
        program = parse_program([given] if Path(given).is_file() else shlex.split(given) or [""])
        if not program.is_python:
            raise UsageError(
                f"--from '{given}': is no script (.py), folder, repository or command that starts Python. For a release "
                f"give pypi:PROJECT==VERSION. `milabench bench` measures any command"
            )
        if program.module and find_module(origin.root, program.module) is None:
            installed = module_file(program.start, program.module)
            origin = replace(origin, name=f"the installed module {program.module}", installed=installed)
        return _create(folder, origin, program)


def _create(folder: Path, origin: ProgramOrigin, program: Program) -> tuple[str, ...]:
    packages, located = _located(origin, program)
    reading = read_source(located, origin.root / packages if program.module and not origin.installed else None)
    if origin.installed is not None:  # its package is needed, which may import itself by relative names alone
        reading = replace(reading, imports={program.module.partition(".")[0]: 1, **reading.imports})
    # A release or a repository finds what it needs in itself.
    starts_here = origin.source is None and _opens_files(reading.scripts if origin.is_copied else (), program)
    seen = observation_of(reading)
    late = (each for package in reading.imports for each in LATE.get(package, ()))
    written = WrittenProgram(
        name=folder.name,
        program=replace(program, script=located.name) if program.script and origin.is_here else program,
        origin=origin,
        folder=packages,
        interpreter=find_interpreter(program.start, (*late, *reading.imports)),
        reading=reading,
        observation=None if seen is None or seen.is_brief else seen,
        cwd=str(Path.cwd()) if starts_here else "",
        models=suite_environment((), os.environ)["HF_HOME"],
    )
    try:
        with new_folder(folder) as draft:
            draft.mkdir(parents=True, exist_ok=True)
            if origin.is_copied:
                _copy(written, draft / PROGRAM)
            for file, text in benchmark_files(written, schema_for(folder, draft)).items():
                (draft / file).write_text(text)
    except (OSError, shutil.Error) as error:
        raise creation_error(folder, error) from None
    return tuple(_lines(folder, written, seen))


def _located(origin: ProgramOrigin, program: Program) -> tuple[str, Path]:
    """Return the folder of a program's packages, empty or `src`, and its file. Raises UsageError."""
    found: tuple[str, Path] | None = "", origin.installed or origin.root / program.script
    if program.module and not origin.installed:
        found = find_module(origin.root, program.module)
    if found is None or not found[1].is_file():
        raise UsageError(f"{program.name}: no such {'module' if program.module else 'file'} in {origin.name}")
    return found


def _opens_files(scripts: Sequence[Script], program: Program) -> bool:
    """Return whether texts of a program, its arguments or usual names are paths of files or folders here."""
    nodes = (node for script in scripts for node in ast.walk(script.tree))
    texts = (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return any(map(_is_here, (*_DATA, *texts, *(word.rpartition("=")[2] for word in program.arguments))))


def _is_here(text: str) -> bool:
    is_path = 0 < len(text) < 200 and "\n" not in text and "\0" not in text and text.strip("./") != ""
    return is_path and not Path(text).is_absolute() and Path(text).exists() and not text.endswith(".py")


def _copy(written: WrittenProgram, into: Path) -> None:
    """Copy a folder, or a script with its own modules."""
    root = written.origin.root
    if not written.origin.is_here:
        size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file() and ".git" not in path.parts)
        if size > _LARGEST_FOLDER:
            raise UsageError(f"{root}: has {size >> 20} MiB. Give its script instead, with its data elsewhere")
        # The new benchmark itself may lie in the folder.
        copy_tree(root, into, shutil.ignore_patterns(*_LEFT_OUT, into.parent.parent.name))
        return
    files = {script.file for script in written.reading.scripts}
    base = root if written.program.module else written.reading.scripts[0].file.parent
    packages = {base / file.relative_to(base).parts[0] for file in files if file.parent != base}
    for file in files | {file for package in packages for file in package.rglob("*.py")}:
        target = into / file.relative_to(base)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)


def _lines(folder: Path, written: WrittenProgram, seen: ProgramObservation | None) -> Iterator[str]:
    observation, reading = written.observation, written.reading
    modules = f" and {len(reading.scripts) - 1} of its modules" if len(reading.scripts) > 1 else ""
    origin = written.origin
    program = f"{reading.scripts[0].file.name}{modules}" if origin.is_here else origin.name
    yield f"created {folder}, {'with a copy of' if origin.is_copied else 'of'} {program}"
    if observation is None:
        yield ways_text(written.program.script or written.program.name, reading, seen)
    else:
        yield f"  steps: {observation.why} ({observation.found})"
        if observation.loss is not None:
            yield f"  loss: {observation.loss}"
        for pause in observation.pauses:
            yield f"  left out of the rate: {pause.name} ({pause.found})"
        for text in observation.missing:
            yield f"  not observed: {text}"
        if reading.work is not None:
            yield f"  length: {reading.work}. With less than half a minute of steps the number is suspect (short)"
    if origin.is_here and (beside := reading.first_name("__file__")) is not None:
        yield f"  not copied: what it finds by {beside}. With a folder that has it: --from FOLDER --script PATH"
    is_current = os.path.realpath(written.interpreter.prefix) == os.path.realpath(sys.prefix)
    is_complete = not written.requires and set(reading.imports).isdisjoint(written.interpreter.missing)
    flag = " --use-current-env" if is_current and is_complete else ""
    yield "try it:"
    yield f"  milabench quickstart{flag} --config {shlex.quote(str(folder / 'suite.yaml'))}"
