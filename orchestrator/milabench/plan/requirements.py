"""Requirement files as values: the pins of a lock, differences between locks, packages that an environment lacks."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from milabench.shown import grouped

_HEADER = re.compile(r"#\s*(python|platform|variant|made by|inputs|unverified|torch-backend|exclude):\s*(.+?)\s*$")
_HASH = re.compile(r"\s--hash[= ](\S+)")
_TAIL_COMMENT = re.compile(r"(^|\s)#.*$")
_GIT_URL = re.compile(r"git\+[^\s'\";]+")
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_NAMES_AN_INDEX = re.compile(r"(?:--index-url|-i|--extra-index-url|--find-links|-f)[\s=]+(\S+)")
_NAMES_A_FILE = re.compile(r"((?:-e|--editable|-f|--find-links)[\s=]+)(.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequirementFile:
    """A requirement file that somebody has read: its name, as a person would say it, and its text."""

    name: str
    text: str

    @property
    def sha256(self) -> str:
        """Of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def to_json(self) -> dict[str, str]:
        """Return its name and the digest of its text."""
        return {"name": self.name, "sha256": self.sha256}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """A requirement. `version` is None when it is not exact. `name` is normalised, empty for a bare URL."""

    line: str
    name: str
    version: str | None = None
    marker: str = ""
    hashes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """The content of a requirement file: `header` holds the `# key: value` lines above the first requirement."""

    pins: tuple[Pin, ...]
    options: tuple[str, ...] = ()
    header: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_hashed(self) -> bool:
        """Every requirement carries a hash, so that nothing else can be installed."""
        return bool(self.pins) and all(pin.hashes for pin in self.pins)


@lru_cache(maxsize=128)  # all benchmarks of a suite have a few locks, with thousands of lines
def parse_requirements(text: str) -> Lock:
    """Read a requirement file.

    Lines that are neither a comment nor a requirement (`-r x`, `--find-links x`) are kept as `options`.
    """
    header: dict[str, str] = {}
    pins: list[Pin] = []
    options: list[str] = []
    for line in _logical_lines(text):
        if line.startswith("#"):
            if not pins and (entry := _HEADER.match(line)):
                header[entry[1]] = entry[2]
        elif line.startswith("-"):
            options.append(line)
        else:
            pins.append(_pin(line))
    return Lock(pins=tuple(pins), options=tuple(options), header=header)


@dataclass(frozen=True, slots=True, kw_only=True)
class GitRequirement:
    """A git repository that a requirement names. `text` is as it is written there, `rev` is empty for the default branch."""

    text: str
    url: str
    rev: str = ""
    fragment: str = ""

    @property
    def is_pinned(self) -> bool:
        """It names a full commit, which cannot move."""
        return _COMMIT.fullmatch(self.rev) is not None

    def at(self, commit: str) -> str:
        """Return the text for this commit."""
        return f"git+{self.url}@{commit}" + (f"#{self.fragment}" if self.fragment else "")


def git_requirements(text: str) -> tuple[GitRequirement, ...]:
    """Return the git repositories that the requirements of a file name, each once."""
    lines = "\n".join(line for line in _logical_lines(text) if not line.startswith("#"))
    return tuple(_git_requirement(written) for written in dict.fromkeys(_GIT_URL.findall(lines)))


def _git_requirement(text: str) -> GitRequirement:
    address, _, fragment = text.removeprefix("git+").partition("#")
    scheme, separator, rest = address.partition("://")
    host, slash, path = rest.partition("/")  # an @ in the host is a user's
    path, _, rev = path.partition("@")
    return GitRequirement(text=text, url=f"{scheme}{separator}{host}{slash}{path}", rev=rev, fragment=fragment)


def with_commits(text: str, commits: Mapping[str, str]) -> str:
    """Return a requirement file with the commits of its git repositories, by their text in the file."""
    return _GIT_URL.sub(
        lambda found: _git_requirement(found[0]).at(commits[found[0]]) if found[0] in commits else found[0], text
    )


def with_overrides(lock: Lock, overrides: Sequence[str]) -> Lock:
    """Return a lock in which requirements replace its pins of the same packages."""
    if not overrides:
        return lock
    own = parse_requirements("\n".join(overrides)).pins
    names = {pin.name for pin in own}
    return replace(lock, pins=(*(pin for pin in lock.pins if pin.name not in names), *own))


def preferred_versions(requirements: Lock, lock: Lock) -> str:
    """Return, as constraints, the versions that a lock for other machines has of packages that requirements name.

    A build for a kind of device (2.10.0+cu130) does not count for another.
    """
    named = {pin.name for pin in requirements.pins if pin.name}
    pins = (pin for pin in lock.pins if pin.name in named and pin.version is not None and "+" not in pin.version)
    return "".join(f"{pin.name}=={pin.version}\n" for pin in pins)


def named_index(option: str) -> str | None:
    """Return the index or folder of files that an option names: `--extra-index-url https://...`; None for other options."""
    named = _NAMES_AN_INDEX.match(option)
    return named[1] if named else None


