"""Reads a benchfile.py: runs it and returns its `benchmark`, or raises the problem in a line."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import runpy
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from milabench.bench.api import Benchmark, Git, PyPI
from milabench.bench.registry import BENCHFILE, foreign_format
from milabench.errors import ConfigError, Problem

# An option's name in braces, and what it may stand for: in a module names with dots, in a path one part or more.
_NAME = re.compile(r"\{([^{}]*)\}")
_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*(/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*")
_FILLED = {"script": _PATH, "module": re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII), "voirfile": _PATH}
WORKING_FOLDERS = ("step_dir", "data", "source", "definition")


def load_benchfile(folder: Path) -> Benchmark:
    """Return the `benchmark` that `folder/benchfile.py` defines. The output of the benchfile is dropped.

    Raises ConfigError when the folder, the file or the name is missing, when
    the file cannot be run, and when the value contradicts itself.
    """
    benchfile = folder / BENCHFILE
    if not folder.is_dir():
        hint = "check the benchmark's `definition`, or create it with `milabench new NAME`"
        raise _wrong(folder, "no such folder", hint)
    if not benchfile.is_file():
        hint = f"a benchmark's folder holds a {BENCHFILE}. `milabench new NAME` creates an example"
        raise _wrong(benchfile, "no such file", hint)
    if (foreign := foreign_format(benchfile)) is not None:
        loaded: Benchmark = foreign.declared_in(folder)
        return loaded
    try:
        # Our own output may be JSON that a program reads.
        with contextlib.redirect_stdout(io.StringIO()):
            names = runpy.run_path(str(benchfile))
    except SyntaxError as error:
        raise _wrong(f"{error.filename or benchfile}:{error.lineno}:{error.offset}", error.msg) from None
    except (Exception, SystemExit) as error:
        raise _wrong(_location(error, benchfile), f"{type(error).__name__}: {_first_line(error)}") from error
    if "benchmark" not in names:
        raise _wrong(benchfile, "defines no `benchmark`", "write `benchmark = Benchmark(...)` at module level")
    benchmark = names["benchmark"]
    if not isinstance(benchmark, Benchmark):
        what = f"`benchmark` is a {type(benchmark).__name__}, not a milabench.Benchmark"
        raise _wrong(benchfile, what, "write `benchmark = Benchmark(...)`")
    # In this order: paths and patterns of what is no text cannot be looked at.
    problems = (
        [*_wrong_types(benchmark)] or [*_contradictions(benchmark)] or [*_missing_requirements(benchmark, folder)]
    )
    if problems:
        raise ConfigError([Problem(str(benchfile), path, what) for path, what in problems])
    return benchmark


def requirements_folder(benchmark: Benchmark, folder: Path) -> Path:
    """Return where the requirements.in and the locks of the benchmark in `folder` lie."""
    # Not resolved: a folder that is a link has the siblings that it is given among, as its definition has.
    return Path(os.path.normpath(folder / benchmark.requirements))


def shared_modules(benchmark: Benchmark, folder: Path) -> Path | None:
    """Return the folder of the locks that the benchmark shares, where that holds Python modules too. Else None."""
    shared = requirements_folder(benchmark, folder)
    is_shared = shared != Path(os.path.normpath(folder)) and next(shared.glob("*.py"), None) is not None
    return shared if is_shared else None


def folder_digest(folder: Path) -> str:
    """Return the sha256 of names and contents. Leftovers of running (byte code, hidden files) do not count."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        # Running the program must not look like changing it.
        if "__pycache__" in name.parts or any(part.startswith(".") for part in name.parts) or not path.is_file():
            continue
        with path.open("rb") as file:
            digest.update(f"{name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()


def with_options(benchmark: Benchmark, options: Mapping[str, object]) -> Benchmark:
    """Return the benchmark with the suite's values for the options that `script`, `module` and `voirfile` name in braces.

    `options` are those that the suite gives. Others have their defaults. Raises OptionError for a value that can be no part
    of the name.
    """
    values = {**benchmark.options, **options}
    filled: dict[str, Any] = {}
    for attribute, allowed in _FILLED.items():
        text = getattr(benchmark, attribute)
        for name in _NAME.findall(text or ""):
            value = values[name]
            if not isinstance(value, str) or not allowed.fullmatch(value):
                raise OptionError(name, f"{value!r} can be no part of {attribute}={getattr(benchmark, attribute)!r}")
            text = text.replace(f"{{{name}}}", value)
        filled[attribute] = text
    return replace(benchmark, **filled)


class OptionError(ValueError):
    """An option of a benchmark whose value cannot be used. `name` is the option."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(what)
        self.name = name


def missing_files(benchmark: Benchmark, folder: Path) -> tuple[Path, ...]:
    """Return the files that a benchfile names in its own folder and that do not exist."""
    # prepare.py is checked when something is prepared.
    own = (benchmark.voirfile, benchmark.script if benchmark.source is None else None)
    return tuple(folder / path for path in own if path is not None and not (folder / path).is_file())


def _wrong_types(benchmark: Benchmark) -> Iterator[tuple[str, str]]:
    """Yield values of a wrong type. Contradictions are only looked for when all types are right."""
    for name in ("script", "module", "voirfile", "prepare"):
        value = getattr(benchmark, name)
        if value is not None and not isinstance(value, str):
            yield f"benchmark.{name}", f"expected text, got {value!r}"
    for name, kind in (("python_path", tuple), ("packages", tuple), ("env", Mapping), ("options", Mapping)):
        if not isinstance(getattr(benchmark, name), kind):
            yield f"benchmark.{name}", f"expected a {kind.__name__.lower()}, got {getattr(benchmark, name)!r}"
            return
    for key, value in benchmark.env.items():
        if not isinstance(key, str) or not isinstance(value, str):
            yield f"benchmark.env[{key!r}]", f"expected text, got {value!r}"
    if not isinstance(benchmark.requirements, str):
        yield "benchmark.requirements", f"expected text, got {benchmark.requirements!r}"
    if benchmark.source is not None and not isinstance(benchmark.source, PyPI | Git):
        yield "benchmark.source", f"expected PyPI(...) or Git(...), got {benchmark.source!r}"


def _contradictions(benchmark: Benchmark) -> Iterator[tuple[str, str]]:
    if (benchmark.script is None) == (benchmark.module is None):
        yield "benchmark", "give exactly one of `script` and `module`"
    if benchmark.cwd not in WORKING_FOLDERS:
        yield "benchmark.cwd", f"expected one of {', '.join(WORKING_FOLDERS)}, got {benchmark.cwd!r}"
    if benchmark.cwd == "source" and benchmark.source is None:
        yield "benchmark.cwd", "'source' needs a `source`"
    if benchmark.source is None and benchmark.python_path:
        yield "benchmark.python_path", "names folders inside the source, but there is no `source`"
    yield from _unknown_options(benchmark)
    paths = (
        ("script", benchmark.script),
        ("voirfile", benchmark.voirfile),
        ("prepare", benchmark.prepare),
        *(("python_path", path) for path in benchmark.python_path),
    )
    for name, path in paths:
        if path is not None and _leaves_its_folder(path):
            yield f"benchmark.{name}", f"expected a path inside the folder, got {path!r}"
    if _leaves_its_folder(benchmark.requirements) and _leaves_its_folder(benchmark.requirements.removeprefix("../")):
        what = f"expected a folder inside this folder or next to it (../NAME), got {benchmark.requirements!r}"
        yield "benchmark.requirements", what
    match benchmark.source:
        case PyPI(sha256=sha256) if not re.fullmatch(r"[0-9a-f]{64}", sha256):
            yield "benchmark.source.sha256", f"expected 64 hexadecimal digits, got {sha256!r}"
        case PyPI(file=file) if not file.endswith((".whl", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")):
            yield "benchmark.source.file", f"expected a wheel or an sdist, got {file!r}"
        case Git(rev=rev) if not re.fullmatch(r"[0-9a-f]{40}([0-9a-f]{24})?", rev):
            yield "benchmark.source.rev", f"expected a full commit hash, got {rev!r}"
        case _:
            pass


def _missing_requirements(benchmark: Benchmark, folder: Path) -> Iterator[tuple[str, str]]:
    if not requirements_folder(benchmark, folder).is_dir():
        what = f"no such folder: {benchmark.requirements}. Make it, with a requirements.in, or name one that is there"
        yield "benchmark.requirements", what


def _unknown_options(benchmark: Benchmark) -> Iterator[tuple[str, str]]:
    """Yield the names in braces that are no options, and braces without a partner."""
    known = ", ".join(benchmark.options) or "none"
    for attribute in _FILLED:
        text = getattr(benchmark, attribute) or ""
        for name in _NAME.findall(text):
            if name not in benchmark.options:
                yield f"benchmark.{attribute}", f"{{{name}}} is none of its options. Known: {known}"
        if brace := re.search("[{}]", _NAME.sub("", text)):
            what = f"a {brace[0]} without its partner in {text!r}. An option stands in it as {{NAME}}. Known: {known}"
            yield f"benchmark.{attribute}", what


def _leaves_its_folder(path: str) -> bool:
    parts = PurePosixPath(path)
    return parts.is_absolute() or ".." in parts.parts or not path


def _location(error: BaseException, benchfile: Path) -> str:
    import traceback  # for the rare mistake, not at every start

    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(benchfile)]
    return f"{benchfile}:{lines[-1]}" if lines else str(benchfile)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0]


def _wrong(where: object, what: str, hint: str = "") -> ConfigError:
    return ConfigError(Problem(str(where), "", what, hint))
