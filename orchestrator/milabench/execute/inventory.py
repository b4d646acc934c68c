"""The installed environments and programs that are complete, and the packages of an environment.

Asked before every run: it imports nothing that only installing needs.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from milabench.devices.regular_file import read_regular
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


def commits_file(dirs: Dirs, spec: VenvSpec) -> Path:
    """Return the record of the commits that the git repositories of an environment's requirements were resolved to."""
    return Path(dirs.venv, ".store", f"{spec.folder}.commits")


def venv_link(dirs: Dirs, group: str) -> Path:
    """Return the link under which benchmarks and users find the environment of an install group."""
    return Path(dirs.venv, group)


def is_complete(dirs: Dirs, spec: VenvSpec) -> bool:
    """Return whether the environment was built completely from this specification and can measure as it was built.

    An environment with contents from a capsule alone is complete only for the suite of that capsule.
    """
    folder = store_folder(dirs, spec)
    marker = read_marker(folder / COMPLETE)
    is_built = marker.get("digest") == spec.digest and (folder / "bin" / "python").exists()
    is_own = marker.get("capsule") in (None, Path(dirs.cache).parent.name)
    return is_built and is_own and not altered_instruments(folder)


def is_made(venv: Path) -> bool:
    """Return whether an environment carries the mark of the installation that made it, with the digest in its name."""
    marker = read_marker(venv / COMPLETE)
    return f"{marker.get('group')}-{str(marker.get('digest'))[:16]}" == venv.name


def is_own_program(folder: Path) -> bool:
    """Return whether a program carries the mark of the installation that fetched it."""
    return read_marker(folder.with_name(f".{folder.name}.complete")).get("folder") == folder.name


def altered_instruments(venv: Path) -> str:
    """Return a file of benchmate that was changed or removed since the environment was complete. Empty when none was."""
    try:
        since = (venv / COMPLETE).stat().st_mtime_ns
    except OSError:
        return ""
    return next(altered_files(venv, "benchmate-*", since_ns=since), "")


def altered_files(venv: Path, packages: str = "*", *, since_ns: int | None = None) -> Iterator[str]:
    """Yield the installed files whose content differs from a RECORD, each as `package version: path`.

    `packages` is a pattern of `name-version`. With `since_ns`, a file of the listed size that is not newer is not read.
    """
    for site in sorted(venv.glob("lib/python*/site-packages")):
        for path, listed in _recorded(site, packages).items():
            owner, size = next(iter(listed.values()))
            try:
                status = (site / path).stat()
                is_older = since_ns is not None and status.st_mtime_ns <= since_ns
                if (is_older and str(status.st_size) == size) or _record_digest(site / path) in listed:
                    continue
            except OSError:
                pass
            yield f"{owner}: {path}"


def _recorded(site: Path, packages: str) -> dict[str, dict[str, tuple[str, str]]]:
    """Return, for each path, the digests that packages list for it, each with the package and the size in bytes."""
    import csv

    recorded: dict[str, dict[str, tuple[str, str]]] = {}
    for record in sorted(site.glob(f"{packages}.dist-info/RECORD")):
        owner = record.parent.name.removesuffix(".dist-info").replace("-", " ")
        with record.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
            for path, digest, size in (row for row in csv.reader(file) if len(row) == 3):
                # Byte code that a wheel brings is compiled again when it is installed, from a source that is compared.
                if path.endswith(".pyc"):
                    continue
                # Several packages may have a file of one name, `tests/__init__.py`: one of them was installed last.
                if digest.startswith("sha256="):
                    recorded.setdefault(path, {})[digest] = (owner, size)
    return recorded


def _record_digest(file: Path) -> str:
    """Return the digest of a file as a RECORD writes it."""
    from base64 import urlsafe_b64encode

    return "sha256=" + urlsafe_b64encode(bytes.fromhex(sha256_of(file))).decode().rstrip("=")


def is_linked(dirs: Dirs, spec: VenvSpec) -> bool:
    """Return whether the environment is complete and its group's link points to it."""
    link = venv_link(dirs, spec.group)
    return link.is_symlink() and link.resolve() == store_folder(dirs, spec).resolve() and is_complete(dirs, spec)


def benchmate_digest(project: Path) -> str:
    """Return the SHA-256 over the files of the benchmate distribution. Raises EnvironmentFailed when they are missing."""
    files = [project / "pyproject.toml", *sorted((project / "src").rglob("*"))]
    if not files[0].is_file():
        raise EnvironmentFailed(f"{project}: benchmate's project is missing. Install milabench again")
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

    is_same = read_marker(source_marker(dirs, source)) == source_json(source)
    return is_same and source_folder(dirs, source).is_dir()


def source_marker(dirs: Dirs, source: Source) -> Path:
    """Return the marker, next to the program, of a complete program."""
    # Beside the folder, not in it: the folder is exactly what was published.
    return Path(dirs.code, f".{source.folder}.complete")


def read_marker(path: Path) -> dict[str, object]:
    """Return the JSON object in a file of ours. Empty where there is none."""
    try:
        marker = json.loads(read_regular(path))
    except (OSError, ValueError):
        return {}
    return marker if isinstance(marker, dict) else {}


def marker_environment(python: str = "") -> dict[str, str]:
    """Return the environment for markers of requirements: this machine, with the running Python or another version ("3.11")."""
    from packaging.markers import default_environment

    environment = {name: str(value) for name, value in default_environment().items()}
    minor = ".".join(python.split(".")[:2])
    if minor and minor != environment["python_version"]:
        environment |= {"python_version": minor, "python_full_version": f"{minor}.0"}
    return environment


def unmet_requirements(files: Iterable[RequirementFile], installed: Mapping[str, str]) -> dict[str, str]:
    """Return the requirements of the files, and of benchmate, that these packages do not meet, each with the installed version.

    `installed` maps normalised names to versions.
    """
    from milabench.plan.requirements import lacking, merge_locks, parse_requirements

    required = merge_locks([parse_requirements("benchmate"), *(parse_requirements(file.text) for file in files)])
    unmet = lacking(required, installed, marker_environment())
    return {pin.line: f"{found} is installed" if found else "not installed" for pin, found in unmet}


def packages_of(venv: Path) -> dict[str, str]:
    """Return the packages of an environment: normalised name to version."""
    return _packages(sorted(venv.glob("lib/python*/site-packages")))


def installed_packages() -> dict[str, str]:
    """Return the packages of the running interpreter: normalised name to version. The first on its path counts."""
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
