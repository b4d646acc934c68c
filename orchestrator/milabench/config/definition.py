"""Where the files of a benchmark are: a folder, a git repository at a revision, or a release on the package index."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from milabench.config.kinds import INVALID, KeySets, Text, ValueParser, path_at
from milabench.config.source_map import Located

BRANCH: Final = "main"
"""The branch of a git definition that names none."""
_SOURCES: Final = (("git", "rev"), ("git", "branch"), ("git",), ("pypi", "version"))


@dataclass(frozen=True, slots=True, kw_only=True)
class GitDefinition:
    """A benchmark's folder at the top of a git repository. `rev` is a commit, by default the tip of `branch`."""

    url: str
    rev: str = ""
    branch: str = ""

    @property
    def folder(self) -> str:
        """Where it lies under `base/code`: `<repository>-<revision>`, or the branch while no revision is known."""
        return f"{repository_name(self.url)}-{self.rev[:12] or self.branch.replace('/', '-')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PyPIDefinition:
    """A benchmark's folder inside a release on the package index."""

    project: str
    version: str

    @property
    def folder(self) -> str:
        """Where it lies under `base/code`: `<project>-<version>`."""
        return f"{self.project}-{self.version}"


Definition: TypeAlias = Path | GitDefinition | PyPIDefinition


class DefinitionKind(KeySets):
    """A definition as suites write it."""

    def __init__(self) -> None:
        # A revision such as 1234567 or 12345e7 reads as a number in YAML; as text it is what was written.
        items = dict.fromkeys(("git", "rev", "branch", "pypi", "version"), Text())
        expected = "a folder, {git, rev | branch}, {git} for its branch main, or {pypi, version}"
        super().__init__(sets=_SOURCES, items=items, expected=expected)

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        value = node.value
        if isinstance(value, str) and value:
            return Path(parser.home + value[1:]) if value.startswith("~/") and parser.home else path_at(node)
        source = super().parse(node, path, parser)
        if source is INVALID:
            return INVALID
        if "pypi" in source:
            return PyPIDefinition(project=source["pypi"], version=source["version"])
        return GitDefinition(url=source.pop("git"), **source or {"branch": BRANCH})

    def json_schema(self) -> dict[str, Any]:
        return {"anyOf": [{"type": "string"}, super().json_schema()]}


def definition_name(definition: Definition) -> str:
    """Return the last part of where a definition is: the name of the folder, of the repository, or of the project."""
    match definition:
        case GitDefinition(url=url):
            return repository_name(url)
        case PyPIDefinition(project=project):
            return project
        case _:
            return definition.name


def repository_name(url: str) -> str:
    """Return the last part of the address of a repository, without `.git`."""
    return url.rstrip("/").rsplit("/", 1)[-1].removesuffix(".git")


def plain_definition(definition: Definition | None) -> object:
    """Return a definition as suites write it."""
    match definition:
        case GitDefinition(url=url, rev=rev, branch=branch):
            return {"git": url, "rev": rev} if rev else {"git": url, "branch": branch}
        case PyPIDefinition(project=project, version=version):
            return {"pypi": project, "version": version}
        case _:
            return None if definition is None else str(definition)
