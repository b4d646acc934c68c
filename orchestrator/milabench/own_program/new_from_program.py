"""Creates a benchmark from a program: a script, a folder, a module, a launched script, or a Git repository."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from milabench.bench.api import Git
from milabench.errors import EnvironmentFailed, UsageError
from milabench.events.removal import copy_tree, new_folder
from milabench.own_program.interpreter import interpreter_of
from milabench.own_program.observation import ProgramObservation, observation_of
from milabench.own_program.program import Program, parse_program
from milabench.own_program.sources import ProgramSource, read_source
from milabench.own_program.voirfile import ways_text
from milabench.own_program.written_benchmark import LATE, PROGRAM, WrittenProgram, benchmark_files
from milabench.scaffold.new_benchmark import creation_error, new_benchmark_folder, programs_in, schema_for

_REPOSITORY: Final = re.compile(r"(?:(?:https?|ssh|git|file)://|git@)\S+|\S+\.git")
_LEFT_OUT: Final = ("__pycache__", ".git", ".venv", "venv", "*.pyc", "*.egg-info", ".mypy_cache", ".ruff_cache")
_LARGEST_FOLDER: Final = 200 << 20
_USUAL_NAMES: Final = ("train.py", "main.py", "run.py")


def new_from_program(name: str, into: Path, given: str, script: str | None, module: str | None) -> tuple[str, ...]:
    """Create a benchmark from a program, and return the lines to show, with the command that tries it.

    Raises UsageError and EnvironmentFailed.
    """
    folder = new_benchmark_folder(name, into)
    with tempfile.TemporaryDirectory(prefix="milabench-new-") as scratch:
        source, root = None, Path.cwd()
        if _REPOSITORY.fullmatch(given):
            source, root = _cloned(given, Path(scratch, "clone"))
            program = _chosen(root, script, module)
        elif Path(given).is_dir():
            root = Path(given)
            program = _chosen(root, script, module)
        elif script or module:
            raise UsageError("--script and --module name a program of a release, a folder or a repository")
        else:
            program = _started(given)
        return _create(folder, name, program, given, root, source)


def _started(given: str) -> Program:
    words = [given] if Path(given).is_file() else shlex.split(given)
    program = parse_program(words or [""])
    if program.command:
        raise UsageError(
            f"--from '{given}': is no script (.py), folder, repository or command that starts Python; of a release, "
            f"give pypi:PROJECT==VERSION; `milabench bench` measures any command"
        )
    return program


def _chosen(root: Path, script: str | None, module: str | None) -> Program:
    """Return the program of a folder: the named one, else the usual or only one. Raises UsageError with those there are."""
    if module:
        return Program(module=module)
    programs = programs_in(root)
    if script is None:
        usual = [name for name in _USUAL_NAMES if name in programs] or programs
        if not usual or (len(usual) > 1 and usual is programs):
            known = f": {', '.join(programs[:20])}" if programs else ""
            raise UsageError(f"{root.name}: has {len(programs)} programs; choose one with --script or --module{known}")
        script = usual[0]
    if not (root / script).is_file():
        raise UsageError(f"--script {script}: no such file in {root.name}")
    return Program(script=script)


def _cloned(url: str, clone: Path) -> tuple[Git, Path]:
    """Clone a repository, and return it at the commit of its default branch. Raises EnvironmentFailed."""
    commit = ""
    for words in (("clone", "--quiet", "--depth", "1", "--", url, str(clone)), ("-C", str(clone), "rev-parse", "HEAD")):
        environ = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
        ended = subprocess.run(["git", *words], capture_output=True, text=True, check=False, env=environ)
        if ended.returncode:
            last = (ended.stderr.strip().splitlines() or ["git failed"])[-1]
            raise EnvironmentFailed(f"--from {url}: {last}")
        commit = ended.stdout.strip()
    return Git(url, commit), clone


def _create(folder: Path, name: str, program: Program, given: str, root: Path, source: Git | None) -> tuple[str, ...]:
    located = root / program.script if program.script else _module_file(program, root)
    if not located.is_file():
        raise UsageError(f"{program.name}: no such file in {root}")
    code = read_source(located, root if program.module else None)
    late = {each: 0 for package in code.reading.imports for each in LATE.get(package, ())}
    wanted = {**late, **code.reading.imports}
    interpreter = interpreter_of(replace(program, module=""), _named(given), wanted, os.environ, is_complete=False)
    is_folder = source is None and root != Path.cwd()
    path = program.script if source else f"{PROGRAM}/{program.script if is_folder else located.name}"
    opens_files = source is None and (any(_opened_files(code)) or _names_files(program))
    observation = observation_of(code.reading, os.environ)
    written = WrittenProgram(
        name=name,
        program=program,
        path=path,
        source=source,
        interpreter=interpreter,
        reading=code.reading,
        observation=None if observation is None or observation.is_brief else observation,
        cwd=str(Path.cwd()) if opens_files else "",
    )
    try:
        with new_folder(folder) as draft:
            draft.mkdir(parents=True, exist_ok=True)
            if source is None:
                copied = root if is_folder else None
                _copy(code, located, draft / PROGRAM, copied, program)
            for file, text in benchmark_files(written, schema_for(folder, draft)).items():
                (draft / file).write_text(text)
    except (OSError, shutil.Error) as error:
        raise creation_error(folder, error) from None
    return tuple(_lines(folder, written, code, observation))


def _named(given: str) -> str:
    first = next(iter(given.split()), "")
    return "" if first.endswith(".py") or Path(given).exists() or _REPOSITORY.fullmatch(given) else first


def _module_file(program: Program, root: Path) -> Path:
    parts = program.module.split(".")
    for path in (root.joinpath(*parts), root.joinpath("src", *parts)):
        for file in (path.with_suffix(".py"), path / "__main__.py"):
            if file.is_file():
                return file
    hint = "of a package: --from pypi:PROJECT==VERSION --module NAME"
    raise UsageError(f"-m {program.module}: no such module in {root}; {hint}")


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


def _copy(code: ProgramSource, located: Path, into: Path, root: Path | None, program: Program) -> None:
    """Copy a folder, or a script with its own modules."""
    if root is not None:
        size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file() and ".git" not in path.parts)
        if size > _LARGEST_FOLDER:
            raise UsageError(f"{root}: has {size >> 20} MiB; give its script instead, with its data elsewhere")
        copy_tree(root, into, shutil.ignore_patterns(*_LEFT_OUT))
        return
    base = Path.cwd() if program.module else located.parent
    files = {located, *code.files.values()}
    packages = {base / file.relative_to(base).parts[0] for file in files if file.parent != base}
    for file in files | {file for package in packages for file in package.rglob("*.py")}:
        target = into / file.relative_to(base)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)


def _lines(
    folder: Path, written: WrittenProgram, code: ProgramSource, seen: ProgramObservation | None
) -> Iterator[str]:
    yield f"created {folder}" + ("" if written.source else f", with a copy of {_counted(code.files.values())}")
    observation = written.observation
    if observation is None:
        yield ways_text(written.program.script or written.program.name, written.reading, seen)
    else:
        yield f"  steps: {observation.why} ({observation.found})"
        if observation.loss_found is not None:
            yield f"  loss: {observation.loss_found}"
        for pause in observation.pauses:
            yield f"  left out: {pause.name} ({pause.found})"
        for text in observation.missing:
            yield f"  not observed: {text}"
    is_here = os.path.realpath(written.interpreter.prefix) == os.path.realpath(sys.prefix)
    flag = " --use-current-env" if is_here and not written.interpreter.missing else ""
    yield "try it:"
    yield f"  milabench quickstart{flag} --config {shlex.quote(str(folder / 'suite.yaml'))}"


def _counted(files: Iterable[Path]) -> str:
    first, *others = files
    return first.name + (f" and {len(others)} of its modules" if others else "")
