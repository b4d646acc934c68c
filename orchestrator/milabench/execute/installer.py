"""The commands of uv and pip as values, and their error messages explained in a line. Runs nothing itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from milabench.plan.venvs import VenvSpec

TORCH_INDEX = "https://download.pytorch.org/whl"
NO_NETWORK = "the network cannot be reached and the cache does not hold"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallCommand:
    """A command that may do the job. The next attempt is made when it fails.

    `env` is set on top of the user's. `rehearse` asks to look first, with `--dry-run`, whether it would pull CUDA
    packages into an environment that must not have them.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    needs_network: bool = True
    rehearse: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallFiles:
    """The paths of a requirement file, its constraints, and `preferred`: constraints that are left out where they do not fit."""

    requirements: str
    constraints: str | None = None
    preferred: str | None = None

    @property
    def options(self) -> tuple[str, ...]:
        """The options of `uv pip install` that name the first two."""
        limits = ("--constraints", self.constraints) if self.constraints else ()
        return ("--requirements", self.requirements, *limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Uv:
    """uv, at `path`.

    `is_reachable` says whether an index answers. It is asked only before the network is used. `options` are those for
    settings that uv reads from no variable.
    """

    path: str
    is_reachable: Callable[[str], bool]
    options: tuple[str, ...] = ()
    name: Literal["uv", "pip"] = "uv"

    def create(self, spec: VenvSpec, python: str, folder: str) -> InstallCommand:
        """Make an empty environment in `folder`."""
        argv = (self.path, "venv", "--no-project", "--python", python, "--prompt", spec.group, folder)
        return InstallCommand(argv=argv, needs_network=False)

    def install(
        self, spec: VenvSpec, folder: str, files: InstallFiles, upgrade: bool, built_inside: Sequence[str] = ()
    ) -> Iterator[InstallCommand]:
        """Install the requirement file.

        The packages `built_inside` are built with the packages of the environment, not with their own requirements.

        With hashes, cached packages equal an index's, so the cache is tried alone first: it
        is ten times faster and works offline. A cached package may have come from either index of a torch build.
        """
        backend = spec.torch_backend
        chosen = {"UV_TORCH_BACKEND": backend} if backend else {}
        inside = (word for package in built_inside for word in ("--no-build-isolation-package", package))
        into = ("--python", f"{folder}/bin/python", "--compile-bytecode", *self.options, *inside)
        if spec.is_hashed:
            argv = (self.path, "pip", "sync", *into, "--require-hashes", files.requirements)
            yield InstallCommand(argv=(*argv, "--offline"), needs_network=False)
            if backend:
                yield InstallCommand(argv=(*argv, "--offline"), env=chosen, needs_network=False)
        else:
            fresh = ("--upgrade", "--refresh") if upgrade else ()
            argv = (self.path, "pip", "install", *into, *spec.pip_args, *fresh, *files.options)
        is_chosen = backend is not None and self.is_reachable(torch_index(backend))
        may_be_cuda = not is_chosen and spec.is_for_cpu and backend is not None and not spec.is_hashed
        for more in (("--constraints", files.preferred), ()) if files.preferred else ((),):
            yield InstallCommand(argv=(*argv, *more), env=chosen if is_chosen else {}, rehearse=may_be_cuda)

    def resolve(self, spec: VenvSpec, files: InstallFiles, pylock: str) -> Iterator[InstallCommand]:
        """Write which files `install` would install, as a pylock.toml. The first that succeeds need not be of the network."""
        backend = spec.torch_backend
        chosen = {"UV_TORCH_BACKEND": backend} if backend else {}
        limits = ("--constraints", files.constraints) if files.constraints and not spec.is_hashed else ()
        closed = ("--no-deps",) if spec.is_hashed else ()
        options = ("--quiet", "--format", "pylock.toml", "--output-file", pylock, "--python-version", spec.python)
        argv = (self.path, "pip", "compile", *options, *self.options, *closed, *limits, files.requirements)
        yield InstallCommand(argv=(*argv, "--offline"), needs_network=False)
        if backend:
            yield InstallCommand(argv=(*argv, "--offline"), env=chosen, needs_network=False)
        is_chosen = backend and self.is_reachable(torch_index(backend))
        yield InstallCommand(argv=argv, env=chosen if is_chosen else {})

    def rehearse(self, spec: VenvSpec, python: str, empty: str, files: InstallFiles) -> tuple[str, ...]:
        """Say which packages the cache does not hold, for an interpreter. `empty` is an empty folder."""
        options = ("--dry-run", "--offline", "--verbose", "--python", python, "--target", empty, *self.options)
        if spec.is_hashed:
            return (self.path, "pip", "sync", *options, "--require-hashes", files.requirements)
        return (self.path, "pip", "install", *options, *files.options)

    def build(self, project: str, into: str) -> Iterator[InstallCommand]:
        """Build the wheel of a project. Its build backend comes from the cache when it can."""
        argv = (self.path, "build", "--wheel", "--no-create-gitignore", *self.options, "--out-dir", into, project)
        yield InstallCommand(argv=(*argv, "--offline"), needs_network=False)
        yield InstallCommand(argv=argv)

    def add(self, folder: str, wheel: str) -> InstallCommand:
        """Install a wheel without its dependencies."""
        options = ("--python", f"{folder}/bin/python", "--compile-bytecode", "--no-deps", "--offline")
        return InstallCommand(argv=(self.path, "pip", "install", *options, wheel), needs_network=False)

    def check(self, folder: str) -> InstallCommand:
        """Report which requirements of the installed packages are not met."""
        return InstallCommand(argv=(self.path, "pip", "check", "--python", f"{folder}/bin/python"), needs_network=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pip:
    """pip, where there is no uv: slower, with the same result. `python` runs it where no environment is needed."""

    python: str
    is_reachable: Callable[[str], bool]
    name: Literal["uv", "pip"] = "pip"

    def create(self, spec: VenvSpec, python: str, folder: str) -> InstallCommand:
        """Make an environment in `folder`."""
        argv = (python, "-m", "venv", "--prompt", spec.group, folder)
        return InstallCommand(argv=argv, needs_network=False)

    def install(
        self, spec: VenvSpec, folder: str, files: InstallFiles, upgrade: bool, built_inside: Sequence[str] = ()
    ) -> Iterator[InstallCommand]:
        """Install the requirement file. The PyTorch index is an additional source."""
        backend = spec.torch_backend
        index = torch_index(backend) if backend else ""
        extra = {"PIP_EXTRA_INDEX_URL": index} if index and self.is_reachable(index) else {}
        argv = (f"{folder}/bin/python", "-m", "pip", "install", "--no-input", "--requirement", files.requirements)
        if spec.is_hashed:
            yield InstallCommand(argv=(*argv, "--require-hashes", "--no-deps"), env=extra)
        else:
            limits = (*spec.pip_args, *(("--constraint", files.constraints) if files.constraints else ()))
            for more in (("--constraint", files.preferred), ()) if files.preferred else ((),):
                yield InstallCommand(argv=(*argv, *limits, *more, *(("--upgrade",) if upgrade else ())), env=extra)

    def build(self, project: str, into: str) -> Iterator[InstallCommand]:
        """Build the wheel of a project."""
        options = ("--no-input", "--no-deps", "--wheel-dir", into)
        yield InstallCommand(argv=(self.python, "-m", "pip", "wheel", *options, project))

    def add(self, folder: str, wheel: str) -> InstallCommand:
        """Install a wheel without its dependencies."""
        argv = (f"{folder}/bin/python", "-m", "pip", "install", "--no-input", "--no-deps", "--no-index", wheel)
        return InstallCommand(argv=argv, needs_network=False)

    def check(self, folder: str) -> InstallCommand:
        """Report which requirements of the installed packages are not met."""
        return InstallCommand(argv=(f"{folder}/bin/python", "-m", "pip", "check"), needs_network=False)


Installer = Uv | Pip
"""The tools that can build an environment. Both have the same methods."""


def torch_index(backend: str) -> str:
    """Return the URL of the index with the builds of torch for a backend."""
    return f"{TORCH_INDEX}/{backend}/"


def unbuilt_package(output: str) -> str | None:
    """Return the package that uv could not build, if that is why it failed."""
    match = re.search(r"Failed to build `([A-Za-z0-9._-]+?)(?:==[^`]*| @ [^`]*)?`", output)
    return match[1] if match else None


def pulls_cuda(rehearsal: str) -> str | None:
    """Return the first CUDA package that uv said it would install, if any. The package nvidia-ml-py only asks the driver."""
    match = re.search(r"^\s*\+ ((?:nvidia|cuda)-(?!ml-py)\S+)", rehearsal, re.MULTILINE)
    return match[1] if match else None


_NO_SUCH = "requirement {0} does not exist on the configured indexes"
_WRONG_HASH = "{0}: the hash of the index's file is not in the lock. Nothing was installed from it"
_NO_INDEX = "cannot reach {0}, and the cache does not hold everything. Check the network or the index of `pip config`"
_NO_FILE = "{0}: it has no file for this platform and Python ({1}). Choose another version, or lock it for this machine"
_NOT_LISTED = "requirement {0} does not exist on the configured indexes, at least not for this platform and Python"
_NO_WHEEL = (
    "{0}: the answer is not a package, perhaps the page of a proxy. Check the network or the index of `pip config`"
)
_REFUSED = "{1}: the server answers {0}. Check the proxy or the index of `pip config`"
_NO_CONNECTION = r"(?:Failed to establish a new connection|NewConnectionError|Temporary failure in name resolution)"
_READ_ONLY = r"(?:permission denied|read-only file system)"
_NO_COMPILER = (
    r"(?:Failed to build `([^`]+)`.*?)?(?:(?:command|unable to execute) '([^'\n]*\b(?:gcc|cc|clang|nvcc|[gc]\+\+)[^'\n]*)'"
    r"(?: failed)?: No such file|Unknown compiler\(s\)|No CMAKE_\w+_COMPILER could be found)"
)
_COMPILES = (
    "{0} has to be compiled, and {1} is not installed. Install it, or choose a version with a wheel for this Python"
)
_OTHER_PYTHON = (
    "{0} requires python {1}, and the environment has another version. Choose a version of the package that fits"
)
# For a group of a pattern that took no part in the match.
_UNNAMED = ("a package", "a compiler")
# The first that matches wins: a full disk also breaks downloads, and a mismatch is reported as a failed download.
_MEANINGS = {
    r"no space left on device|os error 28\b|disk quota exceeded": "no space left on the disk",
    r"hash mismatch for `([^`]+)`": _WRONG_HASH,
    r"THESE PACKAGES DO NOT MATCH THE HASHES.*?\n\s+(\S+)": _WRONG_HASH,
    _NO_COMPILER: _COMPILES,
    r"Because (\S+) requires Python (\S+)": _OTHER_PYTHON,
    r"Package '(\S+)' requires a different Python: \S+ not in '([^']+)'": _OTHER_PYTHON,
    r"No matching distribution found for (\S+).*?\bRequires-Python (\S+?)[;\n]": _OTHER_PYTHON,
    r"Because (\S+) has no wheels with a matching .*? tag \(e\.g\., `([^`]+)`": _NO_FILE,
    r"HTTP status \w+ error \((\d+ [^)]+)\) for url \((\S+?)\)": _REFUSED,
    r"HTTP error (\d+) [^\n]*? for url: (\S+)": _REFUSED,
    r"Because (\S+) has an invalid package format": _NO_WHEEL,
    r"Failed to extract archive: (\S+)": _NO_WHEEL,
    r"ensurepip is not available": "this Python cannot make environments. Install its venv package, or uv",
    r"because (\S+) was not found in the cache": NO_NETWORK + " {0}",
    r"Failed to fetch: `?([^`\s]+)`?.*?(dns error|connect|timed? ?out|network|unreachable)": _NO_INDEX,
    r"Because (\S+?) was not found in (?:the package registry|the provided package locations)": _NO_SUCH,
    r"Because there (?:is|are) no versions? of (\S+?)(?:,)? (?:and|that|we|\()": _NO_SUCH,
    _NO_CONNECTION + r".*?No matching distribution found for (\S+)": NO_NETWORK + " {0}",
    r"No matching distribution found for (\S+)": _NOT_LISTED,
    r"Failed to initialize cache at `([^`]+)`": "{0}: cannot create the cache of uv. Set UV_CACHE_DIR to another folder",
    r"`([^`\n]+)`(?: to `[^`\n]+`)?: " + _READ_ONLY: "{0}: no write permission",
    r"os error 13\b|" + _READ_ONLY: "no write permission",
}


def explain_failure(output: str) -> str:
    """Extract the line that explains the failure from the output of uv or pip."""
    # uv wraps its explanations at the width of a terminal, also where there is none.
    flowing = re.sub(r"\n\s{2,}(?=\S)(?!cause:)", " ", output)
    for pattern, sentence in _MEANINGS.items():
        words = re.compile(pattern, re.IGNORECASE | re.DOTALL)
        if match := words.search(output) or words.search(flowing):
            return sentence.format(*(word or default for word, default in zip(match.groups(), _UNNAMED, strict=False)))
    lines = [line.strip() for line in flowing.splitlines() if line.strip()]
    errors = [re.sub(r"^(error|ERROR|cause):\s*", "", line) for line in lines if re.match(r"error:|cause:", line, re.I)]
    return ": ".join(errors[:2]) or (lines[-1] if lines else "no error message")
