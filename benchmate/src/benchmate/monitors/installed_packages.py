"""The distributions that are installed in the environment of the steps."""

from __future__ import annotations

import sys
from pathlib import Path


def installed_versions() -> dict[str, str]:
    """Return versions by distribution, from the names of their metadata folders: importlib.metadata reads hundreds of files."""
    versions: dict[str, str] = {}
    for folder in reversed(sys.path):
        for path in Path(folder).glob("*.dist-info"):
            name, _, version = path.stem.rpartition("-")
            versions[name] = version
    return versions
