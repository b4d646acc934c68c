"""Gathers the content of a capsule besides the suite: the files that locks name, interpreters, milabench and its dependencies."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import tomllib
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path, PurePath

from milabench.bench.api import PyPI
from milabench.errors import EnvironmentFailed
from milabench.events.removal import copy_tree, remove
from milabench.execute.installer import explain_failure, torch_index
from milabench.execute.interrupts import thread_map
from milabench.execute.inventory import marker_environment
from milabench.execute.needs import version_of, wheel_rank
from milabench.execute.package_indexes import indexes, uv_env, uv_options
from milabench.execute.sources import cached_archive, listed_files
from milabench.plan.requirements import Lock, applies, parse_requirements
from milabench.plan.venvs import VenvSpec
from milabench.redaction import mask

_STAMP = (1980, 1, 1, 0, 0, 0)
# What an installer adds to a package: no part of its wheel.
_OF_THE_INSTALLER = ("INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "RECORD")
_NAMED_GLIBC = {"1": (2, 5), "2010": (2, 12), "2014": (2, 17)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A version of a project of which a file is wanted, for a Python. `hashes` are the lock's, or empty.

    `settings` are pip's, and say which indexes are asked; `else_from` is asked where those do not have it.
    """

    project: str
    version: str
    python: str
    settings: tuple[tuple[str, str], ...]
    hashes: frozenset[str] = frozenset()
    else_from: str = ""


def minor(python: str) -> str:
    """Return `3.11` of a version."""
    return ".".join(python.split(".")[:2])


def locked_releases(spec: VenvSpec, settings: Mapping[str, str]) -> list[Release]:
    """Return the releases that an environment's lock names for this platform.

    Raises EnvironmentFailed for a lock without hashes.
    """
    if not spec.is_hashed:
        names = ", ".join(file.name for file in spec.requirements)
        raise EnvironmentFailed(
            f"{spec.group}: {names}: has no hashes of its packages, so they cannot be checked and packed. "
            "Write a lock with `milabench pin`"
        )
    of_torch = torch_index(spec.torch_backend) if spec.torch_backend else ""
    return _releases(spec.lock, spec.python, {**settings, **spec.pip}, of_torch)


def _releases(lock: Lock, python: str, settings: Mapping[str, str], else_from: str = "") -> list[Release]:
    environment = marker_environment(python)
    releases = []
    for pin in lock.pins:
        if not pin.name or pin.version is None:
            raise EnvironmentFailed(f"{mask(pin.line)}: is no exact version of a project. A capsule cannot pack it")
        if applies(pin.line, environment):
            hashes = frozenset(each.removeprefix("sha256:") for each in pin.hashes)
            releases.append(
                Release(
                    project=pin.name,
                    version=pin.version,
                    python=python,
                    settings=tuple(settings.items()),
                    hashes=hashes,
                    else_from=else_from,
                )
            )
    return releases


