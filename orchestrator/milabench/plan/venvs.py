"""The plan of `milabench install`: environments, each a pure value with a digest, sources to fetch, images."""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import combinations
from typing import Any, TypeVar

from milabench.bench.api import Git, Source, WorkingCopy
from milabench.errors import ConfigError, Problem
from milabench.plan.canonical import digest
from milabench.plan.container import Image
from milabench.plan.model import SCHEMA, SkippedBench
from milabench.plan.requirements import (
    GitRequirement,
    Lock,
    RequirementFile,
    broken_constraints,
    disagreements,
    git_requirements,
    merge_locks,
    parse_requirements,
    with_commits,
    with_overrides,
)
from milabench.redaction import mask_urls
from milabench.shown import grouped

# Raise it when the way in which environments are built changes so that old ones must not be taken for new ones.
BUILDER = 1
Key = TypeVar("Key", bound=Hashable)
UNPINNED = "unpinned"


@dataclass(frozen=True, slots=True, kw_only=True)
class VenvInputs:
    """The requirements on an environment: its group and variant, requirement files, read, and settings of pip.

    `pip` has the names of pip's own configuration: find-links, index-url, extra-index-url, no-index, constraint,
    cert, proxy, trusted-host. `arch` says which build of torch an unpinned environment wants. `overrides` are requirements that
    win over the files' requirements of the same packages, `pip_args` words for the command that installs, `preferred` versions,
    taken where they fit each other. All three only of benchfiles that are not ours.
    """

    group: str
    variant: str
    requirements: tuple[RequirementFile, ...]
    constraints: RequirementFile | None = None
    pip: Mapping[str, str] = field(default_factory=dict)
    arch: str = ""
    overrides: tuple[str, ...] = ()
    pip_args: tuple[str, ...] = ()
    preferred: RequirementFile | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VenvRequest(VenvInputs):
    """The requirements of a benchmark. `required` are the packages that it asks for itself. None where unknown."""

    bench: str
    required: tuple[str, ...] | None = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VenvSpec(VenvInputs):
    """A virtual environment, and everything that shapes it: the inputs of its benchmarks together.

    `python` is the version of the locks, or our own interpreter where they name none. `benchmate` is the digest
    of the instruments' own source. `required` are the packages that each benchmark that says so itself asks for: they are
    imported when the environment is built, and shape nothing. `commits` has, by the files' text of a git repository, its
    resolved commit, which does not change its digest.
    """

    python: str
    platform: str
    benches: tuple[str, ...]
    benchmate: str
    required: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    commits: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """sha256 over all that shapes the environment. File names and the order of files do not."""
        return digest(
            {
                "builder": BUILDER,
                "group": self.group,
                "variant": self.variant,
                "python": self.python,
                "platform": self.platform,
                # By content: two benchmarks with equal locks, or in another order, share one environment.
                "requirements": sorted({file.sha256 for file in self.requirements}),
                "constraints": self.constraints.sha256 if self.constraints else None,
                "benchmate": self.benchmate,
                "pip": dict(self.pip),
                # A lock decides on the build of torch; only what is unpinned takes what suits the machine.
                "arch": None if self.is_pinned else self.arch,
                **({"overrides": list(self.overrides)} if self.overrides else {}),
                **({"pip args": list(self.pip_args)} if self.pip_args else {}),
                **({"preferred": self.preferred.sha256} if self.preferred else {}),
            }
        )

    @property
    def folder(self) -> str:
        """Its name under `base/venv/.store`."""
        return f"{self.group}-{self.digest[:16]}"

    @property
    def lock(self) -> Lock:
        """The requirements of all its benchmarks, merged."""
        texts = (with_commits(file.text, self.commits) for file in self.requirements)
        return with_overrides(merge_locks([parse_requirements(text) for text in texts]), self.overrides)

    @property
    def moving(self) -> tuple[tuple[RequirementFile, GitRequirement], ...]:
        """The git repositories whose revision may move and is not resolved yet, each with the file that names it."""
        named = ((file, git) for file in self.requirements for git in git_requirements(file.text))
        return tuple((file, git) for file, git in named if not git.is_pinned and git.text not in self.commits)

    @property
    def is_foreign(self) -> bool:
        """Its requirements were not written for us, nor locked by us."""
        return bool(self.overrides)

    @property
    def is_hashed(self) -> bool:
        """Nothing but the files that the locks name can be installed."""
        return self.lock.is_hashed

    @property
    def is_pinned(self) -> bool:
        """The packages are decided. Otherwise they are the newest in the index."""
        return self.variant != UNPINNED

    @property
    def is_for_cpu(self) -> bool:
        """No CUDA package may get into it."""
        return "cpu" in (self.variant, self.arch if not self.is_pinned else "")

    @property
    def cuda(self) -> int:
        """The version of CUDA that its packages are built for. 0 where the lock names none."""
        found = (re.fullmatch(r"nvidia-[a-z]+-cu(\d+)", pin.name) for pin in self.lock.pins)
        return max((int(match[1]) for match in found if match), default=0)

    @property
    def torch_backend(self) -> str | None:
        """The PyTorch index that serves this torch, in uv's words (cpu, cu130, rocm7.1, xpu), if it is needed.

        The local part of the pinned version names it (2.13.0+cpu). A version without it lies on the ordinary index,
        but there it is the CUDA build, which a cpu environment must not pull.
        """
        torch = [pin for pin in self.lock.pins if pin.name == "torch"]
        if not torch:
            # What nobody has locked may bring torch without naming it.
            return "cpu" if self.is_foreign and self.is_for_cpu else None
        local = next((pin.version.partition("+")[2] for pin in torch if pin.version and "+" in pin.version), None)
        return local or ("cpu" if self.is_for_cpu else None)

    def to_json(self) -> dict[str, Any]:
        """Return the environment as `milabench plan install --json` prints it."""
        return {
            "group": self.group,
            "variant": self.variant,
            "python": self.python,
            "platform": self.platform,
            "digest": self.digest,
            "path": f"venv/.store/{self.folder}",
            "link": f"venv/{self.group}",
            "benches": list(self.benches),
            "requirements": [file.to_json() for file in self.requirements],
            "constraints": self.constraints.to_json() if self.constraints else None,
            "packages": len(self.lock.pins),
            "hashed": self.is_hashed,
            "torch_backend": self.torch_backend,
            "benchmate": self.benchmate,
            "pip": sorted(self.pip),
        }