def with_absolute_paths(text: str, folder: str) -> str:
    """Return a requirement file whose relative paths, which pip sees from where it is started, begin with a folder."""
    return "".join(f"{_with_absolute_path(line, folder)}\n" for line in text.splitlines())


def _with_absolute_path(line: str, folder: str) -> str:
    option = _NAMES_A_FILE.match(line)
    path = option[2] if option else line
    is_path = path.startswith(("./", "../")) or (option is not None and "://" not in path and not path.startswith("/"))
    return f"{option[1] if option else ''}{PurePosixPath(folder, path)}" if is_path else line


def unbroken_constraints(constraints: str, requirements: Lock) -> str:
    """Return a constraints file without lines that a requirement contradicts: requirements win."""
    asked = grouped((pin.name, pin.line) for pin in requirements.pins)
    kept = [
        pin.line
        for pin in parse_requirements(constraints).pins
        if pin.version is None
        or all("@" not in line and _allows(line, pin.version) for line in asked.get(pin.name, ()))
    ]
    return "".join(f"{line}\n" for line in kept)


def merge_locks(locks: Sequence[Lock]) -> Lock:
    """Return all requirements of several locks, each once. The hashes of equal pins are united."""
    pins: dict[tuple[str, str | None, str], Pin] = {}
    for pin in (pin for lock in locks for pin in lock.pins):
        key = (pin.name or pin.line, pin.version if pin.version else pin.line, pin.marker)
        known = pins.get(key)
        pins[key] = replace(pin, hashes=tuple(sorted({*(known.hashes if known else ()), *pin.hashes})))
    options = tuple(dict.fromkeys(option for lock in locks for option in lock.options))
    return Lock(pins=tuple(pins[key] for key in sorted(pins, key=str)), options=options)


def render_requirements(lock: Lock) -> str:
    """Return a requirement file. `parse` reads it back."""
    head = [f"# {key}: {value}" for key, value in lock.header.items()]
    lines = [" \\\n    ".join((pin.line, *(f"--hash={digest}" for digest in pin.hashes))) for pin in lock.pins]
    return "".join(f"{line}\n" for line in (*head, *lock.options, *lines))


def disagreements(first: Lock, second: Lock) -> Iterator[tuple[Pin, Pin]]:
    """Yield the packages for which both locks name an exact version, but not the same."""
    # Under different markers two versions are two platforms, and no contradiction.
    pinned = {(pin.name, pin.marker): pin for pin in first.pins if pin.version}
    for pin in second.pins:
        other = pinned.get((pin.name, pin.marker))
        if other and pin.version and other.version != pin.version:
            yield other, pin


def broken_constraints(lock: Lock, constraints: Lock) -> Iterator[tuple[Pin, Pin]]:
    """Yield the pins that a constraint without marker forbids, each with that constraint."""
    limits = {pin.name: pin for pin in constraints.pins if not pin.marker}
    for pin in lock.pins:
        limit = limits.get(pin.name)
        if limit and pin.version and not _allows(limit.line, pin.version):
            yield pin, limit


def lacking(
    lock: Lock, installed: Mapping[str, str], environment: Mapping[str, str]
) -> Iterator[tuple[Pin, str | None]]:
    """Yield the requirements that an environment does not meet, each with the version that is there instead (None: none).

    `installed` maps normalised names to versions, `environment` is used to evaluate markers.
    """
    for pin in lock.pins:
        if not pin.name or not applies(pin.line, environment):
            continue
        version = installed.get(pin.name)
        if version is None or not _allows(pin.line, version):
            yield pin, version


def _logical_lines(text: str) -> Iterator[str]:
    joined = re.sub(r"\\[ \t]*\r?\n", " ", text)
    for line in joined.splitlines():
        stripped = line.strip()
        if stripped.startswith("#"):
            yield stripped
        elif bare := _TAIL_COMMENT.sub("", stripped).strip():
            yield bare


def _pin(line: str) -> Pin:
    hashes = tuple(_HASH.findall(line))
    bare = re.sub(r"\s+", " ", _HASH.sub("", line)).strip()
    try:
        requirement = _requirement(bare)
    except InvalidRequirement:
        return Pin(line=bare, name="", hashes=hashes)
    specifiers = list(requirement.specifier)
    is_exact = len(specifiers) == 1 and specifiers[0].operator in ("==", "===") and "*" not in specifiers[0].version
    return Pin(
        line=bare,
        name=canonicalize_name(requirement.name),
        version=specifiers[0].version if is_exact else None,
        marker=str(requirement.marker or ""),
        hashes=hashes,
    )


@lru_cache(maxsize=4_096)
def _requirement(line: str) -> Requirement:
    """Return a requirement, which nobody changes. Raises InvalidRequirement."""
    return Requirement(line)


def _allows(line: str, version: str) -> bool:
    try:
        # A lock may name a pre-release on purpose; specifiers alone would refuse it.
        return _requirement(line).specifier.contains(Version(version), prereleases=True)
    except (InvalidRequirement, InvalidVersion):
        return True


def applies(line: str, environment: Mapping[str, str]) -> bool:
    """Return whether the marker of a requirement holds in an environment."""
    marker = _requirement(line).marker
    return marker is None or marker.evaluate(dict(environment))
