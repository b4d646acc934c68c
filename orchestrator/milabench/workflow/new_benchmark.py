"""Creates a benchmark from the template, and copies of what is shipped."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from milabench.errors import UsageError
from milabench.workflow.files import ROOT
from milabench.workflow.schemas import schema_file

TEMPLATE = ROOT / "benchmarks" / "_template"
SHIPPED = ("config", "benchmarks", "constraints")
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.+-]*")


def create_benchmark(name: str, into: Path) -> Path:
    """Copy the template to `into/name`, with the name filled in, and return that folder. Raises UsageError."""
    if not NAME.fullmatch(name):
        raise UsageError(f"'{name}' cannot be a benchmark's name: a letter, then letters, digits, '_', '.', '+' or '-'")
    folder = into / name
    if folder.exists():
        raise UsageError(f"{folder} exists; choose another name, or remove it first")
    try:
        shutil.copytree(TEMPLATE, folder, ignore=shutil.ignore_patterns("__pycache__"))
        for path in folder.iterdir():
            text = path.read_text()
            if "@NAME@" in text:
                path.write_text(text.replace("@NAME@", name).replace("@SCHEMA@", _schema_for(folder)))
    except OSError as error:
        raise UsageError(f"{folder}: cannot be created: {error.strerror}") from None
    return folder


def _schema_for(folder: Path) -> str:
    """Return the path from a new folder to the schema of suites: in the copy of what is shipped around it, else its own."""
    shipped = schema_file("suite")
    for above in folder.absolute().parents:
        if (above / shipped.relative_to(ROOT)).is_file():
            return Path(os.path.relpath(above / shipped.relative_to(ROOT), folder)).as_posix()
    shutil.copy(shipped, folder)
    return shipped.name


def copy_shipped(into: Path) -> list[Path]:
    """Copy the shipped suites, benchmarks and constraints below a folder; return the copies.

    Raises UsageError, before anything is copied where something is in the way.
    """
    copies = [into / name for name in SHIPPED]
    for copy in copies:
        if copy.exists() or copy.is_symlink():
            raise UsageError(f"{copy} exists; choose another folder, or remove it first")
    for name, copy in zip(SHIPPED, copies, strict=True):
        try:
            shutil.copytree(ROOT / name, copy, ignore=shutil.ignore_patterns("__pycache__"))
        except (OSError, shutil.Error) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise UsageError(f"{copy}: cannot be created: {why.lower()}") from None
    return copies
