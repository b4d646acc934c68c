"""Creates a benchmark from the template, and copies of what is shipped."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from milabench.bench.api import Git, PyPI
from milabench.errors import UsageError, os_reason
from milabench.events.removal import copy_tree, new_folder
from milabench.suite_check.schemas import schema_file
from milabench.workflow.files import ROOT

TEMPLATE = ROOT / "benchmarks" / "_template"
SHIPPED = ("config", "benchmarks", "constraints")
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.+-]*")


def create_benchmark(name: str, into: Path) -> Path:
    """Copy the template to `into/name`, with the name filled in, and return that folder. Raises UsageError."""
    folder = new_benchmark_folder(name, into)
    try:
        with new_folder(folder) as draft:
            copy_tree(TEMPLATE, draft, shutil.ignore_patterns("__pycache__"))
            schema = schema_for(folder, draft)
            for path in draft.iterdir():
                path.write_text(path.read_text().replace("@NAME@", name).replace("@SCHEMA@", schema))
    except (OSError, shutil.Error) as error:
        raise creation_error(folder, error) from None
    return folder


def new_benchmark_folder(name: str, into: Path) -> Path:
    """Return the folder of a benchmark to create. Raises UsageError for a name that is invalid, or exists."""
    if not NAME.fullmatch(name):
        raise UsageError(f"'{name}' cannot be a benchmark's name: a letter, then letters, digits, '_', '.', '+' or '-'")
    folder = into / name
    if folder.exists():
        raise UsageError(f"{folder} exists. Choose another name, or remove it first")
    return folder


def benchfile_text(about: str, declared: Mapping[str, object]) -> str:
    """Return the text of a benchfile: its docstring, and the values of its benchmark."""
    names = ["Benchmark", *(type(value).__name__ for value in declared.values() if isinstance(value, Git | PyPI))]
    head = [f'"""{about}"""', "", f"from milabench import {', '.join(names)}", "", "benchmark = Benchmark("]
    return "\n".join([*head, *(f"    {name}={_python(value)}," for name, value in declared.items()), ")", ""])


def _python(value: object) -> str:
    if isinstance(value, Git | PyPI):
        values = (f"{key}={_python(item)}" for key, item in asdict(value).items())
        return f"{type(value).__name__}({', '.join(values)})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_python(key)}: {_python(item)}' for key, item in value.items())}}}"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def creation_error(folder: Path, error: OSError | shutil.Error) -> UsageError:
    # Copying a tree reports all its failures in one text of its own.
    is_full = "No space left on device" in str(error)
    why = "no space left on the disk" if is_full else os_reason(error).splitlines()[0][:200]
    return UsageError(f"{folder}: cannot be created: {why}. Nothing was left behind")


def schema_for(folder: Path, draft: Path) -> str:
    """Return the path from a new folder to the schema of suites: in the copy of the shipped files around it, else its own."""
    shipped = schema_file("suite")
    for above in folder.absolute().parents:
        if (above / shipped.relative_to(ROOT)).is_file():
            return Path(os.path.relpath(above / shipped.relative_to(ROOT), folder)).as_posix()
    shutil.copy(shipped, draft)
    return shipped.name


def copy_shipped(into: Path) -> list[Path]:
    """Copy the shipped suites, benchmarks and constraints below a folder. Return the copies.

    Raises UsageError, before anything is copied where something is in the way.
    """
    copies = [into / name for name in SHIPPED]
    missing = [folder for folder in (into, *into.parents) if not folder.exists()]
    for copy in copies:
        if copy.exists() or copy.is_symlink():
            raise UsageError(f"{copy} exists. Choose another folder, or remove it first")
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
