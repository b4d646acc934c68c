"""The content of a benchfile.py: where the program comes from, how it is started, which extra suite keys it understands.

A benchfile is data. It defines a single module-level name, `benchmark`:

    from milabench import Benchmark, PyPI

    benchmark = Benchmark(
        source=PyPI("trl", "1.16.0", file="trl-1.16.0-py3-none-any.whl", sha256="..."),
        module="trl.scripts.sft",
    )
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

COMMIT_DIGITS = 40


@dataclass(frozen=True, slots=True)
class PyPI:
    """A release file on the user's package index: exact project, version, file name and sha256."""

    project: str
    version: str
    file: str
    sha256: str

    @property
    def folder(self) -> str:
        """The name of its folder under `base/code`: `<source>-<revision>`."""
        return f"{self.project}-{self.version}"


@dataclass(frozen=True, slots=True)
class Git:
    """A revision of a git repository: a full commit hash, or a branch or tag, which may move."""

    url: str
    rev: str

    @property
    def folder(self) -> str:
        """The name of its folder under `base/code`: `<source>-<revision>`."""
        name = self.url.rstrip("/").rsplit("/", 1)[-1].removesuffix(".git")
        is_commit = len(self.rev) == COMMIT_DIGITS and not set(self.rev) - set("0123456789abcdef")
        return f"{name}-{self.rev[:12] if is_commit else self.rev.replace('/', '-')}"


@dataclass(frozen=True, slots=True)
class WorkingCopy:
    """A copy of a benchmark's own folder that a command completes, for a benchfile whose installation writes next to itself.

    Only benchfiles that are not ours have it (bench/registry.py). `name` is the folder's, `digest` is over its files
    (bench/load.py). Copies of the same name and digest are shared. `definition` is the path of the folder.
    `command` is started in the copy, with the path of a file that holds `request` as its last argument. COPY in the request
    represents the path of the copy.
    """

    name: str
    digest: str
    definition: str = field(compare=False)
    command: tuple[str, ...] = field(compare=False)
    request: str = field(compare=False, repr=False)

    @property
    def folder(self) -> str:
        """The name of its folder under `base/code`: `<source>-<revision>`."""
        return f"{self.name}-{self.digest[:12]}"


COPY = "@copy"

Source = PyPI | Git | WorkingCopy


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A program and how to start it.

    Exactly one of `script` and `module` is given. `script` is a path inside the unpacked source, or inside the benchmark's own
    folder when there is no source; `module` is started as `python -m` does, with the source first on the path. `python_path` are
    folders inside the source, added to PYTHONPATH. `cwd` is where the program is started: `step_dir` (the default: a folder of
    its own in each repeat, empty), `data` (base/data/<benchmark>, shared by all repeats, where prepare.py is started too),
    `source` or `definition`. `env` is set for prepare and run. `options` names the extra keys that the suite may give this
    benchmark, with their defaults; they reach the voirfile and prepare.py as they are, and may stand in braces in `script`,
    `module` and `voirfile`, so that a definition serves several programs of a package (`trl.scripts.{trainer}`).
    `requirements` is the folder of requirements.in and its locks: the benchmark's own, or a sibling folder
    (`../_environments/torch`) whose locks several benchmarks share, and whose Python modules prepare.py can import;
    `packages` are the shared requirements that this benchmark imports (all of them, where none is named): with
    --use-current-env no others are asked for. `flags` are the program's options that have a `--no-` form, which `false` in the
    suite then sets. `voirfile=None` starts the program without our runner (a program that measures itself and writes to
    the sink).
    """

    script: str | None = None
    module: str | None = None
    requirements: str = "."
    packages: tuple[str, ...] = ()
    source: Source | None = None
    python_path: tuple[str, ...] = ()
    voirfile: str | None = "voirfile.py"
    prepare: str | None = "prepare.py"
    cwd: str = "step_dir"
    env: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedProcess:
    """The start of a process of a benchmark whose benchfile states it, word by word.

    `words` and the values of `env` are templates of the suite language, including the arguments of the suite. Values in
    `env` without templates, and `literal_env`, are set as they are. RUNNER represents our runner, with the benchmark's
    voirfile, and the interpreter. `cwd` is an absolute path. `tag` tells it from the other processes of the benchmark.
    """

    words: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    literal_env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    tag: str = ""


RUNNER = "@runner"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignBenchmark(Benchmark):
    """A benchmark whose benchfile is not ours (bench/registry.py): it says itself how its processes are started.

    It has neither `script` nor `module`. `format` is the name that its benchfile assigns, `processes` the processes in each
    placement of the plan, by node and tag, and `preparing` the process that prepares, by node.
    """

    format: str = ""
    processes: Mapping[str, tuple[StartedProcess, ...]] = field(default_factory=dict)
    preparing: Mapping[str, StartedProcess] = field(default_factory=dict)
