"""Requirement files as values: the pins of a lock, what two locks disagree on, what an environment lacks."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

_HEADER = re.compile(r"#\s*(python|platform|variant|made by|inputs|unverified|torch-backend|exclude):\s*(.+?)\s*$")
_HASH = re.compile(r"\s--hash[= ](\S+)")
_TAIL_COMMENT = re.compile(r"(^|\s)#.*$")


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
    """One requirement. `version` is None when it is not an exact one; `name` is normalised, empty for a bare URL."""

    line: str
    name: str
    version: str | None = None
    marker: str = ""
    hashes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """What a requirement file says: `header` holds the `# key: value` lines above the first requirement."""

    pins: tuple[Pin, ...]
    options: tuple[str, ...] = ()
    header: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_hashed(self) -> bool:
        """Every requirement carries a hash, so that nothing else can be installed."""
        return bool(self.pins) and all(pin.hashes for pin in self.pins)


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


def merge_locks(locks: Sequence[Lock]) -> Lock:
    """Return all requirements of several locks, each once; the hashes of equal pins are united."""
    pins: dict[tuple[str, str | None, str], Pin] = {}
    for pin in (pin for lock in locks for pin in lock.pins):
        key = (pin.name or pin.line, pin.version if pin.version else pin.line, pin.marker)
        known = pins.get(key)
        pins[key] = replace(pin, hashes=tuple(sorted({*(known.hashes if known else ()), *pin.hashes})))
    options = tuple(dict.fromkeys(option for lock in locks for option in lock.options))
    return Lock(pins=tuple(pins[key] for key in sorted(pins, key=str)), options=options)


def render_requirements(lock: Lock) -> str:
    """Return a requirement file; `parse` reads it back."""
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

    `installed` maps normalised names to versions, `environment` is what markers are evaluated in.
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
        requirement = Requirement(bare)
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


def _allows(line: str, version: str) -> bool:
    try:
        # A lock may name a pre-release on purpose; specifiers alone would refuse it.
        return Requirement(line).specifier.contains(Version(version), prereleases=True)
    except (InvalidRequirement, InvalidVersion):
        return True


def applies(line: str, environment: Mapping[str, str]) -> bool:
    """Return whether the marker of a requirement holds in an environment."""
    marker = Requirement(line).marker
    return marker is None or marker.evaluate(dict(environment))
