"""Creates a benchmark from a template, of our own program or of a release, and copies of what is shipped."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from milabench.bench.api import PyPI
from milabench.errors import UsageError, os_reason
from milabench.events.removal import copy_tree, new_folder
from milabench.suite_check.schemas import schema_file
from milabench.workflow.files import ROOT

TEMPLATE = ROOT / "benchmarks" / "_template"
TEMPLATE_OF_A_RELEASE = ROOT / "benchmarks" / "_template_release"
SHIPPED = ("config", "benchmarks", "constraints")
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.+-]*")
RELEASE = re.compile(
    r"pypi:(?P<project>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[A-Za-z0-9.!+_-]+)(?::(?P<file>[^/:\s]+))?"
)
MAX_SHOWN = 100  # programs of a release in an error message
# What a package is built from that is not Python alone: unpacked beside its program, it cannot be imported.
COMPILED = (
    "*.pyx",
    "*.pxd",
    "*.c",
    "*.cc",
    "*.cpp",
    "*.cu",
    "*.f90",
    "*.so",
    "Cargo.toml",
    "CMakeLists.txt",
    "meson.build",
)
# The lines of the template by which the release is fetched and put first on the path.
_SOURCE = """    source=PyPI(
        "@PROJECT@",
        "@VERSION@",
        file="@FILE@",
        sha256="@SHA256@",
    ),
