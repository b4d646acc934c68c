"""Where the program of a new benchmark comes from: the current folder, another, a Git repository or a release."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath
from typing import Final

from milabench.bench.api import Git, PyPI
from milabench.errors import UsageError
from milabench.own_program.program import Program
from milabench.shown import some_of

_REPOSITORY: Final = re.compile(r"(?:(?:https?|ssh|git|file)://|git@)\S+|\S+\.git")
_RELEASE: Final = re.compile(
    r"pypi:(?P<project>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[A-Za-z0-9.!+_-]+)(?::(?P<file>[^/:\s]+))?"
)
_USUAL_NAMES: Final = ("train.py", "main.py", "run.py")
MAX_SHOWN: Final = 100  # programs in an error message
# What a package is built from that is not Python alone: where it is unpacked, it cannot be imported.
_COMPILED: Final = frozenset(
    {".pyx", ".pxd", ".c", ".cc", ".cpp", ".cu", ".f90", ".so", "Cargo.toml", "CMakeLists.txt", "meson.build"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramOrigin:
    """The folder of a program, and its name in messages.

    `source` is what a benchfile fetches it from. None: the program is copied, or `installed` is the file of its module in an
    environment.
    """

    root: Path
    name: str
    source: Git | PyPI | None = None
    installed: Path | None = None

    @property
    def is_copied(self) -> bool:
        """Whether the benchmark has a copy of the program."""
        return self.source is None and self.installed is None

    @property
    def is_here(self) -> bool:
        """Whether it is the current folder, of which only the program and its own modules are copied."""
        return self.is_copied and self.root == Path.cwd()

    @property
    def packages(self) -> frozenset[str]:
        """The modules and packages of its source. None of a copy, whose requirements are read from the copied files."""
        folders = (self.root, self.root / "src") if self.source else ()
        places = (path for folder in folders for path in folder.glob("*"))
        return frozenset(path.stem for path in places if path.suffix in ("", ".py"))

    @property
    def is_compiled(self) -> bool:
        """Whether it is a release with parts that have to be built, or were built for a single platform."""
        is_release = isinstance(self.source, PyPI)
        return is_release and any({path.name, path.suffix} & _COMPILED for path in self.root.rglob("*"))

    @property
    def requires(self) -> Iterator[str]:
        """The requirements of a release, without extras."""
        for path in (*self.root.glob("*.dist-info/METADATA"), self.root / "PKG-INFO"):
            if path.is_file():
                lines = HeaderParser().parsestr(path.read_text(errors="replace")).get_all("Requires-Dist") or []
                yield from (" ".join(line.split()) for line in lines if not re.search(r"\bextra\s*==", line))
                return


def origin_of(given: str, scratch: Path) -> ProgramOrigin:
    """Return the origin that a command line names; what is fetched is unpacked into `scratch`.

    Raises UsageError, and EnvironmentFailed for what cannot be fetched.
    """
    if given.startswith("pypi:"):
        return _release(given, scratch)
    if _REPOSITORY.fullmatch(given):
        return _clone(given, scratch / "clone")
    if Path(given).is_dir():
        return ProgramOrigin(root=Path(given), name=given)
    return ProgramOrigin(root=Path.cwd(), name=str(Path.cwd()))


def _release(given: str, scratch: Path) -> ProgramOrigin:
    from milabench.execute.sources import find_release, opened_release

    match = _RELEASE.fullmatch(given)
    if match is None:
        raise UsageError(f"--from '{given}': give pypi:PROJECT==VERSION or pypi:PROJECT==VERSION:FILE")
    source = find_release(match["project"], match["version"], match["file"], environ=os.environ)
    content = opened_release(source, scratch / source.folder, os.environ)
    return ProgramOrigin(root=content, name=source.file, source=source)


def _clone(url: str, clone: Path) -> ProgramOrigin:
    """Clone a repository, and return it at the commit of its default branch."""
    from milabench.execute.sources import opened_repository

    url = str(Path(url).resolve()) if Path(url).is_dir() else url  # git is started elsewhere, now and by `install`
    commit = opened_repository(Git(url, "HEAD"), clone, os.environ)
    return ProgramOrigin(root=clone, name=url, source=Git(url, commit))


def chosen_program(origin: ProgramOrigin, script: str | None, module: str | None) -> Program:
    """Return the program of a folder: the named program, else the usual or only one. Raises UsageError with the existing ones."""
    if script and module:
        raise UsageError("--script and --module both name the program. Give only one")
    if module:
        return Program(module=module)
    programs = _programs_in(origin.root)
    if script is None:
        usual = [name for name in _USUAL_NAMES if name in programs]
        if not usual and len(programs) != 1:
            found = f"has {len(programs)} programs. Choose a program with --script or --module"
            found = found if programs else "has no program that is recognised. Name a file with --script"
            raise UsageError(f"{origin.name}: {found}{_known(programs)}")
        script = (usual or programs)[0]
    parts = PurePosixPath(script)
    if parts.is_absolute() or ".." in parts.parts or not (origin.root / script).is_file():
        raise UsageError(f"--script {script}: no such file in {origin.name}{_known(programs)}")
    return Program(script=script)


def _programs_in(content: Path) -> list[str]:
    """Return the files that are meant to be started, upper folders first. Tests are not."""
    files = [path.relative_to(content) for path in content.rglob("*.py") if _is_program(path)]
    shown = [path for path in files if not {"tests", "test", "docs"} & set(path.parts)]
    return [path.as_posix() for path in sorted(shown, key=lambda path: (len(path.parts), path))]


def _is_program(path: Path) -> bool:
    return path.is_file() and (
        path.name == "__main__.py"
        or re.search(r"^if __name__ ==", path.read_text(errors="replace"), re.MULTILINE) is not None
    )


def _known(programs: list[str]) -> str:
    return f": {some_of(programs, MAX_SHOWN)}" if programs else ""


def find_module(root: Path, module: str) -> tuple[str, Path] | None:
    """Return the folder of a module's packages, empty or `src`, and its file. None: it is not there."""
    for folder in ("", "src"):
        path = root.joinpath(folder, *module.split("."))
        for file in (path.with_suffix(".py"), path / "__main__.py"):
            if file.is_file():
                return folder, file
    return None