def plan_venvs(
    requests: Sequence[VenvRequest],
    *,
    benchmate: str,
    python: str,
    platform: str,
    selected: Collection[str] | None = None,
) -> tuple[VenvSpec, ...]:
    """Return the environments of the selected benchmarks, in the order of the suite.

    Give the requests of the whole suite: the benchmarks of an install group share an environment, so one of them
    alone must not give it another digest. `benchmate` is a digest. `python` ("3.11") and `platform` ("linux-x86_64")
    are our own interpreter's. Raises ConfigError when benchmarks of a group contradict each other, or a lock its constraints,
    with every contradiction found.
    """
    groups = grouped((request.group, request) for request in requests)
    wanted = [
        members
        for members in groups.values()
        if selected is None or any(member.bench in selected for member in members)
    ]
    problems = [problem for members in wanted for problem in _contradictions(members)]
    if problems:
        raise ConfigError(problems)
    return tuple(_spec(members, benchmate, python, platform) for members in wanted)


def _spec(members: Sequence[VenvRequest], benchmate: str, python: str, platform: str) -> VenvSpec:
    files = {file.sha256: file for member in members for file in member.requirements}
    pythons = [parse_requirements(file.text).header.get("python") for file in files.values()]
    inputs: dict[str, Any] = {each.name: getattr(members[0], each.name) for each in fields(VenvInputs)}
    inputs |= {
        "requirements": tuple(files.values()),
        "constraints": _united([member.constraints for member in members]),
        "overrides": tuple(dict.fromkeys(line for member in members for line in member.overrides)),
        "preferred": _united([member.preferred for member in members]),
    }
    return VenvSpec(
        **inputs,
        python=next((version for version in pythons if version), python),
        platform=platform,
        benches=tuple(member.bench for member in members),
        benchmate=benchmate,
        required={member.bench: member.required for member in members if member.required is not None},
    )


def _united(constraints: Sequence[RequirementFile | None]) -> RequirementFile | None:
    """Return the constraints of all benchmarks of a group, which are the variant's unless a suite has its own."""
    files = {file.sha256: file for file in constraints if file is not None}
    if len(files) < 2:
        return next(iter(files.values()), None)
    lines = dict.fromkeys(line for file in files.values() for line in file.text.splitlines())
    return RequirementFile(name=next(iter(files.values())).name, text="".join(f"{line}\n" for line in lines))