"""
PROBES = {
    "lightning": 'probes.lightning(ov, units="samples/s")',
    "Trainer(": 'probes.trainer(ov, units="tokens/s")',
    "DataLoader": 'probes.dataloader(ov, units="samples/s")',
    "optimizer.step(": 'probes.optimizer_step(ov, units="steps/s")',
    # Fails, and lists the functions that there are, unless the program has one of this name.
    "": 'probes.calls(ov, "__main__.train_step", units="steps/s")',
}
"""A word in a program, and the probe to begin with; the first that occurs wins."""


def create_benchmark(name: str, into: Path) -> Path:
    """Copy the template to `into/name`, with the name filled in, and return that folder. Raises UsageError."""
    return _fill_template(TEMPLATE, new_benchmark_folder(name, into), {"@NAME@": name})


def create_from_release(name: str, into: Path, release: str, *, script: str | None, module: str | None) -> Path:
    """Create a benchmark of a program in a release, `pypi:PROJECT==VERSION[:FILE]`, and return its folder.

    The file and its sha256 are what the user's package indexes list. Raises UsageError where the release has no such program,
    and EnvironmentFailed where the file cannot be fetched.
    """
    folder = new_benchmark_folder(name, into)
    match = RELEASE.fullmatch(release)
    if match is None:
        raise UsageError(f"--from '{release}': give pypi:PROJECT==VERSION or pypi:PROJECT==VERSION:FILE")
    if script and module:
        raise UsageError("--script and --module both name the program; give one")

    from milabench.execute.sources import find_release, opened_release

    source = find_release(match["project"], match["version"], match["file"], environ=os.environ)
    with tempfile.TemporaryDirectory(prefix="milabench-new-") as scratch:
        content = opened_release(source, Path(scratch, source.folder), os.environ)
        start, program, file = _program_of(content, source.file, script, module)
        text = file.read_text(errors="replace")
        is_installed = module is not None and is_compiled(content)
        values = {
            **({_SOURCE: "", "Benchmark, PyPI": "Benchmark"} if is_installed else {}),
            "@NAME@": name,
            "@PROJECT@": source.project,
            "@VERSION@": source.version,
            "@FILE@": source.file,
            "@SHA256@": source.sha256,
            "@START@": start,
            'script="@SCRIPT@",': f'module="{module}",' if is_installed else program,
            PROBES[""]: next(probe for word, probe in PROBES.items() if word in text),
            "@REQUIREMENTS@": "\n".join(
                [*_requirements(source, content, is_installed=module is None or is_installed), *_imported(text)]
            ),
        }
    return _fill_template(TEMPLATE_OF_A_RELEASE, folder, values)


def _program_of(content: Path, file: str, script: str | None, module: str | None) -> tuple[str, str, Path]:
    """Return how a program of the unpacked release is called, the lines of a benchfile that start it, and its file.

    Raises UsageError, with the programs that there are, unless there is the named one, or only one.
    """
    if module is not None:
        parts = module.split(".")
        for place in ("", "src"):
            for path in (
                content.joinpath(place, *parts).with_suffix(".py"),
                content.joinpath(place, *parts, "__main__.py"),
            ):
                if path.is_file() and all(parts):
                    python_path = f'    python_path=("{place}",),' if place else ""
                    return f"`python -m {module}`", f'module="{module}",\n{python_path}'.rstrip(), path
        raise UsageError(f"--module {module}: no such module in {file}{_known(programs_in(content))}")
    programs = programs_in(content)
    if script is None and len(programs) != 1:
        found = f"has {len(programs)} programs; choose one with --script or --module"
        found = found if programs else "has no program that is recognised; name a file with --script"
        raise UsageError(f"{file}: {found}{_known(programs)}")
    name = script if script is not None else programs[0]
    path = content / name
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or not path.is_file():
        raise UsageError(f"--script {name}: no such file in {file}{_known(programs)}")
    return f"`{name}`", f'script="{name}",', path


def programs_in(content: Path) -> list[str]:
    """Return the files that are meant to be started, those of the upper folders first; tests are not."""
    files = [path.relative_to(content) for path in content.rglob("*.py") if _is_program(path)]
    shown = [path for path in files if not {"tests", "test", "docs"} & set(path.parts)]
    return [path.as_posix() for path in sorted(shown, key=lambda path: (len(path.parts), path))]


def _is_program(path: Path) -> bool:
    return path.is_file() and (
        path.name == "__main__.py"
        or re.search(r"^if __name__ ==", path.read_text(errors="replace"), re.MULTILINE) is not None
    )


def _known(programs: list[str]) -> str:
    if not programs:
        return ""
    more = f", and {len(programs) - MAX_SHOWN} more" if len(programs) > MAX_SHOWN else ""
    return f": {', '.join(programs[:MAX_SHOWN])}{more}"


def is_compiled(content: Path) -> bool:
    """Return whether an unpacked release has parts that have to be built, or were built for one platform."""
    return any(next(content.rglob(pattern), None) is not None for pattern in COMPILED)


def _requirements(source: PyPI, content: Path, *, is_installed: bool) -> list[str]:
    """Return what the program of a release needs installed, without what only extras of the release need.

    A script finds the release's own packages only where they are installed, and so does a module of a release that has to be
    built; another module is started from among them.
    """
    from email.parser import HeaderParser

    if is_installed:
        return [f"{source.project}=={source.version}"]
    for path in (*content.glob("*.dist-info/METADATA"), content / "PKG-INFO"):
        if path.is_file():
            lines = HeaderParser().parsestr(path.read_text(errors="replace")).get_all("Requires-Dist") or []
            return [" ".join(line.split()) for line in lines if not re.search(r"\bextra\s*==", line)]
    return []


def _imported(program: str) -> list[str]:
    """Return, as a comment, the packages that a program imports and Python does not bring; some may need a requirement."""
    try:
        nodes = list(ast.walk(ast.parse(program)))
    except (SyntaxError, ValueError):
        return []
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    packages = sorted({name.partition(".")[0] for name in names} - set(sys.stdlib_module_names))
    return (
        [f"# Imported by the program; each needs a line of the project that brings it: {', '.join(packages)}"]
        if packages
        else []
    )


def new_benchmark_folder(name: str, into: Path) -> Path:
    """Return the folder of a benchmark to create. Raises UsageError for a name that cannot be one, or exists."""
    if not NAME.fullmatch(name):
        raise UsageError(f"'{name}' cannot be a benchmark's name: a letter, then letters, digits, '_', '.', '+' or '-'")
    folder = into / name
    if folder.exists():
        raise UsageError(f"{folder} exists; choose another name, or remove it first")
    return folder


def _fill_template(template: Path, folder: Path, values: Mapping[str, str]) -> Path:
    """Copy a template, with a value for each of these parts of it. Raises UsageError."""
    try:
        with new_folder(folder) as draft:
            copy_tree(template, draft, shutil.ignore_patterns("__pycache__"))
            parts = {**values, "@SCHEMA@": schema_for(folder, draft)}
            for path in draft.iterdir():
                text = path.read_text()
                filled = re.sub("|".join(map(re.escape, parts)), lambda part: parts[part[0]], text)
                if filled != text:
                    path.write_text(filled)
    except (OSError, shutil.Error) as error:
        raise creation_error(folder, error) from None
    return folder


def creation_error(folder: Path, error: OSError | shutil.Error) -> UsageError:
    # Copying a tree reports all its failures in one text of its own.
    is_full = "No space left on device" in str(error)
    why = "no space left on the disk" if is_full else os_reason(error).splitlines()[0][:200]
    return UsageError(f"{folder}: cannot be created: {why}; nothing of it is left")


def schema_for(folder: Path, draft: Path) -> str:
    """Return the path from a new folder to the schema of suites: in the copy of what is shipped around it, else its own."""
    shipped = schema_file("suite")
    for above in folder.absolute().parents:
        if (above / shipped.relative_to(ROOT)).is_file():
            return Path(os.path.relpath(above / shipped.relative_to(ROOT), folder)).as_posix()
    shutil.copy(shipped, draft)
    return shipped.name


def copy_shipped(into: Path) -> list[Path]:
    """Copy the shipped suites, benchmarks and constraints below a folder; return the copies.

    Raises UsageError, before anything is copied where something is in the way.
    """
    copies = [into / name for name in SHIPPED]
    missing = [folder for folder in (into, *into.parents) if not folder.exists()]
    for copy in copies:
        if copy.exists() or copy.is_symlink():
            raise UsageError(f"{copy} exists; choose another folder, or remove it first")
    copy = into
    try:
        with contextlib.ExitStack() as drafts:  # all of them, or none
            for copy in copies:
                copy_tree(
                    ROOT / copy.name, drafts.enter_context(new_folder(copy)), shutil.ignore_patterns("__pycache__")
                )
    except (OSError, shutil.Error) as error:
        for folder in missing:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise creation_error(copy, error) from None
    return copies
