"""Creates a benchmark from the template."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from milabench.errors import UsageError
from milabench.workflow.files import ROOT

TEMPLATE = ROOT / "benchmarks" / "_template"
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
                path.write_text(text.replace("@NAME@", name))
    except OSError as error:
        raise UsageError(f"{folder}: cannot be created: {error.strerror}") from None
    return folder
