"""What is installed in the environment of the steps."""

from __future__ import annotations

import sys
from pathlib import Path


def installed_versions() -> dict[str, str]:
    """Versions by distribution, from the names of their metadata folders: importlib.metadata reads hundreds of files."""
    found: dict[str, str] = {}
    for folder in reversed(sys.path):
        try:
            names = [entry.name for entry in Path(folder).iterdir()]
        except OSError:
            continue
        for entry in names:
            if entry.endswith(".dist-info"):
                name, _, version = entry.removesuffix(".dist-info").rpartition("-")
                found[name] = version
    return found
