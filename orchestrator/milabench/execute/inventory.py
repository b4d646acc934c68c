"""What is installed: environments and programs that are complete, and the packages of an environment.

Asked before every run: it imports nothing that only installing needs.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milabench.errors import EnvironmentFailed

if TYPE_CHECKING:
    from milabench.bench.api import Source
    from milabench.plan.context import Dirs
    from milabench.plan.requirements import RequirementFile
    from milabench.plan.venvs import VenvSpec

COMPLETE = ".complete"


def store_folder(dirs: Dirs, spec: VenvSpec) -> Path:
    """Return the folder of the environment."""
    return Path(dirs.venv, ".store", spec.folder)


def venv_link(dirs: Dirs, group: str) -> Path:
    """Return the link under which benchmarks and users find the environment of an install group."""
    return Path(dirs.venv, group)


def is_complete(dirs: Dirs, spec: VenvSpec) -> bool:
    """Return whether the environment was built completely from this specification and its interpreter still exists."""
    folder = store_folder(dirs, spec)
    return _read_marker(folder / COMPLETE).get("digest") == spec.digest and (folder / "bin" / "python").exists()


def is_linked(dirs: Dirs, spec: VenvSpec) -> bool:
    """Return whether the environment is complete and its group's link points to it."""
    link = venv_link(dirs, spec.group)
    return link.is_symlink() and link.resolve() == store_folder(dirs, spec).resolve() and is_complete(dirs, spec)


def benchmate_digest(project: Path) -> str:
    """Return the SHA-256 over the files of the benchmate distribution. Raises EnvironmentFailed when they are missing."""
    files = [project / "pyproject.toml", *sorted((project / "src").rglob("*"))]
    if not files[0].is_file():
        raise EnvironmentFailed(f"{project}: benchmate's project is missing; install milabench again")
    digest = hashlib.sha256()
    for file in files:
        if file.is_file() and "__pycache__" not in file.parts:
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            digest.update(f"{file.relative_to(project).as_posix()} {content}\n".encode())
    return digest.hexdigest()


def sha256_of(file: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def source_folder(dirs: Dirs, source: Source) -> Path:
    """Return the folder of the unpacked program."""
    return Path(dirs.code, source.folder)


def is_fetched(dirs: Dirs, source: Source) -> bool:
    """Return whether the program was unpacked completely from this file or revision."""
    from milabench.plan.venvs import source_json

    is_same = _read_marker(source_marker(dirs, source)) == source_json(source)
    return is_same and source_folder(dirs, source).is_dir()


def source_marker(dirs: Dirs, source: Source) -> Path:
    """Return the marker, beside the program, that says it is complete."""
    # Beside the folder, not in it: the folder is exactly what was published.
    return Path(dirs.code, f".{source.folder}.complete")


def _read_marker(path: Path) -> dict[str, Any]:
    try:
        marker = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return marker if isinstance(marker, dict) else {}


def unmet_requirements(files: Iterable[RequirementFile], installed: Mapping[str, str]) -> dict[str, str]:
    """Return the requirements of the files, and of benchmate, that these packages do not meet, each with what is there instead.

    `installed` maps normalised names to versions.
    """
    from packaging.markers import default_environment

    from milabench.plan.requirements import lacking, merge_locks, parse_requirements

    required = merge_locks([parse_requirements("benchmate"), *(parse_requirements(file.text) for file in files)])
    environment = {name: str(value) for name, value in default_environment().items()}
    unmet = lacking(required, installed, environment)
    return {pin.line: f"{found} is installed" if found else "not installed" for pin, found in unmet}


def packages_of(venv: Path) -> dict[str, str]:
    """Return the packages of an environment: normalised name to version."""
    return _packages(sorted(venv.glob("lib/python*/site-packages")))


def installed_packages() -> dict[str, str]:
    """Return the packages of the running interpreter: normalised name to version; the first on its path counts."""
    return _packages(Path(entry) for entry in dict.fromkeys(sys.path) if entry)


def _packages(folders: Iterable[Path]) -> dict[str, str]:
    """Return packages from the names of their metadata folders, `name-version.dist-info` and older forms."""
    versions: dict[str, str] = {}
    for folder in folders:
        for info in sorted(folder.glob("*.dist-info")):
            name, _, version = info.name.removesuffix(".dist-info").rpartition("-")
            versions.setdefault(_normalised(name), version)
        for info in sorted(folder.glob("*.egg-info")):
            from importlib.metadata import PathDistribution

            old = PathDistribution(info)
            if name := old.metadata["Name"]:
                versions.setdefault(_normalised(name), old.version)
    return versions


def _normalised(name: str) -> str:
    """Normalise a name as packaging.utils.canonicalize_name does, which costs 15 ms to import."""
    return re.sub(r"[-_.]+", "-", name).lower()