def own_releases(settings: Mapping[str, str]) -> list[Release]:
    """Return milabench's own dependencies, in the versions that it runs with here."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    found: dict[str, Release] = {}
    waiting = [("milabench", frozenset[str]())]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            package = distribution(name)
        except PackageNotFoundError:
            raise EnvironmentFailed(
                f"{name}: milabench needs it, and it is not installed. Install milabench again"
            ) from None
        if name != "milabench":
            asked = tuple(settings.items())
            found[name] = Release(project=name, version=package.version, python=python, settings=asked)
        for line in package.requires or ():
            need = Requirement(line)
            if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in extras or {""}):
                waiting.append((canonicalize_name(need.name), frozenset(need.extras)))
    return [found[name] for name in sorted(found)]


def fetch_files(releases: Sequence[Release], environ: Mapping[str, str], uv: str, *, jobs: int) -> dict[str, Path]:
    """Return a file of each release, the best for its Python on this machine, and wheels of the others' build tools.

    The keys are the names that indexes list, the values where the files lie here. Raises EnvironmentFailed for a release that no
    index has.
    """
    stop = threading.Event()
    done: dict[str, Path] = {}
    wanted = list(releases)
    while wanted:
        files = thread_map(partial(_fetch, environ=environ, stop=stop), wanted, jobs=jobs, stop=stop.set)
        builders: list[Release] = []
        for release, (name, path) in zip(wanted, files, strict=True):
            if done.setdefault(name, path) != path:
                raise EnvironmentFailed(f"{name}: two locks name different files of this name")
            if not name.endswith(".whl"):
                builders += _builders(name, path, release, environ, uv)
        wanted = [each for each in dict.fromkeys(builders) if each not in releases]
        releases = [*releases, *wanted]
    return dict(sorted(done.items()))


def _fetch(release: Release, environ: Mapping[str, str], stop: threading.Event) -> tuple[str, Path]:
    where = indexes(dict(release.settings), environ)
    listed, silent = listed_files(release.project, where, stop)
    chosen = choose_file(listed, release)
    if chosen is None and release.else_from:
        where = replace(where, urls=(release.else_from,), find_links=())
        listed, more = listed_files(release.project, where, stop)
        chosen, silent = choose_file(listed, release), (*silent, *more)
    if chosen is None:
        why = f"; {'; '.join(silent)}" if silent else ""
        raise EnvironmentFailed(
            f"{release.project} {release.version}: no index has its file for python {minor(release.python)} on this "
            f"platform{' that the lock names' if release.hashes else ''}{why}"
        )
    name, sha256 = chosen
    archive = PyPI(release.project, release.version, file=name, sha256=sha256)
    return name, cached_archive(archive, where, environ, stop)


def choose_file(listed: Iterable[tuple[str, str]], release: Release) -> tuple[str, str] | None:
    """Return name and sha256 of the file to install: the wheel that fits best, else an sdist."""
    from packaging.version import Version

    best: tuple[int, str, str] | None = None
    for name, sha256 in listed:
        if (release.hashes and sha256 not in release.hashes) or version_of(name) != Version(release.version):
            continue
        rank = wheel_rank(name, release.python) if name.endswith(".whl") else sys.maxsize
        if rank is not None and (best is None or (rank, name) < best[:2]):
            best = rank, name, sha256
    return None if best is None else best[1:]


def oldest_glibc(names: Iterable[str]) -> str:
    """Return the oldest glibc that all of these wheels run with. Empty where they need none."""
    needs = []
    for name in names:
        platforms = name.removesuffix(".whl").rpartition("-")[2].split(".") if name.endswith(".whl") else []
        found = [
            (int(match[1]), int(match[2])) if match[2] else _NAMED_GLIBC[match[1]]
            for platform in platforms
            if (match := re.match(r"manylinux_?(2010|2014|1|\d+)(?:_(\d+))?_(?=\D)", platform)) and match[1]
        ]
        if found:
            needs.append(min(found))
    return "{}.{}".format(*max(needs)) if needs else ""


def _builders(name: str, sdist: Path, release: Release, environ: Mapping[str, str], uv: str) -> list[Release]:
    """Return the build tools of an sdist's wheel: the newest allowed."""
    settings = dict(release.settings)
    argv = (
        *(uv, "pip", "compile", "-", "--quiet", "--no-header", "--no-annotate", "--generate-hashes"),
        *("--index-strategy", "unsafe-best-match", "--python-version", minor(release.python), *uv_options(settings)),
    )
    needs, failed = build_requirements(sdist, name), f"{name}: its build requirements cannot be found"
    with tempfile.TemporaryDirectory(prefix="milabench-") as empty:  # where no uv.toml is
        compiled = _answer(argv, {**environ, **uv_env(settings, environ)}, Path(empty), failed, "\n".join(needs))
    return _releases(parse_requirements(compiled), release.python, settings)


def _answer(argv: Sequence[str], environ: Mapping[str, str], cwd: Path, failed: str, asked: str = "") -> str:
    """Return what uv prints. `asked` is its input. Raises EnvironmentFailed, which begins with `failed`."""
    env = {**environ, "UV_PYTHON_DOWNLOADS": "never", "NO_COLOR": "1", "COLUMNS": "1000"}
    done = subprocess.run(argv, env=env, cwd=cwd, input=asked, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise EnvironmentFailed(f"{failed}: {explain_failure(mask(done.stderr))}")
    return done.stdout


def build_requirements(archive: Path, name: str) -> list[str]:
    """Return the build requirements of an sdist. Setuptools where it names none. Raises EnvironmentFailed."""
    text = ""
    try:
        if name.endswith(".zip"):
            with zipfile.ZipFile(archive) as zipped:
                paths = [path for path in zipped.namelist() if _is_project_file(path)]
                text = zipped.read(paths[0]).decode() if paths else ""
        else:
            with tarfile.open(archive) as tar:
                for member in tar:
                    if _is_project_file(member.name) and (file := tar.extractfile(member)) is not None:
                        text = file.read().decode()
                        break
        requires = tomllib.loads(text).get("build-system", {}).get("requires")
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, ValueError, OSError) as error:
        raise EnvironmentFailed(f"{name}: cannot be read: {error}") from None
    return [str(line) for line in requires] if isinstance(requires, list) else ["setuptools>=40.8", "wheel"]