def _contradictions(members: Sequence[VenvRequest]) -> list[Problem]:
    group = f"install_group {members[0].group}"
    first = members[0]
    problems = []
    for other in members[1:]:
        if other.variant != first.variant:
            what = f"{first.bench} wants the variant {first.variant!r}, {other.bench} wants {other.variant!r}"
            problems.append(_problem(group, what))
        if dict(other.pip) != dict(first.pip) or other.pip_args != first.pip_args:
            problems.append(_problem(group, f"{first.bench} and {other.bench} give different `pip` settings"))
    files = {
        file.sha256: (member.bench, file, parse_requirements(file.text))
        for member in members
        for file in member.requirements
    }
    problems += [
        _problem(group, f"{mine.line} in {file.name} ({bench}), {theirs.line} in {other.name} ({other_bench})")
        for (bench, file, lock), (other_bench, other, other_lock) in combinations(files.values(), 2)
        for mine, theirs in disagreements(lock, other_lock)
    ]
    constraints = first.constraints or RequirementFile(name="", text="")
    limits = parse_requirements(constraints.text)
    for _, file, lock in files.values():
        locked = lock.header.get("variant")
        if locked not in (None, first.variant) and first.variant != UNPINNED:
            what = f"is a lock of the variant {locked!r}, not {first.variant!r}"
            problems.append(Problem(file.name, "", what))
        for pin, limit in broken_constraints(lock, limits):
            what = f"{pin.line} breaks the constraint {limit.line} of {constraints.name}"
            problems.append(Problem(file.name, pin.name, what, "rewrite the lock with `milabench pin`"))
    files_by_python = {lock.header["python"]: file.name for _, file, lock in files.values() if "python" in lock.header}
    if len(files_by_python) > 1:
        pythons = ", ".join(f"{name} for {python}" for python, name in files_by_python.items())
        problems.append(_problem(group, f"locks for different pythons: {pythons}"))
    return problems


def _problem(where: str, what: str) -> Problem:
    return Problem(where, "", what, "let them agree with `milabench pin`, or give them different install_groups")


def agreeing_groups(locks: Mapping[Key, Lock | None]) -> tuple[tuple[Key, ...], ...]:
    """Return the keys whose locks can share an environment together, in their order. A key without a lock (None) is alone.

    Each goes to the first group with which it agrees on every version.
    """
    groups: list[list[Key]] = []
    for name, lock in locks.items():
        agreeing = (group for group in groups if lock is not None and _agrees(lock, [locks[each] for each in group]))
        if (group := next(agreeing, None)) is not None:
            group.append(name)
        else:
            groups.append([name])
    return tuple(map(tuple, groups))


def _agrees(lock: Lock, others: Sequence[Lock | None]) -> bool:
    return all(other is not None and next(disagreements(other, lock), None) is None for other in others)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallPlan:
    """Everything an install makes ready, each thing once, in the order of the suite."""

    venvs: tuple[VenvSpec, ...]
    sources: tuple[Source, ...]
    images: tuple[Image, ...] = ()
    skipped: tuple[SkippedBench, ...] = ()

    @property
    def hash(self) -> str:
        """sha256 over the prepared inputs."""
        images = [[image.to_json() for image in self.images]] if self.images else []
        return digest([[venv.digest for venv in self.venvs], [source_json(source) for source in self.sources], *images])

    def to_json(self) -> dict[str, Any]:
        """Return the plan as `milabench plan install --json` prints it."""
        return {
            "schema": SCHEMA,
            "hash": self.hash,
            "phase": "install",
            "venvs": [venv.to_json() for venv in self.venvs],
            "sources": [source_json(source) for source in self.sources],
            "images": [image.to_json() for image in self.images],
            "skipped": [asdict(skip) for skip in self.skipped],
        }


def source_json(source: Source) -> dict[str, str]:
    """Return a source in words. `folder` is where it lies under base/code."""
    if isinstance(source, Git):
        return {"git": mask_urls(source.url), "rev": source.rev, "folder": source.folder}
    if isinstance(source, WorkingCopy):
        return {"copy": source.name, "sha256": source.digest, "folder": source.folder}
    origin = {"pypi": source.project, "version": source.version, "file": source.file, "sha256": source.sha256}
    return {**origin, "folder": source.folder}