def _is_project_file(path: str) -> bool:
    return PurePath(path).name == "pyproject.toml" and len(PurePath(path).parts) == 2


def managed_python(uv: str, version: str, environ: Mapping[str, str]) -> Path | None:
    """Return the folder of an interpreter that uv has installed, which can be moved. None where it has none of this version."""
    options = ("--managed-python", "--no-python-downloads", "--no-project", "--offline", minor(version))
    folder, found = (
        subprocess.run((uv, "python", *words), env=dict(environ), cwd="/", capture_output=True, text=True, check=False)
        for words in (("dir",), ("find", *options))
    )
    if found.returncode != 0 or folder.returncode != 0:
        return None
    home, program = Path(folder.stdout.strip()).resolve(), Path(found.stdout.strip()).resolve()
    if not program.is_relative_to(home):
        return None
    return home / program.relative_to(home).parts[0]


def build_wheel(project: Path, into: Path, uv: str, environ: Mapping[str, str], settings: Mapping[str, str]) -> Path:
    """Build the wheel of a project, from a copy. Raises EnvironmentFailed."""
    source = into / "source"
    left_out = shutil.ignore_patterns("__pycache__", "tests", ".*", "dist", "results")
    copy_tree(project, source, left_out, keeps_links=True)
    argv = (uv, "build", "--wheel", "--no-create-gitignore", *uv_options(settings), "--out-dir", str(into / "wheel"))
    words = (*argv, "--python", sys.executable, str(source))
    _answer(words, {**environ, **uv_env(settings, environ)}, into, f"{project}: its wheel cannot be built")
    remove(source, into)
    return next((into / "wheel").glob("*.whl"))


def installed_wheel(name: str, into: Path) -> Path:
    """Write the wheel that a pure package was installed from, from the installed files. The same files give the same bytes.

    Raises EnvironmentFailed when a file is not as it was installed.
    """
    package = distribution(name)
    wheel = into / f"{name}-{package.version}-py3-none-any.whl"
    members = []
    for file in package.files or ():
        path = file.as_posix()
        if path.startswith("../") or path.endswith(".pyc") or file.name in _OF_THE_INSTALLER:
            continue
        content = Path(str(package.locate_file(file))).read_bytes()
        if file.hash is not None and file.hash.value != _urlsafe(hashlib.sha256(content).digest()):
            raise EnvironmentFailed(f"{path}: is not as it was installed. Install milabench again")
        members.append((path, content))
    members.sort()
    rows = [f"{path},sha256={_urlsafe(hashlib.sha256(content).digest())},{len(content)}" for path, content in members]
    record = f"{name}-{package.version}.dist-info/RECORD"
    members.append((record, "".join(f"{row}\n" for row in [*rows, f"{record},,"]).encode()))
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as packed:
        for path, content in members:
            info = zipfile.ZipInfo(path, _STAMP)
            info.create_system, info.external_attr, info.compress_type = 3, 0o100644 << 16, zipfile.ZIP_DEFLATED
            packed.writestr(info, content)
    return wheel


def _urlsafe(digest: bytes) -> str:
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(digest).decode().rstrip("=")


def sealed_environment(environ: Mapping[str, str], pythons: Path) -> dict[str, str]:
    """Return the user's environment for an installation that asks nothing but a folder of wheels: no network, no settings."""
    user = {name: value for name, value in environ.items() if not name.startswith(("UV_", "PIP_"))}
    kept = {name: environ[name] for name in ("UV_CACHE_DIR", "UV_LINK_MODE") if name in environ}
    return {
        **user,
        **kept,
        "UV_OFFLINE": "1",
        "UV_NO_CONFIG": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_PYTHON_INSTALL_DIR": str(pythons),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
